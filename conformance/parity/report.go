package parity

import (
	"cmp"
	"slices"
	"strings"
)

// Line is what was found about a program.
type Line struct {
	Name     string    `json:"name"`
	Doc      string    `json:"doc,omitempty"`
	Findings []Finding `json:"findings"` // one for each of Report.Backends, in their order
}

// Cause groups what was found by why it is so.
type Cause struct {
	Outcome  Outcome          `json:"outcome"`
	Cause    string           `json:"cause"`
	Programs map[string]int64 `json:"programs"` // how many, by backend
	Names    []string         `json:"names"`    // of the programs, each once
}

// Report compares backends.
type Report struct {
	Backends []string                     `json:"backends"` // the plain interpreter first, if it has run
	Programs []Line                       `json:"programs"` // in the order of the programs
	Causes   []Cause                      `json:"causes"`   // what nothing explains first, then by size
	Totals   map[string]map[Outcome]int64 `json:"totals"`   // programs, by backend
}

func newReport(subjects []subject, lines []Line) *Report {
	r := &Report{Programs: lines, Totals: map[string]map[Outcome]int64{}}
	for _, s := range subjects {
		r.Backends = append(r.Backends, s.name)
		r.Totals[s.name] = map[Outcome]int64{}
	}
	for _, l := range lines {
		for _, f := range l.Findings {
			r.Totals[f.Backend][f.Outcome]++
			if f.Cause == "" {
				continue
			}
			i := slices.IndexFunc(r.Causes, func(c Cause) bool { return c.Outcome == f.Outcome && c.Cause == f.Cause })
			if i < 0 {
				i = len(r.Causes)
				r.Causes = append(r.Causes, Cause{Outcome: f.Outcome, Cause: f.Cause, Programs: map[string]int64{}})
			}
			c := &r.Causes[i]
			c.Programs[f.Backend]++
			if n := len(c.Names); n == 0 || c.Names[n-1] != l.Name {
				c.Names = append(c.Names, l.Name)
			}
		}
	}
	order := []Outcome{Different, Unsteady, Stale, Explained}
	slices.SortStableFunc(r.Causes, func(a, b Cause) int {
		return cmp.Or(slices.Index(order, a.Outcome)-slices.Index(order, b.Outcome), len(b.Names)-len(a.Names), strings.Compare(a.Cause, b.Cause))
	})
	return r
}

// Total returns how many programs had an outcome, on any of the backends.
func (r *Report) Total(o Outcome) (n int64) {
	for _, l := range r.Programs {
		if slices.ContainsFunc(l.Findings, func(f Finding) bool { return f.Outcome == o }) {
			n++
		}
	}
	return n
}
