package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// pythonOnly are the programs about what other languages do not have.
var pythonOnly = []string{
	"after-magic", "at-exit", "carry-hang", "exit-text", "figure", "hard-exit", "hook", "indented", "leave-dead-ticker", "magic", "magic-unknown", "main", "not-notebook", "program",
	"raise-chained", "shell-line", "spawn-define", "spawn-use", "user", "zones",
}

// javascriptOnly are likewise those of its dialects and its modules.
var javascriptOnly = []string{"esm", "handlers", "hashbang", "namespace", "return", "script", "typed", "typed-raise", "typed-syntax-error"}

func TestProgramsAreComplete(t *testing.T) {
	var names []string
	for _, p := range ProgramNames() {
		if p.Name == "" || p.Doc == "" || slices.Contains(names, p.Name) {
			t.Errorf("%q: empty, without Doc or repeated", p.Name)
		}
		names = append(names, p.Name)
	}
	for _, set := range []Programs{Python, JavaScript} {
		for name, text := range set.Source {
			if !slices.Contains(names, name) {
				t.Errorf("%s: %q is not in ProgramNames", set.Language, name)
			}
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s: %q is empty", set.Language, name)
			}
		}
		for _, name := range names {
			_, ok := set.Source[name]
			if want := !slices.Contains(map[executor.Language][]string{executor.Python: javascriptOnly, executor.JavaScript: pythonOnly}[set.Language], name); ok != want {
				t.Errorf("%s: %q: there is a program: %v, want %v", set.Language, name, ok, want)
			}
		}
	}
}

// TestProgramsAndDocsAgree checks that what a description says is put into a program is what it has
// room for.
func TestProgramsAndDocsAgree(t *testing.T) {
	for _, p := range ProgramNames() {
		want := holes(p.Doc)
		for _, set := range []Programs{Python, JavaScript} {
			if got := holes(set.Source[p.Name]); set.Source[p.Name] != "" && !slices.Equal(got, want) {
				t.Errorf("%s: %s has room for %v, and its description names %v", set.Language, p.Name, got, want)
			}
		}
	}
}

// holes returns the names that text has in double braces, sorted.
func holes(text string) (names []string) {
	for {
		_, rest, ok := strings.Cut(text, "{{")
		if !ok {
			slices.Sort(names)
			return slices.Compact(names)
		}
		name, after, _ := strings.Cut(rest, "}}")
		names, text = append(names, name), after
	}
}

func ExampleProgramNames() {
	for _, p := range ProgramNames()[:2] {
		fmt.Printf("%s: %s\n", p.Name, p.Doc)
	}
	// Output:
	// print: prints {{text}}
	// print-err: writes the line {{text}} to stderr
}
