package sessions

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// A session that this process holds and nobody uses may end, or move to another process. If it is
// an executor.Ender, it says so. Otherwise the process finds out by asking the Store and the
// backend: when the idle TTL is over, after which the session has done one or the other, and before
// that once in checkLeases to twice as many lease times. Each key has its own period, so that not
// all are due at once.
const checkLeases = 10

// idle begins the time in which nobody uses the session of a key, for the caller that has locked
// the key and is about to unlock it.
func (m *Manager) idle(key string, l *local) {
	if l.deaf != nil {
		l.deaf()
		l.deaf = nil
	}
	m.mu.Lock()
	s := l.session
	l.used, l.heard = time.Now(), false
	l.due = m.nextCheck(key, l, l.used)
	m.mu.Unlock()
	var e executor.Ender
	if s == nil || !executor.As(s, &e) {
		return
	}
	l.deaf = e.AfterEnd(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.session == s {
			l.heard, l.due = true, time.Now()
			select {
			case m.ended <- struct{}{}:
			default: // sweeps has not seen the last one yet
			}
		}
	})
}

// nextCheck returns when the session of a key is checked next, if it was alive or not known at now.
// The caller holds mu.
func (m *Manager) nextCheck(key string, l *local, now time.Time) time.Time {
	if l.heard {
		return now.Add(m.opts.LeaseTTL) // the Store or the backend did not answer
	}
	period := checkLeases * m.opts.LeaseTTL
	if l.session != nil {
		end := l.used.Add(cmp.Or(l.session.Info().Handle.IdleTTL, executor.DefaultIdleTTL))
		if end.After(now) && end.Before(now.Add(2*period)) {
			return end
		}
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return now.Add(period + period/1024*time.Duration(h.Sum32()%1024))
}

// sweeps checks the sessions that are due, until the Manager is closed.
func (m *Manager) sweeps() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-m.ended:
		case <-m.ctx.Done():
			return
		}
		t.Reset(time.Until(m.sweep(m.ctx)))
	}
}

// sweep checks the sessions that are due, and returns when it is to be called again.
func (m *Manager) sweep(ctx context.Context) time.Time {
	now := time.Now()
	next, due := now.Add(m.opts.LeaseTTL/3), map[string]*local{}
	m.mu.Lock()
	for key, l := range m.keys {
		switch {
		case l.users > 0 || l.session == nil:
		case !l.due.After(now):
			due[key] = l
		case l.due.Before(next):
			next = l.due
		}
	}
	m.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, checkAtOnce)
	for key, l := range due {
		select {
		case <-l.unlocked:
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, checkTime)
				defer cancel()
				alive := m.check(ctx, key, l)
				m.mu.Lock()
				l.heard = l.heard && !alive
				l.due = m.nextCheck(key, l, time.Now())
				m.mu.Unlock()
				l.unlocked <- struct{}{}
				m.tidy(key, l)
			})
		default: // the key is in use
		}
	}
	wg.Wait()
	return next
}

// checkAtOnce is how many checks ask the Store and the backends at a time.
const checkAtOnce = 32

// checkTime bounds the check of a session. A caller that needs the key waits for the check.
const checkTime = 2 * time.Second

// tidy forgets a key that is not in use and has no session.
func (m *Manager) tidy(key string, l *local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users == 0 && l.session == nil && m.keys[key] == l {
		delete(m.keys, key)
	}
}

// check checks one session for a caller that has locked the key, and reports whether it is alive
// and still that of this process. A session of which this is known not to be so is released. What
// check cannot find out is left for the next time.
func (m *Manager) check(ctx context.Context, key string, l *local) (alive bool) {
	s := l.session
	if s == nil {
		return false
	}
	e, err := m.load(ctx, key)
	if err != nil {
		return false
	}
	moved := e.Life != m.life && (attachable(s) || time.Now().Before(e.Until))
	if moved || e.Handle.Session != s.Info().Handle.Session {
		m.setSession(l, nil)
		m.releaseLater(s) // if no record names the sandbox, Reap removes it
		return false
	}
	i, err := s.Refresh(ctx)
	if err == nil && i.State == executor.SessionRunning {
		if !e.Unavailable.IsZero() {
			e.Unavailable = time.Time{}
			m.save(ctx, &e) // if this fails, the next check writes it
		}
		return true
	}
	switch {
	case errors.Is(err, executor.ErrClosed): // a later holder has shut this one out
		m.setSession(l, nil)
		m.releaseLater(s)
		return false
	case err != nil && !errors.Is(err, executor.ErrNotFound):
		return false
	}
	m.setSession(l, nil)
	s.Close()                    // the sandbox is gone or dead
	m.noteBehind(ctx, &e.Record) // if this fails, fewer runs are told than were lost
	m.removeLost(ctx, "sweep", &e, LossGone)
	return false
}
