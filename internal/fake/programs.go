package fake

import (
	_ "embed" // for the programs
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/execbroker/execbroker/executor"
)

//go:embed programs.txt
var programsText string

// Programs returns the programs that the conformance suite asks for, by their names, in the script
// language. What they raise has the name that it has in the language that the fake plays.
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
		for _, name := range []string{"at-exit", "exit-text", "figure", "hard-exit", "hook", "main", "program", "raise-chained", "spawn-define", "spawn-use", "user", "zones"} { // the suite has them for Python only
			delete(all, name)
		}
	}
	return all
}
