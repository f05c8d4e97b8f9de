package backends

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Broker is the one Executor that an application uses. It contains the guard, the routes, and for
// each backend a breaker, a queue and pools. It owns the backends of the configuration and closes
// them.
//
// Without routes it uses its only backend. With several backends and no routes Create fails with
// ErrInvalid, because the backend is not determined: use Backend. Attach and Destroy use the
// backend of the Handle, and Sessions lists all backends.
type Broker struct {
	executor.BaseExecutor
	env       driver.Env
	reg       *Registry
	opts      options
	guard     guard
	collector collector
	manager   *sessions.Manager
	store     io.Closer // the store of the manager, if the Broker owns it

	ctx    context.Context // ends the background work
	cancel context.CancelFunc
	work   sync.WaitGroup

	rollouts    rollouts
	experiments experiments
	shadows     shadows
	reloading   chan struct{} // has one while a Reload, a reshare or a Close goes on
	mu          sync.Mutex
	table       *table
	leaving     map[*member]bool // removed by Reload, not closed yet
	closed      bool
}

var _ executor.Executor = (*Broker)(nil)

// Open opens all backends of cfg, or none. It first returns all errors in cfg, as Check does. Then
// it returns the errors that adapters find when they are opened, and what backends lack for their
// pools, also as *executor.FieldError, joined. It does no remote I/O: a program can start while a
// provider is down. env.Name is the broker's Info.Name if there are routes; the backends have their
// names in cfg. env.Instance should say how other processes reach this one: see
// sessions.ElsewhereError.
func Open(ctx context.Context, env driver.Env, reg *Registry, cfg Config, opts ...Option) (*Broker, error) {
	if err := cfg.Check(reg); err != nil {
		return nil, err
	}
	env.Instance = cmp.Or(env.Instance, strings.ToLower(rand.Text())) // the same for all backends, because it names the process
	env.Name = cmp.Or(env.Name, "broker")
	b := &Broker{env: env, reg: reg, leaving: map[*member]bool{}, reloading: make(chan struct{}, 1)}
	b.rollouts.b, b.rollouts.wake = b, make(chan struct{}, 1)
	b.experiments.b, b.experiments.sent = b, map[armKey]*sent{}
	b.shadows.b, b.shadows.members, b.shadows.followed = b, map[string]*member{}, map[*follower]bool{}
	for _, o := range opts {
		o(&b.opts)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.shadows.ctx, b.shadows.cancel = context.WithCancel(context.Background())
	t, opened, err := b.build(ctx, cfg, nil)
	if err == nil {
		b.table = t
		close(t.earlier)
		b.rollouts.set(cfg)
		b.shadows.set(cfg)
		b.guard.set(cfg.Guard)
		b.guard.warn = b.opts.warn
		_, err = b.apply(t)
	}
	if err == nil {
		err = b.openManager(ctx, cfg.Sessions)
	}
	if err != nil {
		b.cancel()
		b.shadows.cancel()
		b.work.Wait()
		return nil, errors.Join(err, b.discard(opened))
	}
	return b, nil
}

// build opens the backends that cfg needs and that are not in have. If it fails, it closes all that
// it opened.
func (b *Broker) build(ctx context.Context, cfg Config, have map[string]*member) (t *table, opened []*member, err error) {
	members := make(map[string]*member, len(cfg.Backends))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Backends)) {
		c := cfg.Backends[name]
		m := have[name]
		if m == nil || !m.same(c) {
			var err error
			if m, err = openMember(ctx, b.env, name, b.reg, c); err != nil {
				errs = append(errs, driver.At("backends."+name, err))
				continue
			}
			opened = append(opened, m)
		}
		errs = append(errs, driver.At("backends."+name, m.check(c.Broker)))
		members[name] = m
	}
	if err := cfg.at.report(errors.Join(errs...)); err != nil {
		return nil, nil, errors.Join(err, b.discard(opened))
	}
	if t, err = newTable(b.env.Name, cfg, b.rollouts.share(cfg), members, b.env.Hooks); err != nil {
		return nil, nil, errors.Join(err, b.discard(opened))
	}
	return t, opened, nil
}

