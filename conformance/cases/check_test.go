package cases

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// stub is an engine that only notes what is found.
type stub struct {
	Engine
	ctx           context.Context
	kind, verdict string // "failed" or "errored", and the text; of the first
	cleanups      []func()
}

func (s *stub) Context() context.Context { return s.ctx }
func (s *stub) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }

func (s *stub) find(kind, format string, args ...any) {
	if s.kind == "" {
		s.kind, s.verdict = kind, fmt.Sprintf(format, args...)
	}
}

func (s *stub) Errorf(format string, args ...any) { s.find("failed", format, args...) }

func (s *stub) Fatalf(format string, args ...any) {
	s.find("failed", format, args...)
	runtime.Goexit()
}

func (s *stub) Abort(format string, args ...any) {
	s.find("errored", format, args...)
	runtime.Goexit()
}

// finds runs f with a T that needs no backend, and returns what it found.
func finds(t *testing.T, f func(t *T)) (kind, verdict string) {
	t.Helper()
	s := &stub{ctx: t.Context()}
	done := make(chan struct{})
	go func() { // because Fatalf ends the goroutine
		defer close(done)
		f(&T{Engine: s})
	}()
	<-done
	return s.kind, s.verdict
}

// TestChecks checks that each check holds for what is right and fails for what is wrong.
func TestChecks(t *testing.T) {
	failure := func(kind error, ran executor.Ran) error { return &executor.Error{Op: "run", Kind: kind, Ran: ran} }
	event := func(kind executor.EventKind, data string) executor.Event {
		return executor.Event{Kind: kind, Data: executor.Bytes(data)}
	}
	ok := &executor.Result{Status: executor.StatusOK, Stdout: executor.Bytes("out"), Stderr: executor.Bytes("err")}
	seen := []executor.Event{event(executor.EventStdout, "o"), event(executor.EventStderr, "err"), event(executor.EventStdout, "ut")}
	for name, c := range map[string]struct {
		check func(t *T)
		want  string // in the reason; empty: it holds
	}{
		"error":        {func(t *T) { t.isNo("x", failure(executor.ErrBusy, executor.RanNo), executor.ErrBusy) }, ""},
		"any-ran":      {func(t *T) { t.is("x", failure(executor.ErrBusy, executor.RanYes), executor.ErrBusy, executor.RanMaybe) }, ""},
		"no-error":     {func(t *T) { t.isNo("x", nil, executor.ErrBusy) }, "got no error"},
		"other-kind":   {func(t *T) { t.isNo("x", failure(executor.ErrInvalid, executor.RanNo), executor.ErrBusy) }, "want one of kind busy"},
		"other-type":   {func(t *T) { t.isNo("x", executor.ErrBusy, executor.ErrBusy) }, "want an *executor.Error"},
		"may-have-run": {func(t *T) { t.isNo("x", failure(executor.ErrBusy, executor.RanMaybe), executor.ErrBusy) }, "got maybe, want no"},
		"ended": {func(t *T) {
			t.ended(&executor.Result{Status: executor.StatusKilled, Reason: executor.ReasonOutput, ExitCode: -1}, executor.StatusKilled, executor.ReasonOutput)
		}, ""},
		"ended-otherwise": {func(t *T) { t.ended(ok, executor.StatusTimedOut, executor.ReasonWallTime) }, "want timed_out wall-time"},
		"ended-with-code": {func(t *T) {
			t.ended(&executor.Result{Status: executor.StatusKilled, Reason: executor.ReasonOutput}, executor.StatusKilled, executor.ReasonOutput)
		}, "want -1"},
		"call":               {func(t *T) { t.noError(nil, "x") }, ""},
		"failed-call":        {func(t *T) { t.noError(errors.New("gone"), "close of %d", 3) }, "close of 3: gone"},
		"failed-requirement": {func(t *T) { t.must(errors.New("gone"), "open") }, "open: gone"},
		"equal":              {func(t *T) { equal(t, "x", "a", "a"); equalLists(t, "x", []int{1}, []int{1}) }, ""},
		"not-equal":          {func(t *T) { equal(t, "x", "a", "b") }, `got "a", want "b"`},
		"lists-not-equal":    {func(t *T) { equalLists(t, "x", []int{1}, []int{1, 2}) }, "got [1], want [1 2]"},
		"printed-otherwise":  {func(t *T) { t.printed(ok, "other") }, `got "out"`},
		"a-result":           {func(t *T) { t.noResult("x", ok) }, "got the result status ok"},
		"untraced":           {func(t *T) { t.traced(&executor.Exception{Traceback: "a b"}, "a", "c") }, `lacks "c"`},
		"more-than-an-error": {func(t *T) { onlyError(t, slices.All([]error{nil, executor.ErrBusy})) }, "got 2, want 1"},
		"retryable":          {func(t *T) { t.notRetryable(failure(executor.ErrUnavailable, executor.RanNo)) }, "retryable"},
		"less-than-asked":    {func(t *T) { atLeast(t, 1, 2) }, "want at least the 2"},
		"streams":            {func(t *T) { streams(t, ok, seen, "out", "err") }, ""},
		"streams-swapped":    {func(t *T) { streams(t, ok, seen, "err", "out") }, "stdout of the result"},
		"streams-of-event":   {func(t *T) { streams(t, ok, seen[:1], "out", "err") }, "stdout of the events"},
		"file-error":         {func(t *T) { fileError(t, "x", errors.New("x")) }, "want one of the kinds of files"},
		"users-frames": {func(t *T) {
			usersFrames(t, &executor.Exception{Traceback: "Traceback:\n  File \"<cell 1>\", line 1, in f\nValueError: /lib/x.py"})
			usersFrames(t, &executor.Exception{Traceback: "RangeError: x\n    at f (<cell 2>:1:2)\n    at JSON.parse (<anonymous>)"})
		}, ""},
		"library-frame": {func(t *T) {
			usersFrames(t, &executor.Exception{Traceback: "  File \"/usr/lib/python3/json/__init__.py\", line 1, in loads\n"})
		}, "not the user's"},
		"node-frame": {func(t *T) {
			usersFrames(t, &executor.Exception{Traceback: "    at ModuleJob.run (node:internal/modules/esm/module_job:1:2)\n"})
		}, "not the user's"},
		"sandbox-ended": {func(t *T) {
			sandboxEnded(t, "x", &executor.Result{Status: executor.StatusKilled, Reason: executor.ReasonLifetime}, nil)
			sandboxEnded(t, "x", &executor.Result{Status: executor.StatusLost}, failure(executor.ErrNotFound, executor.RanYes))
		}, ""},
		"sandbox-ended-well":  {func(t *T) { sandboxEnded(t, "x", ok, nil) }, "want killed"},
		"sandbox-ended-unrun": {func(t *T) { sandboxEnded(t, "x", nil, failure(executor.ErrNotFound, executor.RanNo)) }, "has not run"},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, reason := finds(t, c.check)
			if c.want == "" && outcome != "" || c.want != "" && (outcome != "failed" || !strings.Contains(reason, c.want)) {
				t.Errorf("got %q, %q, want %q", outcome, reason, c.want)
			}
		})
	}
}

