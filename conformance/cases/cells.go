package cases

import (
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// cellCases are about code that Python alone refuses: what models write for notebooks.
func cellCases() []Case {
	rich := executor.FeatureRichOutput
	refused := func(program string, args ...any) func(*T) {
		return func(t *T) {
			if res := t.Run(t.Shared(), t.Program(program, args...)); res.Status != executor.StatusFailed {
				t.Errorf("got %s, want that the language refuses it", describe(res))
			}
		}
	}
	return []Case{
		{
			ID: "cells/indented", Feature: rich, Only: executor.Python, Programs: []string{"indented"},
			Doc:      "Indentation that all lines of the code have in common is removed, but not within strings.",
			Positive: saying("    in a string\nindented", "indented"),
			Negative: refused("indented"),
		},
		{
			ID: "cells/strings", PerLanguage: true, Only: executor.Python, Programs: []string{"not-notebook"},
			Doc:      "Code that Python takes as it is means what it means there, whatever looks like a magic in it.",
			Positive: saying("%time\n!echo\n2", "not-notebook"),
		},
		{
			ID: "cells/magic", Feature: rich, Only: executor.Python, Needs: []executor.Feature{executor.FeatureState}, Programs: []string{"magic", "after-magic"},
			Doc: "The cell magic %%capture keeps what the code prints in a variable.",
			Positive: shared(func(t *T, s executor.Session) {
				t.says(s, t.Program("magic", "text", "kept"), "")
				t.says(s, t.Program("after-magic"), "kept")
			}),
			Negative: refused("magic", "text", "kept"),
		},
		{
			ID: "cells/magic-unknown", Feature: rich, Only: executor.Python, Programs: []string{"magic-unknown"},
			Doc: "A magic that there is none of is an exception that names it.",
			Positive: func(t *T) {
				res := t.Run(t.Shared(), t.Program("magic-unknown"))
				if res.Status != executor.StatusFailed || res.Exception == nil || !strings.Contains(res.Exception.Message, "no_such_magic") {
					t.Errorf("got %s, want an exception that names the magic", describe(res))
				}
			},
			Negative: refused("magic-unknown"),
		},
		{
			ID: "cells/shell", Feature: rich, Only: executor.Python, Programs: []string{"shell-line"},
			Doc: "A line that begins with an exclamation mark is a command of the shell, and what it prints is the code's output, or an exception where there are no commands.",
			Positive: func(t *T) {
				s, req := t.Shared(), t.Program("shell-line", "text", "from a shell")
				if t.Has(executor.FeatureCommand) {
					t.says(s, req, "from a shell")
				} else if res := t.Run(s, req); res.Status != executor.StatusFailed || res.Exception == nil || len(res.Stdout) > 0 {
					t.Errorf("got %s, want an exception", describe(res))
				}
			},
			Negative: refused("shell-line", "text", "from a shell"),
		},
	}
}
