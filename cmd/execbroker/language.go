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
	".ts": executor.TypeScript, ".mts": executor.TypeScript, ".cts": executor.TypeScript,
}

// shortNames are what people type for languages.
var shortNames = map[string]executor.Language{
	"py": executor.Python, "python3": executor.Python, "js": executor.JavaScript, "node": executor.JavaScript, "ts": executor.TypeScript, "sh": "bash", "shell": "bash",
}

// named returns the language that a word means.
func named(word string) executor.Language {
	if l, ok := shortNames[strings.ToLower(word)]; ok {
		return l
	}
	return executor.Language(word)
}

// languageOf guesses the language of a file. A name without an ending says nothing, and the
// language is the backend's first.
func languageOf(file string) (executor.Language, error) {
	ext := strings.ToLower(filepath.Ext(file))
	if l, ok := endings[ext]; ok || ext == "" {
		return l, nil
	}
	return "", usage("%s: the ending %s is none of %s; say the language with --language",
		plain(file), plain(ext), strings.Join(slices.Sorted(maps.Keys(endings)), ", "))
}
