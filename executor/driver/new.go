package driver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/engine"
)

// New makes an Executor of a driver. It fails if the declared features and the implemented
// interfaces disagree, if a declaration breaks a rule of executor.Features, or if Owner is empty;
// the driver is then the caller's to close. That a session does not implement what is declared is
// found when it is created: ErrInternal.
func New(d Driver, env Env, opts Options) (executor.Executor, error) {
	if env.Wrap != nil {
		d = env.Wrap(d)
	}
	if d == nil {
		return nil, errors.New("no driver")
	}
	env = env.WithInstance()
	b := backend(d)
	if env.Elsewhere {
		refuseAll(&b)
	}
	return engine.New(b, engine.Env{
		Name: env.Name, Owner: env.Owner, Instance: env.Instance, Log: env.Logger(), Hooks: env.Hooks,
	}, engine.Options(opts))
}

// backend returns the methods of a driver as the engine calls them.
func backend(d Driver) engine.Backend {
	b := engine.Backend{
		Capabilities: d.Capabilities(),
		Create: func(ctx context.Context, c *engine.Create) (*engine.Sandbox, error) {
			return sandbox(d.Create(ctx, (*Create)(c)))
		},
		Close: d.Close,
	}
	if a, ok := d.(Attacher); ok {
		b.Lookup, b.Destroy = a.Lookup, a.Destroy
		b.Attach = func(ctx context.Context, h executor.Handle) (*engine.Sandbox, error) {
			return sandbox(a.Attach(ctx, h))
		}
	}
	if o, ok := d.(Observer); ok {
		b.LastContact = o.LastContact
	}
	if l, ok := d.(Lister); ok {
		b.Sessions = l.Sessions
	}
	return b
}

// refuseAll makes the methods of a backend refuse that would need what Env.Elsewhere does not need.
func refuseAll(b *engine.Backend) {
	refused := Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the backend was opened to examine its configuration; open it without Env.Elsewhere"))
	b.Create = func(context.Context, *engine.Create) (*engine.Sandbox, error) { return nil, refused }
	if b.Attach != nil {
		b.Lookup = func(context.Context, executor.Handle) (executor.SessionInfo, error) {
			return executor.SessionInfo{}, refused
		}
		b.Attach = func(context.Context, executor.Handle) (*engine.Sandbox, error) { return nil, refused }
		b.Destroy = func(context.Context, executor.Handle) error { return refused }
	}
	if b.LastContact != nil {
		b.LastContact = func(context.Context, executor.Handle) (time.Time, error) { return time.Time{}, refused }
	}
	if b.Sessions != nil {
		b.Sessions = func(context.Context, map[string]string) iter.Seq2[executor.SessionInfo, error] {
			return func(yield func(executor.SessionInfo, error) bool) { yield(executor.SessionInfo{}, refused) }
		}
	}
}

// sandbox returns the methods of a session as the engine calls them, those of optional interfaces
// if it implements them.
func sandbox(s Session, err error) (*engine.Sandbox, error) {
	if err != nil || s == nil {
		return nil, err
	}
	b := &engine.Sandbox{
		Type: fmt.Sprintf("%T", s),
		Info: s.Info,
		Run: func(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (engine.Exit, error) {
			exit, err := s.Run(ctx, req, emit)
			return engine.Exit(exit), err
		},
		Destroy: s.Destroy,
	}
	if d, ok := s.(Detacher); ok {
		b.Detach = d.Detach
	}
	if r, ok := s.(Refresher); ok {
		b.Refresh = r.Refresh
	}
	if r, ok := s.(Resetter); ok {
		b.Reset = r.Reset
	}
	if k, ok := s.(KeepAliver); ok {
		b.KeepAlive = k.KeepAlive
	}
	if u, ok := s.(Suspender); ok {
		b.Suspend = u.Suspend
	}
	if i, ok := s.(Installer); ok {
		b.Install = func(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (engine.Exit, error) {
			exit, err := i.Install(ctx, p, emit)
			return engine.Exit(exit), err
		}
	}
	if f, ok := s.(Filer); ok {
		b.Files = func() executor.Files { return f.Files() }
	}
	if d, ok := s.(Dialer); ok {
		b.Dial = d.Dial
	}
	if a, ok := s.(Aser); ok {
		b.As = a.As
	}
	return b, nil
}
