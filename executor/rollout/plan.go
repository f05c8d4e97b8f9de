package rollout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// The defaults of a Plan.
const (
	DefaultEvery   = 30 * time.Minute
	DefaultLeast   = 200
	DefaultAlpha   = .05
	DefaultHorizon = 10 * time.Minute
	// MaxRuns is how many runs of a subject are observed at most.
	MaxRuns = 20
)

// DefaultSteps are the shares of the new arm in percent.
func DefaultSteps() []int { return []int{1, 5, 25, 50, 100} }

// Advance says what a step needs.
type Advance string

// The ways to advance.
const (
	NoWorse    Advance = "no-worse"     // it has been shown that the new arm is no worse than the guards allow
	NoHarmSeen Advance = "no-harm-seen" // nothing has shown yet that it is
)

// Guard is how much worse the new arm may be. Zero fields are not guarded.
type Guard struct {
	Success float64 // by how much the share of good sessions may fall: .01 is a point
	P95     float64 // by how much the 95th percentile of a turn may rise: .3 is 30 percent
	Cost    float64 // by how much the mean cost may rise, likewise
	Code    float64 // by how much the share of runs without an exception may fall, as Success
}

// Plan is a guarded rollout.
type Plan struct {
	To      string // the new arm
	Steps   []int  // its shares in percent, rising; the last is 100. Nil: DefaultSteps
	Every   time.Duration
	Least   int // sessions of the new arm in a step
	Guard   Guard
	Advance Advance
	Alpha   float64 // the probability of a false alarm, in the whole rollout
	Horizon time.Duration

	plain bool // no intervals, for simulations
}

// WithDefaults returns p with its zero fields filled.
func (p Plan) WithDefaults() Plan {
	if p.Steps == nil {
		p.Steps = DefaultSteps()
	}
	if p.Every == 0 {
		p.Every = DefaultEvery
	}
	if p.Least == 0 {
		p.Least = DefaultLeast
	}
	if p.Alpha == 0 {
		p.Alpha = DefaultAlpha
	}
	if p.Horizon == 0 {
		p.Horizon = DefaultHorizon
	}
	if p.Advance == "" {
		p.Advance = NoWorse
	}
	return p
}

// Check returns all errors in p, each as an *executor.FieldError, joined.
func (p Plan) Check() error {
	p = p.WithDefaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &executor.FieldError{Path: path, Err: fmt.Errorf(format, args...)})
	}
	if p.To == "" {
		bad("to", "empty; want the backend that the split moves to")
	}
	if len(p.Steps) == 0 || !slices.IsSorted(p.Steps) || len(slices.Compact(slices.Clone(p.Steps))) != len(p.Steps) || p.Steps[0] < 1 || p.Steps[len(p.Steps)-1] != 100 {
		bad("steps", "want rising percentages from 1 to 100, with 100 as the last")
	}
	if len(p.Steps) == 1 {
		bad("steps", "want at least one below 100: at 100 there is nothing to compare with")
	}
	if p.Every < 0 {
		bad("every", "want a positive time")
	}
	if p.Horizon < time.Second || p.Horizon > time.Hour {
		bad("horizon", "want 1s to 1h")
	}
	if p.Least < 1 {
		bad("least", "want at least 1 session")
	}
	if !(p.Alpha >= .0001 && p.Alpha <= .5) {
		bad("alpha", "want 0.0001 to 0.5")
	}
	if p.Advance != NoWorse && p.Advance != NoHarmSeen {
		bad("advance", "unknown value %q; want %q or %q", p.Advance, NoWorse, NoHarmSeen)
	}
	g := p.Guard
	if g == (Guard{}) {
		bad("guard", "empty: nothing would be noticed; want success, p95, cost or code")
	}
	for name, v := range map[string]float64{"success": g.Success, "code": g.Code} {
		if !(v >= 0 && v < 1) {
			bad("guard."+name, "want a fall of less than 100 percent")
		}
	}
	for name, v := range map[string]float64{"p95": g.P95, "cost": g.Cost} {
		if !(v >= 0 && v <= 10) {
			bad("guard."+name, "want a rise of at most 1000 percent")
		}
	}
	return errors.Join(errs...)
}
