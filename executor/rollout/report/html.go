package report

import (
	_ "embed" // for the page
	"html/template"
	"io"
	"strings"

	"github.com/execbroker/execbroker/executor/rollout"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"known": known, "moment": moment, "percent": percent, "allowed": allowed, "decided": decided,
}).Parse(page))

// section is an experiment on the page.
type section struct {
	rollout.Experiment
	Speaks string
	Rows   []figureRow
	Plots  []plot
}

// figureRow is a figure of each arm.
type figureRow struct {
	Name    string
	Figures []string
}

// HTML writes a page that needs no other file and no script.
func HTML(w io.Writer, all []rollout.Experiment) error {
	var sections []section
	for _, x := range all {
		s := section{Experiment: x, Speaks: speaks(x), Plots: plots(x)}
		for _, r := range rows {
			f := figureRow{Name: r.name}
			for _, a := range x.Arms {
				f.Figures = append(f.Figures, r.figure(a))
			}
			s.Rows = append(s.Rows, f)
		}
		sections = append(sections, s)
	}
	var out strings.Builder
	err := pageTemplate.Execute(&out, struct {
		Sections []section
		Method   string
	}{sections, method})
	if err == nil { // the template escapes what has a meaning in HTML, and lets controls pass
		_, err = io.WriteString(w, visible(out.String()))
	}
	return err
}

// visible is clean for text of several lines.
func visible(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = clean(l)
	}
	return strings.Join(lines, "\n")
}
