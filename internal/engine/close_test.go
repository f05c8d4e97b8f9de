package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestCloseIsFinal(t *testing.T) {
	for name, end := range map[string]func(x executor.Executor, s executor.Session) error{
		"close":          func(_ executor.Executor, s executor.Session) error { return s.Close() },
		"detach":         func(_ executor.Executor, s executor.Session) error { return s.Detach() },
		"close-executor": func(x executor.Executor, _ executor.Session) error { return x.Close() },
	} {
		c := newCloud()
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		if err := end(x, s); err != nil {
			t.Fatal(err)
		}
		if got, want := c.count(), map[bool]int{true: 1}[name == "detach"]; got != want {
			t.Errorf("%s: got %d sandboxes, want %d", name, got, want)
		}
		calls := everyCall(t.Context(), nil, s, executor.Handle{})
		if name == "close-executor" {
			calls = everyCall(t.Context(), x, s, s.Info().Handle)
		}
		for op, err := range calls {
			wantError(t, err, op, executor.ErrClosed, executor.RanNo)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close again: %v", name, err)
		}
		if err := x.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.closes() != 1 {
			t.Errorf("%s: the driver was closed %d times", name, c.closes())
		}
	}
}

func TestDetachAfterTheEnd(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	closed, detached := create(t, x, executor.Spec{}), create(t, x, executor.Spec{})
	if err := errors.Join(closed.Close(), detached.Detach(), detached.Detach()); err != nil {
		t.Error(err)
	}
	wantError(t, closed.Detach(), "detach", executor.ErrClosed, executor.RanNo)
}

func TestCloseTriesAgain(t *testing.T) {
	c := newCloud()
	c.destroy = failOnce(c)
	s := c.session(t, executor.Spec{})
	err := s.Close()
	wantError(t, err, "close", executor.ErrUnavailable, executor.RanNo)
	_, err = s.Run(t.Context(), code, nil)
	wantError(t, err, "run", executor.ErrClosed, executor.RanNo)
	if err := s.Close(); err != nil || c.count() != 0 {
		t.Errorf("got %v and %d sandboxes", err, c.count())
	}
}

// TestCloseOfAFencedHolder tests that a holder which was shut out does not insist on destroying
// what is another's now.
func TestCloseOfAFencedHolder(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	s := create(t, x, executor.Spec{})
	c.destroy = func(context.Context, string) error { return driver.Fail(executor.ErrClosed, executor.RanNo, nil) }
	wantError(t, s.Close(), "close", executor.ErrClosed, executor.RanNo)
	other := create(t, x, executor.Spec{})
	if err := x.Close(); err != nil {
		t.Errorf("got %v: nothing is left to destroy", err)
	}
	if err := other.Close(); err != nil || c.count() != 2 {
		t.Errorf("got %v and %d sandboxes", err, c.count())
	}
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		for range 40 {
			create(t, x, executor.Spec{})
		}
		var hang atomic.Bool // it is tried again in the background
		hang.Store(true)
		c.destroy = func(ctx context.Context, _ string) error {
			if hang.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		begin := time.Now()
		wantError(t, s.Close(), "close", executor.ErrUnavailable, executor.RanNo)
		if got := time.Since(begin); got != quick.CleanupTimeout {
			t.Errorf("session: got %v, want %v", got, quick.CleanupTimeout)
		}
		begin = time.Now()
		wantError(t, x.Close(), "close", executor.ErrUnavailable, executor.RanNo)
		if got := time.Since(begin); got != quick.CleanupTimeout || c.closes() != 0 {
			t.Errorf("executor: got %v and %d closes, want %v and none", got, c.closes(), quick.CleanupTimeout)
		}
		hang.Store(false)
		if err := x.Close(); err != nil || c.count() != 0 || c.closes() != 1 {
			t.Errorf("again: got %v, %d sandboxes, %d closes", err, c.count(), c.closes())
		}
	})
}

func TestConcurrentCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		n := 0
		c.destroy = func(context.Context, string) error {
			n++ // one at a time, or the race detector says so
			time.Sleep(time.Second)
			if n == 1 {
				return driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset)
			}
			return nil
		}
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		failures := 0
		for range 8 {
			wg.Go(func() {
				if err := s.Close(); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failures++
				}
			})
		}
		wg.Wait()
		if n != 2 || failures != 1 || c.count() != 0 {
			t.Errorf("got %d attempts and %d failures, want 2 and 1", n, failures)
		}
		for range 4 {
			wg.Go(func() {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if c.closes() != 1 {
			t.Errorf("got %d closes of the driver", c.closes())
		}
	})
}

