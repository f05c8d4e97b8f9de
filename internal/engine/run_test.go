package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// sandbox is what a sandbox does with code, in time.
type sandbox struct {
	stall   time.Duration // before it accepts the code
	code    time.Duration // that the code takes
	out     []string
	exit    driver.Exit
	enforce bool  // it keeps to the wall time itself
	deaf    bool  // it does not stop when the context ends, but loses the connection
	wrap    bool  // it wraps the cause, which claims nothing
	fail    error // instead of an end
	silent  bool  // it never says that it has accepted the code
}

var errReset = errors.New("connection reset")

func (b sandbox) run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	ended := func() (driver.Exit, error) {
		switch {
		case b.deaf:
			return driver.Exit{}, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset)
		case b.wrap:
			return driver.Exit{}, fmt.Errorf("reading: %w", context.Cause(ctx))
		}
		return driver.Exit{StateLost: true}, context.Cause(ctx)
	}
	select {
	case <-time.After(b.stall):
	case <-ctx.Done():
		return ended()
	}
	if b.silent {
		return b.exit, b.fail
	}
	if err := emit(executor.Event{Kind: executor.EventStarted, Cell: 7}); err != nil {
		return driver.Exit{}, err
	}
	for _, s := range b.out {
		if err := emit(executor.Event{Kind: executor.EventStdout, Data: []byte(s)}); err != nil {
			if b.deaf {
				return driver.Exit{}, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset)
			}
			return driver.Exit{}, err
		}
	}
	if b.fail != nil {
		return b.exit, b.fail
	}
	if b.enforce && b.code > req.Limits.WallTime {
		time.Sleep(req.Limits.WallTime) // of the bubble
		return driver.Exit{Reason: executor.ReasonWallTime, StateLost: true}, nil
	}
	select {
	case <-time.After(b.code):
		return b.exit, nil
	case <-ctx.Done():
		return ended()
	}
}

// oddError is of a type that == panics for.
type oddError struct{ parts []string }

func (e oddError) Error() string { return strings.Join(e.parts, " ") }

