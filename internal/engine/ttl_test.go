package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// expiring makes the sandboxes of c end at a time that KeepAlive moves, and returns what was asked
// for.
func expiring(c *cloud, ttl time.Duration) *expiringCloud {
	e := &expiringCloud{}
	c.info = func(i *executor.SessionInfo) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.end.IsZero() {
			e.end = i.Created.Add(ttl)
		}
		i.Expires = e.end
	}
	c.keepAlive = func(_ context.Context, idle time.Duration) (time.Time, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asks = append(e.asks, idle.Round(time.Second))
		e.end = time.Now().Add(idle)
		return e.end, nil
	}
	return e
}

type expiringCloud struct {
	mu   sync.Mutex
	end  time.Time
	asks []time.Duration
}

func (e *expiringCloud) asked() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asks)
}

func (e *expiringCloud) left() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Until(e.end)
}

const slack = 15 * time.Second // Grace and StopTimeout of quick

func TestSandboxOutlivesRuns(t *testing.T) {
	const idle = 10 * time.Minute
	for name, c := range map[string]struct {
		ttl   time.Duration // of the sandbox, when it is made
		wait  time.Duration // before the run
		wall  time.Duration
		code  time.Duration
		asked []time.Duration
	}{
		// The end is one idle TTL from now already, or nearly so.
		"nothing-to-do": {ttl: idle, wall: time.Minute, code: time.Second},
		// After a while the run counts as use, and the idle time begins anew.
		"use-counts": {ttl: idle, wait: 5 * time.Minute, wall: time.Minute, code: time.Second, asked: []time.Duration{idle}},
		// What is left would not do for the run.
		"little-left": {ttl: time.Minute, wall: 3 * time.Minute, code: time.Second, asked: []time.Duration{idle + 3*time.Minute + slack, idle}},
		// A long run is extended while it goes on, in case another holder asks for less meanwhile.
		"long": {
			ttl: idle, wall: 10 * time.Minute, code: 7 * time.Minute,
			asked: []time.Duration{idle + 10*time.Minute + slack, idle + 10*time.Minute - 200*time.Second, idle + 10*time.Minute - 400*time.Second, idle},
		},
		"endless": {
			ttl: idle, wall: executor.NoLimit, code: 12 * time.Minute, asked: []time.Duration{idle, idle, idle, idle},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				e := expiring(cl, c.ttl)
				cl.run = sandbox{code: c.code}.run
				s := cl.session(t, executor.Spec{IdleTTL: idle, Run: executor.RunLimits{WallTime: c.wall}})
				time.Sleep(c.wait) // of the bubble
				r, err := s.Run(t.Context(), code, nil)
				if err != nil || r.Status != executor.StatusOK {
					t.Fatalf("got %+v %v", r, err)
				}
				if got := e.asked(); !slices.Equal(got, c.asked) {
					t.Errorf("asked for %v, want %v", got, c.asked)
				}
				if off := e.left() - idle; off.Abs() > idle/8 {
					t.Errorf("the sandbox lives %v after its last use, want about %v", e.left(), idle)
				}
				if got := time.Until(s.Info().Expires); got != e.left() {
					t.Errorf("Info says %v from now, want %v", got, e.left())
				}
			})
		})
	}
}

// TestCountingSandboxIsLeftAlone tests that a sandbox which counts use itself is not told to live
// longer, also not once Refresh has told when it would end.
func TestCountingSandboxIsLeftAlone(t *testing.T) {
	c := newCloud()
	c.keepAlive = func(context.Context, time.Duration) (time.Time, error) {
		t.Error("KeepAlive was called")
		return time.Time{}, nil
	}
	c.refresh = func(context.Context) (executor.SessionInfo, error) {
		return executor.SessionInfo{Expires: time.Now().Add(time.Second)}, nil
	}
	s := c.session(t, executor.Spec{})
	if i, err := s.Refresh(t.Context()); err != nil || i.Expires.IsZero() {
		t.Errorf("got %+v %v", i, err)
	}
	if _, err := s.Run(t.Context(), code, nil); err != nil {
		t.Error(err)
	}
}

func TestRunMustFitTheLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		s := c.session(t, executor.Spec{MaxLife: time.Minute, MaxRun: executor.RunLimits{WallTime: executor.NoLimit}})
		if _, err := s.Run(t.Context(), code, nil); err != nil {
			t.Errorf("it fits: got %v", err)
		}
		time.Sleep(40 * time.Second) // of the bubble
		_, err := s.Run(t.Context(), code, nil)
		wantError(t, err, "run", executor.ErrInvalid, executor.RanNo)
		short, endless := code, code
		short.Limits.WallTime, endless.Limits.WallTime = 5*time.Second, executor.NoLimit
		if _, err := s.Run(t.Context(), short, nil); err != nil {
			t.Errorf("a shorter one: got %v", err)
		}
		if _, err := s.Run(t.Context(), endless, nil); err != nil {
			t.Errorf("one that ends with the sandbox: got %v", err)
		}
	})
}

