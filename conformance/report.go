package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Outcome is the outcome of a case.
type Outcome string

// The outcomes.
const (
	Passed    Outcome = "passed"    // the positive form held
	Refused   Outcome = "refused"   // the negative form held
	Failed    Outcome = "failed"    // the contract was broken
	Errored   Outcome = "errored"   // the suite could not find out
	Known     Outcome = "known"     // failed, as listed
	Stale     Outcome = "stale"     // listed as failing, but holds, or listed and not a case
	Unchecked Outcome = "unchecked" // no such form, a missing program, or not selected
)

// Report is what was found. It has a line for every case of the suite, whatever was selected.
type Report struct {
	Suite          string          `json:"suite"` // Version
	Implementation Implementation  `json:"implementation"`
	Mode           Mode            `json:"mode"`
	Info           executor.Info   `json:"info"`
	Go             string          `json:"go"`
	Platform       string          `json:"platform"`
	Date           time.Time       `json:"date"`
	Conformant     bool            `json:"conformant"` // every line is passed or refused, or does not apply
	Totals         map[Outcome]int `json:"totals"`
	Cases          []Line          `json:"cases"` // in order of ID
}

// Line is the report of one case.
type Line struct {
	ID       string            `json:"id"`
	Doc      string            `json:"doc,omitempty"` // of the Case
	Language executor.Language `json:"language,omitempty"`
	Feature  executor.Feature  `json:"feature,omitempty"` // none: every backend must pass
	Declared bool              `json:"declared"`
	Outcome  Outcome           `json:"outcome"`
	// NotApplicable marks an Unchecked line that is not a hole: the case asks nothing of a backend
	// with these declarations.
	NotApplicable bool     `json:"not_applicable,omitempty"`
	Reason        string   `json:"reason,omitempty"`
	Millis        int64    `json:"ms"`
	Log           []string `json:"log,omitempty"`
}

// newReport returns a report without lines.
func newReport(target Target) *Report {
	return &Report{
		Suite: Version, Implementation: target.Implementation, Mode: target.Mode,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Date: time.Now().UTC().Truncate(time.Second),
	}
}

// line returns the line of a case that has not run.
func (c Case) line() Line {
	return Line{ID: c.ID, Doc: c.Doc, Language: c.Language, Feature: c.Feature}
}

// allErrored fills in a line for every case, because err keeps them all from running.
func (r *Report) allErrored(cases []Case, err error) (*Report, error) {
	for _, c := range cases {
		l := c.line()
		l.Outcome, l.Reason = Errored, bounded(err.Error())
		r.Cases = append(r.Cases, l)
	}
	r.finish(nil)
	return r, fmt.Errorf("conformance: %w", err)
}

// finish applies the list of known failures, sorts and counts.
func (r *Report) finish(known map[string]string) {
	listed := maps.Clone(known)
	for i := range r.Cases {
		l := &r.Cases[i]
		reason, ok := listed[l.ID]
		if !ok {
			continue
		}
		delete(listed, l.ID)
		switch l.Outcome {
		case Failed:
			l.Outcome, l.Reason = Known, reason+": "+l.Reason
		case Passed, Refused:
			l.Outcome, l.Reason = Stale, "listed as a known failure, but it holds: "+reason
		default: // the suite did not find out whether it still fails
		}
	}
	for id, reason := range listed {
		r.Cases = append(r.Cases, Line{ID: id, Outcome: Stale, Reason: "listed as a known failure, but not a case: " + reason})
	}
	slices.SortFunc(r.Cases, func(a, b Line) int { return strings.Compare(a.ID, b.ID) })
	r.Conformant, r.Totals = len(r.Cases) > 0, map[Outcome]int{}
	for _, l := range r.Cases {
		r.Totals[l.Outcome]++
		r.Conformant = r.Conformant && l.green()
	}
}

// green reports whether l leaves a report conformant.
func (l Line) green() bool {
	return l.Outcome == Passed || l.Outcome == Refused || l.Outcome == Unchecked && l.NotApplicable
}

// Skipped reports whether l has no finding and needs none: the case does not apply, was not
// selected, or is known to fail.
func (l Line) Skipped() bool {
	return l.Outcome == Known || l.Outcome == Unchecked && (l.NotApplicable || l.Reason == notSelected)
}

// notSelected is the reason of a line that Target.Only left out.
const notSelected = "not selected"

// JSON writes r as it is committed and read by ParseReport.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ParseReport reads what Report.JSON wrote. It refuses a report whose totals or verdict do not
// follow from its lines, which is one that somebody has edited.
func ParseReport(data io.Reader) (*Report, error) {
	var r Report
	if err := json.NewDecoder(data).Decode(&r); err != nil {
		return nil, fmt.Errorf("conformance report: %w", err)
	}
	for _, l := range r.Cases {
		switch l.Outcome {
		case Passed, Refused, Failed, Errored, Known, Stale, Unchecked:
		default:
			return nil, fmt.Errorf("conformance report: %s: %q is not an outcome", l.ID, l.Outcome)
		}
	}
	again := Report{Cases: slices.Clone(r.Cases)}
	again.finish(nil)
	if again.Conformant != r.Conformant || !maps.Equal(again.Totals, r.Totals) {
		return nil, errors.New("conformance report: totals or verdict do not follow from the cases")
	}
	return &r, nil
}

// Stale says in what r, read from a file, differs from what a run for the languages of cases would
// list now: suite version, cases, declarations. An empty answer does not mean that the outcomes are
// still the same.
func (r *Report) Stale(cases []Case, info executor.Info) (differences []string) {
	add := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	if r.Suite != Version {
		add("the suite is version %s, the report is of %s", Version, r.Suite)
	}
	lines := map[string]Line{}
	for _, l := range r.Cases {
		lines[l.ID] = l
	}
	for _, c := range cases {
		l, ok := lines[c.ID]
		delete(lines, c.ID)
		switch {
		case !ok:
			add("%s is a case of the suite and not in the report", c.ID)
		case l.Feature != c.Feature:
			add("%s is about %q now, in the report about %q", c.ID, c.Feature, l.Feature)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lines)) {
		add("%s is in the report and not a case of the suite", id)
	}
	for _, c := range diffCapabilities(r.Info.Capabilities, info.Capabilities) {
		if c.From == notKnown { // the report is from before defaults were declared, and no case depends on them
			continue
		}
		add("%s is %q now, in the report %q", c.What, c.To, c.From)
	}
	if r.Info.Type != info.Type {
		add("the backend is of type %q now, in the report %q", info.Type, r.Info.Type)
	}
	return differences
}
