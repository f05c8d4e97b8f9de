package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			got, err := goTest(t.Context(), &out, dir, tt.ci, nil, "./...")
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
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
	if got, err := goTest(t.Context(), &out, dir, false, nil, "./..."); err == nil && got.failed == 0 {
		t.Errorf("got %v and no error\n%s", got, out.String())
	}
}

func TestTableIsSortedByTime(t *testing.T) {
	var out strings.Builder
	r := newRecorder(&out, false)
	for _, line := range []string{
		`{"Action":"pass","Package":"short","Test":"TestA"}`,
		`{"Action":"pass","Package":"short","Elapsed":6}`,
		`{"Action":"pass","Package":"long","Test":"TestB"}`,
		`{"Action":"pass","Package":"long","Elapsed":90}`,
		`{"Action":"pass","Package":"unfinished","Test":"TestC"}`,
		`{"Action":"skip","Package":"without-tests","Elapsed":0}`,
	} {
		if err := r.read(strings.NewReader(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	got, want := r.finish(), tally{passed: 3, failed: 1}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	wantTable := `FAIL  unfinished did not end

minutes  passed  failed  skipped  package
   1.50       1       0        0  long
   0.10       1       0        0  short
   0.00       1       1        0  unfinished
   1.60       3       1        0  all
`
	if out.String() != wantTable {
		t.Errorf("got\n%s\nwant\n%s", out.String(), wantTable)
	}
}
