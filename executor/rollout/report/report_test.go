package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/rollout/report"
)

var at = time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)

func times(n int64, p50, p95, p99 rollout.Quantile) rollout.Times {
	return rollout.Times{Count: n, P50: p50, P95: p95, P99: p99}
}

// experiments are one with a rollout, one that has names from an attacker, and one without figures.
func experiments() []rollout.Experiment {
	old := rollout.Arm{
		Backend: "box", Share: .75, Sessions: 900, Pending: 12, Unobserved: 3, Success: rollout.NewRate(880, 885), Turns: 2400,
		Outcomes: map[rollout.Outcome]int64{rollout.OK: 2100, rollout.Code: 270, rollout.Fallback: 5, rollout.Refused: 20, rollout.Quota: 5},
		Answered: rollout.NewRate(2370, 2375), Code: rollout.NewRate(2100, 2370), Errors: map[string]int64{"denied": 25},
		Cold: times(870, rollout.Quantile{Seconds: .31, Low: .3, High: .32}, rollout.Quantile{Seconds: .6, Low: .55, High: .7}, rollout.Quantile{Seconds: 1.2, Low: 1, High: 2}),
		Warm: times(1500, rollout.Quantile{Seconds: .0042, Low: .004, High: .0044}, rollout.Quantile{Seconds: .02, Low: .018, High: .023}, rollout.Quantile{Seconds: .09, Low: .07, High: .13}),
		Cost: 4_500_000, SessionCost: rollout.NewMean(888, 4.5, .03),
	}
	next := rollout.Arm{
		Backend: "cloud", Share: .25, Sessions: 300, Pending: 40, Success: rollout.NewRate(231, 260), Turns: 700,
		Outcomes: map[rollout.Outcome]int64{rollout.OK: 600, rollout.Code: 60, rollout.Outage: 30, rollout.Capacity: 10},
		Answered: rollout.NewRate(660, 700), Code: rollout.NewRate(600, 660), Errors: map[string]int64{"unavailable": 30, "exhausted": 10},
		Cold: times(60, rollout.Quantile{Seconds: .9, Low: .7, High: 1.1}, rollout.Quantile{Seconds: 3, Low: 2.1}, rollout.Quantile{Seconds: 4, Low: 2.5}),
		Warm: times(600, rollout.Quantile{Seconds: .012, Low: .011, High: .013}, rollout.Quantile{Seconds: .05, Low: .04, High: .08}, rollout.Quantile{Seconds: .4, Low: .2, High: 1}),
		Cost: 9_000_000, SessionCost: rollout.NewMean(290, 9, .4),
	}
	r := &rollout.Report{
		Route: "chat", To: "cloud", Share: 0, Status: rollout.RolledBack, Since: at.Add(time.Hour),
		Guards: []rollout.Finding{
			{Guard: "success", Pairs: 260, Old: .006, New: .11, Low: .03, High: .3, Margin: .01, Harm: true},
			{Guard: "p95", Pairs: 260, Old: .05, New: .08, Low: -.03, High: .1, Shown: true},
		},
		Log: []rollout.Decision{
			{Time: at, What: "begin", Step: 25}, {Time: at.Add(time.Hour), What: "pause", Step: 25, Why: "by hand", By: "<ann>"},
			{Time: at.Add(2 * time.Hour), What: "roll back", Step: 0, Why: "success: the new arm is worse than the guard allows"},
		},
	}
	const evil = "=cmd|'/c calc'!A1\x1b[31m</title><script>alert(1)</script>\n| `x` [y](javascript:z)"
	return []rollout.Experiment{
		{Route: "chat", Since: at, Horizon: 600, Arms: []rollout.Arm{old, next}, Rollout: r, Verdict: r.Verdict(40)},
		{Route: evil, Since: at, Replica: "@" + evil, Horizon: 90, Arms: []rollout.Arm{{Backend: evil, Success: rollout.NewRate(1, 1), Errors: map[string]int64{evil: 1}}}, Verdict: rollout.Verdict{Word: evil, Text: evil}},
		{Route: "new", Horizon: 600, Arms: []rollout.Arm{{Backend: "a", Share: 1}, {Backend: "b"}}, Verdict: (*rollout.Report)(nil).Verdict(0)},
	}
}

// TestGolden compares each form with its golden file. Run it with UPDATE=1 to write them.
func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer, []rollout.Experiment) error{
		"report.markdown": report.Markdown, "report.html": report.HTML, "report.csv": report.CSV,
	} {
		var got bytes.Buffer
		if err := write(&got, experiments()); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got\n%s", name, &got)
		}
		for _, bad := range []string{"\x1b", "<script", "<ann>"} {
			if name == "report.csv" && bad[0] == '<' {
				continue // means nothing there
			}
			if name == "report.markdown" && strings.Contains(strings.ReplaceAll(got.String(), `\<`, ""), bad) || name != "report.markdown" && strings.Contains(got.String(), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}

// TestHTML: the page is one file without scripts, whose elements are closed and whose plots stay
// inside of their view boxes.
func TestHTML(t *testing.T) {
	var page bytes.Buffer
	if err := report.HTML(&page, experiments()); err != nil {
		t.Fatal(err)
	}
	plots, lines := 0, 0
	d := xml.NewDecoder(bytes.NewReader(page.Bytes()))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch e.Name.Local {
		case "svg":
			plots++
		case "line":
			lines++
		case "script", "link", "img", "iframe", "object", "a":
			t.Errorf("got <%s>", e.Name.Local)
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "src" || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("<%s> has %s=%q", e.Name.Local, a.Name.Local, a.Value)
			}
			switch a.Name.Local {
			case "x1", "x2", "cx":
				if len(a.Value) > 6 || strings.HasPrefix(a.Value, "-") || len(strings.Split(a.Value, ".")[0]) > 3 {
					t.Errorf("<%s> is at %s", e.Name.Local, a.Value)
				}
			}
		}
	}
	if plots != 4 || lines < 20 { // three of the first experiment, one of the second, none of the third
		t.Errorf("got %d plots with %d lines", plots, lines)
	}
}

// TestCSV: every line has the columns of the head, and no cell begins a formula.
func TestCSV(t *testing.T) {
	var got bytes.Buffer
	if err := report.CSV(&got, experiments()); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&got).ReadAll()
	if err != nil || len(all) != 6 {
		t.Fatalf("got %d lines, %v", len(all), err)
	}
	for _, line := range all {
		for i, cell := range line {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
				t.Errorf("%s: got %q", all[0][i], cell)
			}
		}
	}
	if first := all[1]; first[0] != "chat" || first[1] != "2026-11-02T09:30:00Z" || first[3] != "worse" || first[4] != "box" {
		t.Errorf("got %q", first)
	}
}

// TestEmpty: no experiment is no error.
func TestEmpty(t *testing.T) {
	for _, write := range []func(io.Writer, []rollout.Experiment) error{report.Markdown, report.HTML, report.CSV} {
		if err := write(io.Discard, nil); err != nil {
			t.Error(err)
		}
	}
}
