package executor

import (
	"context"
	"sync"
)

// Terminal is the terminal of a command, as the one who looks at it holds it: see Request.Terminal.
// The zero value has 24 rows and 80 columns. Its methods are safe for concurrent use. It is for one
// run, and must not be copied.
type Terminal struct {
	mu      sync.Mutex
	size    TerminalSize  // zero: that of the zero value
	changed chan struct{} // closed when size changes; nil: nobody waits
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
}

// defaultSize is that of the zero value.
var defaultSize = TerminalSize{Rows: 24, Columns: 80}

// maxSide is the largest number that a system can note as one side of a terminal.
const maxSide = 1<<16 - 1

// Resize sets the size: before the run, what the command starts with; during it, what the command
// hears of by SIGWINCH. It does not wait for that, and of sizes that follow each other quickly the
// last one counts. After the run it has no effect. A side that is not 1 to 65535 is ErrInvalid, and
// changes nothing.
func (t *Terminal) Resize(s TerminalSize) error {
	var bad mistakes
	for _, side := range []struct {
		name  string
		value int
	}{{"rows", s.Rows}, {"columns", s.Columns}} {
		if side.value < 1 || side.value > maxSide {
			bad.add("terminal: %s: %d: want 1 to %d", side.name, side.value, maxSide)
		}
	}
	if err := bad.err("resize"); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.size == s {
		return nil
	}
	t.size = s
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	return nil
}

// Size returns the size that was set last.
func (t *Terminal) Size() TerminalSize {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current()
}

// Changed waits until the size is another than known, and returns it. It fails with the cause of
// ctx when that ends. It is for implementations of Session.
func (t *Terminal) Changed(ctx context.Context, known TerminalSize) (TerminalSize, error) {
	for {
		t.mu.Lock()
		s := t.current()
		if s == known && t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		if s != known {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

// current is called with mu held.
func (t *Terminal) current() TerminalSize {
	if t.size == (TerminalSize{}) {
		return defaultSize
	}
	return t.size
}
