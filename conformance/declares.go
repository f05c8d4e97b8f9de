package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// engineCases are the cases that look at the suite itself: what the target has to declare, and what
// is left at the end.
func engineCases() []caseDef { return append(leakCases(), declares) }

// declares is the case that keeps a backend from being conformant by declaring nothing.
var declares = caseDef{
	ID:  "declares",
	Doc: "The backend declares what it must, and every declaration is one that the suite can check.",
	Positive: func(t *T) {
		info, must := t.Executor().Info(), t.s.target.Must
		if info.Name == "" || info.Type == "" {
			t.Errorf("info: name %q and type %q must be set", info.Name, info.Type)
		}
		c := info.Capabilities
		for _, f := range must.Features {
			if !c.Has(f) {
				t.Errorf("must declare %s", f)
			}
		}
		for _, l := range slices.Sorted(maps.Keys(must.Languages)) {
			if _, ok := c.Runtime(l); !ok {
				t.Errorf("must declare the language %s", l)
			}
			for _, f := range must.Languages[l] {
				if !c.HasFor(l, f) {
					t.Errorf("must declare %s for %s", f, l)
				}
			}
		}
		for _, r := range c.Languages {
			for _, f := range must.EachLanguage {
				if !c.HasFor(r.Language, f) {
					t.Errorf("must declare %s for %s", f, r.Language)
				}
			}
		}
		if !c.Isolation.AtLeast(executor.IsolationProcess) {
			t.Errorf("isolation %q is not one of the contract's", c.Isolation)
		}
		if !c.Isolation.AtLeast(must.Isolation) {
			t.Errorf("isolation %q is not at least %q", c.Isolation, must.Isolation)
		}
		for _, i := range executor.Features() {
			if i.Core && !c.Has(i.Feature) {
				t.Errorf("every backend must declare %s", i.Feature)
			}
		}
		checkFeatures(t, "", c.Features, c.Varies)
		for i, r := range c.Languages {
			checkFeatures(t, r.Language, r.Features, r.Varies)
			if slices.ContainsFunc(c.Languages[:i], func(q executor.Runtime) bool { return q.Language == r.Language }) {
				t.Errorf("language %q is declared twice", r.Language)
			}
			if !slices.Contains(t.s.target.languages(), r.Language) {
				t.Errorf("language %s is declared, and the target has no programs to check it with", r.Language)
			}
		}
		for _, l := range t.s.target.languages() {
			if _, ok := c.Runtime(l); !ok {
				t.Errorf("the target has programs for %s, which is not declared", l)
			}
		}
	},
}

// checkFeatures looks at the features that are declared for a language, or for all of the backend
// if l is empty.
func checkFeatures(t *T, l executor.Language, declared, varies []executor.Feature) {
	where := "of the backend"
	if l != "" {
		where = "of " + string(l)
	}
	all := slices.Concat(declared, varies)
	for n, f := range all {
		i, ok := f.Info()
		switch {
		case slices.Contains(all[:n], f):
			t.Errorf("features %s: %s is declared twice", where, f)
		case !ok && !strings.HasPrefix(string(f), "x-"):
			t.Errorf("features %s: %s is not a feature", where, f)
		case ok && i.PerLanguage != (l != ""):
			t.Errorf("features %s: %s belongs elsewhere", where, f)
		}
	}
}
