package sessions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// move lets a conversation go on in a new sandbox made from spec, because Options.Move says so. If
// that is not possible now, the conversation stays where it is, unchanged, and the next Acquire
// tries again: then the session that is returned is nil. The caller ends s.
func (m *Manager) move(ctx context.Context, e *entry, spec executor.Spec, s executor.Session) (next executor.Session, kept *Kept) {
	var archive []byte
	err := errStuck
	if m.keeps(s) && !time.Now().Before(e.Running) {
		archive, err = m.archive(ctx, &e.Record, s)
	}
	if err == nil {
		next, kept, err = m.goOn(ctx, &e.Record, archive, func(ctx context.Context) (executor.Session, error) { return m.x.Create(ctx, spec) })
	}
	if err != nil {
		m.stays(ctx, e.Key, e.Handle.Backend, err)
		return nil, nil
	}
	e.On = ""
	return next, kept
}

var errStuck = errors.New("no checkpoint can be made of it, or a run may go on in it")

// Leaves reports whether Options.Move says that a session is to leave its backend.
func (m *Manager) Leaves(h executor.Handle) bool { return m.opts.Move != nil && m.opts.Move(h) }

// stays logs that a conversation could not move.
func (m *Manager) stays(ctx context.Context, key, backend string, err error) {
	if m.opts.Log != nil {
		m.opts.Log.WarnContext(ctx, "a session stays on its backend for now", "key", key, "backend", backend, "error", err)
	}
}

// goOn restores an archive of the session of a record into one that it creates, and saves it as the
// checkpoint of that. The options of the Manager have chosen its backend, so its isolation may be
// weaker, within MinIsolation of the Spec. If goOn fails, there is no other session.
func (m *Manager) goOn(ctx context.Context, r *Record, archive []byte, create func(context.Context) (executor.Session, error)) (executor.Session, *Kept, error) {
	next, err := create(ctx)
	if err != nil {
		return nil, nil, err
	}
	kept := &Kept{Made: time.Now()}
	err = m.unpack(ctx, next, archive, kept)
	if err == nil {
		err = m.saveArchive(ctx, r, next, archive)
	}
	if err != nil {
		next.Close() // if this fails, the idle TTL removes it
		return nil, nil, err
	}
	return next, kept, nil
}

// closeLater destroys a sandbox whose conversation has moved. The caller has noted it as abandoned:
// if this fails, Reap removes it.
func (m *Manager) closeLater(s executor.Session) {
	m.leaving.Go(func() { s.Close() })
}

// Evict makes a checkpoint of the session of key and destroys the sandbox, once no lease holds it.
// The next Acquire goes on from the checkpoint in a new sandbox, and its lease says so. If the
// checkpoint cannot be made or saved, the session stays as it is, and Evict returns the error. If
// there is no session, that is not an error. If it lives in another process and cannot be reached
// from here, the error is an ElsewhereError.
func (m *Manager) Evict(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return m.fail("evict", executor.ErrInvalid, err)
	}
	e, err := m.load(ctx, key)
	if err != nil || e.Handle.Session == "" {
		return err
	}
	le, err := m.AcquireExisting(ctx, key, executor.Spec{Subject: e.Subject})
	if errors.Is(err, executor.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return le.evict(ctx)
}

// Drain evicts every session of a backend, one after the other, and yields its record, with the
// error of Evict. New sessions go where the Spec of their Acquire leads: let it lead elsewhere
// before.
func (m *Manager) Drain(ctx context.Context, backend string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var found []Record // a Store need not allow changes while it lists
		for r, err := range m.Records(ctx, "") {
			if err != nil && !yield(r, err) {
				return
			}
			if err == nil && r.Handle.Backend == backend {
				found = append(found, r)
			}
		}
		for _, r := range found {
			if !yield(r, m.Evict(ctx, r.Key)) {
				return
			}
		}
	}
}

// evict is Evict for the holder of the lease, which it ends.
func (le *Lease) evict(ctx context.Context) error {
	if err := le.Checkpoint(ctx); err != nil {
		return errors.Join(err, le.Release())
	}
	return le.destroy(func(ctx context.Context, e *entry, closed error) error {
		if closed != nil {
			return closed // the sandbox may live, and the record names it
		}
		e.Used = e.before // to evict is not to use
		return le.m.removeLost(ctx, "evict", e, LossEvicted)
	})
}

// Checkpoint makes a checkpoint of the session now, and saves it for the next sandbox of the key.
// It is a run that is no turn: nothing else may run in the session meanwhile. It requires
// Options.Checkpoint, and is ErrUnsupported without it. If it fails, the last checkpoint stays.
func (le *Lease) Checkpoint(ctx context.Context) error {
	ctx, end, err := le.use(ctx, "checkpoint")
	if err != nil {
		return err
	}
	now, err := le.checkpoint(ctx)
	if err == nil {
		err = le.m.saveArchive(ctx, &now.record, le.session(), now.archive)
	}
	if err != nil {
		return end(err)
	}
	le.mu.Lock()
	le.behind, le.wrote = 0, false
	le.mu.Unlock()
	return end(le.update(ctx, func(r *Record) { r.Tried = 0 }))
}

