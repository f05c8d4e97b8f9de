package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Acquire leases the session of key. It is the one that this process holds, or one that is attached
// from the Store. If there is none or it is gone, it is a new one made from spec. While another
// call or process has the lease, Acquire waits until ctx ends. Concurrent calls for a key create
// only one session. An existing session is used as it is, even if spec differs, with two
// exceptions: another Template, Languages or Network is ErrInvalid, and another Subject is
// ErrDenied.
//
// If the backend of the session does not answer, Acquire fails with the backend's error for as long
// as Options.Replace says. After that it makes a new session, which Lease.Why reports, and leaves
// the old sandbox to its idle TTL and to Reap.
func (m *Manager) Acquire(ctx context.Context, key string, spec executor.Spec) (*Lease, error) {
	return m.acquired(ctx, key, spec, false)
}

// AcquireExisting is Acquire without a new sandbox: if the key has none or it is gone, it fails
// with ErrNotFound. The next Acquire then says what was lost. Of spec only Subject and Attributes
// count.
func (m *Manager) AcquireExisting(ctx context.Context, key string, spec executor.Spec) (*Lease, error) {
	return m.acquired(ctx, key, executor.Spec{Subject: spec.Subject, Attributes: spec.Attributes}, true)
}

// acquired is Acquire or AcquireExisting.
func (m *Manager) acquired(ctx context.Context, key string, spec executor.Spec, existing bool) (_ *Lease, err error) {
	ctx, end := m.begin(ctx, executor.Op{Name: "acquire"})
	var out executor.Outcome
	done := Acquisition{Key: key, Spec: spec, Began: time.Now()}
	defer func() {
		out.Err, done.Err = err, err
		end(out)
		if m.opts.Acquired != nil && (!existing || !errors.Is(err, executor.ErrNotFound)) {
			m.opts.Acquired(done)
		}
	}()
	if err := errors.Join(checkKey(key), spec.Validate()); err != nil {
		return nil, m.fail("acquire", executor.ErrInvalid, err)
	}
	l, err := m.lock(ctx, "acquire", key)
	if err != nil {
		return nil, err
	}
	lease, err := m.acquire(ctx, key, spec, existing, l, &done.Handle)
	if err != nil {
		m.unlock(key, l)
		return nil, err
	}
	if m.ctx.Err() != nil { // Close cannot have ended this lease
		return nil, errors.Join(m.fail("acquire", executor.ErrClosed, nil), lease.Release())
	}
	done.Session, out.Session = lease.session(), lease.session().Info().Handle.Session
	if lease.Fresh && lease.Lost && lease.Why != LossForked { // a fork has lost nothing
		done.Lost, done.Why, done.Kept = true, lease.Why, lease.Kept
		m.tell(ctx, &done)
	}
	return lease, nil
}

// tell logs that a key has lost its sandbox, and what is left. The names come from the sandbox, so
// only their number is logged.
func (m *Manager) tell(ctx context.Context, a *Acquisition) {
	if m.opts.Log == nil {
		return
	}
	attrs := []any{"key", a.Key, "why", a.Why, "backend", a.Session.Info().Handle.Backend, "restored", a.Kept.Restored()}
	if k := a.Kept; k != nil {
		attrs = append(attrs, "names", len(k.Names), "files", len(k.Files), "omitted", len(k.Omitted), "behind", k.Behind)
		if k.Refused != "" {
			attrs = append(attrs, "refused", k.Refused)
		}
	}
	m.opts.Log.WarnContext(ctx, "a conversation has lost its sandbox", attrs...)
}

