package backends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
)

// Sessions configures the Manager: see sessions.Options.
type Sessions struct {
	// Store is "memory" (the default), whose records end with the process, or "sqlite:FILE", which
	// several processes on one machine may share.
	Store         string          `json:"store,omitempty"`
	LeaseTTL      driver.Duration `json:"lease_ttl,omitzero"`        // default 30 s
	MaxPerSubject int             `json:"max_per_subject,omitempty"` // 0: no bound
	MaxTotal      int             `json:"max_total,omitempty"`       // 0: no bound
	// KeepFilesBytes is how much of the files of a session is kept in the store, and given back to
	// a new sandbox of the same key.
	KeepFilesBytes int64 `json:"keep_files_bytes,omitempty"` // 0: none; at most 64 MiB
	// ReplaceAfter is for how long no message of a conversation must have reached its backend
	// before the next one gets a new session, unless its route says on_unavailable: wait.
	ReplaceAfter driver.Duration `json:"replace_after,omitzero"` // default 2 min
}

const (
	memoryStore  = "memory"
	sqlitePrefix = "sqlite:"
)

func (s Sessions) check() error {
	var errs []error
	file, isFile := strings.CutPrefix(s.Store, sqlitePrefix)
	switch {
	case s.Store == "" || s.Store == memoryStore || isFile && file != "":
	case isFile:
		errs = append(errs, driver.At("store", errors.New(`names no file; write for example "sqlite:sessions.db"`)))
	default:
		errs = append(errs, driver.At("store", errors.New(`unknown store; there are "memory" and "sqlite:FILE"`)))
	}
	negative := func(path string, is bool) {
		if is {
			errs = append(errs, driver.At(path, errors.New("negative")))
		}
	}
	if s.KeepFilesBytes < 0 || s.KeepFilesBytes > sessions.MaxKeepFiles {
		errs = append(errs, driver.At("keep_files_bytes", fmt.Errorf("want 0 to %d", sessions.MaxKeepFiles)))
	}
	negative("lease_ttl", s.LeaseTTL < 0)
	negative("replace_after", s.ReplaceAfter < 0)
	negative("max_per_subject", s.MaxPerSubject < 0)
	negative("max_total", s.MaxTotal < 0)
	return errors.Join(errs...)
}

// Shared reports whether the store outlives the process, so that others can share it.
func (s Sessions) Shared() bool { return strings.HasPrefix(s.Store, sqlitePrefix) }

// OpenStore opens the store. The caller closes it.
func (s Sessions) OpenStore() (sessions.Store, io.Closer, error) {
	if !s.Shared() {
		return sessions.NewMemoryStore(), io.NopCloser(nil), nil
	}
	db, err := sqlite.Open(strings.TrimPrefix(s.Store, sqlitePrefix))
	if err != nil {
		return nil, nil, driver.At("sessions.store", err)
	}
	return db, db, nil
}

// openManager opens the session manager over the broker.
func (b *Broker) openManager(cfg Sessions) error {
	store := b.opts.store
	if store == nil {
		var err error
		if store, b.store, err = cfg.OpenStore(); err != nil {
			return err
		}
	}
	m, err := sessions.New(&managed{b}, store, sessions.Options{
		Instance: b.env.Instance, LeaseTTL: time.Duration(cfg.LeaseTTL), MaxPerSubject: cfg.MaxPerSubject, MaxTotal: cfg.MaxTotal,
		KeepFiles: cfg.KeepFilesBytes, Replace: b.replaceAfter, Acquired: b.acquired, Private: b.opts.store == nil && !cfg.Shared(),
		Hooks: b.env.Hooks, Log: b.env.Log,
	})
	if err != nil {
		if b.store != nil {
			err = errors.Join(err, b.store.Close())
		}
		return err
	}
	b.manager = m
	if b.opts.store != nil || cfg.Shared() {
		b.work.Go(b.reap)
	}
	return nil
}

// managed is a Broker as its Manager has it: what fails in it is part of an Acquire, which is
// counted as a whole.
type managed struct{ *Broker }

func (m *managed) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return m.create(ctx, "", spec, false)
}

func (m *managed) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	return m.attach(ctx, h, false)
}

// acquired counts and audits an Acquire. One that has come to nothing is a turn of its user that
// failed; otherwise the turn goes on.
func (b *Broker) acquired(q sessions.Acquisition) {
	took := time.Since(q.Began)
	a := Audit{Op: "acquire", Time: q.Began, Key: q.Key, Subject: q.Spec.Subject, Attributes: q.Spec.Attributes}
	if s, ok := q.Session.(*session); ok {
		s.spent.Store(int64(took))
		s.attributes.Store(&q.Spec.Attributes)
		a.Origin = origin(s.arm, s.Session.Info().Handle.Session)
	} else {
		key := b.arm(q.Handle, q.Spec)
		b.figures.arm(key).turn(q.Err, took)
		a.Origin = executor.Origin{Route: key.route, Assigned: key.assigned, Session: q.Handle.Session}
	}
	a.closing(nil, q.Err)
	b.audit(a)
}

// arm returns that of what nothing has served: of the session that there was, or where spec would
// go.
func (b *Broker) arm(h executor.Handle, spec executor.Spec) (key armKey) {
	if h.Session != "" {
		key.route, key.assigned = router.Assignment(h)
		return key
	}
	b.mu.Lock()
	t := b.table
	b.mu.Unlock()
	if d, _, err := t.decide(spec); err == nil { // without a route there is no arm to name
		key.route, key.assigned = d.Route, d.Assigned
	}
	return key
}

// replaceAfter says how long the backend of a session is waited for, by the route that has made it;
// negative: for ever.
func (b *Broker) replaceAfter(h executor.Handle) time.Duration {
	b.mu.Lock()
	cfg := b.table.cfg
	b.mu.Unlock()
	name, _ := router.Assignment(h)
	if slices.ContainsFunc(cfg.Routes, func(r router.Route) bool { return r.Name == name && r.OnUnavailable == router.Wait }) {
		return -1
	}
	return orDefault(cfg.Sessions.ReplaceAfter, sessions.DefaultReplace)
}

// The reaper destroys what a process has left that was killed. Others that live are spared however
// old their sandboxes are; the age spares what a process makes that has not yet given a sign of
// life.
const (
	reapEvery = 10 * time.Minute
	reapGrace = time.Minute
)

// reap removes sandboxes of this owner that nobody has: at start, when what was too young then has
// come of age, and now and then. It needs a store that other processes share: one that knows only
// this process would take theirs for abandoned.
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
			case b.ctx.Err() == nil && !errors.Is(err, executor.ErrUnsupported): // a backend that cannot list has nothing that outlives it
				log.Warn("reap", "error", err)
			}
		}
		t.Reset(next)
	}
}

// changeable reports what Reload cannot change about the manager.
func (s Sessions) changeable(next Sessions) error {
	var errs []error
	if s.Store != next.Store {
		errs = append(errs, driver.At("sessions.store", fmt.Errorf("cannot change while the program runs; it is %q", s.Store)))
	}
	if s.KeepFilesBytes != next.KeepFilesBytes {
		errs = append(errs, driver.At("sessions.keep_files_bytes", fmt.Errorf("cannot change while the program runs; it is %d", s.KeepFilesBytes)))
	}
	if s.LeaseTTL != next.LeaseTTL {
		errs = append(errs, driver.At("sessions.lease_ttl", fmt.Errorf("cannot change while the program runs; it is %v", s.LeaseTTL)))
	}
	return errors.Join(errs...)
}
