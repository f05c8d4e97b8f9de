package performance

import (
	"cmp"
	"fmt"
	"slices"
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
	case strings.HasPrefix(unit, "reads-"), strings.HasPrefix(unit, "writes-"):
		return fmt.Sprintf("%.1f", v)
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

// bound is the cell of a claim that says what is wanted.
func (c claim) bound() string {
	if c.least {
		return "at least " + c.compared(c.want)
	}
	return "at most " + c.compared(c.want)
}

// row is the line of the table.
func (h finding) row() string {
	under, verdict := "–", "**missed**"
	if h.under != "" {
		under = h.show(h.raw) + ": " + h.under
	}
	row := fmt.Sprintf("| %s | %s | %s | %s |", h.what, h.show(h.ours), under, h.compared(h.got))
	if h.want == 0 { // a peer
		return row
	}
	if h.met() {
		verdict = "met"
	}
	return row + fmt.Sprintf(" %s | %s |", h.bound(), verdict)
}

// pending is the line of a claim that was not measured since it changed in a commit.
func (c claim) pending(commit string) string {
	row := fmt.Sprintf("| %s | – | %s |", c.what, cmp.Or(c.under, "–"))
	mark := "not measured since " + commit + " changed this line |"
	if c.want == 0 {
		return row + " " + mark
	}
	return row + fmt.Sprintf(" – | %s | %s", c.bound(), mark)
}

// describes reports whether a line of the page is about c as it is now, measured or not.
func (c claim) describes(row string) bool {
	cells := strings.Split(strings.Trim(row, "| \n"), " | ")
	if len(cells) < 4 || cells[0] != c.what || c.want != 0 && (len(cells) != 6 || cells[4] != c.bound()) {
		return false
	}
	_, under, measured := strings.Cut(cells[2], ": ")
	if !measured {
		under = cells[2]
	}
	return under == cmp.Or(c.under, "–")
}

// rewrite returns the text of the page with a line for each claim of today. A line whose claim is
// as it was keeps its figures; another has none, and a mark with the commit.
func rewrite(text, commit string, tables ...[]claim) (string, error) {
	var b strings.Builder
	for i, table := range tables {
		head, rest, ok := strings.Cut(text, "\n| What |")
		if !ok {
			return "", fmt.Errorf("%s has %d tables, want %d: run make performance", Page, i, len(tables))
		}
		body, after, ok := strings.Cut("\n| What |"+rest, "\n\n")
		if !ok {
			return "", fmt.Errorf("%s ends in a table: run make performance", Page)
		}
		rows := strings.Split(body, "\n")[1:]
		fmt.Fprintf(&b, "%s\n%s\n", head, strings.Join(rows[:2], "\n"))
		for _, c := range table {
			row := c.pending(commit)
			if at := slices.IndexFunc(rows, c.describes); at >= 0 {
				row = rows[at]
			}
			fmt.Fprintln(&b, row)
		}
		text = "\n" + after
	}
	b.WriteString(text)
	return b.String(), nil
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
