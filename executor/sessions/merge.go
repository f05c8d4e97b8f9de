package sessions

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// Merge is the opposite of Split: it lets a conversation that has had a key for each of several
// languages go on under one key, and reports whether it does. The first Acquire of that key makes a
// sandbox with the variables of each language and the files of all. Of files with one name, that of
// the key that was used last stays, and Kept.Omitted names the others.
//
// Each key of from has one language. Merge changes nothing, without an error, while one of them has
// a sandbox that Options.Move does not make leave or that cannot be left now, and without
// Options.Checkpoint. It waits for leases of sandboxes that leave. spec is that of Acquire.
func (m *Manager) Merge(ctx context.Context, key string, spec executor.Spec, from map[string]executor.Language) (merged bool, err error) {
	if m.opts.Checkpoint.Every == 0 {
		return false, nil
	}
	keys := slices.Sorted(maps.Keys(from)) // in the same order in each process, because Merge has several leases
	for _, k := range keys {
		e, err := m.load(ctx, k)
		if err != nil || time.Now().Before(e.Until) && !m.Leaves(e.Handle) {
			return false, err
		}
	}
	var parts []*part
	over := false // nothing of the parts is needed any more
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.end(ctx, over))
		}
	}()
	for _, k := range keys {
		p, err := m.take(ctx, k, spec, from[k])
		if err != nil {
			m.stays(ctx, k, "", err)
			return false, nil // Acquire will say what is wrong with the key that it is called for
		}
		if parts = append(parts, p); p.session != nil && !m.Leaves(p.e.Handle) {
			return false, nil
		}
	}
	known, err := m.Known(ctx, key)
	if err != nil || slices.Contains(known, key) {
		return err == nil, err // another call was first
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return a.e.before.Compare(b.e.before) })
	r, b, archive, err := m.whole(ctx, parts)
	if err != nil {
		m.stays(ctx, key, r.Handle.Backend, err)
		return false, nil
	}
	r.Key, b.Language = key, spec.Languages[0]
	err = m.storeError(ctx, "merge", m.handOn(ctx, &r, b, archive, r.Why))
	over = err == nil
	return over, err
}

// A part is a key that Merge has leased.
type part struct {
	m        *Manager
	l        *local
	e        *entry
	lease    *Lease
	language executor.Language
	session  executor.Session // nil: it is lost
	why      Loss             // the conversation loses the sandbox
}

// take leases a key for Merge and reaches its sandbox.
func (m *Manager) take(ctx context.Context, key string, spec executor.Spec, language executor.Language) (*part, error) {
	spec.Languages = []executor.Language{language}
	l, err := m.lock(ctx, "merge", key)
	if err != nil {
		return nil, err
	}
	e, err := m.claim(ctx, key, spec, false, l)
	if err != nil {
		m.unlock(key, l)
		return nil, err
	}
	p := &part{m: m, l: l, e: e, lease: m.newLease(e, l), language: language}
	p.session, p.why, err = m.find(ctx, e, l, true)
	switch {
	case err != nil:
		return nil, errors.Join(err, p.end(ctx, false))
	case p.session != nil:
		p.why = LossMoved
	case e.Handle.Session == "": // it was lost before
		p.why = cmp.Or(e.Why, LossGone)
	}
	return p, nil
}

// end ends the lease of a part. If the part was merged, nothing is left of its key.
func (p *part) end(ctx context.Context, merged bool) error {
	defer p.m.unlock(p.e.Key, p.l)
	if !merged {
		if p.session != nil {
			p.m.setSession(p.l, p.session)
		}
		p.lease.abandon(ctx, p.e.Unavailable)
		return nil
	}
	var err error
	if p.e.Handle.Session != "" && p.why != LossGone { // the sandbox may live
		err = p.m.abandon(ctx, "merge", p.e.Key, p.e.Handle, p.why)
	}
	held := p.l.session
	p.m.setSession(p.l, nil)
	switch {
	case p.session != nil:
		p.m.closeLater(p.session)
	case held != nil:
		p.m.releaseLater(held)
	}
	return errors.Join(err, p.lease.forget(ctx))
}

// archive returns what the conversation of a part goes on from, or nil, and to whom it is bound. It
// sets in r how many runs came after it.
func (p *part) archive(ctx context.Context, r *Record) (b checkpoint.Binding, archive []byte, err error) {
	switch {
	case p.session == nil:
		return p.m.lastArchive(ctx, r)
	case !p.m.keeps(p.session) || time.Now().Before(r.Running):
		return b, nil, errStuck
	}
	r.Behind = 0
	archive, err = p.m.archive(ctx, r, p.session)
	return p.m.madeOf(r, p.session), archive, err
}

// whole returns what the parts of a conversation make together, in the order of their use. The
// record has the IDs of all.
func (m *Manager) whole(ctx context.Context, parts []*part) (all Record, b checkpoint.Binding, archive []byte, err error) {
	var archives []checkpoint.Part
	for _, p := range parts {
		r := p.e.Record
		bound, a, err := p.archive(ctx, &r)
		if err != nil {
			return r, b, nil, err
		}
		r.Why, r.Token, r.Used, r.On, r.Behind = p.why, max(r.Token, all.Token), p.e.before, cmp.Or(r.On, all.On), r.Behind+all.Behind
		r.IDs, r.Unsure = slices.Concat(all.IDs, r.IDs), slices.Concat(all.Unsure, r.Unsure)
		all = r
		switch {
		case a == nil:
			continue
		case len(archives) == 0:
			b = bound
		case bound.Owner != b.Owner || !reflect.DeepEqual(bound.Network, b.Network):
			return all, b, nil, errors.New("the checkpoints of its languages are of different owners or networks")
		case bound.Isolation.AtLeast(b.Isolation):
			b.Isolation = bound.Isolation
		case !b.Isolation.AtLeast(bound.Isolation):
			b.Isolation = executor.IsolationMicroVM // neither is enough
		}
		archives = append(archives, checkpoint.Part{Language: p.language, Archive: a})
	}
	if len(archives) > 0 {
		archive, err = checkpoint.Merge(archives, MaxCheckpoint)
	}
	return all, b, archive, err
}
