package conformance

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

var update = flag.Bool("update", false, "write the golden files")

// sample returns a report with a line of every outcome, and with what code in a sandbox could put
// into one.
func sample() *Report {
	r := &Report{
		Suite: Version, Implementation: Implementation{Name: "sample", Version: "1.2", URL: "https://example.org/sample"}, Mode: Emulated,
		Info: executor.Info{Name: "local", Type: "sample", Capabilities: executor.Capabilities{
			Features: []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone}, Isolation: executor.IsolationWasm,
			Languages: []executor.Runtime{
				{Language: executor.Python, Version: "3.13", Features: []executor.Feature{executor.FeatureState, executor.FeatureStdin}},
				{Language: executor.JavaScript, Features: []executor.Feature{executor.FeatureState}},
			},
			Templates: []string{"data"}, MaxRun: executor.RunLimits{WallTime: time.Hour}, MaxLimits: executor.Limits{MemoryBytes: 1 << 30},
		}},
		Go: "go1.26", Platform: "linux/amd64", Date: time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC),
		Cases: []Line{
			{ID: "python/state/kept", Doc: "State is kept.", Language: executor.Python, Feature: executor.FeatureState, Declared: true, Outcome: Passed, Millis: 12},
			{ID: "javascript/state/kept", Doc: "State is kept.", Language: executor.JavaScript, Feature: executor.FeatureState, Declared: true, Outcome: Known, Reason: "ticket 7: lost"},
			{ID: "javascript/stdin/read", Doc: "Code reads.", Language: executor.JavaScript, Feature: executor.FeatureStdin, Outcome: Refused, Millis: 3},
			{ID: "python/stdin/read", Doc: "Code reads.", Language: executor.Python, Feature: executor.FeatureStdin, Declared: true, Outcome: Failed, Millis: 1500,
				Reason: "got \"a|b\" <script>\x1b\x00\nsecond line", Log: []string{"got \"a|b\" <script>\x1b\x00\nsecond line", "more"}},
			{ID: "python/streaming/live", Doc: "Events come | at once.", Language: executor.Python, Feature: executor.FeatureStreaming, Outcome: Unchecked, NotApplicable: true, Reason: "promise not declared"},
			{ID: "attach/other", Doc: "Attach.", Feature: executor.FeatureAttach, Outcome: Unchecked, Reason: "attach is not declared, and the case has no negative form"},
			{ID: "attach/none", Doc: "Attach.", Feature: executor.FeatureAttach, Outcome: Unchecked, Reason: notSelected},
			{ID: "create/slow", Doc: "Create.", Declared: true, Outcome: Errored, Reason: "no engine"},
			{ID: "create/fine", Doc: "Create.", Declared: true, Outcome: Stale, Reason: "listed as a known failure, but it holds: x"},
			{ID: "declares", Doc: "Declared.", Declared: true, Outcome: Passed},
		},
	}
	r.finish(nil)
	return r
}

func TestGolden(t *testing.T) {
	for name, render := range map[string]func(*Report, io.Writer) error{
		"report.json": (*Report).JSON, "report.md": (*Report).Markdown, "report.xml": (*Report).JUnit,
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(sample(), &got); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got\n%s\nwant\n%s", &got, want)
			}
		})
	}
}

func TestJUnitIsXML(t *testing.T) {
	var b bytes.Buffer
	if err := sample().JUnit(&b); err != nil {
		t.Fatal(err)
	}
	var s junitSuites
	if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if got := s.Suites[0]; got.Tests != 10 || got.Failures != 3 || got.Errors != 1 || got.Skipped != 3 {
		t.Errorf("got %d tests, %d failures, %d errors, %d skipped, want 10, 3, 1, 3", got.Tests, got.Failures, got.Errors, got.Skipped)
	}
}

func TestParseReport(t *testing.T) {
	var b bytes.Buffer
	if err := sample().JSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	r, err := ParseReport(strings.NewReader(text))
	if err != nil || !reflect.DeepEqual(r, sample()) {
		t.Errorf("got %+v, %v", r, err)
	}
	for name, edit := range map[string][2]string{
		"greener":    {`"conformant": false`, `"conformant": true`},
		"fewer":      {`"failed": 1`, `"failed": 0`},
		"an-outcome": {`"outcome": "failed"`, `"outcome": "passed"`},
		"no-outcome": {`"outcome": "failed"`, `"outcome": "fine"`},
		"cut":        {"}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(text, edit[0]) {
				t.Fatalf("the report has no %q", edit[0])
			}
			edited := strings.Replace(text, edit[0], edit[1], 1)
			if name == "cut" {
				edited = text[:len(text)-3]
			}
			if _, err := ParseReport(strings.NewReader(edited)); err == nil {
				t.Error("got no error")
			}
		})
	}
}

func TestConformant(t *testing.T) {
	for name, c := range map[string]struct {
		line Line
		want bool
	}{
		"passed":    {Line{Outcome: Passed}, true},
		"refused":   {Line{Outcome: Refused}, true},
		"n/a":       {Line{Outcome: Unchecked, NotApplicable: true}, true},
		"unchecked": {Line{Outcome: Unchecked}, false},
		"known":     {Line{Outcome: Known}, false},
		"stale":     {Line{Outcome: Stale}, false},
		"errored":   {Line{Outcome: Errored}, false},
		"failed":    {Line{Outcome: Failed}, false},
	} {
		r := Report{Cases: []Line{{ID: "a", Outcome: Passed}, c.line}}
		if r.finish(nil); r.Conformant != c.want {
			t.Errorf("%s: got %v, want %v", name, r.Conformant, c.want)
		}
	}
	var none Report
	if none.finish(nil); none.Conformant {
		t.Error("a report without lines is conformant")
	}
}

