package conformance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Case is one check. Exactly one of its forms runs.
type Case struct {
	ID       string            // stable, [a-z0-9/-]; begins with the language if it has one: "python/state/after-timeout"
	Doc      string            // the rule, one sentence
	Language executor.Language // empty: the case is not about a language
	Feature  executor.Feature  // empty: every backend must pass
	// Needs are features that the positive form uses besides Feature. If Feature is declared and
	// one of these is not, the case does not apply.
	Needs    []executor.Feature
	Programs []string      // what T.Program is called with, in the language of the case; without one the case is unchecked
	Bound    time.Duration // how long a form may take, without Grace. Zero: a minute
	Alone    bool          // it measures time or counts what is shared, so no other case runs at the same time
	Positive func(*T)      // the feature is declared, or there is none
	Negative func(*T)      // it is not; nil for Core features and Promises

	last     bool                // it counts what the whole suite has left, after all sessions and Executors are closed
	unsuited func(*suite) string // not nil: says why the case asks nothing of this target or on this platform, or ""
}

// defaultBound is Case.Bound if that is zero.
const defaultBound = time.Minute

// caseDef is a case before it is expanded for languages: one of package cases, or one about the
// suite itself. Its fields are those of Case.
type caseDef struct {
	ID          string // without the language
	Doc         string
	Feature     executor.Feature
	Needs       []executor.Feature
	PerLanguage bool              // implied by a Feature that is
	Only        executor.Language // not empty: the case is about what other languages do not have
	Programs    []string
	Bound       time.Duration
	Alone       bool
	Positive    func(*T)
	Negative    func(*T)

	last     bool
	unsuited func(*suite) string
}

// in returns the case for a language, or that for none.
func (d caseDef) in(l executor.Language) Case {
	c := Case{
		ID: d.ID, Doc: d.Doc, Language: l, Feature: d.Feature, Needs: d.Needs, Programs: d.Programs, Bound: d.Bound, Alone: d.Alone,
		Positive: d.Positive, Negative: d.Negative, last: d.last, unsuited: d.unsuited,
	}
	if l != "" {
		c.ID = string(l) + "/" + d.ID
	}
	c.Bound = cmp.Or(c.Bound, defaultBound)
	return c
}

// Cases returns every case of the suite for the given languages, in order of ID.
func Cases(languages ...executor.Language) []Case {
	return expand(slices.Concat(allCases(), engineCases()), languages)
}

// expand makes cases of definitions.
func expand(defs []caseDef, languages []executor.Language) (cs []Case) {
	for _, d := range defs {
		if i, _ := d.Feature.Info(); !d.PerLanguage && !i.PerLanguage {
			cs = append(cs, d.in(""))
			continue
		}
		for _, l := range languages {
			if d.Only == "" || d.Only == l {
				cs = append(cs, d.in(l))
			}
		}
	}
	slices.SortFunc(cs, func(a, b Case) int { return strings.Compare(a.ID, b.ID) })
	return cs
}

// form says which form of c a backend with the capabilities caps has to pass. A nil form comes with
// the reason, and with whether the case asks nothing of such a backend, as opposed to leaving a
// hole.
func (c Case) form(caps executor.Capabilities) (f func(*T), declared bool, reason string, notApplicable bool) {
	info, _ := c.Feature.Info()
	has := func(f executor.Feature) bool {
		if c.Language != "" {
			return caps.HasFor(c.Language, f)
		}
		return caps.Has(f)
	}
	if c.Language != "" {
		if _, ok := caps.Runtime(c.Language); !ok {
			return nil, false, "the language " + string(c.Language) + " is not declared", false
		}
	}
	switch declared = c.Feature == "" || has(c.Feature); {
	case declared:
		for _, n := range c.Needs {
			if !has(n) {
				return nil, declared, "needs " + string(n) + ", which is not declared", true
			}
		}
		return c.Positive, declared, "", false
	case c.Negative != nil:
		return c.Negative, declared, "", false
	case info.Class == executor.Promise:
		return nil, declared, "promise not declared", true
	}
	return nil, declared, string(c.Feature) + " is not declared, and the case has no negative form", false
}
