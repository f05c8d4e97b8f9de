package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// queue counts the sandboxes of a backend. A Create waits until there is a free slot. Each subject
// has its own line of waiting Creates, and the lines are served in turn, so that a subject with a
// hundred Creates does not block others. The lock is held only for short computations.
type queue struct {
	mu      sync.Mutex
	cfg     Queue
	used    int
	waiting int
	order   []string // the subjects that wait, in the order in which they are served
	lines   map[string][]*waiter
}

// waiter is a Create that waits.
type waiter struct {
	granted bool // a slot has been counted for it
	ready   chan struct{}
}

// set changes the limits. Waiting Creates that now fit continue; none is refused.
func (q *queue) set(cfg Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg = cfg
	q.serve()
}

func (q *queue) free() bool { return q.cfg.Max == 0 || q.used < q.cfg.Max }

// try takes a slot if one is free and no Create waits.
func (q *queue) try() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 || !q.free() {
		return false
	}
	q.used++
	return true
}

// take takes a slot even if none is free. It is for sandboxes that exist already.
func (q *queue) take() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used++
}

// release releases a slot.
func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used--
	q.serve()
}

// serve gives free slots to waiting Creates. The caller holds the lock.
func (q *queue) serve() {
	for q.waiting > 0 && q.free() {
		subject := q.order[0]
		w := q.lines[subject][0]
		q.drop(subject, 0)
		if len(q.lines[subject]) > 0 { // its next Create comes after those of the others
			q.order = append(slices.Delete(q.order, 0, 1), subject)
		}
		q.used++
		w.granted = true
		close(w.ready)
	}
}

// drop removes a waiter from its line, and the line if it is then empty. The caller holds the lock.
func (q *queue) drop(subject string, i int) {
	q.waiting--
	if q.lines[subject] = slices.Delete(q.lines[subject], i, i+1); len(q.lines[subject]) == 0 {
		delete(q.lines, subject)
		at := slices.Index(q.order, subject)
		q.order = slices.Delete(q.order, at, at+1)
	}
}

// enter takes a slot and waits for one if necessary. The error has no backend yet.
func (q *queue) enter(ctx context.Context, subject string) *executor.Error {
	q.mu.Lock()
	if q.waiting == 0 && q.free() {
		q.used++
		q.mu.Unlock()
		return nil
	}
	if q.waiting >= cmp.Or(q.cfg.Length, q.cfg.Max) {
		err := fmt.Errorf("queue: %d sandboxes are in use and %d wait for one", q.used, q.waiting)
		q.mu.Unlock()
		return &executor.Error{Kind: executor.ErrExhausted, Err: err}
	}
	w := &waiter{ready: make(chan struct{})}
	if q.lines == nil {
		q.lines = map[string][]*waiter{}
	}
	if len(q.lines[subject]) == 0 {
		q.order = append(q.order, subject)
	}
	q.lines[subject] = append(q.lines[subject], w)
	q.waiting++
	most := orDefault(q.cfg.Wait, defaultWait)
	q.mu.Unlock()

	t := time.NewTimer(most)
	defer t.Stop()
	var gaveUp *executor.Error
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		gaveUp = &executor.Error{Kind: ctx.Err(), Err: errors.New("queue: while waiting for another sandbox to end")}
	case <-t.C:
		gaveUp = &executor.Error{Kind: executor.ErrExhausted, Err: fmt.Errorf("queue: no sandbox ended within %v", most)}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.granted { // the slot was granted in the same moment
		if ctx.Err() == nil {
			return nil
		}
		q.used--
		q.serve()
		return gaveUp
	}
	q.drop(subject, slices.Index(q.lines[subject], w))
	return gaveUp
}

// counts returns how many sandboxes there are and how many Creates wait.
func (q *queue) counts() (used, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used, q.waiting
}
