package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// endings are the file names from which a language is guessed.
var endings = map[string]executor.Language{
	".py": executor.Python, ".js": executor.JavaScript, ".mjs": executor.JavaScript, ".cjs": executor.JavaScript,
}

// languageOf guesses the language of a file. A name without an ending says nothing, and the language is the backend's first.
func languageOf(file string) (executor.Language, error) {
	ext := strings.ToLower(filepath.Ext(file))
	if l, ok := endings[ext]; ok || ext == "" {
		return l, nil
	}
	return "", usage("%s: the ending %s is none of %s; say the language with --language",
		plain(file), plain(ext), strings.Join(slices.Sorted(maps.Keys(endings)), ", "))
}
