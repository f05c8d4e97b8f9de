// Package drain lets a server shut down without interrupting work in progress.
package drain

import (
	"context"
	"sync"
)

// Gate counts work in progress. Its zero value is open; its methods are safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	shut bool
	busy int
	idle chan struct{} // created by a waiter, closed when no work is in progress
}

// Enter counts a piece of work until leave is called. If the Gate is shut, it counts nothing and
// returns false. leave must be called once.
func (g *Gate) Enter() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, false
	}
	g.busy++
	return g.leave, true
}

// Hold is Enter for work that belongs to other work in progress: it is allowed even if the Gate is
// shut.
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

// Busy returns the number of pieces of work in progress.
func (g *Gate) Busy() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy
}

// Shut refuses new work from now on.
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

// Drain shuts the Gate and waits until no work is in progress or ctx ends. If ctx ends, it returns
// the cause of ctx.
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
