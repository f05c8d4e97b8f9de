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
		listed     string // in the list of tolerated tests
		people     bool   // not in CI
		want       tally
		says, not  []string
	}{
		{
			name: "once",
			file: `func TestA(t *testing.T) { t.Run("x [1]", func(t *testing.T) { once(t, "because") }); t.Run("y", func(*testing.T) {}) }`,
			want: tally{passed: 1, failed: 1},
			says: []string{"FAIL  example.org/m TestA/x_[1]", "because", "UNSTEADY  example.org/m TestA/x_[1]", "fails the run in CI"},
		},
		{
			name: "once-for-people",
			file: `func TestA(t *testing.T) { once(t, "because") }`, people: true,
			want: tally{passed: 1},
			says: []string{"UNSTEADY  example.org/m TestA"},
			not:  []string{"fails the run in CI"},
		},
		{
			name: "once-and-listed",
			file: `func TestA(t *testing.T) { once(t, "because") }`, listed: "example.org/m TestA 2026-11-28 the reason",
			want: tally{passed: 1},
			says: []string{"UNSTEADY  example.org/m TestA"},
			not:  []string{"fails the run in CI"},
		},
		{
			name: "another-is-listed",
			file: `func TestA(t *testing.T) { once(t, "because") }`, listed: "example.org/m TestB 2026-11-28 the reason",
			want: tally{failed: 1},
			says: []string{"UNSTEADY  example.org/m TestA"},
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
			file: `func TestA(t *testing.T) { once(t, "because") }; func TestB(t *testing.T) { t.Error("because") }`, people: true,
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
			dir := module(t, map[string]string{"a_test.go": "package m\n\nimport (\"os\"; \"strings\"; \"testing\")\n" + once + tt.file, tolerated: tt.listed})
			var out strings.Builder
			res, err := goTest(t.Context(), &out, dir, !tt.people, nil, "./...")
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

func TestTolerated(t *testing.T) {
	line := "docker TestA/b 2026-11-28 the engine forgets a container\n"
	for _, tt := range []struct {
		text string
		want int
		says string
	}{
		{"", 0, ""},
		{"# a comment\n\n" + line, 1, ""},
		{strings.Repeat(line, maxTolerated), maxTolerated, ""},
		{strings.Repeat(line, maxTolerated+1), 0, "want at most 3"},
		{"docker TestA no date\n", 0, "want a directory, a test, a date and a reason"},
		{"docker TestA 2026-11-28\n", 0, "want a directory, a test, a date and a reason"},
	} {
		got, err := readTolerated(module(t, map[string]string{tolerated: tt.text}))
		if len(got) != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: got %v, %v", tt.text, got, err)
		}
	}
	if got, err := readTolerated(t.TempDir()); got != nil || err != nil {
		t.Errorf("without a list: got %v, %v", got, err)
	}
	if _, err := readTolerated("../.."); err != nil {
		t.Error(err)
	}
}
