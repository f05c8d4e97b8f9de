package sessions_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// lease is the default of Options.LeaseTTL.
const lease = 30 * time.Second

// TestIdleCost bounds what conversations that nobody uses cost: a request to the store and one to
// the provider in ten leases for each, and not all at once.
func TestIdleCost(t *testing.T) {
	bubble(t, fake.Options{Mute: true}, func(w *world) {
		const n = 100
		var reads atomic.Int64
		w.store = &hooked{Store: w.store, got: func(key string) error {
			if strings.HasPrefix(key, "session/") {
				reads.Add(1)
			}
			return nil
		}}
		p := w.start("one")
		for i := range n {
			l := p.acquire(fmt.Sprint("k", i), executor.Spec{IdleTTL: 3 * time.Hour})
			release(w, l)
		}
		synctest.Wait()
		asked := func() int { return w.b.Calls(fake.OpRefresh) }
		reads.Store(0)
		most, before := 0, asked()
		for range int(time.Hour / lease) {
			last := asked()
			time.Sleep(lease)
			synctest.Wait()
			most = max(most, asked()-last)
		}
		total := asked() - before
		if limit := n * int(time.Hour/lease) / 10; total > limit || int(reads.Load()) > limit || total < limit/3 {
			w.Errorf("%d conversations read %d times and asked %d times in an hour, want at most %d", n, reads.Load(), total, limit)
		}
		if most > n/4 {
			w.Errorf("%d of %d conversations asked in the same lease", most, n)
		}
		for i := range n {
			w.do(p.m.Discard(w.Context(), fmt.Sprint("k", i)))
		}
	})
}

// TestMovedIsReleased: a session that another process has taken over is released within its idle
// TTL, without a word of the sandbox.
func TestMovedIsReleased(t *testing.T) {
	for _, idle := range []time.Duration{20 * time.Second, 5 * time.Minute, 9 * time.Minute, 2 * time.Hour} {
		t.Run(idle.String(), func(t *testing.T) {
			bubble(t, fake.Options{Mute: true}, func(w *world) {
				one, two, spec := w.start("one"), w.start("two"), executor.Spec{IdleTTL: idle}
				release(w, one.acquire("k", spec))
				end := time.Now().Add(idle)
				for time.Now().Before(end) {
					l := two.acquire("k", spec)
					run(w, l, "x = 1")
					release(w, l)
					time.Sleep(idle / 4)
				}
				synctest.Wait()
				if one.m.Stays("k") || !two.m.Stays("k") {
					w.Errorf("held by the first: %v, by the second: %v", one.m.Stays("k"), two.m.Stays("k"))
				}
				w.do(two.m.Discard(w.Context(), "k"))
			})
		})
	}
}

// TestShutOutIsReleased: a session whose sandbox has a later holder, of whom no record tells, is
// released. The sandbox and the record stay.
func TestShutOutIsReleased(t *testing.T) {
	bubble(t, fake.Options{Mute: true}, func(w *world) {
		p := w.start("one")
		l := p.acquire("k", executor.Spec{IdleTTL: 3 * time.Hour})
		release(w, l)
		w.b.Fail(fake.OpRefresh, -1, driver.Fail(executor.ErrClosed, executor.RanNo, nil))
		time.Sleep(20 * lease)
		synctest.Wait()
		if p.m.Stays("k") || len(w.entries("session/")) != 1 || len(w.b.Sandboxes()) != 1 {
			w.Errorf("held: %v; records %q; sandboxes %q", p.m.Stays("k"), w.entries("session/"), w.b.Sandboxes())
		}
		w.b.Fail(fake.OpRefresh, 0, nil)
		w.do(p.m.Discard(w.Context(), "k"))
	})
}

// TestEndIsHeard: a sandbox that ends tells the process that holds it, which notes the loss at
// once, or as soon as the store answers. Nobody asks before.
func TestEndIsHeard(t *testing.T) {
	for name, away := range map[string]bool{"at once": false, "without the store": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				var failing atomic.Bool
				w.store = &hooked{Store: w.store, got: func(string) error {
					if failing.Load() {
						return errors.New("away")
					}
					return nil
				}}
				p := w.start("one")
				l := p.acquire("k", executor.Spec{IdleTTL: 3 * time.Hour})
				id := l.Info().Handle.Session
				run(w, l, "x = 1")
				if _, err := l.Once(w.Context(), "m1"); err != nil {
					w.Fatal(err)
				}
				release(w, l)
				synctest.Wait()
				failing.Store(away)
				w.b.Break(id)
				synctest.Wait()
				if p.m.Stays("k") != away {
					w.Errorf("held: %v", p.m.Stays("k"))
				}
				if away {
					failing.Store(false)
					time.Sleep(lease)
					synctest.Wait()
				}
				if left := w.entries("session/"); p.m.Stays("k") || len(left) > 0 || len(w.entries("lost/")) != 1 || len(w.b.Sandboxes()) > 0 {
					w.Errorf("held: %v; records %q, losses %q", p.m.Stays("k"), left, w.entries("lost/"))
				}
				l = p.acquire("k")
				if !l.Lost || l.Why != sessions.LossGone {
					w.Errorf("got %v, %q", l.Lost, l.Why)
				}
				if _, err := l.Once(w.Context(), "m1"); !errors.Is(err, sessions.ErrRepeated) {
					w.Errorf("got %v", err)
				}
				w.do(l.Discard())
			})
		})
	}
}