func TestStale(t *testing.T) {
	r := sample()
	info := r.Info
	var cases []Case
	for _, l := range r.Cases {
		cases = append(cases, Case{ID: l.ID, Language: l.Language, Feature: l.Feature})
	}
	if got := r.Stale(cases, info); len(got) > 0 {
		t.Errorf("got %q of the report itself", got)
	}
	for name, c := range map[string]struct {
		edit func(*Report, *[]Case, *executor.Info)
		want string
	}{
		"suite":    {func(r *Report, _ *[]Case, _ *executor.Info) { r.Suite = "0" }, "the suite is version " + Version + ", the report is of 0"},
		"new-case": {func(_ *Report, cs *[]Case, _ *executor.Info) { *cs = append(*cs, Case{ID: "new"}) }, "new is a case of the suite and not in the report"},
		"old-case": {func(_ *Report, cs *[]Case, _ *executor.Info) { *cs = (*cs)[1:] }, "attach/none is in the report and not a case of the suite"},
		"feature":  {func(_ *Report, cs *[]Case, _ *executor.Info) { (*cs)[0].Feature = "x-y" }, `attach/none is about "x-y" now, in the report about "attach"`},
		"declared": {func(_ *Report, _ *[]Case, i *executor.Info) {
			i.Capabilities.Features = append(slices.Clone(i.Capabilities.Features), executor.FeatureList)
		}, `capabilities.features.list is "yes" now, in the report "no"`},
		"type": {func(_ *Report, _ *[]Case, i *executor.Info) { i.Type = "other" }, `the backend is of type "other" now, in the report "sample"`},
	} {
		t.Run(name, func(t *testing.T) {
			r, cases, info := sample(), slices.Clone(cases), info
			c.edit(r, &cases, &info)
			if got := r.Stale(cases, info); !slices.Equal(got, []string{c.want}) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	a, b := sample(), sample()
	if got, err := Diff(a, b); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v of a report and itself", got, err)
	}
	b.Mode = Live
	c := &b.Info.Capabilities
	c.Features = []executor.Feature{executor.FeatureCode, executor.FeatureAttach, "x-own"}
	c.Isolation, c.Templates, c.MaxLife = executor.IsolationMicroVM, []string{"other"}, 24*time.Hour
	c.DefaultLimits = executor.Limits{MemoryBytes: 5, CPUs: 0.25, Processes: 3, DiskBytes: 4}
	c.MaxRun, c.MaxLimits = executor.RunLimits{OutputBytes: 100}, executor.Limits{MemoryBytes: 1 << 30, CPUs: 0.5, Processes: 9, DiskBytes: 7}
	c.Languages = []executor.Runtime{
		{Language: "r", Version: "4"},
		{Language: executor.Python, Version: "3.14", Features: []executor.Feature{executor.FeatureState}, Varies: []executor.Feature{executor.FeatureStdin}},
	}
	for i := range b.Cases {
		switch l := &b.Cases[i]; l.ID {
		case "python/stdin/read": // it failed in a
			l.Outcome = Passed
		case "python/state/kept": // what is declared differs
			l.Outcome, l.Declared = Refused, false
		case "declares":
			l.Outcome = Failed
		}
	}
	b.Cases = slices.DeleteFunc(b.Cases, func(l Line) bool { return l.Language == executor.JavaScript })
	got, err := Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range got {
		if c.Doc == "" {
			t.Errorf("%s has no Doc", c.What)
		}
		lines = append(lines, c.What+": "+c.From+" > "+c.To)
	}
	want := []string{
		"capabilities.features.attach: no > yes",
		"capabilities.features.network-none: yes > no",
		"capabilities.features.x-own: no > yes",
		"capabilities.default_language: python > r",
		"capabilities.languages.python.version: 3.13 > 3.14",
		"capabilities.languages.python.features.stdin: yes > in some sessions",
		"capabilities.languages.javascript: yes > no",
		"capabilities.languages.r: no > yes 4",
		"capabilities.isolation: wasm > microvm",
		"capabilities.templates.data: yes > no",
		"capabilities.templates.other: no > yes",
		"capabilities.max_limits.cpus: no known bound > 0.5",
		"capabilities.max_limits.disk_bytes: no known bound > 7",
		"capabilities.max_limits.processes: no known bound > 9",
		"capabilities.default_limits.cpus: not known > 0.25",
		"capabilities.default_limits.memory_bytes: not known > 5",
		"capabilities.default_limits.disk_bytes: not known > 4",
		"capabilities.default_limits.processes: not known > 3",
		"capabilities.max_run.wall_time: 1h0m0s > no known bound",
		"capabilities.max_run.output_bytes: no known bound > 100",
		"capabilities.max_life: no known bound > 24h0m0s",
		"mode: emulated > live",
		"declares: passed > failed",
		"python/stdin/read: failed > passed",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	b.Suite = "0"
	if _, err := Diff(a, b); err == nil {
		t.Error("got no error for reports of different suites")
	}
}

// TestDiffKnowsEveryDeclaration fails when a field is added to the declarations. Diff has to look
// at it.
func TestDiffKnowsEveryDeclaration(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{executor.Capabilities{}, "Features Varies Languages Templates Isolation MaxLimits DefaultLimits MaxRun MaxLife"},
		{executor.Runtime{}, "Language Version Features Varies Isolation"},
		{executor.Limits{}, "CPUs MemoryBytes DiskBytes Processes"},
		{executor.RunLimits{}, "WallTime OutputBytes"},
	} {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.v)) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%T: got the fields %s, want %s: see diffCapabilities", c.v, got, c.want)
		}
	}
}
