package performance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const printed = `goos: linux
cpu: some
BenchmarkCold-2   	       3	         0 ns/op	       300.0 ms-cold	       250.0 ms-raw
BenchmarkCold-2   	       3	         0 ns/op	       330.0 ms-cold	       250.0 ms-raw
BenchmarkCold-2   	       3	         0 ns/op	       310.0 ms-cold	       250.0 ms-raw
BenchmarkStdout/session-2 	       1	100 ns/op	 135.5 MB/s
BenchmarkStdout/raw 	       1	100 ns/op	 271.0 MB/s
BenchmarkMessage-2 	       1	0 ns/op	 5.0 writes-at-1000	 4.0 writes-at-10
BenchmarkIdle/python-16 	       1	100 ns/op	 166.0 MiB/session
PASS
`

func TestHold(t *testing.T) {
	f := figures{}
	if err := f.parse(strings.NewReader(printed)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		claim
		row string
	}{
		{
			claim{"cold", "raw", "d", "Cold ms-cold", "Cold ms-raw", times, 1.1, false},
			"| cold | 310 ms | 250 ms: raw | 1.24 times | at most 1.10 times | **missed** |",
		},
		{
			claim{"cold", "raw", "d", "Cold ms-cold", "Cold ms-raw", more, 0.1, false},
			"| cold | 310 ms | 250 ms: raw | 60 ms more | at most 100 ms more | met |",
		},
		{
			claim{"out", "raw", "d", "Stdout/session MB/s", "Stdout/raw MB/s", times, 0.5, true},
			"| out | 136 MB/s | 271 MB/s: raw | 0.50 times | at least 0.50 times | met |",
		},
		{
			claim{"idle", "", "d", "Idle/python MiB/session", "", alone, 90 << 20, false},
			"| idle | 166 MiB | – | 166 MiB | at most 90 MiB | **missed** |",
		},
		{
			claim{"writes", "ten", "d", "Message writes-at-1000", "Message writes-at-10", times, 1.5, false},
			"| writes | 5.0 | 4.0: ten | 1.25 times | at most 1.50 times | met |",
		},
	} {
		h, err := c.hold(f)
		if err != nil || h.row() != c.row {
			t.Errorf("got\n%s, %v, want\n%s", h.row(), err, c.row)
		}
	}
	for _, c := range []claim{{ours: "Warm ms"}, {ours: "Cold ms-cold", raw: "Cold ms-nothing"}} {
		if _, err := c.hold(f); err == nil || !strings.Contains(err.Error(), "print no") {
			t.Errorf("%v: got %v", c, err)
		}
	}
}

func TestParseBadly(t *testing.T) {
	for _, line := range []string{"BenchmarkA-2 1 5", "BenchmarkA-2 1 5 ns/op 6", "BenchmarkA-2 1 five ns/op"} {
		if err := (figures{}).parse(strings.NewReader(line)); (err == nil) != (line == "BenchmarkA-2 1 5") {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func TestShow(t *testing.T) {
	c := claim{ours: "A ns/op"}
	for v, want := range map[float64]string{1.5: "1.50 s", 0.0125: "12.5 ms", 680e-9: "680 ns", 2.9e-6: "2.9 µs", -0.002: "-2 ms"} {
		if got := c.show(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

// The page has a line for each claim with what is wanted now: it was made after the last change of
// the table.
func TestPageIsFresh(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(Page)))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| What ") {
			rows = append(rows, line)
		}
	}
	all := slices.Concat(claims, peers)
	if len(rows) != len(all) {
		t.Fatalf("%s has %d lines for %d claims: run make performance", Page, len(rows), len(all))
	}
	for i, c := range all {
		if !c.describes(rows[i]) {
			t.Errorf("got line\n%swant the claim %q with %q: run make performance, or make performance PAGE=1 on a machine that is not quiet", rows[i], c.what, c.bound())
		}
	}
}

// The page is rewritten without measuring: figures stay beside the claims that are as they were.
func TestRewrite(t *testing.T) {
	a := claim{"a", "raw", "d", "A ms", "A ms-raw", times, 1.1, false}
	b := claim{"b", "", "d", "B MB/s", "", alone, 5e6, true}
	peer := claim{what: "c", under: "theirs", pkg: "d", ours: "C ms", raw: "C ms-theirs", form: times}
	measured := func(c claim) finding { return finding{c, 0.5, 0.25, 2} }
	before := page(time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), []string{"one"}, []finding{measured(a), measured(b)}, []finding{measured(peer)})
	same, err := rewrite(before, "abc", []claim{a, b}, []claim{peer})
	if err != nil || same != before {
		t.Errorf("nothing has changed, %v: got\n%s\nwant\n%s", err, same, before)
	}
	other, raw, last := a, a, peer
	other.want, raw.under, last.under = 1.2, "another", "another"
	for _, tt := range []struct {
		claims, peers []claim
		want          []string
	}{
		{[]claim{b, a}, []claim{peer}, []string{measured(b).row(), measured(a).row(), measured(peer).row()}},
		{[]claim{other}, []claim{peer}, []string{"| a | – | raw | – | at most 1.20 times | not measured since abc changed this line |", measured(peer).row()}},
		{[]claim{a, raw}, []claim{last}, []string{measured(a).row(), "| a | – | another | – | at most 1.10 times | not measured since abc changed this line |", "| c | – | another | not measured since abc changed this line |"}},
	} {
		got, err := rewrite(before, "abc", tt.claims, tt.peers)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| What ") {
				rows = append(rows, strings.TrimSpace(line))
			}
		}
		if !slices.Equal(rows, tt.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(tt.want, "\n"))
		}
		// A mark stays until somebody measures.
		again, err := rewrite(got, "def", tt.claims, tt.peers)
		if err != nil || again != got {
			t.Errorf("rewritten again, %v: got\n%s\nwant\n%s", err, again, got)
		}
	}
	if _, err := rewrite("# No table\n", "abc", claims, peers); err == nil {
		t.Error("a page without a table: no error")
	}
}

// Every benchmark of a claim exists.
func TestBenchmarksExist(t *testing.T) {
	for _, c := range slices.Concat(claims, peers) {
		name, _, _ := strings.Cut(string(c.ours), " ")
		name, _, _ = strings.Cut(name, "/")
		files, err := filepath.Glob(filepath.Join("..", "..", "..", c.pkg, "*_test.go"))
		found := false
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "func Benchmark"+name+"(")
		}
		if err != nil || !found {
			t.Errorf("%s has no Benchmark%s, %v", c.pkg, name, err)
		}
	}
}

func TestMachine(t *testing.T) {
	if lines := machine(t.Context()); len(lines) < 2 || !strings.Contains(lines[0], "processors") {
		t.Errorf("got %q", lines)
	}
	got := page(time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), []string{"one", "two"}, []finding{{claim: claims[0]}}, []finding{{claim: peers[1]}})
	for _, want := range []string{"2026-02-03", "- one\n- two\n", "| " + claims[0].what, "| " + peers[1].what} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwithout %q", got, want)
		}
	}
}
