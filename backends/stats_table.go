package backends

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// String returns the statistics as two tables for people.
func (s Stats) String() string {
	var b strings.Builder
	columns(&b, "BACKEND\tSESSIONS\tWAITING\tBREAKER\tPOOLS", len(s.Backends), func(i int) []any {
		m := s.Backends[i]
		name, breaker := m.Name, cmp.Or(m.Breaker, "-")
		if m.Removed {
			name += " (removed)"
		}
		pools := make([]string, len(m.Pools))
		for i, p := range m.Pools {
			pools[i] = fmt.Sprintf("%d warm, %d of %d hits", p.Warm, p.Hits, p.Hits+p.Misses+p.Bypasses)
			if p.Bypasses > 0 {
				pools[i] += ", bypassed by " + tally(p.Differs)
			}
		}
		return []any{name, m.Sessions, m.Waiting, breaker, cmp.Or(strings.Join(pools, "; "), "-")}
	})
	b.WriteByte('\n')
	columns(&b, "ROUTE\tASSIGNED\tBACKEND\tTURNS\tGOOD\tTURN P50/95/99\tIN SANDBOXES\tCREATES\tFAILED\tQUEUE P50/95/99\tCREATE P50/95/99\tRUNS\tOK\tFAILED\tERRORS\tSTATE LOST\tRUN P50/95/99", len(s.Arms), func(i int) []any {
		a := s.Arms[i]
		var runs int64
		for _, n := range a.Runs {
			runs += n
		}
		return []any{
			cmp.Or(a.Route, "-"), cmp.Or(a.Assigned, "-"), cmp.Or(a.Backend, "-"), a.Turns, fmt.Sprintf("%.1f%%", 100*a.Good()), a.Turn, short(a.SandboxTime), a.Creates, tally(a.CreateErrors), a.Queue, a.Create,
			runs, a.Runs[executor.StatusOK], runs - a.Runs[executor.StatusOK], tally(a.RunErrors), a.StateLost, a.Run,
		}
	})
	return b.String()
}

func columns(w io.Writer, head string, rows int, row func(int) []any) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for i := range rows {
		cells := row(i)
		for j, c := range cells {
			if j > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// tally returns "3 (2 exhausted, 1 unavailable)".
func tally(kinds map[string]int64) string {
	var sum int64
	parts := make([]string, 0, len(kinds))
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		sum += kinds[k]
		parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}

// String returns "1.2ms/3.4ms/5ms".
func (l Latency) String() string {
	if l.Count == 0 {
		return "-"
	}
	return short(l.P50) + "/" + short(l.P95) + "/" + short(l.P99)
}

// short formats a duration with two or three digits.
func short(d driver.Duration) string {
	t := time.Duration(d)
	for unit := time.Microsecond; unit < time.Hour; unit *= 10 {
		if t < 1000*unit {
			return t.Round(unit).String()
		}
	}
	return t.Round(time.Minute).String()
}
