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

// withMatrix returns a page with the matrix between its marks, made short: only rows in which
// backends differ, and one row for all features that the same backends have. Other configurations
// of a backend have no column.
func withMatrix(name string, findings []finding) ([]byte, error) {
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
	backends := slices.DeleteFunc(slices.Clone(findings), func(r finding) bool { return !r.backend() })
	var rows [][]string
	for i, row := range matrixRows(backends, reportsDir) {
		cells := row[1:]
		same := func(r []string) bool { return slices.Equal(r[1:], cells) }
		if i < 2 {
			rows = append(rows, row)
		} else if at := slices.IndexFunc(rows, same); at >= 0 {
			rows[at][0] += ", " + row[0]
		} else if slices.ContainsFunc(cells, func(c string) bool { return c != cells[0] }) {
			rows = append(rows, row)
		}
	}
	for _, row := range rows {
		writeRow(&b, row)
	}
	b.WriteString(matrixEnd)
	b.Write(after)
	return b.Bytes(), nil
}

// writeMatrix writes what each backend declares and the suite has confirmed, side by side.
func writeMatrix(b *bytes.Buffer, findings []finding) {
	fmt.Fprint(b, "# What each backend can do\n\nMade by `make matrix` from the [reports](reports) of the conformance suite.\n\n")
	for _, row := range matrixRows(findings, "reports") {
		writeRow(b, row)
	}
	fmt.Fprint(b, "\n`yes` holds for every language of the backend. `go doc executor.Features` and each report explain\n"+
		"the features. `e2b-code-interpreter` is `e2b` with the [kernel](guides/e2b.md#kernels) of that name.\n"+
		"The suite runs it in Python only; it has more languages.\n")
}

func writeRow(b *bytes.Buffer, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// matrixRows returns the rows, each with its name first: the two of the head, and one for each
// thing to know. Pages of reports are in dir.
func matrixRows(findings []finding, dir string) (rows [][]string) {
	row := func(first string, cell func(r finding) string) {
		cells := []string{first}
		for _, r := range findings {
			cells = append(cells, cell(r))
		}
		rows = append(rows, cells)
	}
	row("", func(r finding) string {
		return fmt.Sprintf("[%s](%s/%s.md)", r.name, dir, r.name)
	})
	row("---", func(finding) string { return "---" })
	row("report", func(r finding) string {
		verdict := "not conformant"
		switch known := r.Totals[conformance.Known]; {
		case r.Conformant:
			verdict = "conformant"
		case known == 1:
			verdict += ", 1 known failure"
		case known > 1:
			verdict += fmt.Sprintf(", %d known failures", known)
		}
		return fmt.Sprintf("%s, %s, %d cases", verdict, r.Mode, len(r.Cases))
	})
	row("isolation", func(r finding) string { return string(r.Info.Capabilities.Isolation) })
	row("languages", func(r finding) string {
		return strings.Join(having(r.Info.Capabilities, func(executor.Runtime) bool { return true }), ", ")
	})
	for _, f := range executor.Features() {
		row(fmt.Sprintf("`%s`", f.Feature), func(r finding) string {
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
