package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Close implements executor.Executor. Calls in progress are cancelled, sandboxes destroyed, several
// at a time, and the driver is closed when nothing uses it any more.
func (x *exec) Close() error {
	ctx, cancel := x.cleanUpContext()
	defer cancel()
	var last error // of the driver, which is closed only once
	err := x.closing.do(ctx, func() (err error) {
		ctx, done := x.hook(ctx, executor.Op{Name: "close"})
		began := time.Now()
		defer func() { done(executor.Outcome{Err: joinFailures(err, last), Duration: time.Since(began)}) }()
		x.calls.close()
		err = x.closeSessions(ctx)
		if x.calls.wait(ctx) != nil {
			return joinFailures(err, Fail(executor.ErrUnavailable, executor.RanNo, errors.New("calls to the backend have not ended in time")))
		}
		if err == nil { // a Create that was in progress may have left a sandbox that it could not destroy
			err = joinFailures(x.closeSessions(ctx), x.left.drain(ctx))
		}
		if err == nil {
			last = x.b.Close()
		}
		return err
	})
	if err == nil {
		err = last
	}
	if e, ok := err.(*executor.Error); err == nil || ok && e.Op != "" { //nolint:errorlint // complete already, with its session
		return err
	}
	return x.fail(ctx, "close", "", true, err)
}

// destroyAtOnce is how many sandboxes Close destroys at a time. Providers limit rates.
const destroyAtOnce = 16

// closeSessions destroys what is neither closed nor detached.
func (x *exec) closeSessions(ctx context.Context) error {
	x.mu.Lock()
	live := slices.Collect(maps.Keys(x.live))
	x.mu.Unlock()
	errs := make([]error, len(live))
	slots := make(chan struct{}, destroyAtOnce)
	var wg sync.WaitGroup
	for i, s := range live {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.destroy(ctx); !errors.Is(err, executor.ErrClosed) { // fenced off by a later session, to which the sandbox belongs
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return joinFailures(errs...)
}

// joinFailures makes one error of several: the first decides the kind.
func joinFailures(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	kind := executor.ErrInternal
	var first *executor.Error
	if errors.As(errs[0], &first) {
		kind = first.Kind
	}
	return Fail(kind, executor.RanNo, errors.Join(errs...))
}

// Close implements executor.Session.
func (s *session) Close() error {
	ctx, cancel := s.x.cleanUpContext()
	defer cancel()
	err := s.destroy(ctx)
	if err != nil && s.left.CompareAndSwap(false, true) { // the caller may try again and does not have to
		s.x.left.add(func(ctx context.Context) error {
			if err := s.destroy(ctx); !errors.Is(err, executor.ErrClosed) {
				return err
			}
			return nil
		})
	}
	return err
}

// cleanUpContext is that of what works after the caller's has ended.
func (x *exec) cleanUpContext() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), x.o.CleanupTimeout, errAttempt)
}

// destroy cancels the calls of this session and destroys the sandbox, unless that was done. It does
// not wait for the calls: the sandbox takes what they run with it, and one of them may have called
// Close from its emit.
func (s *session) destroy(ctx context.Context) error {
	var err error
	waited := s.closing.do(ctx, func() error {
		s.calls.close()
		if err = s.cleanUp(ctx, "close", s.box.Destroy); errors.Is(err, executor.ErrClosed) {
			return nil // fenced off by a later session: trying again would not help
		}
		return err
	})
	if err == nil && waited != nil {
		err = s.x.fail(ctx, "close", s.id, true, waited)
	}
	return err
}

// Detach implements executor.Session.
func (s *session) Detach() error {
	ctx, cancel := s.x.cleanUpContext()
	defer cancel()
	err := s.lacks(executor.FeatureAttach)
	if err == nil && s.closing.settled() && !s.detached.Load() {
		err = Fail(executor.ErrClosed, executor.RanNo, nil)
	}
	if err != nil {
		return s.x.fail(ctx, "detach", s.id, true, err)
	}
	waited := s.closing.do(ctx, func() error {
		s.detached.Store(true)
		s.calls.close()
		err = s.cleanUp(ctx, "detach", s.detach)
		return nil // whatever the driver could not release, the sandbox is no longer ours to destroy
	})
	if err == nil && waited != nil {
		err = s.x.fail(ctx, "detach", s.id, true, waited)
	}
	return err
}

func (s *session) detach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.x.o.StopTimeout)
	defer cancel()
	if s.calls.wait(ctx) != nil {
		s.x.log.Warn("detaching from a session whose calls have not ended in time", "session", s.id)
	}
	return s.box.Detach()
}

// cleanUp does the last thing that a session does, counted among the calls of the driver and shown
// to the hooks.
func (s *session) cleanUp(ctx context.Context, op string, f func(context.Context) error) error {
	c := &call{x: s.x}
	defer c.finish()
	c.beginCleanUp(ctx, executor.Op{Name: op, Session: s.id})
	err := f(c.ctx)
	if err != nil {
		c.out.Err = s.x.fail(c.ctx, op, s.id, true, err)
	}
	if err == nil || errors.Is(err, executor.ErrClosed) || s.detached.Load() {
		s.x.mu.Lock()
		delete(s.x.live, s)
		s.x.mu.Unlock()
	}
	return c.out.Err
}
