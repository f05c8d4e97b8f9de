package drain

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		first, ok := g.Enter()
		if !ok || g.IsShut() || g.Busy() != 1 {
			t.Fatalf("open: got %t, %t, %d", ok, g.IsShut(), g.Busy())
		}
		late := errors.New("too late")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(late)
		if err := g.Drain(ctx); !errors.Is(err, late) {
			t.Errorf("while something goes on: got %v", err)
		}
		if leave, ok := g.Enter(); ok || leave != nil || !g.IsShut() {
			t.Error("it lets something in that comes after Drain")
		}
		second := g.Hold()

		var drained atomic.Int32
		for range 2 { // two waiters
			go func() {
				if err := g.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				drained.Add(1)
			}()
		}
		synctest.Wait()
		first()
		synctest.Wait()
		if drained.Load() != 0 || g.Busy() != 1 {
			t.Fatalf("one of two has left: %d have drained, %d go on", drained.Load(), g.Busy())
		}
		second()
		synctest.Wait()
		if drained.Load() != 2 || g.Busy() != 0 {
			t.Fatalf("both have left: %d have drained, %d go on", drained.Load(), g.Busy())
		}

		// Drain waits for each Hold separately.
		leave := g.Hold()
		if err := g.Drain(ctx); !errors.Is(err, late) {
			t.Errorf("held again: got %v", err)
		}
		leave()
		if err := g.Drain(ctx); err != nil {
			t.Errorf("nothing goes on: got %v", err)
		}
	})
}

func TestShut(t *testing.T) {
	var g Gate
	g.Shut()
	if _, ok := g.Enter(); ok || !g.IsShut() {
		t.Error("a shut Gate lets something in")
	}
	if err := g.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}
