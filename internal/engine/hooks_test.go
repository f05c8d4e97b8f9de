package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

type spanKey struct{}

// seen is an operation as hooks see it.
type seen struct {
	op  executor.Op
	out executor.Outcome
}

// watch opens the cloud with hooks that note everything, and hand a context on.
func watch(t testing.TB, c *cloud) (executor.Executor, *[]seen) {
	all := &[]seen{}
	return c.open(t, func(e *driver.Env) {
		e.Hooks.Begin = func(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
			return context.WithValue(ctx, spanKey{}, op.Name), func(o executor.Outcome) { *all = append(*all, seen{op, o}) }
		}
	}), all
}

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		x, all := watch(t, c)
		span := ""
		c.run = func(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
			span, _ = ctx.Value(spanKey{}).(string)
			return sandbox{stall: time.Second, code: 2 * time.Second, exit: driver.Exit{Code: 3}}.run(ctx, req, emit)
		}
		s := create(t, x, executor.Spec{})
		r, err := s.Run(t.Context(), executor.Request{ID: "r1", Code: "x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), executor.Request{}, nil); err == nil {
			t.Error("got no error")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		id := s.Info().Handle.Session
		if len(*all) != 4 || span != "run" {
			t.Fatalf("got %+v, span %q", *all, span)
		}
		for i, want := range []seen{
			{executor.Op{Name: "create"}, executor.Outcome{Session: id}},
			{
				executor.Op{Name: "run", Session: id, Run: "r1", Language: executor.Python},
				executor.Outcome{Status: executor.StatusFailed, Queued: time.Second, Duration: 2 * time.Second, Origin: r.Origin},
			},
			{executor.Op{Name: "run", Session: id, Run: (*all)[2].op.Run}, executor.Outcome{Err: (*all)[2].out.Err}},
			{executor.Op{Name: "close", Session: id}, executor.Outcome{}},
		} {
			want.op.Layer, want.op.Backend, want.op.Type = "backend", "cloud", "cloud"
			if got := (*all)[i]; got != want {
				t.Errorf("%d: got %+v, want %+v", i, got, want)
			}
		}
		if !errors.Is((*all)[2].out.Err, executor.ErrInvalid) || (*all)[2].op.Run == "" {
			t.Errorf("got %+v of what was refused", (*all)[2])
		}
	})
}

// TestHooksSeeEverything tests that each operation begins and ends once.
func TestHooksSeeEverything(t *testing.T) {
	c := newCloud()
	x, all := watch(t, c)
	s := create(t, x, executor.Spec{})
	calls := everyCall(t.Context(), x, s, s.Info().Handle)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for _, o := range *all {
		count[o.op.Name]++
	}
	for op := range calls {
		if want := map[string]int{"create": 2}[op]; count[op] != max(want, 1) {
			t.Errorf("%s: got %d, want %d", op, count[op], max(want, 1))
		}
	}
	for _, op := range []string{"sessions", "files.list", "close"} {
		if count[op] == 0 {
			t.Errorf("%s: not seen", op)
		}
	}
}

func TestHooksMayBeNil(t *testing.T) {
	c := newCloud()
	x := c.open(t, func(e *driver.Env) {
		e.Hooks.Begin = func(context.Context, executor.Op) (context.Context, func(executor.Outcome)) { return nil, nil }
	})
	s := create(t, x, executor.Spec{})
	if _, err := s.Run(t.Context(), code, nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), x.Close()); err != nil {
		t.Error(err)
	}
}

// TestProgress tests that what a driver reports reaches the caller while the operation lasts, and
// not afterwards.
func TestProgress(t *testing.T) {
	c := newCloud()
	var late []context.Context
	report := func(ctx context.Context, what string) {
		executor.ReportProgress(ctx, executor.Progress{What: what})
		late = append(late, ctx)
	}
	c.create = func(ctx context.Context, _ *driver.Create) error { report(ctx, "create"); return nil }
	c.run = func(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		report(ctx, "run")
		return driver.Exit{}, started(emit)
	}
	c.install = func(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
		report(ctx, fmt.Sprint("install ", p.Names))
		return driver.Exit{}, started(emit)
	}
	c.attach = func(ctx context.Context, h executor.Handle) (driver.Session, error) {
		report(ctx, "attach")
		return &fullSession{smallSession{c, c.boxes[h.Session]}}, nil
	}
	var got []string
	ctx := executor.WithProgress(t.Context(), func(p executor.Progress) { got = append(got, p.What) })
	x := c.open(t)
	s, err := x.Create(ctx, executor.Spec{Packages: []executor.Packages{{Names: []string{"a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := s.Run(ctx, code, nil)
	_, err2 := s.Install(ctx, executor.Packages{Names: []string{"b"}}, nil)
	_, err3 := x.Attach(ctx, s.Info().Handle)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range late {
		executor.ReportProgress(ctx, executor.Progress{What: "late"})
	}
	if want := []string{"create", "install [a]", "run", "install [b]", "attach"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