// discard closes members that were never used.
func (b *Broker) discard(ms []*member) error { return errors.Join(closeAll(ms)...) }

// use returns the current table. The caller must call done on it.
func (b *Broker) use(op string) (*table, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, &executor.Error{Op: op, Backend: b.table.info().Name, Kind: executor.ErrClosed, Ran: executor.RanNo}
	}
	b.table.using.Add(1)
	return b.table, nil
}

func (t *table) done() { t.using.Done() }

// Info implements executor.Executor. It changes with Reload.
func (b *Broker) Info() executor.Info { return b.current().info() }

// current returns the table of the configuration.
func (b *Broker) current() *table {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table
}

// Create implements executor.Executor. It fails with ErrDenied if the guard refuses.
func (b *Broker) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return b.create(ctx, "", spec, true)
}

// create makes a session by the routes, or on the named backend. turn says that a user's turn
// begins with it.
func (b *Broker) create(ctx context.Context, backend string, spec executor.Spec, turn bool) (s executor.Session, err error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	t, err := b.use("create")
	if err != nil {
		return nil, err
	}
	defer t.done()
	a := Audit{Op: "create", Time: time.Now(), Subject: spec.Subject, Attributes: spec.Attributes, Packages: named(spec)}
	key := armKey{assigned: backend}
	var queued time.Duration
	var seen *watched
	var most ledger.Amount
	defer func() {
		if err == nil {
			key.backend = s.Info().Handle.Backend
			a.Origin.Session = s.Info().Handle.Session
		}
		arm := b.collector.arm(key)
		took := time.Since(a.Time)
		arm.created(err, queued, took)
		bad, counts := failure(err)
		bad = bad || err == nil && key.backend != key.assigned
		seen.created(&b.rollouts, counts, bad, err == nil, took)
		var group *cohort
		if counts && key.route != "" {
			group = arm.asked(a.Time, t.cfg.horizon(key.route), bad)
		}
		switch {
		case err == nil:
			made := s.(*session)
			made.watching, made.cohort = watching{watched: seen, bad: bad}, group
			made.shadow = b.shadows.candidate(t, key, spec, s)
			made.first.Store(true)
			born := made.Session.Info().Created // of a warm one, before it was asked for
			if asked := a.Time.Add(queued); born.Before(asked) {
				born, made.meter.before = asked, true
			}
			if now := time.Now(); born.After(now) { // by the clock of the provider
				born = now
			}
			made.begin(arm, spec.Attributes, took, b.prices(t, key.backend), t.members[key.backend].Info().Grace, born)
			if refused := made.created(ctx, most); refused != nil {
				refused.Op, refused.Backend = "create", t.info().Name
				s, err = nil, refused
				made.over(refused)
			}
			made.billing.Store(false)
		case turn:
			arm.turn(nil, err, took)
		case key.route != "": // acquired counts the turn
			err = &assignedError{err, key}
		}
		a.Origin.Route, a.Origin.Assigned, a.Origin.Backend = key.route, key.assigned, key.backend
		a.closing(nil, err)
		b.audit(a)
	}()
	inner := spec
	var choice router.Choice
	var exposure *Exposure
	if backend == "" {
		d, subject, err := t.decide(spec)
		if err != nil {
			return nil, err
		}
		choice, exposure = b.choose(ctx, d, spec, subject)
		key.route, key.assigned, inner.Subject = d.Route, cmp.Or(choice.Backend, d.Assigned), subject
		seen = b.rollouts.watch(key, subject)
	}
	r := b.guard.rules()
	accounts := r.accounts(spec.Subject, spec.Attributes)
	refused := r.packages(a.Packages...)
	var held grant
	if refused == nil && len(accounts) > 0 {
		most = b.dearest(t, spec)
		held, _, refused = b.guard.take(ctx, accounts, ledger.Use{Session: true, Amount: most})
	}
	if refused != nil {
		refused.Op, refused.Backend = "create", t.info().Name
		return nil, refused
	}
	a.Exposure = exposure
	x, err := t.create(ctx, backend, inner, choice, &queued)
	if err != nil {
		held.end("", ledger.Amount{})
		return nil, err
	}
	made := &session{Session: x, b: b, subject: spec.Subject, born: time.Now(), accounts: accounts, held: held}
	made.billing.Store(true)
	return made, nil
}

