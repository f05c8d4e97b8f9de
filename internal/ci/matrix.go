package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// What stands around the matrix in the README.
const (
	matrixBegin = "<!-- matrix: made by make matrix -->\n"
	matrixEnd   = "<!-- /matrix -->\n"
)

// withMatrix returns a page with the rows of the matrix between its marks in which backends differ.
func withMatrix(name string, reports []*conformance.Report) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	before, rest, ok := bytes.Cut(text, []byte(matrixBegin))
	_, after, closed := bytes.Cut(rest, []byte(matrixEnd))
	if !ok || !closed {
		return nil, fmt.Errorf("%s: want a line %q and a line %q", name, strings.TrimSpace(matrixBegin), strings.TrimSpace(matrixEnd))
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(matrixBegin)
	for i, row := range matrixRows(reports, reportsDir) {
		if cells := row[1:]; i < 2 || slices.ContainsFunc(cells, func(c string) bool { return c != cells[0] }) {
			writeRow(&b, row)
		}
	}
	b.WriteString(matrixEnd)
	b.Write(after)
	return b.Bytes(), nil
}

// writeMatrix writes what each backend declares and the suite has confirmed, side by side.
func writeMatrix(b *bytes.Buffer, reports []*conformance.Report) {
	fmt.Fprint(b, "# What each backend can do\n\nMade by `make matrix` from the [reports](reports) of the conformance suite.\n\n")
	for _, row := range matrixRows(reports, "reports") {
		writeRow(b, row)
	}
	fmt.Fprint(b, "\n`yes` holds for every language of the backend. What a feature means says `go doc executor.Features`, and each report.\n")
}

func writeRow(b *bytes.Buffer, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// matrixRows returns the rows, each with its name first: the two of the head, and one for each thing to know. Pages of reports are in dir.
func matrixRows(reports []*conformance.Report, dir string) (rows [][]string) {
	row := func(first string, cell func(r *conformance.Report) string) {
		cells := []string{first}
		for _, r := range reports {
			cells = append(cells, cell(r))
		}
		rows = append(rows, cells)
	}
	row("", func(r *conformance.Report) string {
		return fmt.Sprintf("[%s](%s/%s.md)", r.Info.Type, dir, r.Info.Type)
	})
	row("---", func(*conformance.Report) string { return "---" })
	row("report", func(r *conformance.Report) string {
		verdict := "not conformant"
		if r.Conformant {
			verdict = "conformant"
		}
		return fmt.Sprintf("%s, %s, %d cases", verdict, r.Mode, len(r.Cases))
	})
	row("isolation", func(r *conformance.Report) string { return string(r.Info.Capabilities.Isolation) })
	row("languages", func(r *conformance.Report) string {
		return strings.Join(having(r.Info.Capabilities, func(executor.Runtime) bool { return true }), ", ")
	})
	for _, f := range executor.Features() {
		row(fmt.Sprintf("`%s`", f.Feature), func(r *conformance.Report) string {
			c := r.Info.Capabilities
			if !f.PerLanguage {
				if slices.Contains(c.Features, f.Feature) {
					return "yes"
				}
				return "–"
			}
			in := having(c, func(l executor.Runtime) bool { return slices.Contains(l.Features, f.Feature) })
			switch len(in) {
			case 0:
				return "–"
			case len(c.Languages):
				return "yes"
			}
			return strings.Join(in, ", ")
		})
	}
	return rows
}

func having(c executor.Capabilities, f func(executor.Runtime) bool) (names []string) {
	for _, l := range c.Languages {
		if f(l) {
			names = append(names, string(l.Language))
		}
	}
	return names
}
