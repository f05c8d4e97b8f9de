package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Sessions configures the Manager: see sessions.Options.
type Sessions struct {
	// Store is "memory" (the default), whose records end with the process, "sqlite:FILE", which
	// several processes on one machine can share, or the URL of a server that processes on several
	// machines share: postgres://USER@HOST/DATABASE, redis://HOST/NUMBER or, with TLS, rediss. A
	// URL contains no password.
	Store         string          `json:"store,omitempty"`
	StorePassword driver.Secret   `json:"store_password,omitzero"`   // of a server; the zero Secret: none
	LeaseTTL      driver.Duration `json:"lease_ttl,omitzero"`        // default 30 s
	MaxPerSubject int             `json:"max_per_subject,omitempty"` // 0: no limit
	MaxTotal      int             `json:"max_total,omitempty"`       // 0: no limit
	// Evict lets a subject that has max_per_subject conversations have another one: the one that it
	// has not used for the longest time is kept as a checkpoint, and its sandbox ends. It requires
	// checkpoint and max_per_subject.
	Evict bool `json:"evict,omitempty"`
	// Drain names backends that conversations leave: each moves with its next message to where its
	// route leads, with its variables and files. No route may lead to such a backend. It requires
	// checkpoint.
	Drain []string `json:"drain,omitempty"`
	// Checkpoint keeps the variables and files of conversations in the store, encrypted.
	Checkpoint Checkpoint `json:"checkpoint,omitzero"`
	// ReplaceAfter is how long the backend of a conversation must have been unavailable to every
	// message before the next message gets a new session, unless its route has on_unavailable:
	// wait.
	ReplaceAfter driver.Duration `json:"replace_after,omitzero"` // default 2 min
}

func (s Sessions) check() error {
	var bad problems
	s.checkStore(&bad)
	s.Checkpoint.check(&bad)
	if s.Evict && (s.Checkpoint.Every == 0 || s.MaxPerSubject == 0) {
		bad.add("evict", "want checkpoint, or conversations would be lost, and max_per_subject")
	}
	if len(s.Drain) > 0 && s.Checkpoint.Every == 0 {
		bad.add("drain", "want checkpoint, or conversations would be lost")
	}
	bad.negative("lease_ttl", int64(s.LeaseTTL))
	bad.negative("replace_after", int64(s.ReplaceAfter))
	bad.negative("max_per_subject", int64(s.MaxPerSubject))
	bad.negative("max_total", int64(s.MaxTotal))
	return errors.Join(bad...)
}

// openManager opens the session manager over the broker.
func (b *Broker) openManager(ctx context.Context, cfg Sessions) error {
	kept, err := cfg.Checkpoint.open(b.env.Owner)
	if err != nil {
		return err
	}
	store := b.opts.store
	if store == nil {
		if store, b.store, err = cfg.OpenStore(ctx); err != nil {
			return err
		}
	}
	var leaves func(executor.Handle) bool
	var escalations sessions.Escalation
	if kept.Every > 0 {
		leaves, escalations = b.leaves, b.escalations()
	}
	m, err := sessions.New(&managed{b}, store, sessions.Options{
		Instance: b.env.Instance, LeaseTTL: time.Duration(cfg.LeaseTTL), MaxPerSubject: cfg.MaxPerSubject, MaxTotal: cfg.MaxTotal,
		Checkpoint: kept, Evict: cfg.Evict, Move: leaves, Escalate: escalations, Replace: b.replaceAfter, Acquired: b.acquired, Private: b.opts.store == nil && !cfg.Shared(),
		Hooks: b.env.Hooks, Log: b.env.Log,
	})
	if err != nil {
		if b.store != nil {
			err = errors.Join(err, b.store.Close())
		}
		return err
	}
	b.manager = m
	shared := b.opts.store != nil || cfg.Shared()
	counts := ledger.Options{Log: b.env.Log}
	if shared {
		counts.Store, counts.Instance, counts.Life, counts.LifeOf = store, b.env.Instance, m.Life(), m.LifeOf
	}
	b.guard.ledger = ledger.New(counts)
	b.guard.set(b.guard.rules().Guard)
	b.work.Go(b.bill)
	b.rollouts.store, b.shadows.store = store, store
	b.shadows.work.Go(func() { b.shadows.run(m.LeaseTTL() / 3) })
	b.work.Go(func() { b.rollouts.run(b.ctx, m.LeaseTTL()/3) })
	b.experiments.store, b.experiments.alone, b.experiments.life = store, !shared, m.Life()
	b.work.Go(func() { b.experiments.run(b.ctx, m.LeaseTTL()/3) })
	if shared {
		b.work.Go(b.sharePools)
		b.work.Go(b.reap)
	}
	return nil
}

// managed is the Broker for its Manager. A failure in it is part of an Acquire, which is counted as
// a whole.
type managed struct{ *Broker }

func (m *managed) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return m.create(ctx, "", spec, false)
}

func (m *managed) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	return m.attach(ctx, h, false)
}