func TestClocks(t *testing.T) {
	odd := oddError{[]string{"client", "gone"}}
	gone := errors.New("client gone")
	failed := driver.Exit{Code: 1, Exception: &executor.Exception{Type: "ValueError"}}
	for name, c := range map[string]struct {
		box    sandbox
		wall   time.Duration // default 6 s
		cancel time.Duration // of the caller's context
		cause  error
		emit   error // of the caller, at the first output
		status executor.Status
		reason executor.Reason
		code   int
		kind   error
		ran    executor.Ran
		bare   bool // the error is emit's own
		took   time.Duration
	}{
		"ok":                 {box: sandbox{code: time.Second}, status: executor.StatusOK, took: time.Second},
		"exception":          {box: sandbox{exit: failed}, status: executor.StatusFailed, code: 1},
		"exit-code":          {box: sandbox{exit: driver.Exit{Code: 3}}, status: executor.StatusFailed, code: 3},
		"exit-124":           {box: sandbox{exit: driver.Exit{Code: 124}}, status: executor.StatusFailed, code: 124},
		"exit-137":           {box: sandbox{exit: driver.Exit{Code: 137}}, status: executor.StatusFailed, code: 137},
		"exit-below":         {box: sandbox{exit: driver.Exit{Code: -9}}, status: executor.StatusFailed, code: -1},
		"exception-code-0":   {box: sandbox{exit: driver.Exit{Exception: failed.Exception}}, status: executor.StatusFailed, code: 1},
		"memory":             {box: sandbox{exit: driver.Exit{Code: 137, Reason: executor.ReasonMemory}}, status: executor.StatusKilled, reason: executor.ReasonMemory, code: -1},
		"reset":              {box: sandbox{exit: driver.Exit{Reason: executor.ReasonReset}}, status: executor.StatusKilled, reason: executor.ReasonReset, code: -1},
		"queue-not-counted":  {box: sandbox{stall: 9 * time.Second, code: 5 * time.Second}, status: executor.StatusOK, took: 14 * time.Second},
		"never-started":      {box: sandbox{stall: time.Hour}, kind: executor.ErrUnavailable, ran: executor.RanMaybe, took: 30 * time.Second},
		"never-started-deaf": {box: sandbox{stall: time.Hour, deaf: true}, kind: executor.ErrUnavailable, ran: executor.RanMaybe, took: 30 * time.Second},
		"end-without-start":  {box: sandbox{silent: true}, kind: executor.ErrInternal, ran: executor.RanMaybe},
		"refused":            {box: sandbox{silent: true, fail: driver.Fail(executor.ErrBusy, executor.RanNo, nil)}, kind: executor.ErrBusy, ran: executor.RanNo},
		"unclassified":       {box: sandbox{silent: true, fail: errReset}, kind: executor.ErrInternal, ran: executor.RanMaybe},
		"sandbox-stops-it":   {box: sandbox{code: time.Hour, enforce: true}, status: executor.StatusTimedOut, reason: executor.ReasonWallTime, code: -1, took: 6 * time.Second},
		"sandbox-is-stuck":   {box: sandbox{code: time.Hour}, status: executor.StatusTimedOut, reason: executor.ReasonWallTime, code: -1, took: 11 * time.Second},
		"sandbox-is-deaf":    {box: sandbox{code: time.Hour, deaf: true}, status: executor.StatusLost, code: -1, kind: executor.ErrUnavailable, ran: executor.RanYes, took: 11 * time.Second},
		"no-limit":           {box: sandbox{code: 9 * time.Hour}, wall: executor.NoLimit, status: executor.StatusOK, took: 9 * time.Hour},
		"centuries":          {box: sandbox{code: time.Hour}, wall: math.MaxInt64, status: executor.StatusOK, took: time.Hour},
		"stop-button":        {box: sandbox{code: time.Hour}, cancel: 2 * time.Second, status: executor.StatusCanceled, code: -1, kind: context.Canceled, ran: executor.RanYes, took: 2 * time.Second},
		"stop-button-deaf":   {box: sandbox{code: time.Hour, deaf: true}, cancel: 2 * time.Second, status: executor.StatusLost, code: -1, kind: context.Canceled, ran: executor.RanYes, took: 2 * time.Second},
		"stop-button-wraps":  {box: sandbox{code: time.Hour, wrap: true}, cancel: 2 * time.Second, status: executor.StatusLost, code: -1, kind: context.Canceled, ran: executor.RanYes, took: 2 * time.Second},
		"stop-with-cause":    {box: sandbox{code: time.Hour}, cancel: 2 * time.Second, cause: gone, status: executor.StatusCanceled, code: -1, kind: context.Canceled, ran: executor.RanYes, took: 2 * time.Second},
		"stop-with-odd":      {box: sandbox{code: time.Hour}, cancel: 2 * time.Second, cause: odd, status: executor.StatusCanceled, code: -1, kind: context.Canceled, ran: executor.RanYes, took: 2 * time.Second},
		"cancel-first":       {box: sandbox{stall: time.Hour}, cancel: time.Second, kind: context.Canceled, ran: executor.RanMaybe, took: time.Second},
		"cancel-too-late":    {box: sandbox{code: time.Second}, cancel: 2 * time.Second, status: executor.StatusOK, took: time.Second},
		"connection-breaks":  {box: sandbox{fail: driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset)}, status: executor.StatusLost, code: -1, kind: executor.ErrUnavailable, ran: executor.RanYes},
		"breaks-wrapped":     {box: sandbox{fail: fmt.Errorf("frame 3: %w", driver.Fail(executor.ErrUnavailable, executor.RanNo, errReset))}, status: executor.StatusLost, code: -1, kind: executor.ErrUnavailable, ran: executor.RanYes},
		"breaks-unsaid":      {box: sandbox{fail: errReset}, status: executor.StatusLost, code: -1, kind: executor.ErrInternal, ran: executor.RanYes},
		"consumer-leaves":    {box: sandbox{code: time.Hour, out: []string{"x"}}, emit: gone, status: executor.StatusCanceled, code: -1, bare: true},
		"consumer-is-odd":    {box: sandbox{code: time.Hour, out: []string{"x"}}, emit: odd, status: executor.StatusCanceled, code: -1, bare: true},
		"leaves-deaf":        {box: sandbox{code: time.Hour, out: []string{"x"}, deaf: true}, emit: gone, status: executor.StatusLost, code: -1, bare: true},
		"leaves-as-context":  {box: sandbox{code: time.Hour, out: []string{"x"}}, emit: context.Canceled, status: executor.StatusCanceled, code: -1, bare: true},
		"too-much-output":    {box: sandbox{code: time.Hour, out: []string{strings.Repeat("x", 200)}}, status: executor.StatusKilled, reason: executor.ReasonOutput, code: -1},
		"output-deaf":        {box: sandbox{code: time.Hour, out: []string{strings.Repeat("x", 200)}, deaf: true}, status: executor.StatusLost, code: -1, kind: executor.ErrUnavailable, ran: executor.RanYes},
		"all-output-allowed": {box: sandbox{out: []string{strings.Repeat("x", 100)}}, status: executor.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.run = c.box.run
				if c.wall == 0 {
					c.wall = 6 * time.Second
				}
				s := cl.session(t, executor.Spec{Run: executor.RunLimits{WallTime: c.wall, OutputBytes: 100}})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cancel > 0 {
					defer time.AfterFunc(c.cancel, func() { cancel(c.cause) }).Stop()
				}
				begin := time.Now()
				r, err := s.Run(ctx, code, func(ev executor.Event) error {
					if ev.Kind == executor.EventStdout {
						return c.emit
					}
					return nil
				})
				if got := time.Since(begin); got != c.took {
					t.Errorf("got %v, want %v", got, c.took)
				}
				if (r == nil) != (c.status == "") {
					t.Fatalf("got result %+v, want status %q", r, c.status)
				}
				if r != nil && (r.Status != c.status || r.Reason != c.reason || r.ExitCode != c.code || r.Cell != 7) {
					t.Errorf("got %+v, want %q %q %d", r, c.status, c.reason, c.code)
				}
				if r != nil && (r.Origin != executor.Origin{Backend: "cloud", Session: s.Info().Handle.Session} || r.ID == "") {
					t.Errorf("got origin %+v, id %q", r.Origin, r.ID)
				}
				switch {
				case c.bare:
					if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", c.emit, c.emit) {
						t.Errorf("got %T %v, want emit's own", err, err)
					}
				case c.kind == nil:
					if err != nil {
						t.Errorf("got %v", err)
					}
				default:
					e := wantError(t, err, "run", c.kind, c.ran)
					if c.cause != nil && e.Err == nil {
						t.Errorf("the cause of the caller is not in %v", err)
					}
				}
			})
		})
	}
}

func TestRunTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.run = sandbox{stall: 2 * time.Second, code: 3 * time.Second}.run
		s := c.session(t, executor.Spec{})
		begin := time.Now()
		r, err := s.Run(t.Context(), code, nil)
		if err != nil || r.Queued != 2*time.Second || r.Duration != 3*time.Second || !r.Started.Equal(begin.Add(2*time.Second)) {
			t.Errorf("got %+v %v", r, err)
		}
	})
}

// TestLateStart tests the moment at which the start timeout fires and the sandbox accepts the code:
// both orders are a run that is known to have started, or one that is not, and never a success with
// its clock unset.
func TestLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.run = func(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			<-ctx.Done() // the start timeout, but the code is accepted all the same
			if err := started(emit); err == nil {
				t.Error("a late start is let through")
			} else {
				return driver.Exit{}, err
			}
			return driver.Exit{}, nil
		}
		events := 0
		r, err := c.session(t, executor.Spec{}).Run(t.Context(), code, func(executor.Event) error { events++; return nil })
		wantError(t, err, "run", executor.ErrUnavailable, executor.RanYes)
		if r == nil || r.Status != executor.StatusCanceled || events != 0 {
			t.Errorf("got %+v and %d events", r, events)
		}
	})
}

func TestStopContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		var lived time.Duration
		c.run = func(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			if err := started(emit); err != nil {
				return driver.Exit{}, err
			}
			<-ctx.Done()
			begin := time.Now()
			inner, cancelInner := context.WithCancel(ctx) // drivers derive contexts
			defer cancelInner()
			stop, cancel := driver.StopContext(inner)
			defer cancel()
			if err := emit(executor.Event{Kind: executor.EventStdout, Data: []byte("drained")}); err != nil {
				return driver.Exit{}, err
			}
			<-stop.Done()
			lived = time.Since(begin)
			return driver.Exit{}, context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := c.session(t, executor.Spec{}).Run(ctx, code, nil)
		wantError(t, err, "run", context.DeadlineExceeded, executor.RanYes)
		if lived != quick.StopTimeout || r.Stdout.String() != "drained" {
			t.Errorf("got %v and %q, want %v and what was drained", lived, r.Stdout, quick.StopTimeout)
		}
	})
	ctx, cancel := driver.StopContext(t.Context())
	defer cancel()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > 10*time.Second {
		t.Errorf("got %v %v outside of a run", end, ok)
	}
}

