package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Acquire leases the session of key: the one held here, or one attached from the Store, or, if
// there is none or it is gone, a new one made from spec. While another call or process has the
// lease it waits, until ctx ends. Concurrent calls for a key create one session. An existing
// session is used as it is, whatever spec says now, but for a Template, Languages or Network that
// differ: ErrInvalid. A session of another Subject is ErrDenied.
//
// Where the backend of the session does not answer, Acquire fails as the backend does, for as long
// as Options.Replace says. After that it makes a new session, which Lease.Why says, and leaves the
// old sandbox to its TTL and to Reap.
func (m *Manager) Acquire(ctx context.Context, key string, spec executor.Spec) (_ *Lease, err error) {
	ctx, end := m.begin(ctx, executor.Op{Name: "acquire"})
	var out executor.Outcome
	done := Acquisition{Key: key, Spec: spec, Began: time.Now()}
	defer func() {
		out.Err, done.Err = err, err
		end(out)
		if m.opts.Acquired != nil {
			m.opts.Acquired(done)
		}
	}()
	if err := errors.Join(checkKey(key), spec.Validate()); err != nil {
		return nil, m.fail("acquire", executor.ErrInvalid, err)
	}
	l, err := m.take(ctx, "acquire", key)
	if err != nil {
		return nil, err
	}
	lease, err := m.acquire(ctx, key, spec, l, &done.Handle)
	if err != nil {
		m.give(key, l)
		return nil, err
	}
	if m.ctx.Err() != nil { // Close did not see this lease
		return nil, errors.Join(m.fail("acquire", executor.ErrClosed, nil), lease.Release())
	}
	done.Session, out.Session = lease.session, lease.session.Info().Handle.Session
	return lease, nil
}

// acquire is Acquire for who has the turn in this process. On success the turn is the lease's. It
// notes the handle of the record.
func (m *Manager) acquire(ctx context.Context, key string, spec executor.Spec, l *local, handle *executor.Handle) (*Lease, error) {
	if err := m.beSeen(ctx); err != nil {
		return nil, err
	}
	e, err := m.claim(ctx, key, spec, l)
	if err != nil {
		return nil, err
	}
	lease := m.newLease(e, l)
	old, held := e.Handle, l.session
	*handle = old
	s, fresh, why, err := m.open(lease.ctx, ctx, e, spec, l)
	if err == nil && fresh {
		if lease.Restored, lease.Omitted, err = m.restore(ctx, e, s); err != nil {
			s.Close() // its TTL removes it if this fails
		}
	}
	if err != nil {
		lease.abandon(ctx, e.Unavailable)
		return nil, err
	}
	i := s.Info()
	err = lease.update(ctx, func(r *Record) {
		if fresh {
			r.Created, r.Ran, r.Running = i.Created, nil, time.Time{}
			r.Lost = r.Lost || r.Handle.Session != "" || len(lease.Restored) > 0
			if r.Handle.Session != "" || r.Lost && r.Why == "" {
				r.Why = why
			}
		}
		r.Unavailable = time.Time{}
		lease.Lost, lease.Why, lease.ran = r.Lost, r.Why, r.Ran
		r.Handle, r.Attach, r.Fencing = i.Handle, attachable(s), i.Capabilities.Has(executor.FeatureFencing)
	})
	if err == nil && why == LossUnavailable {
		if held != nil {
			m.letBe(held)
		}
		if err = m.noteAbandoned(ctx, old); err != nil {
			err = m.storeError(ctx, "acquire", err)
		}
	}
	if err == nil && fresh && lease.Lost { // the record says it from now on
		if err = m.unnoteLost(ctx, key); err != nil {
			err = m.storeError(ctx, "acquire", err)
		}
	}
	m.mu.Lock()
	l.session, l.lease = s, lease
	m.mu.Unlock()
	lease.session, lease.Fresh, lease.subject = s, fresh, spec.Subject
	if err != nil {
		// Whether the record names the sandbox is not known, so it must not go on without one.
		m.setSession(l, nil)
		if fresh {
			s.Close() // its TTL removes it if this fails
		} else {
			s.Detach()
		}
		lease.abandon(ctx, time.Time{})
		return nil, err
	}
	return lease, nil
}

// setSession replaces what this process holds of a key.
func (m *Manager) setSession(l *local, s executor.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.session = s
}

// poll is how often a key that another process has is looked at.
const poll = 200 * time.Millisecond

