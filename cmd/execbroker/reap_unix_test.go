//go:build unix

package main

import (
	"slices"
	"testing"
)

// On a terminal the user says whether sandboxes in use are removed.
func TestSessionReapAsks(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	id := hold(t, b, "shop")
	for _, c := range []struct {
		answer, want string
		left         bool
	}{
		{"\r", "spared them", true},
		{"n\r", "spared them", true},
		{"\x04", "spared them", true},
		{"y\r", "removed " + id, false},
	} {
		term := onTerminal(t, command(t, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns"))
		term.see("in use within the last minute: "+id, "remove these, too? [y/N] ")
		term.keys(c.answer)
		term.see(c.want)
		term.ends(exitOK)
		if got := slices.Contains(b.Sandboxes(), id); got != c.left {
			t.Errorf("%q: left: %v, want %v", c.answer, got, c.left)
		}
	}
}
