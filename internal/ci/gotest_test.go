package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module of one package for each entry and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.org/m\n\ngo 1.26\n"
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGoTestCounts(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		ci         bool
		want       tally
		says       []string
	}{
		{
			name: "leaves-only",
			file: `func TestA(t *testing.T) { t.Run("x", func(*testing.T) {}); t.Run("y", func(*testing.T) {}) }
			       func TestB(*testing.T) {}`,
			want: tally{passed: 3},
		},
		{
			name: "failing-subtest",
			file: `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) { t.Error("because") }); t.Run("y", func(*testing.T) {}) }`,
			want: tally{passed: 1, failed: 1},
			says: []string{"FAIL  example.org/m TestA/x", "because"},
		},
		{
			name: "failing-subtest-with-a-path",
			file: `func TestA(t *testing.T) { t.Run("x/y/z", func(t *testing.T) { t.Error("because") }) }`,
			want: tally{failed: 1},
			says: []string{"FAIL  example.org/m TestA/x/y/z", "because"},
		},
		{
			name: "parent-fails-by-itself",
			file: `func TestA(t *testing.T) { t.Run("x", func(*testing.T) {}); t.Error("because") }`,
			want: tally{passed: 1, failed: 1},
			says: []string{"FAIL  example.org/m TestA (", "because"},
		},
		{
			name: "skip",
			file: `func TestA(t *testing.T) { t.Skip("because") }`,
			want: tally{skipped: 1},
			says: []string{"skip  example.org/m TestA", "because"},
		},
		{
			name: "skip-in-ci",
			file: `func TestA(t *testing.T) { t.Skip("because") }`,
			ci:   true,
			want: tally{failed: 1},
			says: []string{"FAIL  example.org/m TestA: skipped", "because"},
		},
		{
			name: "panic",
			file: `func TestA(t *testing.T) { panic("because") }`,
			want: tally{failed: 1},
			says: []string{"FAIL  example.org/m TestA", "panic: because"},
		},
		{
			name: "exit-within-a-test",
			file: `func TestA(t *testing.T) {}
			       func TestB(t *testing.T) { os.Exit(3) }`,
			want: tally{passed: 1, failed: 1},
			says: []string{"FAIL  example.org/m TestB"},
		},
		{
			name: "main-fails",
			file: `func TestA(t *testing.T) {}
			       func TestMain(m *testing.M) { m.Run(); println("because"); os.Exit(1) }`,
			want: tally{passed: 1, failed: 1},
			says: []string{"FAIL  example.org/m\n", "because"},
		},
		{
			name: "does-not-build",
			file: `func TestA(t *testing.T) { undefined() }`,
			want: tally{failed: 1},
			says: []string{"FAIL  example.org/m\n", "undefined: undefined"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, map[string]string{"a_test.go": "package m\n\nimport (\"os\"; \"testing\")\nvar _ = os.Exit\n" + tt.file})
			var out strings.Builder
			res, err := goTest(t.Context(), &out, dir, tt.ci, nil, "./...")
			if err != nil {
				t.Fatal(err)
			}
			if got := res.sum(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("the output does not have %q", s)
				}
			}
			if strings.Contains(out.String(), "=== RUN") {
				t.Error("the output has lines that only repeat events")
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

func TestGoTestUnexplained(t *testing.T) {
	dir := module(t, map[string]string{"go.mod.bad": ""})
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("not a module\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if res, err := goTest(t.Context(), &out, dir, false, nil, "./..."); err == nil && res.sum().failed == 0 {
		t.Errorf("got %v and no error\n%s", res.sum(), out.String())
	}
}

func TestTablesOfResults(t *testing.T) {
	var out strings.Builder
	s := newResults(&out, t.TempDir(), false)
	r := newRecorder(&out, false)
	for _, line := range []string{
		`{"Action":"pass","Package":"short","Test":"TestA/x","Elapsed":5}`,
		`{"Action":"pass","Package":"short","Test":"TestA","Elapsed":6}`,
		`{"Action":"pass","Package":"short","Elapsed":6}`,
		`{"Action":"pass","Package":"long","Test":"TestB","Elapsed":60}`,
		`{"Action":"pass","Package":"long","Elapsed":90}`,
		`{"Action":"pass","Package":"unfinished","Test":"TestC"}`,
		`{"Action":"skip","Package":"without-tests","Elapsed":0}`,
	} {
		if err := r.read(strings.NewReader(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	r.finish()
	s.add(r, nil)
	s.lane("engine", 3*time.Minute)
	s.unsteady = []failure{{pkg: "long", test: "TestB"}}
	if got, want := s.sum(), (tally{passed: 4, failed: 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	s.print(true)
	want := `FAIL  unfinished did not end

minutes  budget  passed  failed  skipped  package
   1.50    0.05       1       0        0  long
   0.10    0.05       2       0        0  short
   0.00    0.05       1       1        0  unfinished

minutes  lane
   3.00  engine

minutes  the longest tests
   1.00  long TestB
   0.10  short TestA
   0.00  unfinished TestC

over its budget of 0.05 minutes by more than half: long, 1.50
over its budget of 0.05 minutes by more than half: short, 0.10
UNSTEADY  long TestB
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