// claim takes the lease of a key in the Store, making the record if there is none, and waits while
// somebody else has it.
func (m *Manager) claim(ctx context.Context, key string, spec executor.Spec, l *local) (*entry, error) {
	for {
		e, err := m.load(ctx, key)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if e.rev != "" {
			if err := m.compare(&e.Record, spec); err != nil {
				return nil, err
			}
			if wait, err := m.taken(ctx, &e.Record, l, now); err != nil {
				return nil, err
			} else if wait {
				if err := m.pause(ctx, poll); err != nil {
					return nil, err
				}
				continue
			}
		} else {
			e.Record = Record{
				Key: key, Subject: spec.Subject, Created: now,
				Template: spec.Template, Languages: spec.Languages, Network: spec.Network,
			}
			if e.Lost, err = m.wasLost(ctx, key); err != nil {
				return nil, err
			}
			if e.Token, err = m.filesToken(ctx, key); err != nil {
				return nil, err
			}
		}
		made := e.rev == ""
		e.other = !made && e.Life != m.life
		if e.inherited = !made && !e.Until.IsZero(); e.inherited { // its holder has not given it back, and what it runs may go on
			e.Running = later(e.Running, longestRun(e.Handle, e.Until))
		}
		e.Instance, e.Life, e.Until, e.Used = m.opts.Instance, m.life, now.Add(m.opts.LeaseTTL), now
		// Larger than every token before, also where the record was forgotten in between and only
		// the clock remembers.
		e.Token = max(e.Token+1, now.UnixMicro())
		switch err := m.save(ctx, &e); {
		case errors.Is(err, ErrConflict):
			continue // somebody was faster
		case err != nil:
			// It may be there all the same. Then it is ours, unrenewed, and ends by itself.
			return nil, m.storeError(ctx, "acquire", err)
		}
		if made {
			if err := m.admit(ctx, &e); err != nil {
				m.remove(context.WithoutCancel(ctx), &e)
				return nil, err
			}
		}
		return &e, nil
	}
}

// compare refuses a Spec that means another sandbox than the one that is there.
func (m *Manager) compare(r *Record, spec executor.Spec) error {
	var errs []error
	differs := func(what string, have, want any) {
		errs = append(errs, fmt.Errorf("%s: the session has %v, not %v; discard it first", what, have, want))
	}
	if r.Template != spec.Template {
		differs("template", r.Template, spec.Template)
	}
	if !slices.Equal(r.Languages, spec.Languages) {
		differs("languages", r.Languages, spec.Languages)
	}
	if r.Network.Mode != spec.Network.Mode || !slices.Equal(r.Network.Hosts, spec.Network.Hosts) {
		differs("network", r.Network, spec.Network)
	}
	if err := errors.Join(errs...); err != nil {
		return m.fail("acquire", executor.ErrInvalid, err)
	}
	if r.Subject != spec.Subject {
		return m.deny(executor.Denial{Rule: executor.RuleOwner}, errors.New("the session of this key is another subject's"))
	}
	return nil
}

// deny makes an error of a rule of this package.
func (m *Manager) deny(d executor.Denial, cause error) error {
	e := m.fail("acquire", executor.ErrDenied, cause)
	e.Denied = d
	return e
}

// taken reports whether the lease is somebody else's at the moment. Where the sandbox can only be
// used in a living process that is not this one it fails with ElsewhereError.
func (m *Manager) taken(ctx context.Context, r *Record, l *local, now time.Time) (bool, error) {
	if r.Life == m.life {
		return false, nil // of a call of this process that has ended
	}
	leased := now.Before(r.Until) && r.Instance != m.opts.Instance // a former life of this instance is over
	if r.Attach || r.Handle.Session == "" {
		return leased, nil
	}
	if r.Instance == m.opts.Instance {
		return false, nil
	}
	until, err := m.aliveUntil(ctx, r.Instance)
	if err != nil {
		return false, err
	}
	if now.Before(until) || leased {
		if until.Before(r.Until) {
			until = r.Until
		}
		return false, m.fail("acquire", executor.ErrUnsupported, &ElsewhereError{Instance: r.Instance, Until: until})
	}
	return false, nil
}

// admit counts the sessions with the new one among them, so that two processes cannot both be the
// last to fit.
func (m *Manager) admit(ctx context.Context, e *entry) error {
	if err := m.note(ctx, &e.Record); err != nil {
		return m.storeError(ctx, "acquire", err)
	}
	perSubject, total := m.limits()
	if most := total; most > 0 {
		n := 0
		for _, err := range m.store.Keys(ctx, sessionPrefix) {
			if err != nil {
				return m.storeError(ctx, "acquire", err)
			}
			n++
		}
		if n > most {
			return m.fail("acquire", executor.ErrExhausted, fmt.Errorf("max_total: there are %d sessions already", most))
		}
	}
	if most := perSubject; most > 0 && e.Subject != "" {
		n, err := m.countSubject(ctx, e.Subject, most)
		if err != nil {
			return err
		}
		if n > most {
			d := executor.Denial{Rule: executor.RuleSessions, Limit: int64(most), Have: int64(most)}
			return m.deny(d, fmt.Errorf("max_per_subject: the subject has %d sessions already", most))
		}
	}
	return nil
}

