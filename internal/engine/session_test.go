package engine_test

import (
	"context"
	"errors"
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

func TestRefresh(t *testing.T) {
	c := newCloud()
	s := c.session(t, executor.Spec{Labels: map[string]string{"a": "b"}})
	before := s.Info()
	c.refresh = func(context.Context) (executor.SessionInfo, error) {
		return executor.SessionInfo{
			State: executor.SessionDead, Labels: map[string]string{"a": "c", driver.LabelOwner: "owner"}, Expires: before.Created.Add(time.Minute),
		}, nil
	}
	i, err := s.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i.State != executor.SessionDead || !maps.Equal(i.Labels, map[string]string{"a": "c"}) || !i.Expires.Equal(before.Created.Add(time.Minute)) ||
		i.Handle.Session != before.Handle.Session || !i.Created.Equal(before.Created) || i.Run != before.Run || i.Instance != "instance" {
		t.Errorf("got %+v", i)
	}
	if got := s.Info(); got.State != executor.SessionDead || !got.Expires.Equal(i.Expires) {
		t.Errorf("Info is %+v after Refresh", got)
	}
	for kind, answer := range map[error]error{
		executor.ErrNotFound:    driver.Fail(executor.ErrNotFound, executor.RanMaybe, nil),
		executor.ErrUnavailable: driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset),
		executor.ErrInternal:    errReset,
	} {
		c.refresh = func(context.Context) (executor.SessionInfo, error) { return executor.SessionInfo{}, answer }
		i, err := s.Refresh(t.Context())
		if wantError(t, err, "refresh", kind, executor.RanNo); i.State != "" {
			t.Errorf("got %+v with %v", i, err)
		}
	}
	c.refresh = func(context.Context) (executor.SessionInfo, error) {
		return executor.SessionInfo{Handle: executor.Handle{Session: "another"}}, nil
	}
	_, err = s.Refresh(t.Context())
	wantError(t, err, "refresh", executor.ErrInternal, executor.RanNo)
}

func TestRefreshWithoutRefresher(t *testing.T) {
	c := newCloud()
	c.caps = small
	s := c.session(t, executor.Spec{})
	c.boxes[s.Info().Handle.Session].state = executor.SessionDead
	if i, err := s.Refresh(t.Context()); err != nil || i.State != executor.SessionDead {
		t.Errorf("got %+v %v", i, err)
	}
	if executor.As(s, new(*cloud)) {
		t.Error("As found what the driver does not expose")
	}
}

func TestReset(t *testing.T) {
	lacks := func(fs ...executor.Feature) executor.Capabilities { return without(full, fs...) }
	onlyPython := without(full)
	onlyPython.Languages[1].Features = nil
	for name, c := range map[string]struct {
		caps    executor.Capabilities
		which   executor.Interpreter
		kind    error
		missing string
	}{
		"all":               {caps: full},
		"language":          {caps: full, which: executor.Interpreter{Language: executor.JavaScript}},
		"context":           {caps: full, which: executor.Interpreter{Language: executor.Python, Context: "c"}},
		"context-of-any":    {caps: full, which: executor.Interpreter{Context: "c"}},
		"some-have":         {caps: onlyPython},
		"one-has-not":       {onlyPython, executor.Interpreter{Language: executor.JavaScript}, executor.ErrUnsupported, "state:javascript"},
		"none-have":         {lacks(executor.FeatureState), executor.Interpreter{}, executor.ErrUnsupported, "state:python state:javascript"},
		"no-contexts":       {full, executor.Interpreter{Language: executor.JavaScript, Context: "c"}, executor.ErrUnsupported, "contexts:javascript"},
		"no-contexts-ever":  {lacks(executor.FeatureContexts), executor.Interpreter{Context: "c"}, executor.ErrUnsupported, "contexts:python contexts:javascript"},
		"no-such-language":  {full, executor.Interpreter{Language: "r"}, executor.ErrUnsupported, "language:r"},
		"malformed-context": {full, executor.Interpreter{Context: "../c"}, executor.ErrInvalid, ""},
	} {
		cl := newCloud()
		cl.caps = c.caps
		called := []executor.Interpreter{}
		cl.reset = func(_ context.Context, which executor.Interpreter) error { called = append(called, which); return nil }
		s := cl.session(t, executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}})
		err := s.Reset(t.Context(), c.which)
		if c.kind == nil {
			if err != nil || !slices.Equal(called, []executor.Interpreter{c.which}) {
				t.Errorf("%s: got %v and %+v", name, err, called)
			}
			continue
		}
		e := wantError(t, err, "reset", c.kind, executor.RanNo)
		if strings.Join(e.Missing, " ") != c.missing || len(called) != 0 {
			t.Errorf("%s: got missing %q and %+v, want %q", name, e.Missing, called, c.missing)
		}
	}
}

