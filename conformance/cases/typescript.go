package cases

import (
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// typed returns a request for a program of JavaScript as TypeScript.
func (t *T) typed(name string, args ...any) executor.Request {
	req := t.Program(name, args...)
	req.Language = executor.TypeScript
	return req
}

// typescriptCases are about TypeScript that the interpreters of JavaScript run.
func typescriptCases() []Case {
	const typescript = executor.FeatureTypeScript
	fails := func(t *T, req executor.Request, line int, word string) {
		res := t.Run(t.Shared(), req)
		e := failed(t, res)
		if len(res.Stdout) > 0 || e.Type != "SyntaxError" || line != 0 && e.Line != line || !strings.Contains(e.Message, word) {
			t.Errorf("got %s, want a SyntaxError that has %q, in line %d if that is not 0", describe(res), word, line)
		}
	}
	return []Case{
		{
			ID: "typescript/types", Feature: typescript, PerLanguage: true, Only: executor.JavaScript, Programs: []string{"typed"},
			Doc:      "Code in TypeScript runs without its types, with its enums and parameter properties; where there is none it is refused.",
			Positive: func(t *T) { t.says(t.Shared(), t.typed("typed", "text", "渐 typed"), "渐 typed") },
			Negative: func(t *T) {
				if _, ok := t.Executor().Info().Capabilities.Runtime(executor.TypeScript); !ok {
					t.refuses(t.Shared(), t.typed("typed", "text", "never"))
				}
			},
		},
		{
			ID: "typescript/session", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript}, Programs: []string{"typed", "print"},
			Doc: "A session that is made for TypeScript has it as default, and runs JavaScript too.",
			Positive: func(t *T) {
				s := t.Session(languages(executor.TypeScript))
				req := t.typed("typed", "text", "default")
				req.Language = ""
				t.says(s, req, "default")
				t.says(s, t.Program("print", "text", "both"), "both")
			},
		},
		{
			ID: "typescript/state", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript, executor.FeatureState},
			Programs: []string{"remember", "recall"},
			Doc:      "TypeScript and JavaScript of a session share their state, and its reset.",
			Positive: shared(func(t *T, s executor.Session) {
				t.ok(s, t.typed("remember", "value", "typed"))
				t.says(s, t.Program("recall"), "typed")
				t.ok(s, t.Program("remember", "value", "plain"))
				t.says(s, t.typed("recall"), "plain")
				t.must(s.Reset(t.Context(), executor.Interpreter{Language: executor.TypeScript}), "reset")
				t.says(s, t.Program("recall"), "absent")
			}),
		},
		{
			ID: "typescript/lines", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript}, Programs: []string{"typed-raise"},
			Doc: "Errors of TypeScript name the lines that were written.",
			Positive: func(t *T) {
				if e := t.raises(t.Shared(), t.typed("typed-raise", "message", "typed")); e.Line != 7 || e.Message != "typed" || !strings.Contains(e.Traceback, "fail") {
					t.Errorf("got line %d and traceback %q, want 7, in fail", e.Line, e.Traceback)
				}
			},
		},
		{
			ID: "typescript/syntax", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript}, Programs: []string{"typed-syntax-error"},
			Doc:      "A syntax error of TypeScript is one of the code, with its line.",
			Positive: func(t *T) { fails(t, t.typed("typed-syntax-error"), 2, "") },
		},
		{
			ID: "typescript/refused", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript}, Programs: []string{"namespace"},
			Doc:      "What has no form in JavaScript is an error of the code that names it, and nothing of the code runs.",
			Positive: func(t *T) { fails(t, t.typed("namespace"), 2, "namespace") },
		},
		{
			ID: "typescript/javascript", PerLanguage: true, Only: executor.JavaScript, Needs: []executor.Feature{typescript}, Programs: []string{"typed-syntax-error"},
			Doc:      "JavaScript has no types: nothing is taken out of it.",
			Positive: func(t *T) { fails(t, t.Program("typed-syntax-error"), 0, "") },
		},
	}
}
