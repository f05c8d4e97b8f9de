package router

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Router is an executor.Executor over named backends. It never changes and does not own the
// backends.
type Router struct {
	executor.BaseExecutor
	name     string
	backends map[string]executor.Executor
	cfg      Config
	hooks    executor.Hooks
	caps     executor.Capabilities
	closed   atomic.Bool
}

var _ executor.Executor = (*Router)(nil)

// New makes a Router. It returns all errors in cfg, joined. name is the router's Info.Name. The
// keys of backends are the names that cfg and handles use. Each key must be the Info.Name of its
// Executor, because a handle is sent to the backend that it names.
func New(name string, backends map[string]executor.Executor, cfg Config, hooks executor.Hooks) (*Router, error) {
	names := slices.Sorted(maps.Keys(backends))
	errs := []error{cfg.Check(names)}
	var used []executor.Capabilities
	for _, n := range names {
		i := backends[n].Info()
		if i.Name != n {
			errs = append(errs, fmt.Errorf("backends.%s: the backend has the name %q", n, i.Name))
		}
		if cfg.uses(n) {
			used = append(used, i.Capabilities)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &executor.Error{Op: "router", Backend: name, Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	return &Router{name: name, backends: maps.Clone(backends), cfg: cfg.clone(), hooks: hooks, caps: common(used)}, nil
}

// uses reports whether a route can send a Spec to a backend.
func (c Config) uses(name string) bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Uses(name) })
}

// Uses reports whether the route can send a Spec to a backend: by a share with a weight, or as a
// fallback.
func (r *Route) Uses(backend string) bool {
	return slices.Contains(r.Fallback, backend) ||
		slices.ContainsFunc(r.Split, func(s Share) bool { return s.Backend == backend && s.Weight > 0 })
}

// fail returns an error of the router itself.
func (r *Router) fail(op string, kind, cause error) *executor.Error {
	return &executor.Error{Op: op, Backend: r.name, Kind: kind, Ran: executor.RanNo, Err: cause}
}

// Create tries the eligible backends in order. If the route has a split and the spec has no
// subject, Create uses a random one. The error of the last backend tried sets the Kind; the errors
// of the others are joined to its cause.
func (r *Router) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return r.CreateBy(ctx, spec, Choice{}, func(ctx context.Context, name string) (executor.Session, error) {
		return r.backends[name].Create(ctx, spec)
	})
}