// TestResetEndsRuns tests that Reset gets through while code runs, and that the run ends by it.
func TestResetEndsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.caps = without(full, executor.FeatureParallelRuns)
		end := make(chan struct{})
		c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			err := started(emit)
			<-end
			return driver.Exit{Reason: executor.ReasonReset, StateLost: true}, err
		}
		c.reset = func(context.Context, executor.Interpreter) error { close(end); return nil }
		s := c.session(t, executor.Spec{})
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := s.Run(t.Context(), code, nil)
			if err != nil || r.Status != executor.StatusKilled || r.Reason != executor.ReasonReset || !r.StateLost || r.ExitCode != -1 {
				t.Errorf("got %+v %v", r, err)
			}
		})
		synctest.Wait()
		if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.caps.MaxLife = 3 * time.Hour
		var asked []time.Duration
		c.keepAlive = func(_ context.Context, idle time.Duration) (time.Time, error) {
			asked = append(asked, idle)
			return time.Now().Add(idle), nil
		}
		s := c.session(t, executor.Spec{MaxLife: 2 * time.Hour})
		end, err := s.KeepAlive(t.Context(), 90*time.Minute)
		if err != nil || !end.Equal(time.Now().Add(90*time.Minute)) || s.Info().Handle.IdleTTL != 90*time.Minute || !s.Info().Expires.Equal(end) {
			t.Errorf("got %v %v, %+v", end, err, s.Info())
		}
		time.Sleep(time.Hour) // of the bubble
		if _, err := s.KeepAlive(t.Context(), 2*time.Hour); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{90 * time.Minute, time.Hour}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v: not beyond the life of the sandbox", asked, want)
		}
		_, err = s.KeepAlive(t.Context(), 0)
		wantError(t, err, "keep-alive", executor.ErrInvalid, executor.RanNo)
		_, err = s.KeepAlive(t.Context(), 4*time.Hour)
		if e := wantError(t, err, "keep-alive", executor.ErrUnsupported, executor.RanNo); !slices.Equal(e.Missing, []string{"idle-ttl<=3h0m0s"}) {
			t.Errorf("got missing %q", e.Missing)
		}
		c.keepAlive = func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, errReset }
		_, err = s.KeepAlive(t.Context(), time.Minute)
		wantError(t, err, "keep-alive", executor.ErrInternal, executor.RanNo)
		if s.Info().Handle.IdleTTL != 2*time.Hour {
			t.Errorf("got %v after a failure", s.Info().Handle.IdleTTL)
		}
	})
}

// TestUndeclared tests that every operation that a session does not declare is refused, with the
// feature that is missing.
func TestUndeclared(t *testing.T) {
	c := newCloud()
	c.caps = small
	s := c.session(t, executor.Spec{})
	ctx := t.Context()
	second := func(_ any, err error) error { return err }
	for op, got := range map[string]struct {
		err     error
		missing string
	}{
		"keep-alive":   {second(s.KeepAlive(ctx, time.Hour)), "keep-alive"},
		"reset":        {s.Reset(ctx, executor.Interpreter{}), "state:python"},
		"install":      {second(s.Install(ctx, executor.Packages{Names: []string{"x"}}, nil)), "packages:python"},
		"detach":       {s.Detach(), "attach"},
		"files.read":   {second(s.Files().Read(ctx, "x")), "files:python"},
		"files.write":  {s.Files().Write(ctx, "x", nil, 0), "files:python"},
		"files.stat":   {second(s.Files().Stat(ctx, "x")), "files:python"},
		"files.mkdir":  {s.Files().Mkdir(ctx, "x"), "files:python"},
		"files.rename": {s.Files().Rename(ctx, "x", "y"), "files:python"},
		"files.remove": {s.Files().Remove(ctx, "x"), "files:python"},
	} {
		if e := wantError(t, got.err, op, executor.ErrUnsupported, executor.RanNo); strings.Join(e.Missing, " ") != got.missing {
			t.Errorf("%s: got missing %q, want %q", op, e.Missing, got.missing)
		}
	}
	for _, err := range s.Files().List(ctx, ".") {
		wantError(t, err, "files.list", executor.ErrUnsupported, executor.RanNo)
	}
	if _, err := s.Run(ctx, code, nil); err != nil {
		t.Errorf("the session is still there: got %v", err)
	}
}

// TestEveryCallChecksItsContext tests that a context which has ended is noticed before the backend
// is asked, in every method.
func TestEveryCallChecksItsContext(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	s := create(t, x, executor.Spec{})
	h := s.Info().Handle
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for op, err := range everyCall(ctx, x, s, h) {
		if e := wantError(t, err, op, context.Canceled, executor.RanNo); !errors.Is(e.Err, gone) {
			t.Errorf("%s: got %v, want the cause in it", op, err)
		}
	}
	if files := c.files; files != nil && len(files.(*memory).calls) != 0 {
		t.Errorf("the backend was asked: %q", files.(*memory).calls)
	}
}

