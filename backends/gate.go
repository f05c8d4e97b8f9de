package backends

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// gate is the Executor below the pools of a backend: breaker and queue, and a count of what is
// held.
type gate struct {
	executor.BaseExecutor
	x       executor.Executor // the adapter's
	queue   queue
	breaker atomic.Pointer[breaker]

	ctx    context.Context // of the tries in the background
	cancel context.CancelFunc
	work   sync.WaitGroup
}

var _ executor.Executor = (*gate)(nil)

func newGate(x executor.Executor) *gate {
	g := &gate{x: x}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

func (g *gate) refuse(op string, e *executor.Error) error {
	e.Op, e.Backend, e.Ran = op, g.x.Info().Name, executor.RanNo
	return e
}

func (g *gate) Info() executor.Info { return g.x.Info() }

// Create is that of a pool, which never waits: it would stand in the way of users.
func (g *gate) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	if !g.queue.try() {
		return nil, g.refuse("create", &executor.Error{Kind: executor.ErrExhausted, Err: errors.New("queue: users need the room")})
	}
	return g.hold(ctx, spec)
}

// create is Create for a user. It waits for a place, and adds to waited how long.
func (g *gate) create(ctx context.Context, spec executor.Spec, waited *time.Duration) (executor.Session, error) {
	began := time.Now()
	err := g.queue.enter(ctx, spec.Subject)
	*waited += time.Since(began)
	if err != nil {
		return nil, g.refuse("create", err)
	}
	return g.hold(ctx, spec)
}

// hold makes a sandbox for who has a place.
func (g *gate) hold(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := g.ask(ctx, spec)
	if err != nil {
		g.queue.leave()
		return nil, err
	}
	return &held{Session: s, g: g}, nil
}

// ask creates a sandbox and tells the breaker how that went.
func (g *gate) ask(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	b := g.breaker.Load()
	if err := b.check(); err != nil {
		return nil, g.refuse("create", err)
	}
	done := b.begin(spec)
	s, err := g.x.Create(ctx, spec)
	done(err)
	return s, err
}

// setBreaker changes the breaker. One with the same settings stays as it is.
func (g *gate) setBreaker(cfg Breaker) {
	if b := g.breaker.Load(); b != nil && b.cfg == cfg {
		return
	}
	var b *breaker
	b = newBreaker(cfg, func(pause time.Duration) {
		g.work.Go(func() { g.try(b, pause) })
	})
	g.breaker.Store(b)
}

// try finds out after a pause whether the backend works again. If it does not, the breaker opens
// anew and calls for the next try. A sandbox may cost something, so the provider is first asked for
// a list, where it has one.
func (g *gate) try(b *breaker, pause time.Duration) {
	t := time.NewTimer(pause + time.Millisecond) // the breaker lets the next one through after its pause, not at the end of it
	defer t.Stop()
	select {
	case <-g.ctx.Done():
		return
	case <-t.C:
	}
	if g.breaker.Load() != b {
		return // reloaded
	}
	spec := b.probe()
	done := b.begin(spec)
	if err := g.list(); down(err) {
		done(err)
		return
	}
	s, err := g.x.Create(g.ctx, spec)
	if err == nil {
		defer s.Close() // its TTL removes it if this fails
	}
	if !down(err) {
		err = nil // this Spec has failed for want of an answer, so nothing refuses it before the provider is asked
	}
	done(err)
}

// list asks the provider for a list of sandboxes, of which it needs none.
func (g *gate) list() error {
	if !g.x.Info().Capabilities.Has(executor.FeatureList) {
		return nil
	}
	for _, err := range g.x.Sessions(g.ctx, nil) {
		return err
	}
	return nil
}

// Attach counts the sandbox, but never waits: it exists already.
func (g *gate) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	s, err := g.x.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	g.queue.take()
	return &held{Session: s, g: g}, nil
}

func (g *gate) Destroy(ctx context.Context, h executor.Handle) error { return g.x.Destroy(ctx, h) }

func (g *gate) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return g.x.Sessions(ctx, labels)
}

// Close ends the tries and closes the adapter's Executor.
func (g *gate) Close() error {
	g.cancel()
	g.work.Wait()
	return g.x.Close()
}

// held gives its place in the queue back when it is let go of, or when it turns out to be gone.
type held struct {
	executor.Session
	g    *gate
	once sync.Once
}

// As lets backend-specific values through.
func (h *held) As(target any) bool { return executor.As(h.Session, target) }

func (h *held) leave() { h.once.Do(h.g.queue.leave) }

// seen looks at the answer to a call: the sandbox may be gone, or another holder's.
func (h *held) seen(err error) {
	if errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed) {
		h.leave()
	}
}

func (h *held) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	res, err := h.Session.Run(ctx, req, emit)
	h.seen(err)
	return res, err
}

func (h *held) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := h.Session.Refresh(ctx)
	h.seen(err)
	return i, err
}

func (h *held) Detach() error {
	err := h.Session.Detach()
	if err == nil || errors.Is(err, executor.ErrClosed) {
		h.leave()
	}
	return err
}

// Close gives the place back whatever comes of it: what is left then is the adapter's to remove,
// and its TTL ends it.
func (h *held) Close() error {
	defer h.leave()
	return h.Session.Close()
}
