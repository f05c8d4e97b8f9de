package parity

import (
	"fmt"
	"strings"
)

// Markdown returns the counts of a report and what explains the differences, as tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %d programs | %s |\n|---|%s\n", len(r.Programs), join(Outcomes(), " | "), strings.Repeat("---|", len(Outcomes())))
	for _, name := range r.Backends {
		fmt.Fprintf(&b, "| %s |", name)
		for _, o := range Outcomes() {
			fmt.Fprintf(&b, " %d |", r.Totals[name][o])
		}
		b.WriteByte('\n')
	}
	if len(r.Causes) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n| Cause | | %s |\n|---|---|%s\n", strings.Join(r.Backends, " | "), strings.Repeat("---|", len(r.Backends)))
	for _, c := range r.Causes {
		fmt.Fprintf(&b, "| %s | %s |", strings.ReplaceAll(c.Cause, "|", `\|`), c.Outcome)
		for _, name := range r.Backends {
			fmt.Fprintf(&b, " %d |", c.Programs[name])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func join[T ~string](all []T, sep string) string {
	var texts []string
	for _, s := range all {
		texts = append(texts, string(s))
	}
	return strings.Join(texts, sep)
}
