// Package drain lets a server shut down without cutting off what it is doing.
package drain

import (
	"context"
	"sync"
)

// Gate counts what goes on. Its zero value is open; its methods are safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	shut bool
	busy int
	idle chan struct{} // made by who waits, closed when nothing goes on
}

// Enter counts something, which leave ends. It reports false, and counts nothing, if the Gate is
// shut. leave is called once.
func (g *Gate) Enter() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, false
	}
	g.busy++
	return g.leave, true
}

// Hold is Enter for what belongs to something that goes on: a shut Gate lets it in.
func (g *Gate) Hold() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy++
	return g.leave
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy--; g.busy == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Busy returns how much goes on.
func (g *Gate) Busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy
}

// Shut lets nothing in from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// IsShut reports whether Shut or Drain was called.
func (g *Gate) IsShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// Drain shuts the Gate and waits until nothing goes on, or ctx ends, whose cause it returns then.
func (g *Gate) Drain(ctx context.Context) error {
	g.mu.Lock()
	g.shut = true
	if g.busy == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