// countSubject counts the sessions of a subject. Notes whose session is gone, as a crash in between
// leaves them, are removed when they matter.
func (m *Manager) countSubject(ctx context.Context, subject string, most int) (int, error) {
	dir := subjectDir(subject)
	var keys []string
	for k, err := range m.store.Keys(ctx, dir) {
		if err != nil {
			return 0, m.storeError(ctx, "acquire", err)
		}
		keys = append(keys, k[len(dir):])
	}
	if len(keys) <= most {
		return len(keys), nil
	}
	n := 0
	for _, k := range keys {
		r, err := m.load(ctx, k)
		if err != nil {
			return 0, err
		}
		if r.rev == "" || r.Subject != subject {
			if err := m.unnote(ctx, subject, k); err != nil {
				return 0, m.storeError(ctx, "acquire", err)
			}
			continue
		}
		n++
	}
	return n, nil
}

// open returns the session of a record whose lease is ours: the one that is held here, the one that
// can be attached to, or a new one, and why it is new. It stops when the lease is lost or the
// caller gives up. In e it notes since when the backend is unavailable.
func (m *Manager) open(leased, caller context.Context, e *entry, spec executor.Spec, l *local) (s executor.Session, fresh bool, why Loss, err error) {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(leased, cancel)()
	began := time.Now()
	replaceable := m.replaceable(&e.Record, began)
	s, err = m.reach(ctx, e, l, replaceable)
	why = LossGone
	switch {
	case s != nil:
		return s, false, "", nil
	case silent(err):
		if e.Unavailable.IsZero() {
			e.Unavailable = began
		}
		if !replaceable && !m.replaceable(&e.Record, time.Now()) || ctx.Err() != nil {
			return nil, false, "", err
		}
		why = LossUnavailable
	case err != nil:
		return nil, false, "", err
	}
	s, err = m.x.Create(ctx, spec)
	return s, err == nil, why, err
}

// reach returns the session that is there; nil: it is gone. With brief it does not take long. A
// backend that says nothing is one that does not answer, also for a caller who would wait for ever.
func (m *Manager) reach(caller context.Context, e *entry, l *local, brief bool) (s executor.Session, err error) {
	limit := reachTime
	if brief {
		limit = lastTry
		if end, ok := caller.Deadline(); ok {
			limit = min(limit, time.Until(end)/2)
		}
	}
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil && caller.Err() == nil {
			err = m.fail("acquire", executor.ErrUnavailable, fmt.Errorf("the backend did not answer within %v: %w", limit, err))
		}
	}()
	if l.session != nil {
		s, err := m.reuse(ctx, e, l)
		if s != nil || err != nil {
			return s, err
		}
	}
	if e.Handle.Session != "" && e.Attach {
		h := e.Handle
		if e.Fencing {
			h.Fence = e.Token
		}
		s, err := m.x.Attach(ctx, h)
		if err == nil || !errors.Is(err, executor.ErrNotFound) {
			return s, err
		}
		// It may be there and dead. No record will name it any more, so this is the time; the
		// reaper comes after a failure.
		m.x.Destroy(ctx, e.Handle)
	}
	return nil, nil
}

// reuse returns the session that this process has, if it is still the one that the record names and
// alive.
func (m *Manager) reuse(ctx context.Context, e *entry, l *local) (executor.Session, error) {
	s := l.session
	// After another process has had the lease, this holder may have been shut out of the sandbox
	// and not know it.
	if s.Info().Handle.Session == e.Handle.Session && !e.other {
		i, err := s.Refresh(ctx)
		switch {
		case err == nil && i.State == executor.SessionRunning:
			return s, nil
		case err != nil && !gone(err):
			return nil, err
		}
	}
	// It is gone, or another process went on with the key and perhaps shut this one out.
	m.setSession(l, nil)
	m.letBe(s)
	return nil, nil
}

// pause waits a little.
func (m *Manager) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return m.fail("acquire", ctx.Err(), context.Cause(ctx))
	case <-m.ctx.Done():
		return m.fail("acquire", executor.ErrClosed, nil)
	}
}

func (m *Manager) begin(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
	i := m.x.Info()
	op.Layer, op.Backend, op.Type = "sessions", i.Name, i.Type
	return m.opts.Hooks.Start(ctx, op)
}