// acquire is Acquire for a caller that has locked the key in this process. On success the lease
// keeps the lock. It stores the handle of the record in handle.
func (m *Manager) acquire(ctx context.Context, key string, spec executor.Spec, existing bool, l *local, handle *executor.Handle) (*Lease, error) {
	if err := m.ensureHeartbeat(ctx); err != nil {
		return nil, err
	}
	e, err := m.claim(ctx, key, spec, existing, l)
	if err != nil {
		return nil, err
	}
	if e.made {
		if err := m.admit(ctx, e); err != nil {
			m.remove(context.WithoutCancel(ctx), e)
			return nil, err
		}
	}
	lease := m.newLease(e, l)
	old, held := e.Handle, l.session
	*handle = old
	s, fresh, why, err := m.open(lease.ctx, ctx, e, spec, existing, l)
	var left executor.Session // that the conversation has moved from
	if err == nil && !fresh && !existing && m.Leaves(s.Info().Handle) {
		if next, kept := m.move(ctx, e, spec, s); next != nil {
			left, s, fresh, why, lease.Kept = s, next, true, LossMoved, kept
		}
	} else if err == nil && fresh {
		if s, lease.Kept, err = m.restore(ctx, e, spec, s); err != nil && s != nil {
			s.Close() // if this fails, the idle TTL removes it
		}
	}
	if err != nil {
		err = lease.cut(ctx, err)
		lease.abandon(ctx, e.Unavailable)
		return nil, err
	}
	i := s.Info()
	opened := func(r *Record) {
		if fresh {
			r.Created, r.Ran, r.Running, r.Behind, r.Tried, r.On, r.Need = i.Created, nil, time.Time{}, 0, 0, e.On, ""
			r.Lost = r.Lost || r.Handle.Session != "" || lease.Kept != nil
			r.Installed = nil
			if lease.Kept != nil {
				r.Installed, r.Ran = lease.Kept.Installed, lease.Kept.ran
			}
			if r.Handle.Session != "" || r.Lost && r.Why == "" {
				r.Why = why
			}
		}
		r.Unavailable = time.Time{}
		lease.Lost, lease.Why, lease.ran, lease.behind, lease.need, lease.installed = r.Lost, r.Why, r.Ran, r.Behind, r.Need, r.Installed
		r.Handle, r.Attach, r.Fencing = i.Handle, attachable(s), i.Capabilities.Has(executor.FeatureFencing)
	}
	next := e.Record
	opened(&next)
	if fresh || !e.Unavailable.IsZero() || !sameSandbox(&next, &e.Record) { // the claim has not written it
		err = lease.update(ctx, opened)
	}
	if err == nil && (why == LossUnavailable || why == LossMoved) {
		if held != nil && left == nil {
			m.releaseLater(held)
		}
		err = m.abandon(ctx, "acquire", key, old, why)
	}
	if left != nil {
		m.closeLater(left)
	}
	if err == nil && fresh && lease.Lost { // from now on the record says it
		err = m.storeError(ctx, "acquire", m.unnoteLost(ctx, key))
	}
	m.mu.Lock()
	l.session, l.lease = s, lease
	m.mu.Unlock()
	lease.Fresh = fresh
	lease.begin(s, spec, existing)
	if err != nil {
		// It is not known whether the record names the sandbox, so the process must not go on
		// without a record.
		m.setSession(l, nil)
		if fresh {
			s.Close() // if this fails, the idle TTL removes it
		} else {
			s.Detach()
		}
		lease.abandon(ctx, time.Time{})
		return nil, err
	}
	return lease, nil
}

// cut returns why an Acquire has failed. If the end of its lease has cut it short, the caller has
// not cancelled anything.
func (le *Lease) cut(caller context.Context, err error) error {
	switch {
	case le.ctx.Err() == nil || caller.Err() != nil || !errors.Is(err, context.Canceled):
		return err
	case errors.Is(context.Cause(le.ctx), errLost):
		return le.m.fail("acquire", executor.ErrUnavailable, errLost)
	}
	return le.m.fail("acquire", executor.ErrClosed, nil)
}

// sameSandbox reports whether two records say the same about the sandbox.
func sameSandbox(a, b *Record) bool {
	x, xerr := a.Handle.MarshalText()
	y, yerr := b.Handle.MarshalText()
	return xerr == nil && yerr == nil && bytes.Equal(x, y) && a.Attach == b.Attach && a.Fencing == b.Fencing
}