// assignedError is the failure of a Create within an Acquire, with the arm that it was assigned to.
type assignedError struct {
	error
	arm armKey
}

func (e *assignedError) Unwrap() error { return e.error }

// acquired counts and audits an Acquire. An Acquire that failed is a failed turn of its user.
// Otherwise the turn goes on.
func (b *Broker) acquired(q sessions.Acquisition) {
	took := time.Since(q.Began)
	a := Audit{Op: "acquire", Time: q.Began, Key: q.Key, Subject: q.Spec.Subject, Attributes: q.Spec.Attributes}
	if s, ok := q.Session.(*session); ok {
		s.spent.Store(int64(took))
		s.attributes.Store(&q.Spec.Attributes)
		a.Origin = origin(s.arm, s.Session.Info().Handle.Session)
		if q.Lost {
			s.arm.lost(string(cmp.Or(q.Why, lossUnknown)), q.Kept.Restored())
		}
	} else {
		key := b.arm(q.Handle, q.Spec)
		if e := (*assignedError)(nil); errors.As(q.Err, &e) {
			key = armKey{route: e.arm.route, assigned: e.arm.assigned}
		}
		b.collector.arm(key).turn(nil, q.Err, took)
		a.Origin = executor.Origin{Route: key.route, Assigned: key.assigned, Session: q.Handle.Session}
	}
	a.closing(nil, q.Err)
	b.audit(a)
}

// arm returns the arm of an operation that no backend served: that of the earlier session, or that
// of the route of spec.
func (b *Broker) arm(h executor.Handle, spec executor.Spec) (key armKey) {
	if h.Session != "" {
		key.route, key.assigned = router.Assignment(h)
		return key
	}
	if d, _, err := b.current().decide(spec); err == nil { // without a route there is no arm
		key.route, key.assigned = d.Route, d.Assigned
	}
	return key
}

// replaceAfter returns how long to wait for the backend of a session, by the route that created it.
// Negative means forever.
func (b *Broker) replaceAfter(h executor.Handle) time.Duration {
	cfg := b.current().cfg
	name, _ := router.Assignment(h)
	if slices.ContainsFunc(cfg.Routes, func(r router.Route) bool { return r.Name == name && r.OnUnavailable == router.Wait }) {
		return -1
	}
	return orDefault(cfg.Sessions.ReplaceAfter, sessions.DefaultReplace)
}

// The reaper destroys sandboxes that a killed process has left. It spares the sandboxes of living
// processes, however old they are. The minimum age spares the sandboxes of a process that has not
// yet written its heartbeat.
const (
	reapEvery = 10 * time.Minute
	reapGrace = time.Minute
)

// reap removes sandboxes of this owner that no process uses: at start, when the sandboxes that were
// too young at start are old enough, and then periodically. It needs a store that other processes
// share. With a store that knows only this process, the sandboxes of others would count as
// abandoned.
func (b *Broker) reap() {
	t := time.NewTimer(0)
	defer t.Stop()
	log := b.env.Logger()
	for next := 2 * reapGrace; ; next = reapEvery {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		for i, err := range b.manager.Reap(b.ctx, reapGrace, false) {
			switch {
			case err == nil:
				log.Info("removed an abandoned sandbox", "backend", i.Handle.Backend, "session", i.Handle.Session, "created", i.Created)
			case b.ctx.Err() == nil && !errors.Is(err, executor.ErrUnsupported): // sandboxes of a backend that cannot list end with the process
				log.Warn("reap", "error", err)
			}
		}
		t.Reset(next)
	}
}

// sharePools gives the pools with a total the part of this process, and again when processes have
// come or gone. One that dies gives its part back when its heartbeat ends. Pools begin with the
// whole until the first heartbeats are read, which is at once.
func (b *Broker) sharePools() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(b.manager.LeaseTTL() / 3)
		ms := b.current().members
		if !slices.ContainsFunc(slices.Collect(maps.Values(ms)), func(m *member) bool {
			return slices.ContainsFunc(m.warm(), func(p memberPool) bool { return p.cfg.SizeTotal > 0 })
		}) {
			continue
		}
		living, err := b.manager.Living(b.ctx)
		if err != nil {
			if b.ctx.Err() == nil {
				b.env.Logger().Warn("pools keep their sizes, because the store does not answer", "error", err)
			}
			continue
		}
		for _, m := range ms {
			m.share(max(slices.Index(living, b.env.Instance), 0), max(len(living), 1))
		}
	}
}

// changeable returns an error for each change that Reload cannot make to the manager.
func (s Sessions) changeable(next Sessions) error {
	errs := []error{s.sameStore(next)}
	if s.Checkpoint != next.Checkpoint {
		errs = append(errs, driver.At("sessions.checkpoint", errors.New("cannot change while the program runs")))
	}
	if s.LeaseTTL != next.LeaseTTL {
		errs = append(errs, driver.At("sessions.lease_ttl", fmt.Errorf("cannot change while the program runs; it is %v", s.LeaseTTL)))
	}
	return errors.Join(errs...)
}
