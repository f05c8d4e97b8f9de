package parity

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
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

// Difference is a field of a cell that differs.
type Difference struct {
	Cell  int    `json:"cell,omitempty"` // from 1; 0: of surroundings
	Field string `json:"field"`
	Want  string `json:"want,omitempty"`
	Got   string `json:"got,omitempty"`
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
			r.plain = known(subjects[plain], p, seen[plain], compare(plainOf(r.fields), seen[plain]))
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
	if c.Stdout != nil && trimmed(clip(*c.Stdout)) != trimmed(f["stdout"]) {
		overlay(f, "stdout", clip(*c.Stdout))
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
			if p.Differs[TypePlain] != "" && len(compare(plainOf(want.fields), plainOf(seen[i]))) == 0 {
				f.Outcome = Stale
			}
		case s.plain:
			hoped := Fields(maps.Clone(seen[i][0]))
			expected(p.Cells[0], hoped)
			if f.Differences = compare([]Fields{hoped}, seen[i]); len(f.Differences) > 0 {
				f.Outcome, f.Cause = Different, "the plain interpreter does not do what is expected"
			}
		default:
			f.Differences = compare(want.fields, seen[i])
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
	if last := seen[len(seen)-1]; last["refused"] != "" {
		return Explained, "it lacks " + last["refused"]
	}
	if why := known(s, p, seen, found); why != "" {
		return Explained, why
	}
	return Different, signature(found)
}

// telling are the fields in the order of how much they tell.
var telling = []string{"error", "refused", "exception", "signal", "status", "exit code", "stderr", "errors", "stdout", "values", "artifacts", "state"}

var (
	quoted  = regexp.MustCompile(`'[^']*'|"[^"]*"|\b0x[0-9a-f]+\b`)
	numbers = regexp.MustCompile(`\d+`)
)

// signature is what differences of the same cause have in common: the most telling field of the
// first cell that differs, without names and numbers.
func signature(found []Difference) string {
	rank := func(d Difference) int { return slices.Index(telling, d.Field) }
	d := slices.MinFunc(found, func(a, b Difference) int { return cmp.Or(a.Cell-b.Cell, rank(a)-rank(b)) })
	how := "differs"
	switch {
	case d.Got == "":
		how = "is missing"
	case d.Want == "":
		how = "was not expected"
	}
	if d.Field == "stdout" || d.Field == "values" || d.Field == "artifacts" {
		if d.Got != "" && d.Want != "" && strings.HasPrefix(d.Want, d.Got) {
			how = "ends early"
		}
		return d.Field + " " + how
	}
	text := cmp.Or(d.Got, d.Want)
	if d.Field == "stderr" || d.Field == "errors" { // the last line is the exception
		text = text[strings.LastIndexByte(strings.TrimRight(text, "\n"), '\n')+1:]
	}
	text, _, _ = strings.Cut(numbers.ReplaceAllString(quoted.ReplaceAllString(text, "'…'"), "N"), "\n")
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "…"
	}
	return fmt.Sprintf("%s %s: %s", d.Field, how, text)
}

// compare returns where two observations differ, in the order of cells and names.
func compare(want, got []Fields) (found []Difference) {
	for i := range max(len(want), len(got)) {
		var a, b Fields
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		for name := range both(a, b) {
			twice := name == "errors" && (a["exception"] != b["exception"] || a["stderr"] != b["stderr"])
			if a[name] != b[name] && !twice && name != leftRunning {
				found = append(found, Difference{Cell: i + 1, Field: name, Want: a[name], Got: b[name]})
			}
		}
	}
	slices.SortFunc(found, func(a, b Difference) int { return cmp.Or(a.Cell-b.Cell, strings.Compare(a.Field, b.Field)) })
	return found
}

// both has the names of two sets of fields.
func both(a, b Fields) Fields {
	names := Fields{}
	maps.Copy(names, a)
	maps.Copy(names, b)
	return names
}