func TestPrepare(t *testing.T) {
	c := newCloud()
	var got executor.Request
	c.run = func(_ context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		got = *req
		return driver.Exit{Artifacts: []executor.Artifact{{Name: "a"}}, ArtifactsOmitted: 1}, started(emit)
	}
	s := c.session(t, executor.Spec{
		Languages: []executor.Language{executor.JavaScript, executor.Python},
		Run:       executor.RunLimits{WallTime: time.Second, OutputBytes: 10}, MaxRun: executor.RunLimits{WallTime: time.Minute},
	})
	globs := []string{"*"}
	asked := &executor.ArtifactRequest{Globs: globs}
	r, err := s.Run(t.Context(), executor.Request{
		Language: executor.Python, Code: "x", Dir: "a/../b", Artifacts: asked, Limits: executor.RunLimits{WallTime: time.Minute},
	}, nil)
	if err != nil || r.ID == "" || r.ID != got.ID || len(r.Artifacts) != 1 || r.ArtifactsOmitted != 1 {
		t.Errorf("got %+v %v", r, err)
	}
	if got.Dir != "/workspace/b" || got.Keep != executor.DefaultKeep || got.Limits != (executor.RunLimits{WallTime: time.Minute, OutputBytes: 10}) {
		t.Errorf("got %+v", got)
	}
	if a := got.Artifacts; a.MaxFiles != 100 || a.MaxBytes != 32<<20 || asked.MaxFiles != 0 {
		t.Errorf("got %+v of %+v", a, asked)
	}
	r, err = s.Run(t.Context(), executor.Request{Code: "x"}, nil)
	if err != nil || got.Language != executor.JavaScript || got.Limits.WallTime != time.Second || r.Artifacts != nil || r.ArtifactsOmitted != 0 {
		t.Errorf("got %+v %v: the first language, the default of the session, and no artifacts that nobody asked for", got, err)
	}
	if _, err = s.Run(t.Context(), executor.Request{Command: []string{"ls"}, Dir: "/tmp/x"}, nil); err != nil || got.Language != "" || got.Dir != "/tmp/x" {
		t.Errorf("got %+v %v", got, err)
	}
}

func TestRunRefuses(t *testing.T) {
	c := newCloud()
	c.run = func(context.Context, *executor.Request, func(executor.Event) error) (driver.Exit, error) {
		t.Error("the driver was called")
		return driver.Exit{}, nil
	}
	s := c.session(t, executor.Spec{Languages: []executor.Language{executor.JavaScript}})
	for name, r := range map[string]struct {
		req     executor.Request
		kind    error
		missing string
	}{
		"nothing":  {executor.Request{}, executor.ErrInvalid, ""},
		"limits":   {executor.Request{Code: "x", Limits: executor.RunLimits{WallTime: time.Hour}}, executor.ErrInvalid, ""},
		"language": {code, executor.ErrUnsupported, "language:python"},
		"env":      {executor.Request{Code: "x", Env: map[string]string{"A": "b"}}, executor.ErrUnsupported, "env:javascript"},
		"context":  {executor.Request{Code: "x", Context: "c"}, executor.ErrUnsupported, "contexts:javascript"},
	} {
		res, err := s.Run(t.Context(), r.req, nil)
		e := wantError(t, err, "run", r.kind, executor.RanNo)
		if res != nil || strings.Join(e.Missing, " ") != r.missing {
			t.Errorf("%s: got %+v, missing %q, want %q", name, res, e.Missing, r.missing)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Run(ctx, executor.Request{Code: "x"}, nil)
	wantError(t, err, "run", context.Canceled, executor.RanNo)
}

func TestRunNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.run = untilEnd
		s := c.session(t, executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Run(ctx, executor.Request{ID: "one", Language: executor.Python, Code: "x"}, nil)
			wantError(t, err, "run", context.Canceled, executor.RanYes)
		})
		synctest.Wait()
		_, err := s.Run(ctx, executor.Request{ID: "one", Language: executor.JavaScript, Code: "x"}, nil)
		wantError(t, err, "run", executor.ErrInvalid, executor.RanNo)
		cancel()
		wg.Wait()
	})
}