// Attach implements executor.Executor. It uses the backend and the subject of the handle.
func (b *Broker) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	return b.attach(ctx, h, true)
}

// attach is Attach. turn has the same meaning as in create.
func (b *Broker) attach(ctx context.Context, h executor.Handle, turn bool) (_ executor.Session, err error) {
	t, err := b.use("attach")
	if err != nil {
		return nil, err
	}
	defer t.done()
	route, assigned := router.Assignment(h)
	a := Audit{Op: "attach", Time: time.Now(), Subject: h.Meta[metaSubject], Attributes: attributesOf(h)}
	a.Origin = executor.Origin{Session: h.Session, Route: route, Assigned: assigned}
	defer func() {
		if err != nil && turn {
			b.collector.arm(armKey{route, assigned, ""}).turn(nil, err, time.Since(a.Time))
		}
		a.closing(nil, err)
		b.audit(a)
	}()
	m := b.removedMember(t, h)
	var x executor.Session
	if m != nil {
		x, err = m.Attach(ctx, h)
	} else {
		m = t.members[h.Backend]
		x, err = t.attach(ctx, h)
	}
	if err != nil {
		return nil, err
	}
	a.Origin.Backend = h.Backend
	s := &session{Session: x, b: b, subject: a.Subject, born: time.Now()}
	s.billing.Store(true)
	s.meter.before = true
	prices := b.prices(t, h.Backend)
	prices.Creation = 0 // it has been paid
	s.begin(b.collector.arm(armKey{route, assigned, h.Backend}), a.Attributes, time.Since(a.Time), prices, m.Info().Grace, time.Now())
	s.attached()
	s.billing.Store(false)
	return s, nil
}

// removedMember returns the backend of a handle if the configuration no longer has it.
func (b *Broker) removedMember(t *table, h executor.Handle) *member {
	if t.members[h.Backend] != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for m := range b.leaving {
		if m.name == h.Backend {
			return m
		}
	}
	return nil
}

// Destroy implements executor.Executor. It uses the backend of the handle.
func (b *Broker) Destroy(ctx context.Context, h executor.Handle) error {
	return b.of("destroy", h, func(m *member) error { return m.Destroy(ctx, h) })
}

// LastContact implements executor.Executor. It uses the backend of the handle.
func (b *Broker) LastContact(ctx context.Context, h executor.Handle) (at time.Time, err error) {
	err = b.of("last-contact", h, func(m *member) error { at, err = m.LastContact(ctx, h); return err })
	return at, err
}

// of calls f with the backend of a handle, also if the configuration has lost it.
func (b *Broker) of(op string, h executor.Handle, f func(*member) error) error {
	t, err := b.use(op)
	if err != nil {
		return err
	}
	defer t.done()
	m := b.removedMember(t, h)
	if m == nil {
		if m, err = t.member(op, executor.ErrNotFound, h); err != nil {
			return err
		}
	}
	return f(m)
}

// Sessions implements executor.Executor. It lists one backend after the other.
func (b *Broker) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		t, err := b.use("sessions")
		if err != nil {
			yield(executor.SessionInfo{}, err)
			return
		}
		defer t.done()
		all := []executor.Executor{}
		for _, m := range t.members {
			all = append(all, m)
		}
		for i, err := range router.List(ctx, all, labels) {
			if !yield(i, err) {
				return
			}
		}
	}
}

