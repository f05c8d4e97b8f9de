package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// tracker knows the calls in progress of an Executor or a session, can cancel them and can wait for
// them. The zero tracker is open.
type tracker struct {
	ofSession bool

	mu     sync.Mutex
	closed bool
	in     map[*call]struct{}
	idle   chan struct{} // closed when the last call leaves; nil: nothing waits
}

// enter adds c. A closed tracker accepts only cleanup: calls without cancel. With unique, a run is
// refused whose ID is that of a run in progress.
func (t *tracker) enter(c *call, unique bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed && c.cancel != nil {
		return Fail(executor.ErrClosed, executor.RanNo, nil)
	}
	if unique && c.op.Run != "" {
		for o := range t.in {
			if o.op.Run == c.op.Run {
				return Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("id %q: a run of that name is in progress", c.op.Run))
			}
		}
	}
	if t.in == nil {
		t.in = map[*call]struct{}{}
	}
	t.in[c] = struct{}{}
	return nil
}

func (t *tracker) leave(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.in, c); len(t.in) == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// close refuses further calls and cancels those in progress. The calls of sessions are cancelled by
// the trackers of the sessions and not by that of their Executor. close may be called again.
func (t *tracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.in {
		if c.cancel != nil && (t.ofSession || c.s == nil) {
			c.cancel(errClosed)
		}
	}
}

func (t *tracker) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// wait waits until no call is in progress.
func (t *tracker) wait(ctx context.Context) error {
	t.mu.Lock()
	if len(t.in) == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// untilDone does something until it has succeeded once. A call during an attempt waits for its
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
