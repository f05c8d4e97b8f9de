package sessions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Discard destroys the session of key, whichever process holds it, and forgets the key. If there is
// no record, that is not an error. If the session lives in another process and cannot be reached
// from here, the error is an ElsewhereError.
func (m *Manager) Discard(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return m.fail("discard", executor.ErrInvalid, err)
	}
	for {
		e, err := m.load(ctx, key)
		if err != nil {
			return err
		}
		if e.rev == "" {
			return m.discardKept(ctx, key)
		}
		if err := m.destroy(ctx, &e); err != nil {
			return err
		}
		err = m.remove(ctx, &e)
		if err == nil {
			return m.discardKept(ctx, key)
		}
		if !errors.Is(err, ErrConflict) {
			return m.storeError(ctx, "discard", err)
		}
	}
}

func (m *Manager) discardKept(ctx context.Context, key string) error {
	return m.storeError(ctx, "discard", m.forgetKept(ctx, key))
}

// destroy destroys the sandbox of a record and ends its lease in this process, if there is one.
func (m *Manager) destroy(ctx context.Context, e *entry) error {
	m.mu.Lock()
	var s executor.Session
	l := m.keys[e.Key]
	if l != nil {
		if l.lease != nil {
			l.lease.cancel(errLost)
		}
		if l.session != nil && l.session.Info().Handle.Session == e.Handle.Session {
			s = l.session
		}
	}
	m.mu.Unlock()
	switch {
	case e.Handle.Session == "":
		return nil // not created yet; its creator will find that the record is gone
	case e.Attach:
		err := m.x.Destroy(ctx, e.Handle) // also for a sandbox that this process holds, perhaps with a lower token
		if err == nil && s != nil {
			m.releaseLater(s)
			m.drop(e.Key, l, s)
		}
		return err
	case s != nil:
		err := s.Close()
		if err == nil {
			m.drop(e.Key, l, s)
		}
		return err
	}
	until, err := m.aliveUntil(ctx, e.Instance)
	if err != nil {
		return err
	}
	if e.Instance != m.opts.Instance && time.Now().Before(until) {
		return m.fail("discard", executor.ErrUnsupported, &ElsewhereError{Instance: e.Instance, Until: until})
	}
	return nil // the sandbox died with its process
}

// drop forgets a session that has ended, unless its key is in use: then the next sweep does.
func (m *Manager) drop(key string, l *local, s executor.Session) {
	select {
	case <-l.unlocked:
		if l.session == s {
			m.setSession(l, nil)
		}
		l.unlocked <- struct{}{}
		m.tidy(key, l)
	default:
	}
}

// ContactTime is how long a sandbox counts as in use after it has received something from a holder.
const ContactTime = time.Minute

// InUse reports whether a sandbox has received something from a holder within ContactTime. It is
// false for a sandbox that is dead or gone, and if the backend cannot tell: then only age and lease
// say whether somebody needs the sandbox.
func InUse(ctx context.Context, x executor.Executor, i executor.SessionInfo) (bool, error) {
	if i.State == executor.SessionDead {
		return false, nil
	}
	at, err := x.LastContact(ctx, i.Handle)
	if errors.Is(err, executor.ErrUnsupported) || errors.Is(err, executor.ErrNotFound) {
		return false, nil
	}
	return err == nil && time.Since(at) < ContactTime, err
}

// Reap destroys sandboxes of this owner that no record names and that are older than grace, and
// yields them. It spares a sandbox whose creator is alive according to the Store, and a sandbox
// that is InUse, because its holder may only have lost the Store. A sandbox that was replaced or
// abandoned is not spared. With dryRun it yields the sandboxes without destroying them. An error is
// about one sandbox, which is then spared, or about one backend. After an error about a record that
// cannot be read, or about a clock that differs from that of the Store by more than LeaseTTL,
// nothing is destroyed.
func (m *Manager) Reap(ctx context.Context, grace time.Duration, dryRun bool) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		if err := m.checkClock(ctx); err != nil {
			yield(executor.SessionInfo{}, err)
			return
		}
		// List the sandboxes first and the records afterwards: a sandbox that is recorded in
		// between is spared.
		var found []executor.SessionInfo
		for i, err := range m.x.Sessions(ctx, nil) {
			if err != nil {
				if !yield(i, err) {
					return
				}
				continue
			}
			if time.Since(i.Created) >= grace {
				found = append(found, i)
			}
		}
		named := map[[2]string]bool{}
		for r, err := range m.Records(ctx, "") {
			if err != nil {
				yield(executor.SessionInfo{}, err) // without all records Reap cannot tell what is unused
				return
			}
			named[[2]string{r.Handle.Backend, r.Handle.Session}] = true
		}
		alive := map[string]bool{}
		for _, i := range found {
			if named[[2]string{i.Handle.Backend, i.Handle.Session}] {
				continue
			}
			lives, known := alive[i.Instance]
			if !known {
				until, err := m.aliveUntil(ctx, i.Instance)
				if err != nil {
					yield(i, err)
					return
				}
				lives = time.Now().Before(until)
				alive[i.Instance] = lives
			}
			unwanted, err := m.abandoned(ctx, i.Handle)
			if err != nil {
				yield(i, err)
				return
			}
			if !unwanted {
				used := lives
				if !used {
					used, err = InUse(ctx, m.x, i)
				}
				if used {
					continue
				}
			}
			if err == nil && !dryRun {
				err = m.x.Destroy(ctx, i.Handle)
			}
			if err != nil {
				err = fmt.Errorf("reap %s: %w", i.Handle.Session, err)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}
