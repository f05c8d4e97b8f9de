package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/execbroker/execbroker/executor/rollout"
)

// row is a figure of each arm.
type row struct {
	name   string
	figure func(rollout.Arm) string
}

// rows are the figures of a report, in order.
var rows = []row{
	{"share of new subjects", func(a rollout.Arm) string { return percent(a.Share) }},
	{"sessions", func(a rollout.Arm) string { return whole(a.Sessions) }},
	{"pending", func(a rollout.Arm) string { return whole(a.Pending) }},
	{"unobserved", func(a rollout.Arm) string { return whole(a.Unobserved) }},
	{"success of sessions", func(a rollout.Arm) string { return rate(a.Success) }},
	{"turns", func(a rollout.Arm) string { return whole(a.Turns) }},
	{"turns answered", func(a rollout.Arm) string { return rate(a.Answered) }},
	{"turns without a failure of the code", func(a rollout.Arm) string { return rate(a.Code) }},
	{"not answered or not counted", func(a rollout.Arm) string { return outcomes(a) }},
	{"errors", func(a rollout.Arm) string { return tally(a.Errors) }},
	{"cold start p50", func(a rollout.Arm) string { return quantile(a.Cold, a.Cold.P50) }},
	{"cold start p95", func(a rollout.Arm) string { return quantile(a.Cold, a.Cold.P95) }},
	{"cold start p99", func(a rollout.Arm) string { return quantile(a.Cold, a.Cold.P99) }},
	{"warm run p50", func(a rollout.Arm) string { return quantile(a.Warm, a.Warm.P50) }},
	{"warm run p95", func(a rollout.Arm) string { return quantile(a.Warm, a.Warm.P95) }},
	{"warm run p99", func(a rollout.Arm) string { return quantile(a.Warm, a.Warm.P99) }},
	{"cost", func(a rollout.Arm) string { return a.Cost.String() }},
	{"cost of a session", func(a rollout.Arm) string { return mean(a.SessionCost) }},
}

// method says what the figures mean.
const method = "Every figure counts for the arm that was assigned, whatever backend served. " +
	"Intervals are at 95 percent, for one look at a time that was fixed before, and for users that are independent: " +
	"Wilson's for shares, order statistics for quantiles, the normal approximation for the mean cost. " +
	"The intervals of guards are a rollout's own, and hold at every look."

// none stands for a figure that is not known.
const none = "–"

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func percent(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*v, 'f', 1, 64), ".0") + " %"
}

func rate(r rollout.Rate) string {
	if r.Of == 0 {
		return none
	}
	return fmt.Sprintf("%s (%s to %s), %d of %d", percent(r.Share), percent(r.Low), percent(r.High), r.Part, r.Of)
}

// seconds formats a duration with three digits.
func seconds(v float64) string {
	d := time.Duration(v * float64(time.Second))
	for unit := time.Microsecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Minute).String()
}

func quantile(t rollout.Times, q rollout.Quantile) string {
	if t.Count == 0 {
		return none
	}
	high := "?"
	if q.High > 0 {
		high = seconds(q.High)
	}
	return fmt.Sprintf("%s (%s to %s)", seconds(q.Seconds), seconds(q.Low), high)
}

func mean(m rollout.Mean) string {
	if m.Count == 0 {
		return none
	}
	digits := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	return fmt.Sprintf("%s (%s to %s), %d sessions", digits(m.Mean), digits(m.Low), digits(m.High), m.Count)
}

// tally returns "2 denied, 1 unavailable".
func tally(kinds map[string]int64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}

// outcomes is tally of the turns that the arm has not answered.
func outcomes(a rollout.Arm) string {
	var parts []string
	for _, o := range rollout.Outcomes() {
		if n := a.Outcomes[o]; n > 0 && o != rollout.OK && o != rollout.Code {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}

// speaks says whose figures they are, and since when.
func speaks(x rollout.Experiment) string {
	whose := "All processes that share the session store"
	if x.Replica != "" {
		whose = "Only the process " + x.Replica
	}
	if x.Since.IsZero() {
		return whose + "; nothing has been counted yet."
	}
	return fmt.Sprintf("%s, since %s. A session is judged after %s.", whose, moment(x.Since), time.Duration(x.Horizon*float64(time.Second)))
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// known says what is known of a guard.
func known(f rollout.Finding) string {
	switch {
	case f.Harm:
		return "worse than the guard allows"
	case f.Shown:
		return string(rollout.NoWorse)
	}
	return "not known yet"
}

// allowed returns how much worse the new arm may be. The figures of the new arm in the other guards
// are already without the rise that is allowed.
func allowed(f rollout.Finding) string {
	if f.Margin == 0 {
		return "included"
	}
	return percent(f.Margin)
}

// decided says what was decided, why and by whom.
func decided(d rollout.Decision) string {
	s := fmt.Sprintf("%s: %s, %d %%", moment(d.Time), d.What, d.Step)
	if d.Why != "" {
		s += ": " + d.Why
	}
	if d.By != "" {
		s += ", by " + d.By
	}
	return s
}

// clean replaces what is not a visible character.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
