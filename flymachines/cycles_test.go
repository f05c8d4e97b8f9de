package flymachines

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/flymachines/flytest"
)

// faults are what may happen to any request of any session, at any time.
var faults = []func() flytest.Switch{
	func() flytest.Switch { return flytest.NotFoundAfterCreate(1 + rand.IntN(3)) },
	func() flytest.Switch { return flytest.DestroyingAfterWait(1) },
	func() flytest.Switch { return flytest.SlowPull(500 * time.Millisecond) },
	flytest.CreateTimesOut, flytest.NameTaken,
	func() flytest.Switch { return flytest.NoCandidate("iad") },
	func() flytest.Switch { return flytest.NoCapacity("iad", "lhr") },
	func() flytest.Switch { return flytest.OverQuota("iad") },
	func() flytest.Switch { return flytest.RateLimited(0) },
	func() flytest.Switch { return flytest.BadGateway() },
	func() flytest.Switch { return flytest.BadGatewayAfter() },
	func() flytest.Switch { return flytest.Unavailable() },
	func() flytest.Switch { return flytest.UnavailableAfter() },
	func() flytest.Switch { return flytest.Cut() },
	func() flytest.Switch { return flytest.CutAfter() },
}

// cycles creates and destroys sessions while faults happen at random. Whatever the outcome, errors
// are of the kinds that say what is the matter, and in the end nothing is left.
func cycles(t *testing.T, n, parallel int) {
	w := newWorld(t)
	box := w.open(t, func(c *Config) { c.Regions = []string{"iad", "lhr", "fra"} })
	var left atomic.Int64
	left.Store(int64(n))
	var refused, struck atomic.Int64
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				off := func() {}
				if rand.IntN(3) > 0 {
					times := 1 + rand.IntN(2)
					struck.Add(int64(times))
					off = w.Switch(faults[rand.IntN(len(faults))]().Times(times))
				}
				ok, err := cycle(t, box)
				for ; !ok && err == nil; ok, err = cycle(t, box) {
					if refused.Add(1) > struck.Load() {
						err = errors.New("more creates were refused than there were faults: one lasts")
						break
					}
				}
				off()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	w.empty(t)
	w.none(t)
	t.Logf("%d sessions, %d refused, %d faults", n, refused.Load(), struck.Load())
}

// cycle is the life of one session. It reports whether there was one.
func cycle(t *testing.T, box executor.Executor) (bool, error) {
	s, err := box.Create(t.Context(), executor.Spec{})
	if errors.Is(err, executor.ErrUnavailable) || errors.Is(err, executor.ErrExhausted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create: %w", err)
	}
	if rand.IntN(2) == 0 {
		r, err := s.Run(t.Context(), executor.Request{Code: "print(6 * 7)"}, nil)
		if err != nil || r.Status != executor.StatusOK || r.Stdout.String() != "42\n" {
			return false, errors.Join(fmt.Errorf("run: got %+v, %w", r, err), s.Close())
		}
	}
	for n := 0; ; n++ {
		if err = s.Close(); err == nil || n == 3 || !errors.Is(err, executor.ErrUnavailable) && !errors.Is(err, executor.ErrExhausted) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("close: %w", err)
	}
	return true, nil
}

func TestCycles(t *testing.T) {
	t.Parallel()
	cycles(t, 100, 4)
}