// everyCall calls everything that takes a context, and returns the errors.
func everyCall(ctx context.Context, x executor.Executor, s executor.Session, h executor.Handle) map[string]error {
	second := func(_ any, err error) error { return err }
	calls := map[string]error{
		"refresh":      second(s.Refresh(ctx)),
		"run":          second(s.Run(ctx, code, nil)),
		"install":      second(s.Install(ctx, executor.Packages{Names: []string{"x"}}, nil)),
		"reset":        s.Reset(ctx, executor.Interpreter{}),
		"keep-alive":   second(s.KeepAlive(ctx, time.Hour)),
		"files.read":   second(s.Files().Read(ctx, "x")),
		"files.write":  s.Files().Write(ctx, "x", nil, 0),
		"files.stat":   second(s.Files().Stat(ctx, "x")),
		"files.mkdir":  s.Files().Mkdir(ctx, "x"),
		"files.rename": s.Files().Rename(ctx, "x", "y"),
		"files.remove": s.Files().Remove(ctx, "x"),
	}
	for _, err := range s.Files().List(ctx, ".") {
		calls["files.list"] = err
	}
	if x != nil {
		calls["create"] = second(x.Create(ctx, executor.Spec{}))
		calls["attach"] = second(x.Attach(ctx, h))
		calls["destroy"] = x.Destroy(ctx, h)
		for _, err := range x.Sessions(ctx, nil) {
			calls["sessions"] = err
		}
	}
	return calls
}

func TestInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		var got executor.Packages
		c.install = func(_ context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
			got = p
			if err := started(emit); err != nil {
				return driver.Exit{}, err
			}
			err := emit(executor.Event{Kind: executor.EventStdout, Data: []byte("installing")})
			if p.Names[0] == "missing" {
				return driver.Exit{Code: 1}, err
			}
			return driver.Exit{}, err
		}
		s := c.session(t, executor.Spec{})
		var kinds []executor.EventKind
		r, err := s.Install(t.Context(), executor.Packages{Names: []string{"numpy"}}, func(ev executor.Event) error {
			kinds = append(kinds, ev.Kind)
			return nil
		})
		if err != nil || r.Status != executor.StatusOK || r.Stdout.String() != "installing" || got.Language != executor.Python || len(kinds) != 2 {
			t.Errorf("got %+v %v, %+v, %q", r, err, got, kinds)
		}
		if r, err = s.Install(t.Context(), executor.Packages{Names: []string{"missing"}}, nil); err != nil || r.Status != executor.StatusFailed || r.ExitCode != 1 {
			t.Errorf("missing: got %+v %v", r, err)
		}
		_, err = s.Install(t.Context(), executor.Packages{}, nil)
		wantError(t, err, "install", executor.ErrInvalid, executor.RanNo)
		_, err = s.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{"x"}}, nil)
		wantError(t, err, "install", executor.ErrUnsupported, executor.RanNo)

		c.install = func(_ context.Context, _ executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
			return driver.Exit{Code: -1}, errors.Join(started(emit), &executor.Error{Kind: executor.ErrUnsupported, Missing: []string{"pip"}, RetryAfter: time.Second})
		}
		_, err = s.Install(t.Context(), executor.Packages{Names: []string{"x"}}, nil)
		var e *executor.Error
		if !errors.As(err, &e) || !errors.Is(err, executor.ErrUnsupported) || !slices.Equal(e.Missing, []string{"pip"}) || e.RetryAfter != time.Second {
			t.Errorf("what the backend lacks: got %+v", err)
		}

		c.install = func(ctx context.Context, _ executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
			return untilEnd(ctx, nil, emit)
		}
		begin := time.Now()
		r, err = s.Install(t.Context(), executor.Packages{Names: []string{"x"}}, nil)
		if took := time.Since(begin); err != nil || r.Status != executor.StatusTimedOut || took != quick.InstallTimeout {
			t.Errorf("too long: got %+v %v after %v", r, err, took)
		}
	})
}

func TestInstallBusy(t *testing.T) {
	for name, c := range map[string]struct {
		lacks         []executor.Feature
		again, beside error // a second Install, and a Run, while one is in progress
	}{
		"parallel": {nil, executor.ErrBusy, nil},
		"serial":   {[]executor.Feature{executor.FeatureParallelRuns}, executor.ErrBusy, executor.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.caps = without(full, c.lacks...)
				done := make(chan struct{})
				cl.install = func(_ context.Context, _ executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
					err := started(emit)
					<-done
					return driver.Exit{}, err
				}
				s := cl.session(t, executor.Spec{})
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := s.Install(t.Context(), executor.Packages{Names: []string{"x"}}, nil); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				_, err := s.Install(t.Context(), executor.Packages{Names: []string{"y"}}, nil)
				wantError(t, err, "install", c.again, executor.RanNo)
				if _, err = s.Run(t.Context(), code, nil); c.beside == nil && err != nil {
					t.Errorf("a run beside: got %v", err)
				} else if c.beside != nil {
					wantError(t, err, "run", c.beside, executor.RanNo)
				}
				close(done)
				wg.Wait()
			})
		})
	}
}
