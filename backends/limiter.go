package backends

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// limiter is the Executor between the pools of a backend and its adapter. It has the breaker and
// the queue, and counts the sandboxes in use.
type limiter struct {
	executor.BaseExecutor
	x       executor.Executor // the Executor of the adapter
	log     *slog.Logger
	queue   queue
	breaker atomic.Pointer[breaker]

	ctx    context.Context // ends the probes in the background
	cancel context.CancelFunc
	work   sync.WaitGroup
}

var _ executor.Executor = (*limiter)(nil)

func newLimiter(x executor.Executor, log *slog.Logger) *limiter {
	g := &limiter{x: x, log: log}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

func (g *limiter) refuse(op string, e *executor.Error) error {
	e.Op, e.Backend, e.Ran = op, g.x.Info().Name, executor.RanNo
	return e
}

func (g *limiter) Info() executor.Info { return g.x.Info() }

// Create is for pools. It never waits, because a pool must not take the slot of a user.
func (g *limiter) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	if !g.queue.try() {
		return nil, g.refuse("create", &executor.Error{Kind: executor.ErrExhausted, Err: errors.New("queue: all free slots are for waiting users")})
	}
	return g.createInSlot(ctx, spec)
}

// create is Create for a user. It waits for a slot and adds the time that it waited to waited.
func (g *limiter) create(ctx context.Context, spec executor.Spec, waited *time.Duration) (executor.Session, error) {
	began := time.Now()
	err := g.queue.enter(ctx, spec.Subject)
	*waited += time.Since(began)
	if err != nil {
		return nil, g.refuse("create", err)
	}
	return g.createInSlot(ctx, spec)
}

// createInSlot creates a sandbox for a caller that has a slot.
func (g *limiter) createInSlot(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := g.ask(ctx, spec)
	if err != nil {
		g.queue.release()
		return nil, err
	}
	return &slotSession{Session: s, g: g}, nil
}

// ask creates a sandbox and reports the result to the breaker.
func (g *limiter) ask(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	b := g.breaker.Load()
	if err := b.check(); err != nil {
		return nil, g.refuse("create", err)
	}
	done := b.begin(spec)
	s, err := g.x.Create(ctx, spec)
	done(err)
	return s, err
}

// setBreaker changes the breaker. A breaker with the same settings is kept.
func (g *limiter) setBreaker(cfg Breaker) {
	if b := g.breaker.Load(); b != nil && b.cfg == cfg {
		return
	}
	var b *breaker
	b = newBreaker(cfg, func(pause time.Duration) {
		g.log.Warn("the breaker is open, because the backend does not answer", "backend", g.x.Info().Name, "next_try", pause)
		g.work.Go(func() { g.try(b, pause) })
	}, func() { g.log.Info("the breaker is closed, because the backend answers", "backend", g.x.Info().Name) })
	g.breaker.Store(b)
}

// try finds out after a pause whether the backend works again. If it does not, the breaker opens
// again, which starts the next try. A sandbox may cost money, so the provider is first asked for a
// list of sandboxes, if it has lists.
func (g *limiter) try(b *breaker, pause time.Duration) {
	t := time.NewTimer(pause + time.Millisecond) // the breaker lets the next request through only after its pause has passed
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
		defer s.Close() // if this fails, the idle TTL removes it
	}
	if !down(err) {
		err = nil // this Spec has reached the provider before, so any other error is the provider's answer
	}
	done(err)
}

// list asks the provider for a list of sandboxes. Only the error matters.
func (g *limiter) list() error {
	if !g.x.Info().Capabilities.Has(executor.FeatureList) {
		return nil
	}
	for _, err := range g.x.Sessions(g.ctx, nil) {
		return err
	}
	return nil
}

// Attach counts the sandbox but never waits for a slot: the sandbox exists already.
func (g *limiter) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	s, err := g.x.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	g.queue.take()
	return &slotSession{Session: s, g: g}, nil
}

func (g *limiter) Destroy(ctx context.Context, h executor.Handle) error { return g.x.Destroy(ctx, h) }

func (g *limiter) LastContact(ctx context.Context, h executor.Handle) (time.Time, error) {
	return g.x.LastContact(ctx, h)
}

func (g *limiter) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return g.x.Sessions(ctx, labels)
}

// Close ends the probes and closes the adapter's Executor.
func (g *limiter) Close() error {
	g.cancel()
	g.work.Wait()
	return g.x.Close()
}

// slotSession is a session that has a slot of the queue. It releases the slot when it is closed or
// detached, or when its sandbox turns out to be gone.
type slotSession struct {
	executor.Session
	g    *limiter
	once sync.Once
}

// As passes backend-specific values through.
func (h *slotSession) As(target any) bool { return executor.As(h.Session, target) }

func (h *slotSession) release() { h.once.Do(h.g.queue.release) }

// observe looks at the error of a call: the sandbox may be gone, or another holder may have it.
func (h *slotSession) observe(err error) {
	if errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed) {
		h.release()
	}
}

func (h *slotSession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	res, err := h.Session.Run(ctx, req, emit)
	h.observe(err)
	return res, err
}

func (h *slotSession) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := h.Session.Refresh(ctx)
	h.observe(err)
	return i, err
}

func (h *slotSession) Detach() error {
	err := h.Session.Detach()
	if err == nil || errors.Is(err, executor.ErrClosed) {
		h.release()
	}
	return err
}

// Close releases the slot even if it fails. The adapter or the idle TTL then removes the sandbox.
func (h *slotSession) Close() error {
	defer h.release()
	return h.Session.Close()
}