// CreateBy is Create with a Choice and a function that creates a session on the named backend.
func (r *Router) CreateBy(ctx context.Context, spec executor.Spec, choice Choice, create func(ctx context.Context, name string) (executor.Session, error)) (_ executor.Session, err error) {
	ctx, end := r.begin(ctx, executor.Op{Name: "create"})
	var out executor.Outcome
	defer func() { out.Err = err; end(out) }()
	if r.closed.Load() {
		return nil, r.fail("create", executor.ErrClosed, nil)
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	decided := spec
	if decided.Subject == "" {
		decided.Subject = rand.Text() // for this session only
	}
	d, err := r.decide(decided, choice.Backend)
	if err != nil {
		return nil, err
	}
	out.Origin = executor.Origin{Route: d.Route, Assigned: d.Assigned}
	if d.Bucket > 0 {
		out.Assignment = cmp.Or(choice.Reason, "split")
	}
	if len(d.Eligible) == 0 {
		return nil, r.refuse(d)
	}
	var failed []error
	for _, name := range d.Eligible {
		s, err := create(ctx, name)
		if err == nil {
			w := &session{Session: s, r: r, route: d.Route, assigned: d.Assigned}
			out.Origin.Backend, out.Session = name, s.Info().Handle.Session
			out.Origin.Session = out.Session
			return w, nil
		}
		failed = append(failed, err)
		if !fallsBack(ctx, err) {
			break
		}
	}
	return nil, r.combine(failed)
}

// refuse says what every backend of the route lacks, with the error of the assigned one.
func (r *Router) refuse(d Decision) error {
	e := r.fail("create", executor.ErrUnsupported, nil)
	e.Missing = d.Missing[d.Assigned]
	var others []error
	for _, n := range slices.Sorted(maps.Keys(d.Missing)) {
		if n != d.Assigned {
			others = append(others, fmt.Errorf("%s needs %q", n, d.Missing[n]))
		}
	}
	e.Err = errors.Join(others...)
	return e
}

// fallsBack reports whether another backend may be tried after err: the backend could not do its
// part, and no code has run.
func fallsBack(ctx context.Context, err error) bool {
	var e *executor.Error
	if ctx.Err() != nil || !errors.As(err, &e) || e.Ran != executor.RanNo {
		return false
	}
	return slices.Contains([]error{executor.ErrUnavailable, executor.ErrExhausted, executor.ErrAuth, executor.ErrUnsupported}, e.Kind)
}

// combine makes one error from those of all backends that were tried. The last one sets the Kind.
func (r *Router) combine(failed []error) error {
	last := failed[len(failed)-1]
	var e *executor.Error
	if len(failed) == 1 || !errors.As(last, &e) {
		return last
	}
	c := *e
	c.Err = errors.Join(append([]error{e.Err}, failed[:len(failed)-1]...)...)
	return &c
}

// Attach uses the backend that h.Backend names. If that is not configured, the error is
// ErrNotFound. Origin.Route and Origin.Assigned are restored from h.Meta.
func (r *Router) Attach(ctx context.Context, h executor.Handle) (_ executor.Session, err error) {
	ctx, end := r.begin(ctx, executor.Op{Name: "attach", Session: h.Session})
	defer func() { end(executor.Outcome{Err: err}) }()
	x, err := r.backend("attach", h)
	if err != nil {
		return nil, err
	}
	s, err := x.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	route, assigned := Assignment(h)
	return &session{Session: s, r: r, route: route, assigned: assigned}, nil
}

// Destroy uses the backend that h.Backend names. If that is not configured, the error is
// ErrNotFound, because it is not known whether the sandbox is gone.
func (r *Router) Destroy(ctx context.Context, h executor.Handle) (err error) {
	ctx, end := r.begin(ctx, executor.Op{Name: "destroy", Session: h.Session})
	defer func() { end(executor.Outcome{Err: err}) }()
	x, err := r.backend("destroy", h)
	if err != nil {
		return err
	}
	return x.Destroy(ctx, h)
}

// LastContact uses the backend that h.Backend names. If that is not configured, the error is
// ErrNotFound.
func (r *Router) LastContact(ctx context.Context, h executor.Handle) (time.Time, error) {
	x, err := r.backend("last-contact", h)
	if err != nil {
		return time.Time{}, err
	}
	return x.LastContact(ctx, h)
}

func (r *Router) backend(op string, h executor.Handle) (executor.Executor, error) {
	if r.closed.Load() {
		return nil, r.fail(op, executor.ErrClosed, nil)
	}
	x, ok := r.backends[h.Backend]
	if !ok {
		e := r.fail(op, executor.ErrNotFound, fmt.Errorf("no backend %q is configured", h.Backend))
		e.Session = h.Session
		return nil, e
	}
	return x, nil
}

// Sessions asks all backends with FeatureList at the same time. For each backend without it, it
// yields one ErrUnsupported.
func (r *Router) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		if r.closed.Load() {
			yield(executor.SessionInfo{}, r.fail("sessions", executor.ErrClosed, nil))
			return
		}
		for info, err := range List(ctx, slices.Collect(maps.Values(r.backends)), labels) {
			if !yield(info, err) {
				return
			}
		}
	}
}

// List yields the sandboxes of several backends, all of which are asked at the same time, so that
// none waits for a slow one. Those of different backends come in any order.
func List(ctx context.Context, backends []executor.Executor, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		type element struct {
			info executor.SessionInfo
			err  error
		}
		found, enough := make(chan element), make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		var asking, closing sync.WaitGroup
		for _, x := range backends {
			asking.Go(func() {
				for i, err := range x.Sessions(ctx, labels) {
					select {
					case found <- element{i, err}: // also that ctx has ended: what is cut short does not look whole
					case <-enough:
						return
					}
				}
			})
		}
		closing.Go(func() { asking.Wait(); close(found) })
		defer closing.Wait()
		defer cancel()
		defer close(enough)
		for e := range found {
			if !yield(e.info, e.err) {
				return
			}
		}
	}
}

// Close makes later calls fail with ErrClosed. It does not close the backends or their sessions.
func (r *Router) Close() error {
	r.closed.Store(true)
	return nil
}

// begin calls the hook.
func (r *Router) begin(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
	op.Layer, op.Backend, op.Type = "router", r.name, "router"
	return r.hooks.Start(ctx, op)
}
