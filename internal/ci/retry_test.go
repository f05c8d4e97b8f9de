package main

import (
	"strings"
	"testing"
)

func TestGoTestRetries(t *testing.T) {
	// once fails for the first of the processes that call it, and for that one only.
	const once = `func once(t *testing.T, why string) { if first(t) { t.Error(why) } }
	func first(t *testing.T) bool { return os.Mkdir("first-" + strings.ReplaceAll(t.Name(), "/", "-"), 0o700) == nil }
	`
	for _, tt := range []struct {
		name, file string
		want       tally
		says, not  []string
	}{
		{
			name: "once",
			file: `func TestA(t *testing.T) { t.Run("x [1]", func(t *testing.T) { once(t, "because") }); t.Run("y", func(*testing.T) {}) }`,
			want: tally{passed: 2},
			says: []string{"FAIL  example.org/m TestA/x_[1]", "because", "UNSTEADY  example.org/m TestA/x_[1]"},
		},
		{
			name: "always",
			file: `func TestA(t *testing.T) { t.Error("because") }`,
			want: tally{failed: 1},
			says: []string{"retry example.org/m TestA"},
			not:  []string{"UNSTEADY"},
		},
		{
			name: "now-and-then",
			file: `func TestA(t *testing.T) { once(t, "because"); if _, err := os.Stat("second"); err == nil { t.Error("more") } else { os.WriteFile("second", nil, 0o600) } }`,
			want: tally{failed: 1},
			not:  []string{"UNSTEADY"},
		},
		{
			name: "one-of-two",
			file: `func TestA(t *testing.T) { once(t, "because") }; func TestB(t *testing.T) { t.Error("because") }`,
			want: tally{passed: 1, failed: 1},
		},
		{
			name: "too-many",
			file: `func TestA(t *testing.T) { for _, n := range []string{"1", "2", "3", "4"} { t.Run(n, func(t *testing.T) { once(t, "because") }) } }`,
			want: tally{failed: 4},
			not:  []string{"retry"},
		},
		{
			name: "panic",
			file: `func TestA(t *testing.T) { if first(t) { panic("because") } }`,
			want: tally{failed: 1},
			not:  []string{"retry"},
		},
		{
			name: "race",
			file: `func TestA(t *testing.T) { if first(t) { t.Error("WARNING: DATA RACE") } }`,
			want: tally{failed: 1},
			not:  []string{"retry"},
		},
		{
			name: "outside-a-test",
			file: `func TestMain(m *testing.M) { m.Run(); if os.Mkdir("main", 0o700) == nil { os.Exit(1) } }; func TestA(*testing.T) {}`,
			want: tally{passed: 1, failed: 1},
			not:  []string{"retry"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, map[string]string{"a_test.go": "package m\n\nimport (\"os\"; \"strings\"; \"testing\")\n" + once + tt.file})
			var out strings.Builder
			res, err := goTest(t.Context(), &out, dir, true, nil, "./...")
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
			for _, s := range tt.not {
				if strings.Contains(out.String(), s) {
					t.Errorf("the output has %q", s)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}