// Backend returns one of the configured backends. Its Create ignores the routes but uses the same
// guard, queue and breaker. The Broker owns it: its Close does nothing.
func (b *Broker) Backend(name string) (x executor.Executor, ok bool) {
	if b.current().members[name] == nil {
		return nil, false
	}
	return &direct{Broker: b, name: name}, true
}

// Backends returns the backends that Create may use now, in the form of Backend: those that have
// weight in a route or are a fallback. Sessions created there belong to the program and do not
// count as a user's turn.
func (b *Broker) Backends() map[string]executor.Executor {
	t := b.current()
	all := map[string]executor.Executor{}
	for name := range t.members {
		routes := t.routes
		if len(routes) == 0 || slices.ContainsFunc(routes, func(r router.Route) bool { return r.Uses(name) }) {
			all[name] = &direct{Broker: b, name: name, own: true}
		}
	}
	return all
}

// Manager returns the session manager. Its sessions go through the same guard and routes.
func (b *Broker) Manager() *sessions.Manager { return b.manager }

// Decide explains where spec would go now. It uses only the configuration: a backend that is down
// or full is not left out, and the function of WithArms is not asked. It fails with ErrInvalid if
// no route matches.
func (b *Broker) Decide(spec executor.Spec) (router.Decision, error) {
	t, err := b.use("decide")
	if err != nil {
		return router.Decision{}, err
	}
	defer t.done()
	if t.router == nil {
		_, _, err := t.decide(spec)
		return router.Decision{}, err
	}
	return t.router.Decide(spec)
}

// Stats returns the statistics since Open.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	t := b.table
	left := slices.Collect(maps.Keys(b.leaving))
	b.mu.Unlock()
	s := Stats{Arms: b.collector.stats(), Backends: []BackendStats{}}
	for _, name := range slices.Sorted(maps.Keys(t.members)) {
		s.Backends = append(s.Backends, t.members[name].stats())
	}
	for _, m := range left {
		bs := m.stats()
		bs.Removed = true
		s.Backends = append(s.Backends, bs)
	}
	return s
}

func (m *member) stats() BackendStats {
	s := BackendStats{Name: m.name, Breaker: m.breaker.Load().state()}
	s.Sessions, s.Waiting = m.queue.counts()
	for _, p := range m.warm() {
		s.Pools = append(s.Pools, p.Stats())
	}
	return s
}

// Doctor checks every configured backend: what it needs, whether that is there, and how to fix what
// is missing.
func (b *Broker) Doctor(ctx context.Context) map[string][]driver.Check {
	return Doctor(ctx, b.env, b.reg, b.current().cfg)
}

// Setup does the same as the function Setup, for the backends that are configured now.
func (b *Broker) Setup(ctx context.Context) error {
	return Setup(ctx, b.env, b.reg, b.current().cfg)
}

func (b *Broker) audit(a Audit) {
	if b.opts.audit != nil {
		b.opts.audit(a)
	}
}

// direct is one backend of a Broker as an Executor.
type direct struct {
	*Broker
	name string
	own  bool // its sessions do not belong to a user
}

func (d *direct) Info() executor.Info {
	if m := d.current().members[d.name]; m != nil {
		return m.Info()
	}
	return executor.Info{Name: d.name}
}

// Backends returns only d, without the other backends of the Broker.
func (d *direct) Backends() map[string]executor.Executor {
	return map[string]executor.Executor{d.name: &direct{Broker: d.Broker, name: d.name, own: true}}
}

func (d *direct) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := d.create(ctx, d.name, spec, !d.own)
	if err == nil {
		s.(*session).own = d.own // before the session is returned
	}
	return s, err
}

func (d *direct) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		t, err := d.use("sessions")
		if err != nil {
			yield(executor.SessionInfo{}, err)
			return
		}
		defer t.done()
		m, err := t.member("sessions", executor.ErrInvalid, executor.Handle{Backend: d.name})
		if err != nil {
			yield(executor.SessionInfo{}, err)
			return
		}
		for i, err := range m.Sessions(ctx, labels) {
			if !yield(i, err) {
				return
			}
		}
	}
}

func (d *direct) Close() error { return nil }
