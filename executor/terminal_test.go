package executor_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/executor"
)

func TestTerminalSizes(t *testing.T) {
	var term executor.Terminal
	if got, want := term.Size(), (executor.TerminalSize{Rows: 24, Columns: 80}); got != want {
		t.Errorf("got %+v for the zero value, want %+v", got, want)
	}
	for _, s := range []executor.TerminalSize{{Rows: 1, Columns: 1}, {Rows: 65535, Columns: 65535}, {Rows: 50, Columns: 132}} {
		if err := term.Resize(s); err != nil || term.Size() != s {
			t.Errorf("%+v: got %+v, %v", s, term.Size(), err)
		}
	}
	for _, s := range []executor.TerminalSize{
		{}, {Rows: 1}, {Columns: 1}, {Rows: -1, Columns: 80}, {Rows: 24, Columns: 65536}, {Rows: math.MaxInt, Columns: math.MinInt},
	} {
		err := term.Resize(s)
		var e *executor.Error
		if !errors.Is(err, executor.ErrInvalid) || !errors.As(err, &e) || e.Ran != executor.RanNo {
			t.Errorf("%+v: got %v, want ErrInvalid", s, err)
		}
	}
	if got, want := term.Size(), (executor.TerminalSize{Rows: 50, Columns: 132}); got != want {
		t.Errorf("got %+v after refusals, want %+v", got, want)
	}
}

// TestTerminalChanged checks that a change wakes every waiter, and that nothing else does.
func TestTerminalChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var term executor.Terminal
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := term.Size(), executor.TerminalSize{Rows: 2, Columns: 3}
		var waiters sync.WaitGroup
		for range 3 {
			waiters.Go(func() {
				if got, err := term.Changed(ctx, first); got != second || err != nil {
					t.Errorf("got %+v, %v, want %+v", got, err, second)
				}
				cause := errors.New("over")
				if _, err := term.Changed(ctx, second); err == nil || err.Error() != cause.Error() {
					t.Errorf("got %v, want the cause of the context", err)
				}
			})
		}
		synctest.Wait()
		for _, s := range []executor.TerminalSize{first, second, second} {
			if err := term.Resize(s); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		cancel(errors.New("over"))
		waiters.Wait()
	})
}
