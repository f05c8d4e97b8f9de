package sessions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// beat writes the heartbeat of this process to the Store, and checks the sessions that it holds and
// nobody uses.
func (m *Manager) beat() {
	for n := 0; ; n++ {
		if err := m.heartbeat(m.ctx); err != nil && m.ctx.Err() == nil && m.opts.Log != nil {
			m.opts.Log.Warn("session store: heartbeat", "instance", m.opts.Instance, "error", err)
		}
		if n%3 == 2 {
			m.sweep(m.ctx)
		}
		if !wait(m.ctx, m.opts.LeaseTTL/3) {
			return
		}
	}
}

// heartbeat writes to the Store that this process is alive. It is valid as long as a lease.
func (m *Manager) heartbeat(ctx context.Context) error {
	key := instancePrefix + m.opts.Instance
	old, err := m.store.Get(ctx, key)
	if err != nil {
		return err
	}
	ahead, err := ClockAhead(ctx, m.store)
	if err != nil {
		return err
	}
	until := time.Now().Add(m.opts.LeaseTTL)
	_, err = m.store.Put(ctx, key, Entry{Value: []byte(m.life), Rev: old.Rev, Expires: until.Add(-ahead)})
	if err := unlessConflict(err); err != nil { // the other writer wrote the same
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.ahead = until, ahead
	return nil
}

// ensureHeartbeat makes sure that other processes consider this one alive. Otherwise they would
// consider its sessions lost.
func (m *Manager) ensureHeartbeat(ctx context.Context) error {
	m.mu.Lock()
	seen := m.seen
	m.mu.Unlock()
	if time.Now().Before(seen) {
		return nil
	}
	return m.storeError(ctx, "acquire", m.heartbeat(ctx))
}

// removeHeartbeat removes the heartbeat from the Store.
func (m *Manager) removeHeartbeat(ctx context.Context) error {
	key := instancePrefix + m.opts.Instance
	e, err := m.store.Get(ctx, key)
	if err != nil {
		return m.storeError(ctx, "close", err)
	}
	if string(e.Value) != m.life {
		return nil // the heartbeat of a later process of this instance
	}
	return m.storeError(ctx, "close", unlessConflict(m.store.Delete(ctx, key, e.Rev)))
}

// aliveUntil returns until when an instance counts as alive. Zero means that it does not.
func (m *Manager) aliveUntil(ctx context.Context, instance string) (time.Time, error) {
	e, err := m.store.Get(ctx, instancePrefix+instance)
	if e.Rev == "" {
		return time.Time{}, m.storeError(ctx, "acquire", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.Expires.Add(m.ahead), nil // by the clock of this process
}

// Life identifies this Manager among those that have had its Instance.
func (m *Manager) Life() string { return m.life }

// LifeOf returns the Life of the living process that has an Instance, or "".
func (m *Manager) LifeOf(ctx context.Context, instance string) (string, error) {
	e, err := m.store.Get(ctx, instancePrefix+instance)
	return string(e.Value), m.storeError(ctx, "life", err)
}

// LeaseTTL returns Options.LeaseTTL or its default.
func (m *Manager) LeaseTTL() time.Duration { return m.opts.LeaseTTL }

// Living returns the Instances of the living processes that use the Store, sorted, with that of
// this one.
func (m *Manager) Living(ctx context.Context) ([]string, error) {
	living := []string{m.opts.Instance}
	for key, err := range m.store.Keys(ctx, instancePrefix) {
		if err != nil {
			return nil, m.storeError(ctx, "living", err)
		}
		living = append(living, strings.TrimPrefix(key, instancePrefix))
	}
	slices.Sort(living)
	return slices.Compact(living), nil
}

// sweep releases sessions that nobody uses here and that have ended or moved to another process.
func (m *Manager) sweep(ctx context.Context) {
	m.mu.Lock()
	held := maps.Clone(m.keys)
	m.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, closeAtOnce)
	for key, l := range held {
		select {
		case <-l.unlocked:
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, checkTime)
				defer cancel()
				m.check(ctx, key, l)
				l.unlocked <- struct{}{}
				m.tidy(key, l)
			})
		default: // the key is in use
		}
	}
	wg.Wait()
}

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

// check checks one session for a caller that has locked the key. What it cannot find out is left
// for the next time.
func (m *Manager) check(ctx context.Context, key string, l *local) {
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
		m.releaseLater(s) // if no record names the sandbox, Reap removes it
		return
	}
	i, err := s.Refresh(ctx)
	if err == nil && i.State == executor.SessionRunning {
		if !e.Unavailable.IsZero() {
			e.Unavailable = time.Time{}
			m.save(ctx, &e) // if this fails, the next check writes it
		}
		return
	}
	if err != nil && !errors.Is(err, executor.ErrNotFound) {
		return
	}
	m.setSession(l, nil)
	s.Close()                    // the sandbox is gone or dead
	m.noteBehind(ctx, &e.Record) // if this fails, fewer runs are told than were lost
	m.removeLost(ctx, "sweep", &e, LossGone)
}
