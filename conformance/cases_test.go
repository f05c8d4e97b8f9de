package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestCasesAreSound checks what a reader of a report relies on.
func TestCasesAreSound(t *testing.T) {
	id := regexp.MustCompile(`^[a-z0-9-]+(/[a-z0-9-]+)*$`)
	seen := map[string]bool{}
	for _, c := range Cases(executor.Python, executor.JavaScript) {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("%q: not an ID, or repeated", c.ID)
		}
		seen[c.ID] = true
		info, known := c.Feature.Info()
		if c.Feature != "" && !known {
			t.Errorf("%s: %q is not a feature", c.ID, c.Feature)
		}
		if lang, _, _ := strings.Cut(c.ID, "/"); (c.Language != "") != (lang == string(c.Language)) || info.PerLanguage && c.Language == "" {
			t.Errorf("%s: the ID begins with the language %q if and only if the case has one", c.ID, c.Language)
		}
		if !strings.HasSuffix(c.Doc, ".") || strings.Contains(c.Doc, ". ") || c.Doc[:1] != strings.ToUpper(c.Doc[:1]) {
			t.Errorf("%s: the rule is not one sentence: %q", c.ID, c.Doc)
		}
		if c.Positive == nil {
			t.Errorf("%s: no positive form", c.ID)
		}
		switch optional := c.Feature == "" || info.Core || info.Class == executor.Promise; {
		case optional && c.Negative != nil && c.Feature == "":
			t.Errorf("%s: a negative form, but no feature", c.ID)
		case !optional && c.Negative == nil:
			t.Errorf("%s: no negative form, although %s may be missing", c.ID, c.Feature)
		}
		for _, f := range c.Needs {
			if _, ok := f.Info(); !ok || f == c.Feature {
				t.Errorf("%s: needs %q", c.ID, f)
			}
		}
	}
}

// TestEveryFeatureHasACase checks that nothing can be declared, or left out, that the suite does
// not look at.
func TestEveryFeatureHasACase(t *testing.T) {
	cases := Cases(executor.Python, executor.JavaScript)
	for _, i := range executor.Features() {
		if i.Core {
			continue // every case that runs code is about it
		}
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Feature == i.Feature }) {
			t.Errorf("no case for %s", i.Feature)
		}
	}
}

// TestEveryProgramIsUsed checks that cases and programs name each other.
func TestEveryProgramIsUsed(t *testing.T) {
	for _, set := range []Programs{Python, JavaScript} {
		used := map[string]bool{}
		for _, c := range Cases(set.Language) {
			for _, name := range c.Programs {
				used[name] = true
				if set.Source[name] == "" {
					t.Errorf("%s: no program %q for %s", c.ID, name, set.Language)
				}
			}
		}
		for name := range set.Source {
			if !used[name] {
				t.Errorf("%s: no case uses %q", set.Language, name)
			}
		}
	}
}
