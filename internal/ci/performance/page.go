package performance

import (
	"fmt"
	"strings"
	"time"
)

// Page is the file that Measure renews.
const Page = "docs/performance.md"

// A finding is a claim with what was measured.
type finding struct {
	claim
	ours, raw, got float64
}

// hold holds what was measured against a claim.
func (c claim) hold(f figures) (finding, error) {
	h := finding{claim: c}
	var ok bool
	if h.ours, ok = f.of(c.ours); !ok {
		return h, fmt.Errorf("%s: the benchmarks print no %q", c.pkg, c.ours)
	}
	if h.raw, ok = f.of(c.raw); !ok && c.raw != "" {
		return h, fmt.Errorf("%s: the benchmarks print no %q", c.pkg, c.raw)
	}
	switch c.form {
	case alone:
		h.got = h.ours
	case times:
		h.got = h.ours / h.raw
	case more:
		h.got = h.ours - h.raw
	}
	return h, nil
}

// met reports whether a finding is as wanted.
func (h finding) met() bool {
	if h.least {
		return h.got >= h.want
	}
	return h.got <= h.want
}

// show writes a figure for people.
func (c claim) show(v float64) string {
	_, unit, _ := strings.Cut(string(c.ours), " ")
	switch {
	case strings.HasSuffix(unit, "MB/s"):
		return fmt.Sprintf("%.3g MB/s", v/1e6)
	case strings.Contains(unit, "MiB"):
		return fmt.Sprintf("%.0f MiB", v/(1<<20))
	case unit == "events/s":
		return fmt.Sprintf("%.0f a second", v)
	case v >= 1 || v <= -1:
		return fmt.Sprintf("%.2f s", v)
	case v >= 1e-3 || v <= -1e-3:
		return fmt.Sprintf("%.3g ms", v*1e3)
	case v >= 1e-6 || v <= -1e-6:
		return fmt.Sprintf("%.3g µs", v*1e6)
	default:
		return fmt.Sprintf("%.0f ns", v*1e9)
	}
}

// compared writes a figure in the form of the claim.
func (c claim) compared(v float64) string {
	switch c.form {
	case times:
		return fmt.Sprintf("%.2f times", v)
	case more:
		return c.show(v) + " more"
	default:
		return c.show(v)
	}
}

// row is the line of the table.
func (h finding) row() string {
	under, bound, verdict := "–", "at most ", "**missed**"
	if h.under != "" {
		under = h.show(h.raw) + ": " + h.under
	}
	row := fmt.Sprintf("| %s | %s | %s | %s |", h.what, h.show(h.ours), under, h.compared(h.got))
	if h.want == 0 { // a peer
		return row
	}
	if h.least {
		bound = "at least "
	}
	if h.met() {
		verdict = "met"
	}
	return row + fmt.Sprintf(" %s%s | %s |", bound, h.compared(h.want), verdict)
}

const head = `# How fast it is

Made by ` + "`make performance`" + ` on %s. Each line comes from one run of a benchmark that
measures both sides: read the comparison, not the times, which belong to the machine below.

- %s

## Beside what is underneath

| What | Here | Under it | Compared | Wanted | |
|---|---|---|---|---|---|
%s
## Beside what people use instead

| What | Here | Instead | Compared |
|---|---|---|---|
%s
Not measured here: llm-sandbox's guide to pools of containers gives 3 to 5 seconds for what creating
one adds to a run (docs/container-pooling.md of its repository, read on 2026-11-25).
`

// page returns the text of the page.
func page(when time.Time, machine []string, found, beside []finding) string {
	rows := func(all []finding) string {
		var b strings.Builder
		for _, h := range all {
			fmt.Fprintln(&b, h.row())
		}
		return b.String()
	}
	return fmt.Sprintf(head, when.Format(time.DateOnly), strings.Join(machine, "\n- "), rows(found), rows(beside))
}
