package sessions

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// beat says in the Store that this process lives, and looks after the sessions that it holds and
// nobody uses.
func (m *Manager) beat() {
	for n := 0; ; n++ {
		if err := m.alive(m.ctx); err != nil && m.ctx.Err() == nil && m.opts.Log != nil {
			m.opts.Log.Warn("session store: sign of life", "instance", m.opts.Instance, "error", err)
		}
		if n%3 == 2 {
			m.sweep(m.ctx)
		}
		if !wait(m.ctx, m.opts.LeaseTTL/3) {
			return
		}
	}
}

// alive is the sign of life. It holds as long as a lease.
func (m *Manager) alive(ctx context.Context) error {
	key := instancePrefix + m.opts.Instance
	old, err := m.store.Get(ctx, key)
	if err != nil {
		return err
	}
	until := time.Now().Add(m.opts.LeaseTTL)
	_, err = m.store.Put(ctx, key, Entry{Value: []byte(m.life), Rev: old.Rev, Expires: until})
	if err != nil && !errors.Is(err, ErrConflict) { // whoever was faster says the same
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = until
	return nil
}

// beSeen makes sure that others take this process for alive: what it holds would else be taken for
// lost.
func (m *Manager) beSeen(ctx context.Context) error {
	m.mu.Lock()
	seen := m.seen
	m.mu.Unlock()
	if time.Now().Before(seen) {
		return nil
	}
	if err := m.alive(ctx); err != nil {
		return m.storeError(ctx, "acquire", err)
	}
	return nil
}

// silence takes the sign of life back.
func (m *Manager) silence(ctx context.Context) error {
	key := instancePrefix + m.opts.Instance
	e, err := m.store.Get(ctx, key)
	if err != nil {
		return m.storeError(ctx, "close", err)
	}
	if string(e.Value) != m.life {
		return nil // that of who took this instance's place
	}
	if err := m.store.Delete(ctx, key, e.Rev); err != nil && !errors.Is(err, ErrConflict) {
		return m.storeError(ctx, "close", err)
	}
	return nil
}

// aliveUntil returns until when an instance counts as alive; zero: it does not.
func (m *Manager) aliveUntil(ctx context.Context, instance string) (time.Time, error) {
	e, err := m.store.Get(ctx, instancePrefix+instance)
	if err != nil {
		return time.Time{}, m.storeError(ctx, "acquire", err)
	}
	return e.Expires, nil
}

// sweep lets go of sessions that nobody uses here and that ended or went on elsewhere.
func (m *Manager) sweep(ctx context.Context) {
	m.mu.Lock()
	held := maps.Clone(m.keys)
	m.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, closeAtOnce)
	for key, l := range held {
		select {
		case <-l.turn:
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, lookTime)
				defer cancel()
				m.look(ctx, key, l)
				l.turn <- struct{}{}
				m.tidy(key, l)
			})
		default: // in use
		}
	}
	wg.Wait()
}

// lookTime bounds a look at a session: who wants it waits for that long.
const lookTime = 2 * time.Second

// tidy forgets a key that nobody is busy with and that holds nothing.
func (m *Manager) tidy(key string, l *local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users == 0 && l.session == nil && m.keys[key] == l {
		delete(m.keys, key)
	}
}

// look checks one session, for who has the turn. What cannot be found out is left for the next
// time.
func (m *Manager) look(ctx context.Context, key string, l *local) {
	s := l.session
	if s == nil {
		return
	}
	e, err := m.load(ctx, key)
	if err != nil {
		return
	}
	id := s.Info().Handle.Session
	if e.Handle.Session != id || e.Life != m.life && time.Now().Before(e.Until) {
		m.setSession(l, nil)
		m.letBe(s) // the reaper's, if nobody names it
		return
	}
	i, err := s.Refresh(ctx)
	if err == nil && i.State == executor.SessionRunning {
		if !e.Unavailable.IsZero() {
			e.Unavailable = time.Time{}
			m.save(ctx, &e) // if this fails the next one says it
		}
		return
	}
	if err != nil && !errors.Is(err, executor.ErrNotFound) {
		return
	}
	m.setSession(l, nil)
	s.Close() // it is gone, or dead
	m.remove(ctx, &e)
}
