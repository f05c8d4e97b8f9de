package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/execbroker/execbroker/executor/rollout"
)

// Markdown writes a report that reads well as plain text too.
func Markdown(w io.Writer, all []rollout.Experiment) error {
	b := bufio.NewWriter(w)
	for _, x := range all {
		fmt.Fprintf(b, "# Experiment %s\n\n**%s**\n\n%s\n\n", escape(x.Route), escape(x.Verdict.Text), escape(speaks(x)))
		cells := [][]string{{""}}
		for _, a := range x.Arms {
			cells[0] = append(cells[0], a.Backend)
		}
		for _, r := range rows {
			line := []string{r.name}
			for _, a := range x.Arms {
				line = append(line, r.figure(a))
			}
			cells = append(cells, line)
		}
		table(b, cells)
		if x.Rollout != nil {
			rollouts(b, *x.Rollout)
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b, method)
	return b.Flush()
}

func rollouts(b io.Writer, r rollout.Report) {
	fmt.Fprintf(b, "\n## Rollout to %s: %s, %d %% of new sessions since %s\n\n", escape(r.To), r.Status, r.Share, moment(r.Since))
	cells := [][]string{{"guard", "pairs", "old", "new", "worse by", "allowed", "known"}}
	for _, f := range r.Guards {
		cells = append(cells, []string{f.Guard, whole(int64(f.Pairs)), percent(f.Old), percent(f.New), percent(f.Low) + " to " + percent(f.High), allowed(f), known(f)})
	}
	table(b, cells)
	fmt.Fprintln(b)
	for _, d := range r.Log {
		fmt.Fprintf(b, "- %s\n", escape(decided(d)))
	}
}

// table writes rows of cells, the first of which is the head, with aligned columns.
func table(w io.Writer, cells [][]string) {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for j := range line {
			line[j] = escape(line[j])
			widths[j] = max(widths[j], len([]rune(line[j])))
		}
	}
	for i, line := range cells {
		for j, c := range line {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", widths[j]-len([]rune(c))))
		}
		fmt.Fprintln(w, "|")
		for j := range line {
			if i == 0 {
				fmt.Fprint(w, "|"+strings.Repeat("-", widths[j]+2))
			}
		}
		if i == 0 {
			fmt.Fprintln(w, "|")
		}
	}
}

// escape makes text plain in one line of Markdown and on a terminal.
func escape(s string) string {
	var b strings.Builder
	for _, r := range clean(s) {
		if strings.ContainsRune("\\`*_[]<>|#&!", r) {
			b.WriteRune('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