// TestPanics tests that a panic of emit or of the driver leaves nothing behind and that hooks hear
// of the end.
func TestPanics(t *testing.T) {
	for name, c := range map[string]struct {
		run  runFunc
		emit func(executor.Event) error
	}{
		"emit": {nil, func(executor.Event) error { panic("emit") }},
		"driver": {func(context.Context, *executor.Request, func(executor.Event) error) (driver.Exit, error) {
			panic("driver")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCloud()
			var ends []error
			s := create(t, cl.open(t, func(e *driver.Env) {
				e.Hooks.Begin = func(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
					return ctx, func(o executor.Outcome) {
						if op.Name == "run" {
							ends = append(ends, o.Err)
						}
					}
				}
			}), executor.Spec{})
			cl.run = c.run
			func() {
				defer func() {
					if got := recover(); got != name {
						t.Errorf("got panic %v, want %s", got, name)
					}
				}()
				_, err := s.Run(t.Context(), code, c.emit)
				t.Errorf("got %v and no panic", err)
			}()
			cl.run = nil
			if r, err := s.Run(t.Context(), code, nil); err != nil || r.Status != executor.StatusOK {
				t.Errorf("the next run: got %+v %v", r, err)
			}
			if len(ends) != 2 || !errors.Is(ends[0], executor.ErrInternal) || ends[1] != nil {
				t.Errorf("hooks heard %v, want an internal error and an end", ends)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	python, js := code, executor.Request{Language: executor.JavaScript, Code: "x"}
	other := executor.Request{Language: executor.Python, Context: "other", Code: "x"}
	command := executor.Request{Command: []string{"ls"}}
	ok, busy := error(nil), executor.ErrBusy
	for name, c := range map[string]struct {
		lacks  []executor.Feature
		first  executor.Request // in progress
		second executor.Request
		want   error
	}{
		"same":             {nil, python, python, busy},
		"other-context":    {nil, python, other, ok},
		"other-language":   {nil, python, js, ok},
		"command-beside":   {nil, python, command, ok},
		"code-beside":      {nil, command, python, ok},
		"commands":         {nil, command, command, ok},
		"serial-same":      {[]executor.Feature{executor.FeatureParallelRuns}, python, python, busy},
		"serial-context":   {[]executor.Feature{executor.FeatureParallelRuns}, python, other, busy},
		"serial-command":   {[]executor.Feature{executor.FeatureParallelRuns}, python, command, busy},
		"serial-commands":  {[]executor.Feature{executor.FeatureParallelRuns}, command, command, busy},
		"serial-languages": {[]executor.Feature{executor.FeatureParallelRuns}, js, python, busy},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.caps = without(full, c.lacks...)
				cl.run = sandbox{code: 3 * time.Second}.run
				s := cl.session(t, executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}})
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := s.Run(t.Context(), c.first, nil); err != nil {
						t.Errorf("the first: %v", err)
					}
				})
				synctest.Wait()
				res, err := s.Run(t.Context(), c.second, nil)
				if c.want == nil && err != nil {
					t.Errorf("got %v", err)
				} else if c.want != nil {
					wantError(t, err, "run", c.want, executor.RanNo)
					if res != nil {
						t.Errorf("got %+v", res)
					}
				}
				wg.Wait()
				if _, err := s.Run(t.Context(), c.second, nil); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// TestLateEvents tests that what a driver reports after its run, against the contract, reaches
// nobody.
func TestLateEvents(t *testing.T) {
	c := newCloud()
	var late func(executor.Event) error
	c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		late = emit
		return driver.Exit{}, started(emit)
	}
	events := 0
	r, err := c.session(t, executor.Spec{}).Run(t.Context(), code, func(executor.Event) error { events++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := late(executor.Event{Kind: executor.EventStdout, Data: []byte("late")}); err == nil || events != 1 || r.Stdout != nil {
		t.Errorf("got %v, %d events and %q", err, events, r.Stdout)
	}
}

// TestExitCodeOfAnException tests that a language without exit codes does not get one for an
// exception.
func TestExitCodeOfAnException(t *testing.T) {
	c := newCloud()
	c.run = sandbox{exit: driver.Exit{Exception: &executor.Exception{Type: "Error"}}}.run
	s := c.session(t, executor.Spec{Languages: []executor.Language{executor.JavaScript}})
	if r, err := s.Run(t.Context(), executor.Request{Code: "x"}, nil); err != nil || r.Status != executor.StatusFailed || r.ExitCode != -1 {
		t.Errorf("got %+v %v", r, err)
	}
}

func TestExitIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	c := newCloud()
	c.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		return driver.Exit{
			Code: 1, Reason: executor.ReasonSignal, Signal: long,
			Exception: &executor.Exception{Type: long, Message: "\xff" + long, Traceback: long, Line: -1},
			Usage:     executor.Usage{CPU: -1, PeakMemory: -1},
		}, started(emit)
	}
	r, err := c.session(t, executor.Spec{}).Run(t.Context(), code, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := r.Exception
	for name, got := range map[string][2]int{
		"type": {len(e.Type), 2 << 10}, "message": {len(e.Message), 65 << 10}, "traceback": {len(e.Traceback), 257 << 10}, "signal": {len(r.Signal), 200},
	} {
		if got[0] > got[1] {
			t.Errorf("%s: got %d bytes, want at most %d", name, got[0], got[1])
		}
	}
	if !strings.HasPrefix(e.Message, "\uFFFDx") || !strings.Contains(e.Traceback, "bytes are left out") || e.Line != 0 || r.Usage != (executor.Usage{}) {
		t.Errorf("got %.20q, line %d, usage %+v", e.Message, e.Line, r.Usage)
	}
}
