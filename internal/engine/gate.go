package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// gate lets calls in until it is shut, knows those in progress, and can wait for them. The zero
// gate is open.
type gate struct {
	ofSession bool

	mu    sync.Mutex
	shutd bool
	in    map[*call]struct{}
	idle  chan struct{} // closed when the last one leaves; nil: nobody waits
}

// enter lets c in. A gate that is shut lets in only what clean-up needs: calls without cancel. Runs
// have a name of their own within a session; where it matters, unique is set.
func (g *gate) enter(c *call, unique bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutd && c.cancel != nil {
		return Fail(executor.ErrClosed, executor.RanNo, nil)
	}
	if unique && c.op.Run != "" {
		for o := range g.in {
			if o.op.Run == c.op.Run {
				return Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("id %q: a run of that name is in progress", c.op.Run))
			}
		}
	}
	if g.in == nil {
		g.in = map[*call]struct{}{}
	}
	g.in[c] = struct{}{}
	return nil
}

func (g *gate) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.in, c); len(g.in) == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// shut keeps further calls out and cancels those in progress, of an Executor without those of its
// sessions, which have gates of their own. It may be called again.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shutd = true
	for c := range g.in {
		if c.cancel != nil && (g.ofSession || c.s == nil) {
			c.cancel(errClosed)
		}
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shutd
}

// wait waits until no call is in progress.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if len(g.in) == 0 {
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

// untilDone does something once, successfully. Who comes while another is at it waits for the
// outcome, and tries again if it failed.
type untilDone struct {
	mu   sync.Mutex
	done bool
	busy chan struct{} // closed at the end of the attempt in progress; nil: none
}

func (u *untilDone) do(ctx context.Context, f func() error) (err error) {
	for {
		u.mu.Lock()
		if u.done {
			u.mu.Unlock()
			return nil
		}
		wait := u.busy
		if wait == nil {
			u.busy = make(chan struct{})
		}
		u.mu.Unlock()
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ok := false
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.done = ok
		close(u.busy)
		u.busy = nil
	}()
	err = f()
	ok = err == nil
	return err
}

// settled waits for the attempt in progress, if there is one, and reports whether it is done.
func (u *untilDone) settled() bool {
	u.mu.Lock()
	wait := u.busy
	u.mu.Unlock()
	if wait != nil {
		<-wait
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}
