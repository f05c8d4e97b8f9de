package modaltest

import (
	"log/slog"
	"strconv"
	"testing"
)

// What processes wrote is kept for the last Sandboxes that have ended, and how each has ended for
// longer.
func TestForgets(t *testing.T) {
	s := &Server{cfg: Config{Log: slog.New(slog.DiscardHandler)}, sandboxes: map[string]*sandbox{}}
	for i := range maxDead + 1 {
		x := &sandbox{s: s, id: strconv.Itoa(i), ended: make(chan struct{}), procs: map[string]*process{"x": {}}}
		s.sandboxes[x.id] = x
		x.finish(0, false)
	}
	heard := 0
	for _, x := range s.sandboxes {
		if x.ending() == nil {
			t.Errorf("Sandbox %s has no result", x.id)
		}
		heard += len(x.procs)
	}
	if last := s.sandboxes[strconv.Itoa(maxDead)]; len(s.sandboxes) != maxDead || heard != maxHeard || len(last.procs) != 1 {
		t.Errorf("got %d Sandboxes, %d processes, the last has %d", len(s.sandboxes), heard, len(last.procs))
	}
}
