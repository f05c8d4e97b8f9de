package executor_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestProgress(t *testing.T) {
	executor.ReportProgress(t.Context(), executor.Progress{What: "nobody listens"})
	if ctx, end := executor.ScopeProgress(t.Context()); ctx != t.Context() {
		t.Error("a scope of nothing is a new context")
	} else {
		end()
	}
	var got []string
	ctx := executor.WithProgress(t.Context(), func(p executor.Progress) { got = append(got, p.What) })
	executor.ReportProgress(ctx, executor.Progress{What: "a"})
	scope, end := executor.ScopeProgress(ctx)
	inner, endInner := executor.ScopeProgress(scope)
	executor.ReportProgress(scope, executor.Progress{What: "b"})
	executor.ReportProgress(inner, executor.Progress{What: "c"})
	endInner()
	executor.ReportProgress(inner, executor.Progress{What: "late"})
	executor.ReportProgress(scope, executor.Progress{What: "d"})
	end()
	end()
	executor.ReportProgress(scope, executor.Progress{What: "late"})
	executor.ReportProgress(ctx, executor.Progress{What: "e"})
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProgressIsSerialized also relies on the race detector: nothing else guards n.
func TestProgressIsSerialized(t *testing.T) {
	n := 0
	ctx := executor.WithProgress(t.Context(), func(executor.Progress) { n++ })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			scope, end := executor.ScopeProgress(ctx)
			defer end()
			for range 100 {
				executor.ReportProgress(scope, executor.Progress{})
			}
		})
	}
	wg.Wait()
	if n != 800 {
		t.Errorf("got %d calls, want 800", n)
	}
}

func TestHooksStart(t *testing.T) {
	type key struct{}
	marked := context.WithValue(t.Context(), key{}, 1)
	ended := 0
	end := func(executor.Outcome) { ended++ }
	for name, c := range map[string]struct {
		begin func(context.Context, executor.Op) (context.Context, func(executor.Outcome))
		want  context.Context
		ends  int
	}{
		"nil":     {nil, t.Context(), 0},
		"nothing": {func(context.Context, executor.Op) (context.Context, func(executor.Outcome)) { return nil, nil }, t.Context(), 0},
		"both":    {func(context.Context, executor.Op) (context.Context, func(executor.Outcome)) { return marked, end }, marked, 1},
	} {
		ended = 0
		ctx, done := executor.Hooks{Begin: c.begin}.Start(t.Context(), executor.Op{Name: "run"})
		if done(executor.Outcome{}); ctx != c.want || ended != c.ends {
			t.Errorf("%s: got %v and %d ends", name, ctx, ended)
		}
	}
}
