package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// What is committed is what make matrix would write.
func TestRenderedReportsAreFresh(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	pages, err := rendered(reportsDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v: run make matrix", err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its reports say: run make matrix", name)
		}
	}
}

func TestMatrix(t *testing.T) {
	head := "|  | [one](reports/one.md) | [two](reports/two.md) |\n| --- | --- | --- |\n"
	report := func(name string, caps executor.Capabilities) finding {
		return finding{subject{name: name, dir: name}, &conformance.Report{Info: executor.Info{Capabilities: caps}, Mode: conformance.Live, Conformant: true}}
	}
	var b bytes.Buffer
	findings := []finding{
		report("one", executor.Capabilities{
			Isolation: executor.IsolationWasm,
			Features:  []executor.Feature{executor.FeatureCode},
			Languages: []executor.Runtime{
				{Language: executor.Python, Features: []executor.Feature{executor.FeatureState, executor.FeatureStdin}},
				{Language: executor.JavaScript, Features: []executor.Feature{executor.FeatureState}},
			},
		}),
		report("two", executor.Capabilities{Isolation: executor.IsolationContainer, Languages: []executor.Runtime{{Language: executor.Python}}}),
	}
	findings[1].Conformant, findings[1].Totals = false, map[conformance.Outcome]int{conformance.Known: 2}
	writeMatrix(&b, findings)
	for _, want := range []string{
		head,
		"| report | conformant, live, 0 cases | not conformant, 2 known failures, live, 0 cases |\n",
		"| isolation | wasm | container |\n",
		"| languages | python, javascript | python |\n",
		"| `code` | yes | – |\n",
		"| `state` | yes | – |\n",
		"| `stdin` | python | – |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%s\nwithout %q", b.String(), want)
		}
	}
}

func TestMatrixOfReadme(t *testing.T) {
	report := func(name, dir string, fs ...executor.Feature) finding {
		return finding{subject{name: name, dir: dir}, &conformance.Report{Info: executor.Info{Capabilities: executor.Capabilities{Features: fs}}}}
	}
	name := filepath.Join(t.TempDir(), "README.md")
	findings := []finding{
		report("one", "one", executor.FeatureCode, executor.FeatureAttach, executor.FeatureList), report("two", "two", executor.FeatureCode),
		report("two-otherwise", "two"), // has no column, and its declarations make no row
	}
	if err := os.WriteFile(name, []byte("above\n"+matrixBegin+"old\n"+matrixEnd+"below\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := withMatrix(name, findings)
	want := "above\n" + matrixBegin + "|  | [one](docs/reports/one.md) | [two](docs/reports/two.md) |\n| --- | --- | --- |\n| `attach`, `list` | yes | – |\n" + matrixEnd + "below\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := os.WriteFile(name, []byte(matrixBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := withMatrix(name, findings); err == nil {
		t.Error("a README without an end of the matrix is taken")
	}
}

// Every line is explained, and there is no explanation left of a line that has gone.
func TestMoves(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for _, m := range moves {
		var reports [2]*conformance.Report
		for i, name := range []string{m.from, m.to} {
			f, err := os.Open(filepath.Join(reportsDir, name+".json"))
			if errors.Is(err, fs.ErrNotExist) { // TestReportsAreFresh says which may be missing
				t.Logf("%s to %s: no report of %s yet", m.from, m.to, name)
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			reports[i], err = conformance.ParseReport(f)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		if reports[0] == nil || reports[1] == nil {
			continue
		}
		changes, err := conformance.Diff(reports[0], reports[1])
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]bool{}
		for _, c := range changes {
			why := m.because(c.What)
			if why == "" {
				t.Errorf("%s to %s: %s is not explained", m.from, m.to, c.What)
			}
			used[why] = true
		}
		for what, why := range m.why {
			if !used[why] {
				t.Errorf("%s to %s: %s is explained and no change", m.from, m.to, what)
			}
		}
	}
	if m := (move{why: map[string]string{"a.": "all", "a.b.c": "one"}}); m.because("a.b.c") != "one" || m.because("a.b.d") != "all" || m.because("b") != "" {
		t.Error("the closest explanation does not win")
	}
}