// TestCloseEndsRuns tests what the holder hears of its own run when it closes the session: the
// sandbox is gone, so the code has stopped.
func TestCloseEndsRuns(t *testing.T) {
	connectionBreaks := func(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		err := started(emit)
		<-ctx.Done()
		return driver.Exit{}, errors.Join(driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset), err)
	}
	queued := func(ctx context.Context, _ *executor.Request, _ func(executor.Event) error) (driver.Exit, error) {
		<-ctx.Done()
		return driver.Exit{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, context.Cause(ctx))
	}
	lifetime := func(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		err := started(emit)
		<-ctx.Done()
		return driver.Exit{Reason: executor.ReasonLifetime}, err
	}
	closeIt := func(_ executor.Executor, s executor.Session) error { return s.Close() }
	for name, c := range map[string]struct {
		run    runFunc
		fails  bool // destroying
		end    func(executor.Executor, executor.Session) error
		status executor.Status
		ran    executor.Ran
		none   bool // no error
	}{
		"stops":           {run: untilEnd, end: closeIt, status: executor.StatusCanceled, ran: executor.RanYes},
		"connection":      {run: connectionBreaks, end: closeIt, status: executor.StatusCanceled, ran: executor.RanYes},
		"connection-lost": {run: connectionBreaks, fails: true, end: closeIt, status: executor.StatusLost, ran: executor.RanYes},
		"lifetime":        {run: lifetime, end: closeIt, status: executor.StatusKilled, none: true},
		"queued":          {run: queued, end: closeIt, ran: executor.RanNo},
		"executor":        {run: connectionBreaks, end: func(x executor.Executor, _ executor.Session) error { return x.Close() }, status: executor.StatusCanceled, ran: executor.RanYes},
		"destroy": {run: untilEnd, end: func(x executor.Executor, s executor.Session) error {
			return x.Destroy(context.Background(), s.Info().Handle)
		}, status: executor.StatusCanceled, ran: executor.RanYes},
		"detach":      {run: untilEnd, end: func(_ executor.Executor, s executor.Session) error { return s.Detach() }, status: executor.StatusCanceled, ran: executor.RanYes},
		"detach-lost": {run: connectionBreaks, end: func(_ executor.Executor, s executor.Session) error { return s.Detach() }, status: executor.StatusLost, ran: executor.RanYes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.run = c.run
				cl.destroy = func(context.Context, string) error {
					time.Sleep(time.Second)
					return nil
				}
				if c.fails {
					cl.destroy = failOnce(cl)
				}
				x := cl.open(t)
				s := create(t, x, executor.Spec{})
				var wg sync.WaitGroup
				wg.Go(func() {
					r, err := s.Run(t.Context(), code, nil)
					if c.none && err != nil {
						t.Errorf("got %v", err)
					} else if !c.none {
						wantError(t, err, "run", executor.ErrClosed, c.ran)
					}
					if r == nil && c.status != "" || r != nil && r.Status != c.status {
						t.Errorf("got %+v, want %q", r, c.status)
					}
				})
				synctest.Wait()
				if err := c.end(x, s); (err != nil) != c.fails {
					t.Errorf("got %v", err)
				}
				wg.Wait()
			})
		})
	}
}

// TestCloseFromEmit tests that a consumer may close the session in the middle of its run.
func TestCloseFromEmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.run = untilEnd
		s := c.session(t, executor.Spec{})
		begin := time.Now()
		r, err := s.Run(t.Context(), code, func(executor.Event) error { return s.Close() })
		wantError(t, err, "run", executor.ErrClosed, executor.RanYes)
		if r.Status != executor.StatusCanceled || c.count() != 0 || time.Since(begin) != 0 {
			t.Errorf("got %+v, %d sandboxes, after %v", r, c.count(), time.Since(begin))
		}
	})
}

// TestDetachIsBounded tests that a run which does not stop keeps Detach for StopTimeout, and no
// longer.
func TestDetachIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		release := make(chan struct{})
		c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			err := started(emit)
			<-release
			return driver.Exit{}, err
		}
		failed := errors.New("socket")
		c.detach = func() error { return failed }
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if r, err := s.Run(t.Context(), code, nil); err != nil || r.Status != executor.StatusOK {
				t.Errorf("got %+v %v: the code has ended by itself", r, err)
			}
		})
		synctest.Wait()
		begin := time.Now()
		err := s.Detach()
		if wantError(t, err, "detach", executor.ErrInternal, executor.RanNo); time.Since(begin) != quick.StopTimeout {
			t.Errorf("got %v, want %v", time.Since(begin), quick.StopTimeout)
		}
		wantError(t, x.Close(), "close", executor.ErrUnavailable, executor.RanNo) // the run is still there
		if c.closes() != 0 || c.count() != 1 {
			t.Errorf("got %d closes and %d sandboxes: it was detached from", c.closes(), c.count())
		}
		close(release)
		wg.Wait()
		if err := x.Close(); err != nil || c.closes() != 1 {
			t.Errorf("got %v and %d closes", err, c.closes())
		}
	})
}

// TestDestroyDuringDetach tests that a holder which is letting go does not keep a sandbox from
// being destroyed.
func TestDestroyDuringDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		release := make(chan struct{})
		c.detach = func() error {
			<-release
			return nil
		}
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		var wg sync.WaitGroup
		for _, end := range []func() error{s.Detach, func() error { return x.Destroy(t.Context(), s.Info().Handle) }} {
			wg.Go(func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(release)
		wg.Wait()
		if n := c.count(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseOfTheDriverFails(t *testing.T) {
	c := newCloud()
	c.close = func() error { return errors.New("socket") }
	x := c.open(t)
	err := x.Close()
	wantError(t, err, "close", executor.ErrInternal, executor.RanNo)
	if err := x.Close(); err != nil || c.closes() != 1 {
		t.Errorf("again: got %v and %d closes, want one", err, c.closes())
	}
}

// TestCloseReportsAll tests that one sandbox which cannot be destroyed does not hide another, and
// keeps no other alive.
func TestCloseReportsAll(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	bad := map[string]bool{}
	for i := range 20 {
		s := create(t, x, executor.Spec{})
		bad[s.Info().Handle.Session] = i%10 == 0
	}
	c.destroy = func(_ context.Context, id string) error {
		if bad[id] {
			return driver.Fail(executor.ErrAuth, executor.RanMaybe, errors.New("key expired"))
		}
		return nil
	}
	err := x.Close()
	wantError(t, err, "close", executor.ErrAuth, executor.RanNo)
	for id, is := range bad {
		if is && !strings.Contains(err.Error(), id) {
			t.Errorf("%s is not in %v", id, err)
		}
	}
	if c.count() != 2 {
		t.Errorf("got %d sandboxes, want those two", c.count())
	}
	clear(bad)
}
