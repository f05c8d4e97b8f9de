package executor

import (
	"cmp"
	"context"
	"sync"
)

// Terminal is the terminal of a command, seen from the user's side: see Request.Terminal. The zero
// value has 24 rows and 80 columns. Its methods are safe for concurrent use. A Terminal is for one
// run and must not be copied.
type Terminal struct {
	mu      sync.Mutex
	size    TerminalSize  // zero: defaultSize
	changed chan struct{} // closed when size changes; nil: no goroutine waits
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
}

// defaultSize is the size of the zero Terminal.
var defaultSize = TerminalSize{Rows: 24, Columns: 80}

// maxSide is the largest number of rows or columns that an operating system can store.
const maxSide = 1<<16 - 1

// Resize sets the size. Before the run it sets the size that the command starts with. During the
// run the command is told by SIGWINCH. Resize does not wait for that, and if sizes follow each
// other quickly only the last one may arrive. After the run it has no effect. If a side is not 1 to
// 65535, the error is ErrInvalid and nothing changes.
func (t *Terminal) Resize(s TerminalSize) error {
	var bad invalid
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

// Changed waits until the size differs from known, and returns it. When ctx ends, it fails with the
// cause of ctx. It is for implementations of Session.
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

// current returns the size. The caller holds mu.
func (t *Terminal) current() TerminalSize {
	return cmp.Or(t.size, defaultSize)
}
