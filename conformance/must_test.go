package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestMustDeclare checks that the table names features, each where it belongs.
func TestMustDeclare(t *testing.T) {
	for typ := range mustDeclare {
		m, known := MustDeclare(typ)
		if !known || len(m.Languages) == 0 && len(m.EachLanguage) == 0 || m.Isolation == "" {
			t.Errorf("%s: got %+v, want features of the backend and of languages, and an isolation", typ, m)
		}
		check := func(fs []executor.Feature, perLanguage bool) {
			for n, f := range fs {
				if i, ok := f.Info(); !ok || i.PerLanguage != perLanguage || slices.Contains(fs[:n], f) {
					t.Errorf("%s: %s is not a feature, belongs elsewhere, or is there twice", typ, f)
				}
			}
		}
		check(m.Features, false)
		check(m.EachLanguage, true)
		for _, fs := range m.Languages {
			check(fs, true)
		}
	}
	if m, known := MustDeclare("x-unknown"); known || len(m.Features) > 0 {
		t.Errorf("got %+v of an unknown type, want nothing", m)
	}
}

// TestDeclaringTooLittle checks that a backend which lacks what its type has to declare is found
// out, for each part of the table.
func TestDeclaringTooLittle(t *testing.T) {
	docker, _ := MustDeclare("docker")
	pyodide, _ := MustDeclare("pyodide")
	var little stub
	for name, c := range map[string]struct {
		must Must
		want string
	}{
		"backend":       {pyodide, "must declare limit-memory"},
		"language":      {pyodide, "must declare interrupt for python"},
		"each-language": {docker, "must declare threads for python"},
		"isolation":     {docker, `isolation "process" is not at least "container"`},
	} {
		t.Run(name, func(t *testing.T) {
			little.caps.Isolation = executor.IsolationProcess
			target := little.target()
			target.Must, target.Only = c.must, []string{"declares"}
			r, err := Run(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if l := lineOf(t, r, "declares"); l.Outcome != Failed || !slices.ContainsFunc(l.Log, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("got %s %q, want failed, with %q", l.Outcome, l.Log, c.want)
			}
		})
	}
}
