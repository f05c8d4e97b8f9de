package flytest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// waitable are the states that a client may wait for.
var waitable = []string{stateStarted, stateStopped, stateSuspended, stateDestroyed, stateFailed, "settled"}

// maxWait is the longest wait that Fly allows. Clients wait again.
const maxWait = 60 * time.Second

func wait(ctx context.Context, c *call) (answer, error) {
	q := c.r.URL.Query()
	timeout := maxWait
	if v := q.Get("timeout"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > int(maxWait.Seconds()) {
			return answer{}, errWaitRange()
		}
		timeout = time.Duration(n) * time.Second
	}
	w := &waiter{met: make(chan event, 1), version: q.Get("version")}
	w.version = cmp.Or(w.version, q.Get("instance_id"))
	for _, v := range q["state"] {
		w.states = append(w.states, strings.Split(v, ",")...)
	}
	if len(w.states) == 0 {
		w.states = []string{stateStarted}
	}
	for _, state := range w.states {
		if !slices.Contains(waitable, state) {
			return answer{}, fail(http.StatusBadRequest, "invalid_argument: invalid WaitMachineRequest.State: %.40q", state)
		}
	}
	s, m := c.s, c.m
	s.mu.Lock()
	state := m.state
	switch {
	case m.dead:
		s.mu.Unlock()
		return answer{}, errWaitExpired(w.states, "unknown")
	case m.passed(w, q.Get("from_event_id")):
		w.met <- m.last()
	case state == stateDestroyed:
		s.mu.Unlock()
		return answer{}, errMachineNotFound()
	default:
		m.waiters = append(m.waiters, w)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.waiters = slices.DeleteFunc(m.waiters, func(x *waiter) bool { return x == w })
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case e := <-w.met:
		s.mu.Lock()
		defer s.mu.Unlock()
		return ok(map[string]any{"ok": true, "state": e.Status, "event_id": e.ID, "version": m.instance})
	case <-m.done: // destroyed, or the emulator ends; a state that was met was said before
		select {
		case e := <-w.met:
			return ok(map[string]any{"ok": true, "state": e.Status, "event_id": e.ID, "version": m.instance})
		default:
			return answer{}, errMachineNotFound()
		}
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	case <-timer.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		return answer{}, errWaitExpired(w.states, m.state)
	}
}

// passed reports whether a Machine is in a state, or has been in it after the given event. The
// caller holds Server.mu.
func (m *machine) passed(w *waiter, after string) bool {
	if w.meets(m) {
		return true
	}
	if after == "" {
		return false
	}
	for _, e := range m.events {
		if e.ID == after {
			break
		}
		if slices.Contains(w.states, e.Status) {
			return true
		}
	}
	return false
}
