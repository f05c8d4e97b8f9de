package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// session is a sandbox as this process holds it: a connection to its runner, and another one when
// the first was cut. All methods are safe for concurrent use.
type session struct {
	b     *backend
	box   Sandbox
	fence int64
	info  executor.SessionInfo

	made  *Config   // what it was made with; nil: by another process
	begun time.Time // when it was made

	used      atomic.Bool // it is no longer as it was made
	suspended atomic.Bool // by its provider and this holder, and not woken since
	destroyed atomic.Bool
	joining   chan struct{} // holds a value while a new connection is being opened

	mu sync.Mutex
	c  *client
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Detacher   = (*session)(nil)
	_ driver.Refresher  = (*session)(nil)
	_ driver.Resetter   = (*session)(nil)
	_ driver.KeepAliver = (*session)(nil)
	_ driver.Suspender  = (*session)(nil)
	_ driver.Filer      = (*session)(nil)
	_ driver.Dialer     = (*session)(nil)
	_ driver.Installer  = (*session)(nil)
	_ driver.Aser       = (*session)(nil)
)

// session makes a session of a connection, and owns it from then on.
func (b *backend) session(info executor.SessionInfo, box Sandbox, c *client, fence int64) *session {
	c.observe(box)
	return &session{b: b, box: box, fence: fence, info: info, joining: make(chan struct{}, 1), c: c}
}

// Info implements driver.Session. Expires is empty unless the provider counts the time.
func (s *session) Info() executor.SessionInfo { return s.info }

// AfterEnd implements executor.Ender.
func (s *session) AfterEnd(f func()) (stop func() bool) {
	return context.AfterFunc(s.connected().life, f)
}

// As implements driver.Aser.
func (s *session) As(target any) bool {
	if t, ok := target.(*executor.Ender); ok {
		*t = s
		return true
	}
	a, ok := s.box.(driver.Aser)
	return ok && a.As(target)
}

// connected returns the connection as it is.
func (s *session) connected() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

// wasCut reports whether a connection has ended without a word of the runner: then the runner may
// live and be reached by another one.
func wasCut(c *client) bool {
	var lost *LostError
	return errors.As(c.Err(), &lost)
}

// client returns a connection to the runner: another one if the last was cut, by an engine that was
// restarted for example.
func (s *session) client(ctx context.Context) (*client, error) {
	if c := s.connected(); !wasCut(c) {
		return c, nil
	}
	select {
	case s.joining <- struct{}{}:
		defer func() { <-s.joining }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old := s.connected()
	if !wasCut(old) {
		return old, nil
	}
	c, err := s.b.connect(ctx, s.box, s.info.Handle.Session, s.fence, s.unused())
	if errors.Is(err, ErrUnprepared) { // it was prepared
		err = driver.Fail(executor.ErrNotFound, executor.RanNo, errForgotten)
	}
	if err != nil {
		return nil, err
	}
	c.observe(s.box)
	s.suspended.Store(false)
	old.Detach() // has ended; this waits for its goroutines
	s.mu.Lock()
	s.c = c
	s.mu.Unlock()
	return c, nil
}

// errForgotten says that a sandbox was started anew: by its provider while it was suspended, for
// example.
var errForgotten = errors.New("the sandbox was started anew: what it held is lost")

// unused returns what a sandbox was made with that was only suspended since. Of others it returns
// nil. Only a Guest can be set up once more.
func (s *session) unused() *Config {
	if s.made == nil || s.made.Guest == nil || s.used.Load() || !s.suspended.Load() {
		return nil
	}
	again := *s.made
	if again.MaxLife > 0 {
		again.MaxLife = max(again.MaxLife-time.Since(s.begun), time.Second)
	}
	return &again
}

// use returns a connection for something that changes the sandbox, or may.
func (s *session) use(ctx context.Context) (*client, error) {
	s.used.Store(true)
	return s.client(ctx)
}

// errGone is what is said of a sandbox that the provider no longer has.
var errGone = errors.New("the sandbox is gone")

// Run implements driver.Session.
func (s *session) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	c, err := s.use(ctx)
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	exit, err := c.Run(ctx, req, emit)
	if exit.FilesLost {
		s.bury(ctx)
	}
	return s.outcome(ctx, exit, err)
}

// bury removes a sandbox that its supervisor has ended: where the supervisor is not the main
// process, what it could not end lives on. A provider that does not answer ends the sandbox by the
// time that it was given.
func (s *session) bury(ctx context.Context) {
	ctx, cancel := driver.StopContext(ctx)
	defer cancel()
	_ = s.box.Remove(ctx) // see above
}

// outcome finds out what a run was that ended without a word of the runner: with its sandbox, or
// with the connection only.
func (s *session) outcome(ctx context.Context, exit driver.Exit, err error) (driver.Exit, error) {
	var e *executor.Error
	var lost *LostError
	if !errors.As(err, &e) || !errors.As(err, &lost) && !(s.destroyed.Load() && errors.Is(err, executor.ErrClosed)) {
		return exit, err
	}
	died := func(reason executor.Reason) (driver.Exit, error) {
		if e.Ran == executor.RanYes {
			return driver.Exit{Code: -1, Reason: reason, StateLost: true, FilesLost: true}, nil
		}
		return exit, driver.Fail(executor.ErrNotFound, e.Ran, errGone)
	}
	if s.destroyed.Load() {
		return died(executor.ReasonLifetime)
	}
	ctx, cancel := driver.StopContext(ctx)
	defer cancel()
	end, terr := s.box.Termination(ctx)
	if terr != nil || !end.Ended || end.Reason == "" {
		return exit, err // that the provider does not answer either says nothing about the code
	}
	return died(end.Reason)
}

