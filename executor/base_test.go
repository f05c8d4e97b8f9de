package executor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestBaseRefuses tests that a type that embeds the bases refuses, with the missing feature, every
// method that it does not implement.
func TestBaseRefuses(t *testing.T) {
	var x executor.BaseExecutor
	var s executor.BaseSession
	ctx := t.Context()
	second := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		err     error
		missing executor.Feature
	}{
		"attach":       {second(x.Attach(ctx, executor.Handle{})), executor.FeatureAttach},
		"destroy":      {x.Destroy(ctx, executor.Handle{}), executor.FeatureAttach},
		"refresh":      {second(s.Refresh(ctx)), ""},
		"install":      {second(s.Install(ctx, executor.Packages{}, nil)), executor.FeaturePackages},
		"reset":        {s.Reset(ctx, executor.Interpreter{}), executor.FeatureState},
		"keep-alive":   {second(s.KeepAlive(ctx, 1)), executor.FeatureKeepAlive},
		"dial":         {second(s.Dial(ctx, 80)), executor.FeaturePorts},
		"detach":       {s.Detach(), executor.FeatureAttach},
		"files.read":   {second(s.Files().Read(ctx, "x")), executor.FeatureFiles},
		"files.write":  {s.Files().Write(ctx, "x", strings.NewReader(""), 0), executor.FeatureFiles},
		"files.stat":   {second(s.Files().Stat(ctx, "x")), executor.FeatureFiles},
		"files.mkdir":  {s.Files().Mkdir(ctx, "x"), executor.FeatureFiles},
		"files.rename": {s.Files().Rename(ctx, "x", "y"), executor.FeatureFiles},
		"files.remove": {s.Files().Remove(ctx, "x"), executor.FeatureFiles},
	} {
		var e *executor.Error
		if !errors.As(c.err, &e) || e.Kind != executor.ErrUnsupported || e.Ran != executor.RanNo || e.Op != name {
			t.Errorf("%s: got %v", name, c.err)
			continue
		}
		if c.missing != "" && !slices.Equal(e.Missing, []string{string(c.missing)}) {
			t.Errorf("%s: got missing %q, want %q", name, e.Missing, c.missing)
		}
	}
	for _, err := range x.Sessions(ctx, nil) {
		if !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("sessions: got %v", err)
		}
	}
	for _, err := range s.Files().List(ctx, ".") {
		if !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("files.list: got %v", err)
		}
	}
}

// stub is an Executor with one session whose Run is a function.
type stub struct {
	executor.BaseExecutor
	spec   executor.Spec
	closed int
	err    error
	run    func(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error)
}

func (x *stub) Info() executor.Info { return executor.Info{Name: "stub"} }
func (x *stub) Close() error        { return nil }
func (x *stub) Create(_ context.Context, spec executor.Spec) (executor.Session, error) {
	x.spec = spec
	return &stubSession{x: x}, x.err
}

type stubSession struct {
	executor.BaseSession
	x *stub
}

func (s *stubSession) Info() executor.SessionInfo { return executor.SessionInfo{} }
func (s *stubSession) Close() error               { s.x.closed++; return errors.New("close failed") }
func (s *stubSession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	return s.x.run(ctx, req, emit)
}

func (s *stubSession) As(target any) bool {
	p, ok := target.(**stub)
	if ok {
		*p = s.x
	}
	return ok
}

func TestRun(t *testing.T) {
	want := &executor.Result{ID: "1"}
	x := &stub{run: func(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error) {
		return want, nil
	}}
	got, err := executor.Run(t.Context(), x, executor.Spec{}, executor.Request{Language: "r", Code: "x"})
	if got != want || err != nil {
		t.Errorf("got %v %v", got, err)
	}
	if x.closed != 1 || !slices.Equal(x.spec.Languages, []executor.Language{"r"}) {
		t.Errorf("got %d closes and languages %q, want 1 and that of the request", x.closed, x.spec.Languages)
	}
	x.err = errors.New("no")
	if got, err := executor.Run(t.Context(), x, executor.Spec{}, executor.Request{Code: "x"}); got != nil || err != x.err || x.closed != 1 {
		t.Errorf("got %v %v", got, err)
	}
}

func TestStream(t *testing.T) {
	gone := errors.New("gone")
	started := executor.Event{Kind: executor.EventStarted}
	out := executor.Event{Seq: 1, Kind: executor.EventStdout, Data: executor.Bytes("x")}
	for name, c := range map[string]struct {
		events []executor.Event
		result *executor.Result
		err    error
		leave  int // leave the loop after this many elements; 0: never
		want   []executor.EventKind
		stops  bool // emit has returned an error
	}{
		"whole":        {events: []executor.Event{started, out}, result: fullResultCopy(), want: []executor.EventKind{"started", "stdout", "done"}},
		"no-result":    {err: gone, want: []executor.EventKind{"error"}},
		"both":         {events: []executor.Event{started}, result: fullResultCopy(), err: gone, want: []executor.EventKind{"started", "done", "error"}},
		"leave-first":  {events: []executor.Event{started, out}, result: fullResultCopy(), leave: 1, want: []executor.EventKind{"started"}, stops: true},
		"leave-at-end": {events: []executor.Event{started}, result: fullResultCopy(), err: gone, leave: 2, want: []executor.EventKind{"started", "done"}},
	} {
		t.Run(name, func(t *testing.T) {
			stopped := false
			x := &stub{run: func(_ context.Context, _ executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
				for _, ev := range c.events {
					if err := emit(ev); err != nil {
						stopped = true
						return c.result, err
					}
				}
				return c.result, c.err
			}}
			s, _ := x.Create(t.Context(), executor.Spec{})
			var got []executor.EventKind
			seq := executor.Stream(t.Context(), s, executor.Request{Code: "x"})
			for ev, err := range seq {
				if err != nil {
					ev.Kind = "error"
					if err != c.err {
						t.Errorf("got error %v, want %v", err, c.err)
					}
				}
				if ev.Kind == executor.EventDone && (ev.Seq != len(c.events) || ev.Result != c.result) {
					t.Errorf("got done event %+v", ev)
				}
				got = append(got, ev.Kind)
				if len(got) == c.leave {
					break
				}
			}
			if !slices.Equal(got, c.want) || stopped != c.stops {
				t.Errorf("got %q, stopped %v, want %q, %v", got, stopped, c.want, c.stops)
			}
			for ev, err := range seq {
				if !errors.Is(err, executor.ErrInvalid) || ev.Kind != "" {
					t.Errorf("second loop: got %+v %v, want ErrInvalid", ev, err)
				}
			}
		})
	}
}

func fullResultCopy() *executor.Result { r := fullResult; return &r }

func TestAs(t *testing.T) {
	x := &stub{}
	s, _ := x.Create(t.Context(), executor.Spec{})
	var got *stub
	if !executor.As(s, &got) || got != x {
		t.Errorf("got %v", got)
	}
	var other *int
	if executor.As(s, &other) {
		t.Error("found what is not there")
	}
	wrapped := struct{ executor.Session }{s} // a wrapper that restricts
	if executor.As(wrapped, &got) {
		t.Error("a wrapper let As through")
	}
}