// Fork saves a checkpoint of the session under each of the keys, which must not have a session or a
// checkpoint yet. The first Acquire of such a key, by the same subject and with a Spec of the same
// network and isolation, goes on from there in a sandbox of its own: the conversations have the
// same state, and are independent from then on. A fork that nobody acquires is forgotten like the
// checkpoint of an idle session. Fork is a run that is no turn, as Checkpoint is. If it fails, some
// of the keys may have been made: Discard removes them.
func (le *Lease) Fork(ctx context.Context, keys ...string) error {
	ctx, end, err := le.use(ctx, "fork")
	if err != nil {
		return err
	}
	return end(le.fork(ctx, keys))
}

func (le *Lease) fork(ctx context.Context, keys []string) error {
	for i, key := range keys {
		err := checkKey(key)
		if err == nil && (key == le.Key || slices.Contains(keys[:i], key)) {
			err = fmt.Errorf("key %.80q: is named twice", key)
		}
		if err != nil {
			return le.m.fail("fork", executor.ErrInvalid, err)
		}
		if err := le.m.unused(ctx, key); err != nil {
			return err
		}
	}
	now, err := le.checkpoint(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := le.m.fork(ctx, &now.record, key, le.session(), now.archive); err != nil {
			return err
		}
	}
	return nil
}

// A point is a conversation at one moment.
type point struct {
	archive []byte
	record  Record // to save the archive with
}

// checkpoint makes an archive of the session.
func (le *Lease) checkpoint(ctx context.Context) (*point, error) {
	e := <-le.record
	now := &point{record: e.Record}
	le.record <- e
	le.mu.Lock()
	now.record.Ran, now.record.Installed = le.ran, le.installed
	le.mu.Unlock()
	if !le.m.keeps(le.session()) {
		return nil, le.m.fail("checkpoint", executor.ErrUnsupported, errors.New("it needs a configuration of checkpoints, and a session with files and a language"))
	}
	var err error
	now.archive, err = le.m.archive(ctx, &now.record, le.session())
	return now, err
}

// unused fails unless a key is new.
func (m *Manager) unused(ctx context.Context, key string) error {
	e, err := m.load(ctx, key)
	if err != nil {
		return err
	}
	h, _, err := m.loadHead(ctx, key)
	if err != nil {
		return m.storeError(ctx, "fork", err)
	}
	if e.rev != "" || h.ID != "" {
		return m.fail("fork", executor.ErrInvalid, fmt.Errorf("key %.80q: has a session or a checkpoint already; discard it first", key))
	}
	return nil
}

// fork saves an archive of the session of r under another key.
func (m *Manager) fork(ctx context.Context, r *Record, key string, s executor.Session, archive []byte) error {
	f := *r
	f.Key = key
	err := m.saveArchive(ctx, &f, s, archive)
	if errors.Is(err, ErrConflict) {
		return m.fail("fork", executor.ErrInvalid, fmt.Errorf("key %.80q: another call has just made it", key))
	}
	if err == nil {
		f.IDs, f.Unsure = nil, nil // its messages are others
		err = m.noteLost(ctx, &f, LossForked)
	}
	return m.storeError(ctx, "fork", err)
}

// makeRoom evicts the least recently used session of a subject, so that it can have another one. It
// reports whether it did. A session whose checkpoint cannot be made stays, and the next one goes.
func (m *Manager) makeRoom(ctx context.Context, subject, key string) (bool, error) {
	keys, err := m.keysOf(ctx, subject)
	if err != nil {
		return false, err
	}
	var found []Record
	now := time.Now()
	for _, k := range keys {
		e, err := m.load(ctx, k)
		if err != nil {
			return false, err
		}
		if e.rev != "" && e.Subject == subject && e.Key != key && !now.Before(e.Until) {
			found = append(found, e.Record)
		}
	}
	slices.SortFunc(found, func(a, b Record) int { return a.Used.Compare(b.Used) })
	for _, r := range found {
		err := m.evictIdle(ctx, r.Key)
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, m.fail("acquire", ctx.Err(), context.Cause(ctx))
		case m.opts.Log != nil:
			m.opts.Log.WarnContext(ctx, "a session was not evicted", "key", r.Key, "error", err)
		}
	}
	return false, nil
}

// evictIdle is Evict that does not wait for long: a session that has just been leased is in use.
func (m *Manager) evictIdle(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*checkpointTime)
	defer cancel()
	return m.Evict(ctx, key)
}
