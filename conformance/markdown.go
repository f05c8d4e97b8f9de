package conformance

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/execbroker/execbroker/executor"
)

// Markdown renders a report for people: what was tested, what it can do, what is wrong, and then
// every rule with its outcome, by area.
func (r *Report) Markdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	m := markdown{b, r}
	m.summary()
	m.capabilities()
	m.troubles()
	for _, a := range m.areas() {
		m.area(a)
	}
	return b.Flush()
}

type markdown struct {
	*bufio.Writer
	r *Report
}

func (m markdown) printf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

// row writes a row of a table. What the cells hold may come from code in a sandbox.
func (m markdown) row(cells ...string) {
	for _, c := range cells {
		m.printf("| %s ", c)
	}
	m.printf("|\n")
}

// head writes the first two rows of a table.
func (m markdown) head(cells ...string) {
	m.row(cells...)
	m.printf("%s|\n", strings.Repeat("|---", len(cells)))
}

var cell = strings.NewReplacer("|", `\|`, "<", `\<`, "`", "\\`", "*", `\*`, "[", `\[`, "\r", " ", "\n", " ")

func (m markdown) summary() {
	r := m.r
	m.printf("# Conformance of %s %s\n\n", cell.Replace(r.Implementation.Name), cell.Replace(r.Implementation.Version))
	verdict := "**Not conformant.**"
	if r.Conformant {
		verdict = "**Conformant.**"
	}
	m.printf("%s %s\n\n", verdict, m.totals())
	m.head("", "")
	m.row("Suite", "version "+cell.Replace(r.Suite))
	m.row("Mode", string(r.Mode)+", "+map[Mode]string{
		Live:     "the real service",
		Emulated: "a stand-in that speaks the service's protocol and really runs the code: this says nothing about the service",
		Fake:     "a stand-in that runs no code: this says nothing about a service",
	}[r.Mode])
	m.row("Backend", cell.Replace(fmt.Sprintf("%s, of type %s", r.Info.Name, r.Info.Type)))
	if r.Implementation.URL != "" {
		m.row("Home", cell.Replace(r.Implementation.URL))
	}
	m.row("Tested on", cell.Replace(fmt.Sprintf("%s, %s, %s", r.Platform, r.Go, r.Date.Format("2006-01-02"))))
	m.printf("\n")
}

// totals says how many cases had which outcome.
func (m markdown) totals() string {
	parts := []string{fmt.Sprintf("%d cases:", len(m.r.Cases))}
	for _, o := range []Outcome{Passed, Refused, Failed, Errored, Known, Stale, Unchecked} {
		n := m.r.Totals[o]
		if n == 0 {
			continue
		}
		word := fmt.Sprintf("%d %s", n, o)
		if o == Unchecked {
			not := len(slices.Collect(m.lines(func(l Line) bool { return l.NotApplicable })))
			word = fmt.Sprintf("%d unchecked (%d do not apply)", n, not)
		}
		parts = append(parts, word+",")
	}
	return strings.TrimSuffix(strings.Join(parts, " "), ",") + "."
}

func (m markdown) lines(which func(Line) bool) func(yield func(Line) bool) {
	return func(yield func(Line) bool) {
		for _, l := range m.r.Cases {
			if which(l) && !yield(l) {
				return
			}
		}
	}
}

