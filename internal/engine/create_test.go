package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestCreateDefaults(t *testing.T) {
	c := newCloud()
	s := c.session(t, executor.Spec{
		Template: "data", Labels: map[string]string{"team": "a"}, Attributes: map[string]string{"plan": "pro"}, Subject: "user",
		Require: []executor.Feature{executor.FeatureCommand}, MaxRun: executor.RunLimits{WallTime: 5 * time.Minute},
		Limits: executor.Limits{MemoryBytes: 1 << 20},
	})
	got := c.creates[0]
	if len(got.ID) != 26 || strings.Trim(got.ID, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("got id %q", got.ID)
	}
	wantLabels := map[string]string{
		"team": "a", driver.LabelOwner: "owner", driver.LabelInstance: "instance", driver.LabelID: got.ID, driver.LabelLanguages: "python",
	}
	if !maps.Equal(got.Labels, wantLabels) {
		t.Errorf("got labels %v, want %v", got.Labels, wantLabels)
	}
	sp := got.Spec
	if sp.Labels != nil || sp.Attributes != nil || sp.Subject != "" || sp.Require != nil {
		t.Errorf("got %+v, which is not the driver's to see", sp)
	}
	run := executor.RunLimits{WallTime: executor.DefaultWallTime, OutputBytes: executor.DefaultOutputBytes}
	maxRun := executor.RunLimits{WallTime: 5 * time.Minute, OutputBytes: executor.DefaultOutputBytes}
	if sp.Run != run || sp.MaxRun != maxRun || sp.IdleTTL != time.Hour || sp.Network.Mode != executor.NetworkNone || !slices.Equal(sp.Languages, []executor.Language{executor.Python}) {
		t.Errorf("got %+v, want the defaults", sp)
	}
	i := s.Info()
	h := i.Handle
	if h.Backend != "cloud" || h.Type != "cloud" || h.Session != "box-"+got.ID || h.Run != run || h.MaxRun != maxRun || h.IdleTTL != time.Hour || h.Created.IsZero() {
		t.Errorf("got handle %+v", h)
	}
	if !maps.Equal(i.Labels, map[string]string{"team": "a"}) || i.Instance != "instance" || i.Template != "data" || i.State != executor.SessionRunning ||
		i.Run != run || i.MaxRun != maxRun || i.Limits.MemoryBytes != 1<<20 || len(i.Capabilities.Languages) != 1 || i.Created.IsZero() {
		t.Errorf("got %+v", i)
	}
	var found *cloud
	if !executor.As(s, &found) || found != c {
		t.Errorf("As found %v", found)
	}
}

func TestCreateRefuses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx     context.Context
		spec    executor.Spec
		kind    error
		missing string
	}{
		"invalid":       {t.Context(), executor.Spec{IdleTTL: -1}, executor.ErrInvalid, ""},
		"memory":        {t.Context(), executor.Spec{Limits: executor.Limits{DiskBytes: 1}}, executor.ErrUnsupported, "limit-disk"},
		"network":       {t.Context(), executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, executor.ErrUnsupported, "network-full"},
		"language":      {t.Context(), executor.Spec{Languages: []executor.Language{"r"}}, executor.ErrUnsupported, "language:r"},
		"isolation":     {t.Context(), executor.Spec{MinIsolation: executor.IsolationMicroVM}, executor.ErrUnsupported, "isolation>=microvm"},
		"caller's-ends": {ctx, executor.Spec{}, context.Canceled, ""},
	} {
		cl := newCloud()
		s, err := cl.open(t).Create(c.ctx, c.spec)
		e := wantError(t, err, "create", c.kind, executor.RanNo)
		if s != nil || strings.Join(e.Missing, " ") != c.missing || len(cl.creates) != 0 {
			t.Errorf("%s: got %v, missing %q, %d sandboxes", name, s, e.Missing, len(cl.creates))
		}
	}
}

func TestCreateFails(t *testing.T) {
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		create func(ctx context.Context) error
		kind   error
		retry  bool
		took   time.Duration
	}{
		"unsaid":    {func(context.Context) error { return odd }, executor.ErrInternal, false, 0},
		"exhausted": {func(context.Context) error { return driver.Fail(executor.ErrExhausted, executor.RanMaybe, odd) }, executor.ErrExhausted, true, 0},
		"wrapped": {
			func(context.Context) error {
				return fmt.Errorf("region: %w", driver.Fail(executor.ErrAuth, executor.RanMaybe, odd))
			}, executor.ErrAuth, false, 0,
		},
		"no-kind": {func(context.Context) error { return driver.Fail(nil, executor.RanMaybe, odd) }, executor.ErrInternal, false, 0},
		"hangs":   {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, executor.ErrUnavailable, true, time.Minute},
		"hangs-vaguely": {
			func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("get: %w", ctx.Err()) }, executor.ErrUnavailable, true, time.Minute,
		},
		"definite-at-timeout": {
			func(ctx context.Context) error {
				<-ctx.Done()
				return driver.Fail(executor.ErrAuth, executor.RanNo, nil)
			}, executor.ErrAuth, false, time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.create = func(ctx context.Context, _ *driver.Create) error { return c.create(ctx) }
				begin := time.Now()
				_, err := cl.open(t).Create(t.Context(), executor.Spec{})
				wantError(t, err, "create", c.kind, executor.RanNo)
				if executor.Retryable(err) != c.retry || time.Since(begin) != c.took {
					t.Errorf("got retryable %v after %v", executor.Retryable(err), time.Since(begin))
				}
			})
		})
	}
}