var errNone = errors.New("the key has no session; it has ended or never existed")

// setSession replaces the session that this process holds for a key.
func (m *Manager) setSession(l *local, s executor.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.session = s
}

// poll is how often Acquire checks a key that another process has leased.
const poll = 200 * time.Millisecond

// claim takes the lease of a key in the Store and makes the record if there is none. It waits while
// another process has the lease.
func (m *Manager) claim(ctx context.Context, key string, spec executor.Spec, existing bool, l *local) (*entry, error) {
	var leased entry // to another process, as last seen
	for {
		e, err := m.loadAgain(ctx, key, leased)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if existing {
			if e.rev == "" || e.Handle.Session == "" && e.Until.IsZero() {
				return nil, m.fail("acquire", executor.ErrNotFound, errNone)
			}
			spec.Template, spec.Languages, spec.Network = e.Template, e.Languages, e.Network
		}
		if e.rev != "" {
			if err := m.compare(&e.Record, spec); err != nil {
				return nil, err
			}
			if wait, err := m.leasedElsewhere(ctx, &e.Record, l, now); err != nil {
				return nil, err
			} else if wait {
				leased = e
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
			was, err := m.wasLost(ctx, key)
			if err != nil {
				return nil, err
			}
			if was != nil && (was.Subject == "" || was.Subject == spec.Subject) {
				e.Lost, e.Why, e.On, e.Used, e.IDs, e.Unsure = true, was.Why, was.On, was.Used, was.IDs, was.Unsure
			}
			if e.Token, err = m.headToken(ctx, key); err != nil {
				return nil, err
			}
		}
		e.made, e.before = e.rev == "", e.Used
		e.other = !e.made && e.Life != m.life
		if e.inherited = !e.made && !e.Until.IsZero(); e.inherited { // its holder has not released it, and its runs may go on
			e.Running = later(e.Running, longestRun(e.Handle, e.Until))
		}
		e.Instance, e.Life, e.Until, e.Used = m.opts.Instance, m.life, now.Add(m.opts.LeaseTTL), now
		// The token must be larger than every earlier one, even if the record was forgotten in
		// between and only the clock is left to compare with.
		e.Token = max(e.Token+1, now.UnixMicro())
		switch err := m.save(ctx, &e); {
		case errors.Is(err, ErrConflict):
			continue // another process was faster
		case err != nil:
			// The write may have succeeded all the same. Then the lease is ours, is not renewed,
			// and expires.
			return nil, m.storeError(ctx, "acquire", err)
		}
		return &e, nil
	}
}

// compare refuses a Spec that requires a different sandbox than the existing one.
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
		return m.deny(executor.Denial{Rule: executor.RuleOwner}, errors.New("the session of this key belongs to another subject"))
	}
	return nil
}

// deny makes an ErrDenied from a rule of this package.
func (m *Manager) deny(d executor.Denial, cause error) error {
	e := m.fail("acquire", executor.ErrDenied, cause)
	e.Denied = d
	return e
}

// leasedElsewhere reports whether another process has the lease now. It fails with ElsewhereError
// if the sandbox can be used only in another process that is alive.
func (m *Manager) leasedElsewhere(ctx context.Context, r *Record, l *local, now time.Time) (bool, error) {
	if r.Life == m.life {
		return false, nil // the lease of an earlier call in this process
	}
	leased := now.Before(r.Until) && r.Instance != m.opts.Instance // an earlier process of this instance has ended
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
		return false, m.fail("acquire", executor.ErrUnsupported, &ElsewhereError{Instance: r.Instance, Until: later(until, r.Until)})
	}
	return false, nil
}

// admit counts the sessions including the new one, so that two processes cannot both add the last
// one.
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
		for more := m.evicts(); err == nil && n > most && more; {
			if more, err = m.makeRoom(ctx, e.Subject, e.Key); err == nil && more {
				n, err = m.countSubject(ctx, e.Subject, most)
			}
		}
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

