package backends

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
)

// Reload changes the Broker to cfg. If cfg has an error, it changes nothing. Backends with the same
// type and settings stay, with their pools, breakers, queues and statistics; the settings under
// their key "broker" are changed in place. Existing sessions stay where they are, and new ones
// follow cfg. A removed backend gets no new session and is closed when its last session has ended.
// In Sessions, only the limits on the number of sessions, Evict, Drain and ReplaceAfter can change,
// and Fronts and CORS cannot change.
func (b *Broker) Reload(ctx context.Context, cfg Config) error {
	if err := cfg.Check(b.reg); err != nil {
		return err
	}
	b.reloading <- struct{}{}
	defer func() { <-b.reloading }()
	old, err := b.use("reload")
	if err != nil {
		return err
	}
	old.done() // only the holder of b.reloading replaces the table
	if err := errors.Join(old.cfg.Sessions.changeable(cfg.Sessions), old.cfg.sameFronts(cfg)); err != nil {
		return cfg.at.report(err)
	}
	next, opened, err := b.build(ctx, cfg, old.members)
	if err != nil {
		return err
	}
	removed, err := b.apply(next)
	if err != nil {
		return errors.Join(err, b.discard(opened))
	}
	b.rollouts.set(cfg)
	b.guard.set(cfg.Guard)
	b.manager.SetLimits(cfg.Sessions.MaxPerSubject, cfg.Sessions.MaxTotal)
	b.manager.SetEvict(cfg.Sessions.Evict)
	if err := b.experiments.publish(ctx); err != nil { // what was counted belongs to the experiments of before
		b.env.Logger().Warn("reload: figures of experiments", "error", err)
	}
	b.mu.Lock()
	b.table = next
	var gone []*member
	for name, m := range old.members {
		if next.members[name] != m {
			gone = append(gone, m)
			b.leaving[m] = true
		}
	}
	b.mu.Unlock()
	b.shadows.set(cfg) // after the table, with which it opens backends
	b.work.Go(func() { b.retire(old, next, gone, removed) })
	select {
	case b.rollouts.wake <- struct{}{}:
	default: // it is awake already
	}
	b.env.Logger().Info("the configuration has changed", "opened", len(opened), "closed", len(gone))
	return nil
}

// apply sets the settings of the members and returns the pools that the configuration no longer
// has.
func (b *Broker) apply(t *table) (removed []*pool.Pool, err error) {
	var errs []error
	for name, m := range t.members {
		s := t.cfg.Backends[name].Broker
		if b.opts.noPools {
			s.Pools = nil
		}
		gone, err := m.apply(s)
		removed = append(removed, gone...)
		errs = append(errs, driver.At("backends."+name, err))
	}
	return removed, errors.Join(errs...)
}

// idlePoll is how often retire checks whether the last session of a removed backend has ended. No
// caller waits for that.
const idlePoll = 250 * time.Millisecond

// retire closes what a reload has removed, once it is no longer used.
func (b *Broker) retire(old, next *table, gone []*member, removed []*pool.Pool) {
	log := b.env.Logger()
	if err := closePools(removed); err != nil {
		log.Warn("reload: close a pool", "error", err)
	}
	<-old.earlier
	old.using.Wait() // calls that use the old table
	close(next.earlier)
	for _, m := range gone {
		if err := m.drain(); err != nil {
			log.Warn("reload: close the pools of a removed backend", "backend", m.name, "error", err)
		}
	}
	t := time.NewTicker(idlePoll)
	defer t.Stop()
	for len(gone) > 0 {
		gone = slices.DeleteFunc(gone, func(m *member) bool {
			if n, _ := m.queue.counts(); n > 0 {
				return false
			}
			if err := m.Close(); err != nil {
				log.Warn("reload: close a removed backend", "backend", m.name, "error", err)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.leaving, m)
			return true
		})
		if len(gone) == 0 {
			return
		}
		select {
		case <-b.ctx.Done():
			return // Close closes the rest
		case <-t.C:
		}
	}
}

// leftBehind returns the errors of a Manager's Close that still matter. If a sandbox could not be
// closed or detached from, but its backend has been closed without an error since, that backend has
// destroyed the sandbox.
func leftBehind(err error, clean map[string]bool) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		if _, ok := err.(*executor.Error); !ok { //nolint:errorlint // the errors that were joined here, not the parts of a backend's error
			var errs []error
			for _, part := range joined.Unwrap() {
				errs = append(errs, leftBehind(part, clean))
			}
			return errors.Join(errs...)
		}
	}
	if e := (*executor.Error)(nil); errors.As(err, &e) && (e.Op == "close" || e.Op == "detach") && clean[e.Backend] {
		return nil
	}
	return err
}

// managerClose bounds the wait of Close for the session store.
const managerClose = 10 * time.Second

// Close closes the Manager, which detaches from sessions that can be attached to again. Then it
// closes the backends at the same time, since each may take its cleanup timeout. An error says what
// is left behind. Close may be called again; after an error, that tries again.
func (b *Broker) Close() error {
	b.reloading <- struct{}{}
	defer func() { <-b.reloading }()
	ctx, cancel := context.WithTimeout(context.Background(), managerClose)
	defer cancel()
	conversations := b.manager.Close(ctx)
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Values(b.table.members))
	all = slices.AppendSeq(all, maps.Keys(b.leaving))
	name := b.table.info().Name
	b.mu.Unlock()
	b.cancel()
	var repetitions error
	b.work.Go(func() { repetitions = b.shadows.close() })
	errs := closeAll(all)
	b.work.Wait()
	clean := map[string]bool{}
	for i, m := range all {
		clean[m.name] = errs[i] == nil
	}
	errs = append([]error{leftBehind(conversations, clean), repetitions}, errs...)
	errs = append(errs, b.guard.ledger.Close(ctx))
	if !b.experiments.alone {
		errs = append(errs, b.experiments.publish(ctx))
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	err := unjoin(errors.Join(errs...))
	if err == nil {
		return nil
	}
	if e, ok := err.(*executor.Error); ok && e.Op != "" { //nolint:errorlint // complete already, with its backend
		return e
	}
	kind := executor.ErrInternal
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		kind = e.Kind
	}
	return &executor.Error{Op: "close", Backend: name, Kind: kind, Ran: executor.RanNo, Err: err}
}

// unjoin returns the only error in err if errors.Join was called with one error.
func unjoin(err error) error {
	for {
		joined, ok := err.(interface{ Unwrap() []error })
		if _, whole := err.(*executor.Error); whole || !ok { //nolint:errorlint // an executor.Error also unwraps to its kind
			return err
		}
		errs := joined.Unwrap()
		if len(errs) != 1 {
			return err
		}
		err = errs[0]
	}
}