// TestCreateEndsWithItsContext tests that the caller's end is not taken for the provider's fault.
func TestCreateEndsWithItsContext(t *testing.T) {
	gone := errors.New("client gone")
	for name, answer := range map[string]func(context.Context) error{
		"cause":  context.Cause,
		"wraps":  func(ctx context.Context) error { return fmt.Errorf("post: %w", ctx.Err()) },
		"blames": func(context.Context) error { return driver.Fail(executor.ErrUnavailable, executor.RanNo, errReset) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.create = func(ctx context.Context, _ *driver.Create) error { <-ctx.Done(); return answer(ctx) }
				ctx, cancel := context.WithCancelCause(t.Context())
				defer time.AfterFunc(time.Second, func() { cancel(gone) }).Stop()
				_, err := cl.open(t).Create(ctx, executor.Spec{})
				if e := wantError(t, err, "create", context.Canceled, executor.RanNo); executor.Retryable(err) || e.Err == nil {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// nothing is a driver that creates something else than sessions.
type nothing struct {
	smallDriver
	s driver.Session
}

func (d nothing) Create(context.Context, *driver.Create) (driver.Session, error) { return d.s, nil }

func TestCreateOfABrokenDriver(t *testing.T) {
	c := newCloud()
	c.caps = small
	nameless := &smallSession{c, &box{}}
	caps := small
	caps.Languages = []executor.Runtime{{Language: executor.Python, Features: []executor.Feature{executor.FeatureState, executor.FeatureFiles, executor.FeaturePackages}}}
	for name, d := range map[string]struct {
		caps executor.Capabilities
		s    driver.Session
		want string
	}{
		"nothing":    {small, nil, "neither"},
		"no-name":    {small, nameless, "no name"},
		"undeclared": {caps, &smallSession{c, &box{id: "b"}}, "does not implement"},
	} {
		c.caps = d.caps
		x, err := driver.New(nothing{smallDriver{c}, d.s}, driver.Env{Owner: "o"}, quick)
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.Create(t.Context(), executor.Spec{})
		if wantError(t, err, "create", executor.ErrInternal, executor.RanNo); !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := x.Close(); err != nil {
			t.Errorf("%s: closing: %v", name, err)
		}
	}
}

func TestCreateInstallsPackages(t *testing.T) {
	packages := []executor.Packages{{Names: []string{"numpy"}}, {Language: executor.Python, Names: []string{"nope"}}}
	says := func(exit driver.Exit, err error, said string) func(context.Context, executor.Packages, func(executor.Event) error) (driver.Exit, error) {
		return func(_ context.Context, _ executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
			if err := started(emit); err != nil {
				return driver.Exit{}, err
			}
			return exit, errors.Join(emit(executor.Event{Kind: executor.EventStderr, Data: []byte(said)}), err)
		}
	}
	for name, c := range map[string]struct {
		install func(context.Context, executor.Packages, func(executor.Event) error) (driver.Exit, error)
		kind    error
		want    string
	}{
		"installed": {nil, nil, ""},
		"missing":   {says(driver.Exit{Code: 1}, nil, strings.Repeat("x", 9000)+"no such package: nope"), executor.ErrInvalid, "no such package: nope"},
		"memory":    {says(driver.Exit{Reason: executor.ReasonMemory}, nil, ""), executor.ErrInvalid, "memory"},
		"broken":    {says(driver.Exit{}, driver.Fail(executor.ErrUnavailable, executor.RanYes, errReset), ""), executor.ErrUnavailable, "reset"},
		"too-long": {
			func(ctx context.Context, _ executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
				return untilEnd(ctx, nil, emit)
			}, executor.ErrUnavailable, "wall-time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				var got []executor.Packages
				cl.install = func(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
					got = append(got, p)
					if c.install == nil || p.Names[0] == "numpy" {
						return driver.Exit{}, started(emit)
					}
					return c.install(ctx, p, emit)
				}
				_, err := cl.open(t).Create(t.Context(), executor.Spec{Packages: packages})
				if len(got) != 2 || got[0].Language != executor.Python {
					t.Errorf("got %+v installed", got)
				}
				if c.kind == nil {
					if err != nil || cl.count() != 1 {
						t.Errorf("got %v and %d sandboxes", err, cl.count())
					}
					return
				}
				wantError(t, err, "create", c.kind, executor.RanNo)
				if !strings.Contains(err.Error(), c.want) || len(err.Error()) > 3000 || cl.count() != 0 {
					t.Errorf("got %v and %d sandboxes, want %q and none", err, cl.count(), c.want)
				}
			})
		})
	}
}

// TestCreateRacesWithClose tests that a sandbox which comes while the Executor is being closed does
// not outlive it.
func TestCreateRacesWithClose(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds-context": true, "ignores-context": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.create = func(ctx context.Context, _ *driver.Create) error {
					select {
					case <-time.After(5 * time.Second):
						return nil
					case <-ctx.Done():
						if !heeds {
							time.Sleep(5 * time.Second) // of the bubble
							return nil
						}
						return context.Cause(ctx)
					}
				}
				x := cl.open(t)
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := x.Create(t.Context(), executor.Spec{})
					wantError(t, err, "create", executor.ErrClosed, executor.RanNo)
				})
				synctest.Wait()
				if err := x.Close(); err != nil {
					t.Error(err)
				}
				if cl.count() != 0 || cl.closes() != 1 {
					t.Errorf("got %d sandboxes and %d closes", cl.count(), cl.closes())
				}
				wg.Wait()
				_, err := x.Create(t.Context(), executor.Spec{})
				wantError(t, err, "create", executor.ErrClosed, executor.RanNo)
			})
		})
	}
}
