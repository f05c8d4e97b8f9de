package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

var errDown = driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the provider is down"))

// A Create that fails and cannot clean up leaves that to the Executor.
func TestLeftover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		var asked atomic.Int64
		up := make(chan struct{})
		c.create = func(context.Context, *driver.Create) error {
			return driver.Leftover(errDown, func(context.Context) error {
				asked.Add(1)
				select {
				case <-up:
					return nil
				default:
					return errDown
				}
			})
		}
		x := c.open(t)
		_, err := x.Create(t.Context(), executor.Spec{})
		wantError(t, err, "create", executor.ErrUnavailable, executor.RanNo)
		if got, want := err.Error(), "cloud: create: backend unavailable: the provider is down"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		time.Sleep(10 * time.Minute)
		if n := asked.Load(); n < 10 || n > 20 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		close(up)
		time.Sleep(time.Minute)
		n := asked.Load()
		time.Sleep(time.Hour)
		if got := asked.Load(); got != n {
			t.Errorf("asked %d times more after it was gone", got-n)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}

// That a Create took too long is told in the same way whether it has left something or not: another
// backend may do it.
func TestLeftoverOfATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.create = func(ctx context.Context, _ *driver.Create) error {
			<-ctx.Done()
			return driver.Leftover(context.Cause(ctx), func(context.Context) error { return nil })
		}
		x := c.open(t)
		_, err := x.Create(t.Context(), executor.Spec{})
		wantError(t, err, "create", executor.ErrUnavailable, executor.RanNo)
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLeftoverAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		down := true
		c.create = func(context.Context, *driver.Create) error {
			return driver.Leftover(errDown, func(context.Context) error {
				if down {
					return errDown
				}
				return nil
			})
		}
		x := c.open(t)
		for range 2 {
			_, err := x.Create(t.Context(), executor.Spec{})
			wantError(t, err, "create", executor.ErrUnavailable, executor.RanNo)
		}
		wantError(t, x.Close(), "close", executor.ErrUnavailable, executor.RanNo)
		if c.closes() != 0 {
			t.Error("the driver is closed although something is left")
		}
		down = false
		if err := x.Close(); err != nil || c.closes() != 1 {
			t.Errorf("got %v, the driver was closed %d times", err, c.closes())
		}
	})
}

// A session whose Close failed goes without anybody trying again.
func TestSessionIsLeftover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.destroy = failOnce(c)
		x := c.open(t)
		s := create(t, x, executor.Spec{})
		wantError(t, s.Close(), "close", executor.ErrUnavailable, executor.RanNo)
		time.Sleep(2 * time.Second)
		if c.count() != 0 {
			t.Errorf("%d sandboxes are left", c.count())
		}
		if err := errors.Join(s.Close(), x.Close()); err != nil {
			t.Error(err)
		}
	})
}
