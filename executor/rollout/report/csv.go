package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor/rollout"
)

// CSV writes a line for each arm, with a head. Times are seconds, and shares are from 0 to 1. What
// is not known is empty. Names that a spreadsheet would take for a formula begin with an
// apostrophe.
func CSV(w io.Writer, all []rollout.Experiment) error {
	c := csv.NewWriter(w)
	for i, x := range all {
		for j, a := range x.Arms {
			fields := columns(x, a)
			if i == 0 && j == 0 {
				head := make([]string, len(fields))
				for k, f := range fields {
					head[k] = f[0]
				}
				if err := c.Write(head); err != nil {
					return err
				}
			}
			line := make([]string, len(fields))
			for k, f := range fields {
				line[k] = f[1]
			}
			if err := c.Write(line); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}

// columns returns the names and the values of the line of an arm.
func columns(x rollout.Experiment, a rollout.Arm) (out [][2]string) {
	add := func(name, value string) { out = append(out, [2]string{name, value}) }
	number := func(name string, known bool, v float64) {
		text := ""
		if known {
			text = strconv.FormatFloat(v, 'g', 9, 64)
		}
		add(name, text)
	}
	since := ""
	if !x.Since.IsZero() {
		since = x.Since.UTC().Format(time.RFC3339)
	}
	add("route", inert(x.Route))
	add("since", since)
	add("replica", inert(x.Replica))
	add("verdict", inert(x.Verdict.Word))
	add("arm", inert(a.Backend))
	number("share", true, a.Share)
	add("sessions", whole(a.Sessions))
	add("pending", whole(a.Pending))
	add("unobserved", whole(a.Unobserved))
	for _, r := range []struct {
		name string
		rollout.Rate
	}{{"success", a.Success}, {"answered", a.Answered}, {"code", a.Code}} {
		add(r.name+"_part", whole(r.Part))
		add(r.name+"_of", whole(r.Of))
		number(r.name+"_low", r.Of > 0, r.Low)
		number(r.name+"_high", r.Of > 0, r.High)
	}
	add("turns", whole(a.Turns))
	for _, o := range rollout.Outcomes() {
		add("turns_"+string(o), whole(a.Outcomes[o]))
	}
	errs := ""
	if len(a.Errors) > 0 {
		errs = inert(tally(a.Errors))
	}
	add("errors", errs)
	for _, t := range []struct {
		name string
		rollout.Times
	}{{"cold", a.Cold}, {"warm", a.Warm}} {
		add(t.name+"_count", whole(t.Count))
		for _, q := range []struct {
			name string
			rollout.Quantile
		}{{"p50", t.P50}, {"p95", t.P95}, {"p99", t.P99}} {
			number(t.name+"_"+q.name, t.Count > 0, q.Seconds)
			number(t.name+"_"+q.name+"_low", t.Count > 0, q.Low)
			number(t.name+"_"+q.name+"_high", q.High > 0, q.High)
		}
	}
	add("cost", a.Cost.String())
	number("session_cost", a.SessionCost.Count > 0, a.SessionCost.Mean)
	number("session_cost_low", a.SessionCost.Count > 0, a.SessionCost.Low)
	number("session_cost_high", a.SessionCost.Count > 0, a.SessionCost.High)
	return out
}

// inert returns text that a spreadsheet takes for text.
func inert(s string) string {
	s = clean(s)
	if t := strings.TrimSpace(s); t != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(t)[0]) {
		return "'" + s
	}
	return s
}
