package parity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor/compare"
)

// Outcome says what was found about a program on a backend.
type Outcome string

// The outcomes.
const (
	Same      Outcome = "same"
	Explained Outcome = "explained" // differs, and it is known why
	Different Outcome = "different"
	Unsteady  Outcome = "unsteady" // the program does something else each time
	Stale     Outcome = "stale"    // Program.Differs says that it differs, and it does not
	NotRun    Outcome = "not run"  // several cells are nothing for a plain interpreter
)

// Outcomes returns the outcomes, in the order of tables.
func Outcomes() []Outcome {
	return []Outcome{Same, Explained, Different, Unsteady, Stale, NotRun}
}

// Finding is what was found about a program on a backend.
type Finding struct {
	Backend     string       `json:"backend"`
	Outcome     Outcome      `json:"outcome"`
	Cause       string       `json:"cause,omitempty"` // of Explained, Different, Unsteady and Stale
	Differences []Difference `json:"differences,omitempty"`
}

// A ref is what a program is compared with.
type ref struct {
	fields   []Fields
	subjects []int  // whose fields these are
	plain    string // why the plain interpreter is not among them, if it has run the program
}

// reference chooses what a program is compared with: the plain interpreter as far as it goes,
// beyond that the first backend that runs the program and of which nothing else is said.
func reference(subjects []subject, p Program, seen [][]Fields) ref {
	plain, base := -1, -1
	for i, s := range subjects {
		switch good := fit(s, p, seen[i]); {
		case s.plain && seen[i] != nil:
			plain = i
		case !s.plain && (base < 0 || good && !fit(subjects[base], p, seen[base])):
			base = i
		}
	}
	r := ref{subjects: []int{base}}
	for _, f := range seen[base] {
		r.fields = append(r.fields, maps.Clone(f))
	}
	if plain >= 0 {
		if r.plain = p.Differs[TypePlain]; r.plain == "" {
			r.plain = subjects[plain].known(p, seen[plain], compare.Differences(plainOf(r.fields), seen[plain]))
		}
		if r.plain == "" {
			r.subjects = append(r.subjects, plain)
			for _, name := range plainFields {
				overlay(r.fields[0], name, seen[plain][0][name])
			}
			return r
		}
	}
	for i, c := range p.Cells[:min(len(p.Cells), len(r.fields))] {
		expected(c, r.fields[i])
	}
	return r
}

// fit reports whether what a backend did may be what others are compared with.
func fit(s subject, p Program, seen []Fields) bool {
	return p.Differs[s.typ] == "" && !slices.ContainsFunc(seen, func(f Fields) bool { return f["refused"] != "" || f["error"] != "" })
}

func overlay(f Fields, name, value string) {
	if value == "" {
		delete(f, name)
	} else {
		f[name] = value
	}
}

// expected puts what is expected of a cell in the place of what was observed.
func expected(c Cell, f Fields) {
	if c.Stdout != nil && trimmed(compare.Clip(*c.Stdout)) != trimmed(f["stdout"]) {
		overlay(f, "stdout", compare.Clip(*c.Stdout))
	}
	if c.ExitCode != nil {
		overlay(f, "exit code", strings.TrimPrefix(fmt.Sprint(*c.ExitCode), "0"))
	}
}

func trimmed(s string) string { return strings.TrimRight(s, " \t\r\n") }

// judge says what a program did on each subject.
func judge(subjects []subject, p Program, seen [][]Fields) []Finding {
	want := reference(subjects, p, seen)
	findings := make([]Finding, len(subjects))
	for i, s := range subjects {
		f := Finding{Backend: s.name, Outcome: Same}
		switch {
		case seen[i] == nil:
			f.Outcome = NotRun
		case s.plain && want.plain != "":
			f.Outcome, f.Cause = Explained, want.plain
			if p.Differs[TypePlain] != "" && len(compare.Differences(plainOf(want.fields), plainOf(seen[i]))) == 0 {
				f.Outcome = Stale
			}
		case s.plain:
			hoped := Fields(maps.Clone(seen[i][0]))
			expected(p.Cells[0], hoped)
			if f.Differences = compare.Differences([]Fields{hoped}, seen[i]); len(f.Differences) > 0 {
				f.Outcome, f.Cause = Different, "the plain interpreter does not do what is expected"
			}
		default:
			f.Differences = compare.Differences(want.fields, seen[i])
			f.Outcome, f.Cause = explain(subjects, i, p, seen[i], f.Differences, want)
		}
		findings[i] = f
	}
	return findings
}

func plainOf(all []Fields) (some []Fields) {
	for _, f := range all {
		g := Fields{}
		for _, name := range plainFields {
			overlay(g, name, f[name])
		}
		some = append(some, g)
	}
	return some
}

// explain says why a backend differs.
func explain(subjects []subject, at int, p Program, seen []Fields, found []Difference, want ref) (Outcome, string) {
	s := subjects[at]
	why := p.Differs[s.typ]
	if why != "" {
		why = s.typ + ": " + why
	}
	switch {
	case len(found) == 0 && why == "":
		return Same, ""
	case len(found) == 0:
		if slices.ContainsFunc(want.subjects, func(i int) bool { return subjects[i].typ == s.typ }) {
			return Same, "" // there was nothing else to compare with
		}
		return Stale, why
	case why != "":
		return Explained, why
	}
	if why := s.known(p, seen, found); why != "" {
		return Explained, why
	}
	return Different, compare.Signature(found)
}

// known returns why a subject differs, or "".
func (s subject) known(p Program, seen []Fields, found []Difference) string {
	return compare.Explain(s.typ, s.Info().Capabilities, p.Language, seen, found)
}
