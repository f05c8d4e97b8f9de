package rollout

import (
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Outcome says how a turn of a user ended. A turn has exactly one.
type Outcome string

// The outcomes. Those from Refused on do not count for any arm.
const (
	OK       Outcome = "ok"       // the code ran on the assigned backend and ended without an error
	Code     Outcome = "code"     // it ran there and failed by itself: an exception, an exit code, a limit of the run
	Fallback Outcome = "fallback" // it ran, but on another backend than the assigned one
	Outage   Outcome = "outage"   // the provider failed: unavailable, not authorized, a lost run
	Capacity Outcome = "capacity" // a quota, a rate or the capacity of the provider was exhausted
	Refused  Outcome = "refused"  // a rule of the guard refused
	Quota    Outcome = "quota"    // a quota of the user refused
	Caller   Outcome = "caller"   // the caller's own doing: invalid, unsupported, too large, busy, canceled, closed
)

// Outcomes returns all outcomes in order.
func Outcomes() []Outcome {
	return []Outcome{OK, Code, Fallback, Outage, Capacity, Refused, Quota, Caller}
}

// Counts reports whether an arm is judged by turns with this outcome.
func (o Outcome) Counts() bool { return o != Refused && o != Quota && o != Caller }

// Experiment is a route whose split compares backends, with what its arms have done. Every figure
// is that of the arm that was assigned, whatever backend served.
type Experiment struct {
	Route   string    `json:"route"`
	Since   time.Time `json:"since,omitzero"` // when counting began; zero: nothing has been counted
	Replica string    `json:"replica"`        // the only process whose figures these are; empty: all that share the session store
	Horizon float64   `json:"horizon_seconds"`
	Arms    []Arm     `json:"arms"`              // in the order of the split
	Rollout *Report   `json:"rollout,omitempty"` // nil: the weights of the configuration decide, or no process has begun the rollout
	Verdict Verdict   `json:"verdict"`
}

// Arm is what the subjects of one arm got. All intervals are those of one look, at Confidence.
type Arm struct {
	Backend string  `json:"backend"` // the assigned one
	Share   float64 `json:"share"`   // the part of new subjects that it gets now, from 0 to 1

	// Sessions counts the sessions that users wanted, without those that a rule refused or the
	// caller spoiled. They are judged when the horizon has passed: Success is the share of those
	// for which the assigned backend did all that was asked. Until then they are Pending. Those
	// whose process ended earlier are Unobserved.
	Sessions   int64 `json:"sessions"`
	Pending    int64 `json:"pending"`
	Unobserved int64 `json:"unobserved"`
	Success    Rate  `json:"success"`

	Turns    int64             `json:"turns"`              // from the request for a session to the result
	Outcomes map[Outcome]int64 `json:"outcomes,omitempty"` // they add up to Turns
	Answered Rate              `json:"answered"`           // turns that the assigned backend answered, of those that count
	Code     Rate              `json:"code"`               // of these, turns whose code did not fail
	Errors   map[string]int64  `json:"errors,omitempty"`   // turns without a result, by executor.KindName

	Cold Times          `json:"cold"` // the first turns of new sessions, from the request for the session to the result
	Warm Times          `json:"warm"` // later runs
	Cost executor.Money `json:"cost"` // in the currency of the prices
	// SessionCost is the cost of a session that has ended, in the currency of the prices.
	SessionCost Mean `json:"session_cost"`
}

// Times are quantiles of durations. They are at most 3 % too high.
type Times struct {
	Count int64    `json:"count"`
	P50   Quantile `json:"p50"`
	P95   Quantile `json:"p95"`
	P99   Quantile `json:"p99"`
}

// Quantile is a quantile with its interval, in seconds: see Ranks.
type Quantile struct {
	Seconds float64 `json:"seconds"`
	Low     float64 `json:"low"`
	High    float64 `json:"high,omitempty"` // 0: so few values do not bound it
}

// Report says how a rollout is doing.
type Report struct {
	Route  string     `json:"route"`
	To     string     `json:"to,omitempty"` // empty: the configuration does not have it any more
	Share  int        `json:"share"`        // of the new backend, in percent
	Status Status     `json:"status"`
	Since  time.Time  `json:"since"` // of the step
	Arms   [2]Figures `json:"arms"`  // the old and the new one, in this step
	Guards []Finding  `json:"guards"`
	Log    []Decision `json:"log"`
}

// Verdict is what a rollout says of the new arm, in words. It repeats the state of the rollout and
// judges nothing by itself.
type Verdict struct {
	// Word is "no-worse", "no-harm-seen", "worse" or, if nothing has been compared, empty.
	Word string `json:"word,omitempty"`
	Text string `json:"text"`
}

// worse is the Word of a rollout that has found harm.
const worse = "worse"

// Verdict says what is known, and what was decided last. pending is the number of sessions of the
// new arm that are not at their horizon. r may be nil.
func (r *Report) Verdict(pending int64) Verdict {
	if r == nil {
		return Verdict{Text: "No rollout decides about this route: compare the intervals, at a time that you fixed before."}
	}
	v := Verdict{Word: r.word()}
	last := Decision{}
	if n := len(r.Log); n > 0 {
		last = r.Log[n-1]
	}
	why := last.Why
	if last.By != "" {
		why += ", by " + last.By
	}
	switch r.Status {
	case RolledBack:
		v.Text = fmt.Sprintf("Rolled back: %s. All new sessions go to the old backend.", why)
	case Aborted:
		v.Text = fmt.Sprintf("Aborted %s. All new sessions go to the old backend.", why)
	case Promoted:
		v.Text = fmt.Sprintf("Promoted: %s. All new sessions go to %s.", why, r.To)
		if last.What == "promote" {
			v.Text = fmt.Sprintf("Promoted %s. All new sessions go to %s.", why, r.To)
		}
	default:
		v.Text = map[string]string{
			"":                 "Nothing has been compared in this step yet.",
			string(NoWorse):    "no-worse: every guard excludes a harm greater than it allows.",
			string(NoHarmSeen): "no-harm-seen: nothing has shown a harm greater than the guards allow, and not every guard excludes one.",
			worse:              "worse: a guard has found a harm greater than it allows.",
		}[v.Word]
		v.Text += fmt.Sprintf(" %d %% of new sessions go to %s, %s.", r.Share, r.To, r.Status)
	}
	if pending > 0 {
		v.Text += fmt.Sprintf(" %d sessions of %s are pending.", pending, r.To)
	}
	return v
}

// word returns the word for what the guards have found in the current step or, if a decision has
// ended the comparison, that of the decision.
func (r *Report) word() string {
	if n := len(r.Log); r.Status == Promoted && n > 0 && r.Log[n-1].What == "advance" {
		return r.Log[n-1].Why
	}
	pairs, shown := 0, true
	for _, g := range r.Guards {
		if g.Harm {
			return worse
		}
		pairs += g.Pairs
		shown = shown && g.Shown
	}
	switch {
	case pairs == 0:
		return ""
	case shown:
		return string(NoWorse)
	}
	return string(NoHarmSeen)
}
