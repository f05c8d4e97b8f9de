package sessions

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// Split lets a conversation whose sandbox has ended go on under other keys, each in one language,
// because no backend has all of its languages in one sandbox. Each gets the last checkpoint of key,
// with all files, and the IDs of its messages; the lease of its first Acquire says that the
// conversation has moved. Then key is forgotten. Of spec only Subject counts. A key that nothing is
// known of is no error. Split waits for a lease of key in this process, and fails with ErrBusy
// while another process has one.
func (m *Manager) Split(ctx context.Context, key string, spec executor.Spec, into map[string]executor.Language) error {
	l, err := m.lock(ctx, "split", key)
	if err != nil {
		return err
	}
	defer m.unlock(key, l)
	e, err := m.load(ctx, key)
	if err != nil {
		return err
	}
	r := e.Record
	if e.rev == "" {
		was, err := m.wasLost(ctx, key)
		if err != nil {
			return err
		}
		r = Record{Key: key, Subject: spec.Subject, Used: time.Now()}
		if was != nil {
			r.Subject, r.On, r.IDs, r.Unsure = cmp.Or(was.Subject, r.Subject), was.On, was.IDs, was.Unsure
		}
	}
	switch {
	case r.Subject != spec.Subject:
		return m.deny(executor.Denial{Rule: executor.RuleOwner}, errors.New("the session of this key belongs to another subject"))
	case time.Now().Before(r.Until):
		return m.fail("split", executor.ErrBusy, errors.New("the key has a lease"))
	}
	b, archive, err := m.lastArchive(ctx, &r)
	if err != nil {
		return err
	}
	for k, language := range into {
		part := r
		part.Key, b.Language = k, language
		if err := m.handOn(ctx, &part, b, archive, LossMoved); err != nil {
			return m.storeError(ctx, "split", err)
		}
	}
	if e.rev != "" {
		err = unlessConflict(m.remove(ctx, &e))
	}
	return m.storeError(ctx, "split", errors.Join(err, m.forgetKept(ctx, key)))
}

// handOn lets the key of r, which has no record yet, go on from an archive, or without an archive
// if it is nil. The lease of the first Acquire of that key has why as its reason.
func (m *Manager) handOn(ctx context.Context, r *Record, b checkpoint.Binding, archive []byte, why Loss) (err error) {
	if archive != nil {
		b.Conversation = r.Key
		err = m.saveBound(ctx, r, b, cmp.Or(r.Handle.IdleTTL, executor.DefaultIdleTTL), archive)
		if err == nil {
			err = m.noteBehind(ctx, r)
		}
	}
	if err == nil {
		err = m.noteLost(ctx, r, why)
	}
	return err
}

// lastArchive returns the last checkpoint of the key of r and to whom it is bound, or nil, and adds
// to r how much came after it.
func (m *Manager) lastArchive(ctx context.Context, r *Record) (b checkpoint.Binding, archive []byte, err error) {
	if m.opts.Checkpoint.Every == 0 {
		return b, nil, nil
	}
	h, _, err := m.loadHead(ctx, r.Key)
	if err != nil || h.ID == "" || h.Subject != r.Subject {
		return b, nil, m.storeError(ctx, "split", err)
	}
	r.Behind += h.Behind
	stored, err := m.getPieces(ctx, r.Key, h)
	if err != nil {
		return b, nil, m.storeError(ctx, "split", err)
	}
	later := (*checkpoint.VersionError)(nil)
	key, sealed, err := m.opts.Checkpoint.decrypt(r.Subject, r.Key, stored)
	if err == nil {
		b, archive, err = checkpoint.Unseal(key, sealed)
	}
	switch {
	case errors.As(err, &later):
		return b, nil, m.later(r.Key, later)
	case err != nil: // as in restore, it is lost
		return b, nil, nil
	}
	return b, archive, nil
}
