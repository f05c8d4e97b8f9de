package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFuzzTargets(t *testing.T) {
	t.Chdir(module(t, map[string]string{
		"a/a.go":            "package a\n\nfunc FuzzNot() {}\n",
		"a/a_test.go":       "package a\n\nimport \"testing\"\n\nfunc FuzzIn(f *testing.F) {}\n",
		"a/x_test.go":       "package a_test\n\nimport \"testing\"\n\nfunc FuzzOut(f *testing.F) {}\nfunc TestNot(t *testing.T) {}\n",
		"b/b_plan9_test.go": "package b\n\nimport \"testing\"\n\nfunc FuzzElsewhere(f *testing.F) {}\n",
		"b/b.go":            "package b\n",
	}))
	got, err := fuzzTargets(t.Context(), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].ImportPath != "example.org/m/a" || !slices.Equal(got[0].functions, []string{"FuzzIn", "FuzzOut"}) {
		t.Errorf("got %+v, want FuzzIn and FuzzOut of a", got)
	}
}

func TestFuzzFindsAndKeepsFailures(t *testing.T) {
	dir := module(t, map[string]string{"m_test.go": `package m

import "testing"

func FuzzBad(f *testing.F) {
	f.Add("seed")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 4 {
			t.Error("too long")
		}
	})
}

func FuzzGood(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {})
}
`})
	t.Chdir(dir)
	var got tally
	for d := 500 * time.Millisecond; got.failed == 0 && d < 2*time.Minute; d *= 4 { // the machine may be busy
		var err error
		if got, err = fuzz(t.Context(), options{fuzzTime: d, packages: []string{"./..."}, out: t.Output()}); err != nil {
			t.Fatal(err)
		}
	}
	if want := (tally{passed: 1, failed: 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	inputs, err := os.ReadDir(filepath.Join(dir, "testdata", "fuzz", "FuzzBad"))
	if err != nil || len(inputs) != 1 {
		t.Errorf("got %d inputs, %v, want the failing one", len(inputs), err)
	}
}

func TestDeadlineRace(t *testing.T) {
	progress := "fuzz: elapsed: 10s, execs: 7 (0/sec), new interesting: 0 (total: 3)\n"
	for _, tt := range []struct {
		name, out string
		want      bool
	}{
		{"race", progress + "--- FAIL: FuzzX (10.03s)\n    context deadline exceeded\nFAIL\n", true},
		{"reason-of-the-target", progress + "--- FAIL: FuzzX (0.03s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: context deadline exceeded\nFAIL\n", false},
		{"input", progress + "--- FAIL: FuzzX (0.03s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := deadlineRace.MatchString(tt.out); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if got := executions(progress + strings.Replace(progress, "7", "12", 1)); got != "12 executions" {
		t.Errorf("got %q", got)
	}
}