func (m markdown) capabilities() {
	c := m.r.Info.Capabilities
	m.printf("## Capabilities\n\n")
	head := []string{"Feature", "", "What it is"}
	m.head(head...)
	for _, f := range executor.Features() {
		if !f.PerLanguage {
			m.row("`"+string(f.Feature)+"`", having(f.Feature, c.Features, c.Varies), cell.Replace(f.Doc))
		}
	}
	m.printf("\n")
	if len(c.Languages) == 0 {
		return
	}
	head = []string{"Feature of a language"}
	for _, r := range c.Languages {
		head = append(head, cell.Replace(strings.TrimSpace(string(r.Language)+" "+r.Version)))
	}
	m.head(append(head, "What it is")...)
	for _, f := range executor.Features() {
		if !f.PerLanguage {
			continue
		}
		row := []string{"`" + string(f.Feature) + "`"}
		for _, r := range c.Languages {
			row = append(row, having(f.Feature, r.Features, r.Varies))
		}
		m.row(append(row, cell.Replace(f.Doc))...)
	}
	m.printf("\n")
	m.head("Bound", "")
	m.row("isolation", cell.Replace(string(c.Isolation)))
	for _, r := range c.Languages {
		if r.Isolation != "" {
			m.row("isolation of "+cell.Replace(string(r.Language)), cell.Replace(string(r.Isolation)))
		}
	}
	m.row("CPUs of a sandbox", bound(c.MaxLimits.CPUs))
	m.row("memory of a sandbox, bytes", bound(c.MaxLimits.MemoryBytes))
	m.row("disk of a sandbox, bytes", bound(c.MaxLimits.DiskBytes))
	m.row("processes of a sandbox", bound(c.MaxLimits.Processes))
	m.row("wall time of a run", bound(c.MaxRun.WallTime))
	m.row("output of a run, bytes", bound(c.MaxRun.OutputBytes))
	m.row("life of a sandbox", bound(c.MaxLife))
	if len(c.Templates) > 0 {
		m.row("templates", cell.Replace(strings.Join(c.Templates, ", ")))
	}
	m.printf("\n")
}

// troubles lists what keeps the report from being conformant, with all that is known about it.
func (m markdown) troubles() {
	bad := slices.Collect(m.lines(func(l Line) bool { return !l.green() }))
	if len(bad) == 0 {
		return
	}
	m.printf("## What is wrong\n\n")
	for _, l := range bad {
		m.printf("- `%s`, %s. %s\n\n", l.ID, l.Outcome, cell.Replace(l.Doc))
		log := l.Log
		if len(log) == 0 || log[0] != l.Reason { // it is the first line of the log, unless the case is a known failure
			log = append([]string{l.Reason}, log...)
		}
		for _, text := range log {
			for line := range strings.Lines(text) {
				m.printf("      %s\n", strings.Map(printable, strings.TrimRight(line, "\r\n")))
			}
		}
		m.printf("\n")
	}
}

// printable replaces what code in a sandbox could use to play with a terminal.
func printable(r rune) rune {
	if r != '\t' && !unicode.IsPrint(r) {
		return '\uFFFD'
	}
	return r
}

// area returns what the ID of a case says that it is about.
func (l Line) area() string {
	id := l.rule()
	if a, _, ok := strings.Cut(id, "/"); ok {
		return a
	}
	return "general"
}

// rule returns the ID without its language: the same rule for each of them.
func (l Line) rule() string {
	return strings.TrimPrefix(l.ID, string(l.Language)+"/")
}

func (m markdown) areas() []string {
	all := map[string]bool{}
	for _, l := range m.r.Cases {
		all[l.area()] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// area writes the table of an area: a row for each rule, a column for each language that it was
// checked in.
func (m markdown) area(name string) {
	var columns []executor.Language
	outcomes := map[string]map[executor.Language]Line{}
	for l := range m.lines(func(l Line) bool { return l.area() == name }) {
		if !slices.Contains(columns, l.Language) {
			columns = append(columns, l.Language)
		}
		if outcomes[l.rule()] == nil {
			outcomes[l.rule()] = map[executor.Language]Line{}
		}
		outcomes[l.rule()][l.Language] = l
	}
	slices.Sort(columns)
	m.printf("## %s\n\n", cell.Replace(name))
	head := []string{"Case", "Rule"}
	for _, l := range columns {
		if l == "" {
			head = append(head, "Outcome")
		} else {
			head = append(head, cell.Replace(string(l)))
		}
	}
	m.head(head...)
	for _, rule := range slices.Sorted(maps.Keys(outcomes)) {
		row, doc := []string{"`" + rule + "`"}, ""
		var cells []string
		for _, lang := range columns {
			l, ok := outcomes[rule][lang]
			word := ""
			switch {
			case !ok:
			case l.green():
				word, doc = l.verdict(), l.Doc
			default:
				word, doc = "**"+l.verdict()+"**", l.Doc
			}
			cells = append(cells, word)
		}
		m.row(append(append(row, cell.Replace(doc)), cells...)...)
	}
	m.printf("\n")
}