func TestRunMustFitTheTTL(t *testing.T) {
	refused := driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("longer than the plan allows"))
	for name, c := range map[string]struct {
		lacks     []executor.Feature
		left      time.Duration
		keepAlive func(now time.Time) (time.Time, error)
		kind      error
	}{
		"no-keep-alive":         {[]executor.Feature{executor.FeatureKeepAlive}, 20 * time.Second, nil, executor.ErrInvalid},
		"no-keep-alive-but-fit": {[]executor.Feature{executor.FeatureKeepAlive}, 40 * time.Second, nil, nil},
		"refused":               {nil, 20 * time.Second, func(time.Time) (time.Time, error) { return time.Time{}, refused }, executor.ErrExhausted},
		"refused-but-fit":       {nil, 40 * time.Second, func(time.Time) (time.Time, error) { return time.Time{}, refused }, nil},
		"clamped":               {nil, 20 * time.Second, func(now time.Time) (time.Time, error) { return now.Add(25 * time.Second), nil }, executor.ErrInvalid},
		"clamped-but-fit":       {nil, 20 * time.Second, func(now time.Time) (time.Time, error) { return now.Add(35 * time.Second), nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.caps = without(full, c.lacks...)
				cl.info = func(i *executor.SessionInfo) { i.Expires = i.Created.Add(c.left) }
				cl.keepAlive = func(context.Context, time.Duration) (time.Time, error) { return c.keepAlive(time.Now()) }
				x := cl.open(t)
				if c.keepAlive == nil {
					x = withoutKeepAlive(t, cl)
				}
				_, err := create(t, x, executor.Spec{}).Run(t.Context(), code, nil)
				if c.kind == nil && err != nil {
					t.Errorf("got %v", err)
				} else if c.kind != nil {
					wantError(t, err, "run", c.kind, executor.RanNo)
				}
			})
		})
	}
}

// withoutKeepAlive opens a driver whose sessions cannot do it.
func withoutKeepAlive(t *testing.T, c *cloud) executor.Executor {
	c.caps = small
	x, err := driver.New(smallDriver{c}, driver.Env{Owner: "o"}, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

// TestParallelRunsShareTheTTL tests that the end of a short run does not take the time from a long
// one.
func TestParallelRunsShareTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		c := newCloud()
		e := expiring(c, idle)
		c.run = func(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			return sandbox{code: map[string]time.Duration{"short": time.Second, "long": 10 * time.Minute}[req.Code]}.run(ctx, req, emit)
		}
		s := c.session(t, executor.Spec{IdleTTL: idle, MaxRun: executor.RunLimits{WallTime: 20 * time.Minute}})
		var wg sync.WaitGroup
		wg.Go(func() {
			long := executor.Request{Language: executor.Python, Code: "long", Limits: executor.RunLimits{WallTime: 11 * time.Minute}}
			if r, err := s.Run(t.Context(), long, nil); err != nil || r.Status != executor.StatusOK {
				t.Errorf("got %+v %v", r, err)
			}
			if got := e.left(); got != idle {
				t.Errorf("the sandbox lives %v after its last use, want %v", got, idle)
			}
		})
		synctest.Wait()
		for range 3 {
			short := executor.Request{Language: executor.Python, Context: "other", Code: "short"}
			if _, err := s.Run(t.Context(), short, nil); err != nil {
				t.Error(err)
			}
			if left := e.left(); left < 10*time.Minute {
				t.Errorf("%v are left for a run of 10 minutes", left)
			}
		}
		wg.Wait()
	})
}

// TestTransfersAreUse tests that a slow download keeps the sandbox alive, and begins the idle time
// at its end.
func TestTransfersAreUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		c := newCloud()
		e := expiring(c, idle)
		s := c.session(t, executor.Spec{IdleTTL: idle})
		if err := s.Files().Write(t.Context(), "a", strings.NewReader("content"), 0); err != nil {
			t.Fatal(err)
		}
		f, err := s.Files().Read(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // of the bubble: a slow reader
		if left := e.left(); left < idle/2 {
			t.Errorf("%v are left during a transfer", left)
		}
		if _, err := io.ReadAll(f); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if left := e.left(); left < idle*7/8 {
			t.Errorf("%v are left after a transfer, want about %v", left, idle)
		}
		if got := len(e.asked()); got < 15 {
			t.Errorf("got %d requests in five minutes", got)
		}
	})
}

// TestKeepAliveFailuresAreNotTheRuns tests that a run whose sandbox could not be extended goes on:
// it may well end before.
func TestKeepAliveFailuresAreNotTheRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.info = func(i *executor.SessionInfo) { i.Expires = i.Created.Add(time.Hour) }
		n := 0
		c.keepAlive = func(context.Context, time.Duration) (time.Time, error) { n++; return time.Time{}, errReset }
		c.run = sandbox{code: 50 * time.Minute}.run
		s := c.session(t, executor.Spec{Run: executor.RunLimits{WallTime: executor.NoLimit}})
		if r, err := s.Run(t.Context(), code, nil); err != nil || r.Status != executor.StatusOK || n != 3 {
			t.Errorf("got %+v %v after %d attempts", r, err, n)
		}
	})
}
