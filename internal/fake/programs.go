package fake

import (
	_ "embed" // for the programs
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/execbroker/execbroker/executor"
)

//go:embed programs.txt
var programsText string

// Programs returns the programs of the conformance suite by name, in Starlark.
// Exceptions have the names that they have in language l.
func Programs(l executor.Language) map[string]string {
	text := programsText
	if l == executor.JavaScript {
		text = strings.NewReplacer("ValueError", "RangeError", "RecursionError", "RangeError", "JSONDecodeError", "SyntaxError").Replace(text)
	}
	all := map[string]string{}
	for _, f := range txtar.Parse([]byte(text)).Files {
		all[f.Name] = strings.TrimSuffix(string(f.Data), "\n")
	}
	if l == executor.JavaScript {
		for _, name := range []string{"at-exit", "carry-hang", "exit-text", "figure", "hard-exit", "hook", "main", "program", "raise-chained", "spawn-define", "spawn-use", "user", "zones"} { // the suite has these only for Python
			delete(all, name)
		}
	}
	return all
}
