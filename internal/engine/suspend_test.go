package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// sleepyDriver makes sessions that can be suspended.
type sleepyDriver struct {
	smallDriver
	suspend func(ctx context.Context) error
}

func (d sleepyDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	s, err := d.smallDriver.Create(ctx, c)
	if err != nil {
		return nil, err
	}
	return &sleepySession{s, d.suspend}, nil
}

type sleepySession struct {
	driver.Session
	suspend func(ctx context.Context) error
}

func (s *sleepySession) Suspend(ctx context.Context) error { return s.suspend(ctx) }

// sleepy opens a driver of sessions that can be suspended, by suspend.
func sleepy(t *testing.T, suspend func(ctx context.Context) error, run runFunc, o driver.Options) executor.Session {
	t.Helper()
	c := newCloud()
	c.caps, c.run = small, run
	o.Type = "cloud"
	x, err := driver.New(sleepyDriver{smallDriver{c}, suspend}, driver.Env{Owner: "me"}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return create(t, x, executor.Spec{})
}

// TestSuspend tests that who uses a session and who suspends it keep out of each other's way, and
// that errors are wrapped.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var goOn, asleep = make(chan struct{}), make(chan error)
		s := sleepy(t, func(context.Context) error { return <-asleep }, func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			if err := started(emit); err != nil {
				return driver.Exit{}, err
			}
			<-goOn
			return driver.Exit{}, nil
		}, driver.Options{Suspends: true})
		var sus executor.Suspender
		if !executor.As(s, &sus) {
			t.Fatal("not to be suspended")
		}
		ctx := context.Background()
		done := make(chan error)
		go func() { _, err := s.Run(ctx, code, nil); done <- err }()
		synctest.Wait()
		wantError(t, sus.Suspend(ctx), "suspend", executor.ErrBusy, executor.RanNo)
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
		go func() { done <- sus.Suspend(ctx) }()
		synctest.Wait()
		_, err := s.Run(ctx, code, nil)
		wantError(t, err, "run", executor.ErrBusy, executor.RanNo)
		wantError(t, sus.Suspend(ctx), "suspend", executor.ErrBusy, executor.RanNo)
		asleep <- driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("no answer"))
		wantError(t, <-done, "suspend", executor.ErrUnavailable, executor.RanNo)
		if _, err := s.Run(ctx, code, nil); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wantError(t, sus.Suspend(ctx), "suspend", executor.ErrClosed, executor.RanNo)
	})
}

// TestSuspendRuns tests that a run in progress is no obstacle where that is declared.
func TestSuspendRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := sleepy(t, func(context.Context) error { return nil }, func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			err := started(emit)
			<-goOn
			return driver.Exit{}, err
		}, driver.Options{Suspends: true, SuspendsRuns: true})
		var sus executor.Suspender
		if !executor.As(s, &sus) {
			t.Fatal("not to be suspended")
		}
		done := make(chan error)
		go func() { _, err := s.Run(t.Context(), code, nil); done <- err }()
		synctest.Wait()
		if err := sus.Suspend(t.Context()); err != nil {
			t.Error(err)
		}
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSuspendUndeclared(t *testing.T) {
	var sus executor.Suspender
	if s := sleepy(t, nil, nil, driver.Options{}); executor.As(s, &sus) {
		t.Error("what is not declared is there")
	}
}