// keysOf returns the keys for which there is a note that the subject has a session.
func (m *Manager) keysOf(ctx context.Context, subject string) (keys []string, err error) {
	dir := subjectDir(subject)
	for k, err := range m.store.Keys(ctx, dir) {
		if err != nil {
			return nil, m.storeError(ctx, "acquire", err)
		}
		keys = append(keys, k[len(dir):])
	}
	return keys, nil
}

// countSubject counts the sessions of a subject. A crash can leave a note about a session that is
// gone. Such notes are removed when the count reaches the limit.
func (m *Manager) countSubject(ctx context.Context, subject string, most int) (int, error) {
	keys, err := m.keysOf(ctx, subject)
	if err != nil || len(keys) <= most {
		return len(keys), err
	}
	n := 0
	for _, k := range keys {
		note, err := m.noteOf(ctx, subject, k) // before the record, which may be made meanwhile
		if err != nil {
			return 0, m.storeError(ctx, "acquire", err)
		}
		r, err := m.load(ctx, k)
		if err != nil {
			return 0, err
		}
		if r.rev == "" || r.Subject != subject {
			if err := unlessConflict(m.store.Delete(ctx, subjectKey(subject, k), note.Rev)); err != nil {
				return 0, m.storeError(ctx, "acquire", err)
			}
			continue
		}
		n++
	}
	return n, nil
}

// open returns the session of a record that this process has leased: the one that it holds, the one
// that it can attach to, or a new one and the reason why it is new. It stops when the lease is lost
// or the caller gives up.
func (m *Manager) open(leased, caller context.Context, e *entry, spec executor.Spec, existing bool, l *local) (s executor.Session, fresh bool, why Loss, err error) {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(leased, cancel)()
	s, why, err = m.find(ctx, e, l, !existing)
	switch {
	case s != nil || err != nil:
		return s, false, "", err
	case existing:
		return nil, false, "", m.fail("acquire", executor.ErrNotFound, errNone)
	}
	s, err = m.sandbox(ctx, &e.Record, spec)
	return s, err == nil, why, err
}

// find returns the session of a record, or nil and why it is lost. With replace that may be because
// its backend has been unavailable for long enough. In e it records since when it has been.
func (m *Manager) find(ctx context.Context, e *entry, l *local, replace bool) (s executor.Session, why Loss, err error) {
	began := time.Now()
	replaceable := m.replaceable(&e.Record, began)
	s, err = m.reach(ctx, e, l, replaceable)
	switch {
	case s != nil:
		return s, "", nil
	case unreachable(err):
		if e.Unavailable.IsZero() {
			e.Unavailable = began
		}
		if !replace || !replaceable && !m.replaceable(&e.Record, time.Now()) || ctx.Err() != nil {
			return nil, "", err
		}
		return nil, LossUnavailable, nil
	}
	return nil, LossGone, err
}

// reach returns the existing session, or nil if it is gone. If brief is set, it waits only a short
// time. A backend that does not reply counts as unavailable, even if the caller would wait forever.
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
		// The sandbox may exist and be dead. No record will name it any more, so destroy it now. If
		// that fails, Reap removes it.
		m.x.Destroy(ctx, e.Handle)
	}
	return nil, nil
}

// reuse returns the session that this process holds, if it is alive and is still the one that the
// record names.
func (m *Manager) reuse(ctx context.Context, e *entry, l *local) (executor.Session, error) {
	s := l.session
	// If another process has had the lease, it may have shut this holder out of the sandbox without
	// this holder's knowledge.
	if s.Info().Handle.Session == e.Handle.Session && !e.other {
		i, err := s.Refresh(ctx)
		switch {
		case err == nil && i.State == executor.SessionRunning:
			return s, nil
		case err != nil && !gone(err):
			return nil, err
		}
	}
	// The session is gone, or another process has used the key and may have shut this holder out.
	m.setSession(l, nil)
	m.releaseLater(s)
	return nil, nil
}

// pause waits for d.
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