// TestSketch checks the notation in which cases compare outputs and text.
func TestSketch(t *testing.T) {
	out := func(main bool, kind, data string) executor.Event {
		return executor.Event{Kind: executor.EventOutput, Output: &executor.Output{Main: main, Data: executor.MIMEBundle{"text/plain": executor.Bytes("3"), kind: executor.Bytes(data)}}}
	}
	text := func(s string) executor.Event {
		return executor.Event{Kind: executor.EventStdout, Data: executor.Bytes(s)}
	}
	got := sketch([]executor.Event{
		{Kind: executor.EventStarted}, text("a"), text("b\n"), out(false, "text/html", "<i>"), out(false, "image/png", pngHead+"x"), out(true, "text/plain", "3"),
	})
	if want := `"ab\n" html "<i>" png "x" main "3"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRefusalsAreRefused checks that the specs which the suite expects to be refused are, and that
// what is declared is not among them.
func TestRefusalsAreRefused(t *testing.T) {
	caps := executor.Capabilities{
		Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone, executor.FeatureLimitMemory},
		Languages: []executor.Runtime{{Language: executor.Python}},
		Isolation: executor.IsolationContainer,
		MaxLimits: executor.Limits{CPUs: 1, MemoryBytes: 1, DiskBytes: 1, Processes: 1},
		MaxRun:    executor.RunLimits{WallTime: executor.DefaultWallTime, OutputBytes: executor.DefaultOutputBytes},
		MaxLife:   executor.DefaultIdleTTL,
	}
	refused := 0
	for _, r := range refusals(caps, executor.Python) {
		spec := executor.Spec{Languages: []executor.Language{executor.Python}}
		r.edit(&spec)
		missing := caps.MissingFor(spec)
		if len(missing) == 0 && r.certain {
			t.Errorf("%s: nothing is missing", r.what)
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: no backend could accept it: %v", r.what, err)
		}
		if len(missing) > 0 {
			refused++
		}
	}
	if refused < 30 {
		t.Errorf("got %d specs that a bare backend refuses, want most of them", refused)
	}
	for what, edit := range invalidSpecs {
		spec := executor.Spec{Languages: []executor.Language{executor.Python}}
		edit(&spec)
		if err := spec.Validate(); !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("%s: got %v, want that it is invalid", what, err)
		}
	}
}

func TestPatternHasNoShortPeriod(t *testing.T) {
	p := pattern(1 << 16)
	var seen [256]bool
	for _, b := range p {
		seen[b] = true
	}
	for b, ok := range seen {
		if !ok {
			t.Errorf("the byte %d is missing", b)
		}
	}
	for period := 1; period < 5000; period++ {
		if string(p[:5000]) == string(p[period:period+5000]) {
			t.Fatalf("it repeats after %d bytes", period)
		}
	}
}