// explain says of an operation that was cut short whether its sandbox is gone.
func (s *session) explain(ctx context.Context, err error) error {
	var e *executor.Error
	var lost *LostError
	if !errors.As(err, &e) || !errors.As(err, &lost) {
		return err
	}
	if end, terr := s.box.Termination(ctx); terr == nil && end.Ended {
		return driver.Fail(executor.ErrNotFound, e.Ran, errGone)
	}
	return err
}

// Reset implements driver.Resetter.
func (s *session) Reset(ctx context.Context, which executor.Interpreter) error {
	c, err := s.client(ctx)
	if err != nil {
		return err
	}
	err = s.explain(ctx, c.Reset(ctx, which))
	if errors.Is(err, executor.ErrNotFound) && !wasCut(c) {
		s.bury(ctx)
	}
	return err
}

// KeepAlive implements driver.KeepAliver.
func (s *session) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	c, err := s.use(ctx)
	if err != nil {
		return time.Time{}, err
	}
	k, provider := s.box.(driver.KeepAliver)
	if !provider {
		expires, err := c.KeepAlive(ctx, idle)
		return expires, s.explain(ctx, err)
	}
	if err := c.Ping(ctx); err != nil { // a later holder may have taken over
		return time.Time{}, s.explain(ctx, err)
	}
	return k.KeepAlive(ctx, idle)
}

// shorten tells a provider that counts the time of sandboxes the idle TTL, if it has given more so
// far, because setting up takes a while.
func (s *session) shorten(ctx context.Context, spec *executor.Spec) (err error) {
	k, ok := s.box.(driver.KeepAliver)
	idle := spec.IdleTTL
	if spec.MaxLife > 0 {
		idle = min(idle, spec.MaxLife)
	}
	if ok && time.Until(s.info.Expires) > idle {
		s.info.Expires, err = k.KeepAlive(ctx, idle)
	}
	return err
}

// errSuspended is the end of the connection to a sandbox that its provider suspends.
var errSuspended = errors.New("closed while the sandbox is suspended")

// Suspend implements driver.Suspender. Where the provider cannot, all processes of user code are
// stopped; the supervisor goes on and ends the sandbox in time.
func (s *session) Suspend(ctx context.Context) error {
	p, ok := s.box.(Suspender)
	if !ok {
		c, err := s.client(ctx)
		if err != nil {
			return err
		}
		return s.explain(ctx, c.Suspend(ctx))
	}
	select {
	case s.joining <- struct{}{}: // before another connection can be opened
		defer func() { <-s.joining }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c := s.connected()
	c.end(&LostError{Err: errSuspended})
	c.wg.Wait()
	s.suspended.Store(true) // whatever comes of it: what is not suspended is connected to without more ado
	return p.Suspend(ctx)
}

// Dial implements driver.Dialer.
func (s *session) Dial(ctx context.Context, port int) (executor.Conn, error) {
	c, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.Dial(ctx, port)
	return conn, s.explain(ctx, err)
}

// Refresh implements driver.Refresher. It does not count as use.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	if r, ok := s.box.(driver.Refresher); ok {
		return r.Refresh(ctx)
	}
	info := s.info
	c, err := s.client(ctx)
	if err != nil {
		return info, err
	}
	actx, cancel := s.b.answer(ctx)
	defer cancel()
	st, err := c.Status(actx)
	if err != nil {
		return info, s.explain(ctx, classified(ctx, err))
	}
	info.State, info.Expires, info.CPU = executor.SessionRunning, st.Expires, st.CPU
	return info, nil
}

// fenceTimeout is how long Destroy waits for word of a later holder, and for what code wants to be
// called at the end. A sandbox that does not answer is destroyed.
const fenceTimeout = 2 * time.Second

// Destroy implements driver.Session.
func (s *session) Destroy(ctx context.Context) error {
	if p, ok := s.box.(Suspender); ok && s.suspended.Load() {
		// What nobody has woken nobody else holds, and it need not be woken to be asked.
		if still, err := p.Suspended(ctx); err == nil && still {
			s.Detach()
			return s.b.remove(ctx, s.box)
		}
	}
	fctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	if c, err := s.client(fctx); err == nil && errors.Is(c.Leave(fctx), executor.ErrClosed) && !s.destroyed.Load() {
		c.Detach()
		return driver.Fail(executor.ErrClosed, executor.RanNo, errors.New("a later holder has taken over"))
	}
	s.destroyed.Store(true)
	err := s.b.remove(ctx, s.box)
	s.connected().Detach()
	return err
}

// Detach implements driver.Detacher.
func (s *session) Detach() error { return s.connected().Detach() }
