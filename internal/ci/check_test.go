package main

import "testing"

// A check that lists what is wrong fails by what it lists. An empty module cache is nothing wrong.
func TestProbes(t *testing.T) {
	for _, c := range []struct {
		script         string
		silent, passes bool
	}{
		{"true", true, true},
		{"echo go: downloading >&2", true, true},
		{"echo wrong.go", true, false},
		{"echo wrong.go", false, true},
		{"exit 1", false, false},
	} {
		got, err := probes(t.Context(), t.Output(), []probe{{name: "script", args: []string{"sh", "-c", c.script}, silent: c.silent}})
		want := tally{failed: 1}
		if c.passes {
			want = tally{passed: 1}
		}
		if err != nil || got != want {
			t.Errorf("%s, silent %t: got %+v, %v", c.script, c.silent, got, err)
		}
	}
	if _, err := probes(t.Context(), t.Output(), []probe{{name: "missing", args: []string{"execbroker-no-such-program"}}}); err == nil {
		t.Error("a program that is not there: no error")
	}
}
