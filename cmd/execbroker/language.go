package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// endings maps file extensions to languages.
var endings = map[string]executor.Language{
	".py": executor.Python, ".js": executor.JavaScript, ".mjs": executor.JavaScript, ".cjs": executor.JavaScript,
	".ts": executor.TypeScript, ".mts": executor.TypeScript, ".cts": executor.TypeScript,
}

// shortNames maps the short names that people type to languages.
var shortNames = map[string]executor.Language{
	"py": executor.Python, "python3": executor.Python, "js": executor.JavaScript, "node": executor.JavaScript, "ts": executor.TypeScript, "sh": "bash", "shell": "bash",
}

// named returns the language that a name means.
func named(word string) executor.Language {
	if l, ok := shortNames[strings.ToLower(word)]; ok {
		return l
	}
	return executor.Language(word)
}

// languageOf returns the language of a file by its extension. For a name without an extension it
// returns the empty language, which means the backend's first.
func languageOf(file string) (executor.Language, error) {
	ext := strings.ToLower(filepath.Ext(file))
	if l, ok := endings[ext]; ok || ext == "" {
		return l, nil
	}
	return "", usage("%s: the extension %s is not one of %s; set the language with --language",
		plain(file), plain(ext), strings.Join(slices.Sorted(maps.Keys(endings)), ", "))
}
