package sessions

import (
	"context"
	"slices"
	"strings"
	"time"
)

// beat writes the heartbeat of this process to the Store.
func (m *Manager) beat() {
	for {
		if err := m.heartbeat(m.ctx); err != nil && m.ctx.Err() == nil && m.opts.Log != nil {
			m.opts.Log.Warn("session store: heartbeat", "instance", m.opts.Instance, "error", err)
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
