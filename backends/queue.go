package backends

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// queue counts the sandboxes of a backend and lets Creates wait for one to end. Each subject has a
// line, and lines are served in turn, so that a subject that asks for a hundred does not keep the
// others waiting. Locks are held for moments only.
type queue struct {
	mu      sync.Mutex
	cfg     Queue
	used    int
	waiting int
	turns   []string // the subjects that wait, the next one first
	lines   map[string][]*waiter
}

// waiter is one Create that waits.
type waiter struct {
	granted bool // a place has been counted for it
	ready   chan struct{}
}

// set changes the bounds. Who waits and now fits goes on; nobody is sent away.
func (q *queue) set(cfg Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg = cfg
	q.serve()
}

func (q *queue) free() bool { return q.cfg.Max == 0 || q.used < q.cfg.Max }

// try takes a place if there is one that nobody waits for.
func (q *queue) try() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 || !q.free() {
		return false
	}
	q.used++
	return true
}

// take takes a place also if there is none: for sandboxes that exist already.
func (q *queue) take() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used++
}

// leave gives a place back.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used--
	q.serve()
}

// serve gives free places to those who wait. The caller has the lock.
func (q *queue) serve() {
	for q.waiting > 0 && q.free() {
		subject := q.turns[0]
		w := q.lines[subject][0]
		q.drop(subject, 0)
		if len(q.lines[subject]) > 0 { // its turn comes again after the others
			q.turns = append(slices.Delete(q.turns, 0, 1), subject)
		}
		q.used++
		w.granted = true
		close(w.ready)
	}
}

// drop removes a waiter from its line, and the line if it was the last. The caller has the lock.
func (q *queue) drop(subject string, i int) {
	q.waiting--
	if q.lines[subject] = slices.Delete(q.lines[subject], i, i+1); len(q.lines[subject]) == 0 {
		delete(q.lines, subject)
		at := slices.Index(q.turns, subject)
		q.turns = slices.Delete(q.turns, at, at+1)
	}
}

// enter takes a place and waits for one if it must. The error has no backend yet.
func (q *queue) enter(ctx context.Context, subject string) *executor.Error {
	q.mu.Lock()
	if q.waiting == 0 && q.free() {
		q.used++
		q.mu.Unlock()
		return nil
	}
	length := q.cfg.Length
	if length == 0 {
		length = q.cfg.Max
	}
	if q.waiting >= length {
		err := fmt.Errorf("queue: %d sandboxes are in use and %d wait for one", q.used, q.waiting)
		q.mu.Unlock()
		return &executor.Error{Kind: executor.ErrExhausted, Err: err}
	}
	w := &waiter{ready: make(chan struct{})}
	if q.lines == nil {
		q.lines = map[string][]*waiter{}
	}
	if len(q.lines[subject]) == 0 {
		q.turns = append(q.turns, subject)
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
		gaveUp = &executor.Error{Kind: ctx.Err(), Err: errors.New("queue: while waiting for a sandbox of others to end")}
	case <-t.C:
		gaveUp = &executor.Error{Kind: executor.ErrExhausted, Err: fmt.Errorf("queue: no sandbox ended within %v", most)}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.granted { // in the same moment; it is used, since who gave it is gone
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
