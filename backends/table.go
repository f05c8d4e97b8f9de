package backends

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
)

// table is the state that belongs to one configuration. It never changes; Reload makes another one.
// It is kept while calls use it.
type table struct {
	cfg     Config
	routes  []router.Route // of cfg, with the shares of rollouts
	name    string
	members map[string]*member
	router  *router.Router // nil: several backends and no routes
	using   sync.WaitGroup // calls in progress; Add is called with the Broker's lock held
	earlier chan struct{}  // closed when no call uses an earlier table, which may have the same members
}

// newTable makes a table of the members, which have the names in cfg. share is for Config.shared.
func newTable(name string, cfg Config, share func(route string) (int, bool), members map[string]*member, hooks executor.Hooks) (*table, error) {
	routes := cfg.shared(share)
	t := &table{cfg: cfg, routes: routes, name: name, members: members, earlier: make(chan struct{})}
	if len(routes) == 0 {
		if len(members) > 1 {
			return t, nil
		}
		for n := range members {
			routes = []router.Route{{Name: "default", Split: []router.Share{{Backend: n, Weight: 1}}}}
			name = n // the router's errors name the only backend
		}
	}
	open := make(map[string]executor.Executor, len(members))
	for n, m := range members {
		open[n] = m
	}
	r, err := router.New(name, open, router.Config{Routes: routes}, hooks)
	t.router = r
	return t, err
}

func (t *table) names() string { return strings.Join(slices.Sorted(maps.Keys(t.members)), ", ") }

// only returns the one backend of a configuration without routes.
func (t *table) only() (*member, bool) {
	if len(t.members) == 1 && len(t.cfg.Routes) == 0 {
		for _, m := range t.members {
			return m, true
		}
	}
	return nil, false
}

func (t *table) info() executor.Info {
	if m, ok := t.only(); ok {
		return m.Info()
	}
	if t.router != nil {
		return t.router.Info()
	}
	return executor.Info{Name: t.name, Type: "broker"} // it is not known where Create would go
}

// decide is the Router's Decide. The subject that it returns is that of the Spec, or a random one.
func (t *table) decide(spec executor.Spec) (d router.Decision, subject string, err error) {
	if t.router == nil {
		return d, "", &executor.Error{Op: "create", Backend: t.name, Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf(
			"%d backends are configured but no routes; add routes, or name one of the backends: %s", len(t.members), t.names())}
	}
	subject = spec.Subject
	if subject == "" {
		subject = rand.Text()
	}
	spec.Subject = subject
	d, err = t.router.Decide(spec)
	return d, subject, err
}

// create makes a session by the routes, or on the named backend. It adds the time in queues to
// waited.
func (t *table) create(ctx context.Context, backend string, spec executor.Spec, choice router.Choice, waited *time.Duration) (executor.Session, error) {
	if backend == "" {
		return t.router.CreateBy(ctx, spec, choice, func(ctx context.Context, name string) (executor.Session, error) {
			return t.members[name].create(ctx, spec, waited)
		})
	}
	m, err := t.member("create", executor.ErrInvalid, executor.Handle{Backend: backend})
	if err != nil {
		return nil, err
	}
	return m.create(ctx, spec, waited)
}

// attach uses the backend of the handle.
func (t *table) attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	if t.router != nil {
		return t.router.Attach(ctx, h)
	}
	m, err := t.member("attach", executor.ErrNotFound, h)
	if err != nil {
		return nil, err
	}
	return m.Attach(ctx, h)
}

// member returns the backend of a handle. kind is the kind of the error if the configuration does
// not have that backend, or no longer has it.
func (t *table) member(op string, kind error, h executor.Handle) (*member, error) {
	m, ok := t.members[h.Backend]
	if !ok {
		return nil, &executor.Error{
			Op: op, Backend: t.name, Session: h.Session, Kind: kind, Ran: executor.RanNo,
			Err: fmt.Errorf("backend %q is not configured", h.Backend),
		}
	}
	return m, nil
}
