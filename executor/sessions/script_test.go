package sessions_test

import (
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestScriptGoesOn: a conversation in JavaScript goes on with its variables, and one in two
// languages with those of both.
func TestScriptGoesOn(t *testing.T) {
	for name, languages := range map[string][]executor.Language{
		"script": {executor.JavaScript},
		"both":   {executor.Python, executor.JavaScript},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one", keeping(1, 0))
				spec := executor.Spec{Languages: languages}
				l := p.acquire("k", spec)
				for _, lang := range languages {
					_, err := l.Run(w.Context(), executor.Request{Language: lang, Code: "x_" + string(lang) + " = [5]"}, nil)
					w.do(err)
				}
				release(w, l)
				for range 2 { // the second checkpoint is of what was restored
					w.b.Break(l.Info().Handle.Session)
					l = p.acquire("k", spec)
					for _, lang := range languages {
						name := "x_" + string(lang)
						r, err := l.Run(w.Context(), executor.Request{Language: lang, Code: "print(" + name + ")"}, nil)
						w.do(err)
						if string(r.Stdout) != "[5]\n" || !slices.Contains(l.Kept.Names, name) || !l.Ran(lang) {
							w.Errorf("%s: got %q, kept %+v", lang, r.Stdout, l.Kept)
						}
					}
					release(w, l)
				}
			})
		})
	}
}
