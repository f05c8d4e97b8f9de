package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// ok runs req in s and ends the case unless the code ends without an error.
func (t *T) ok(s executor.Session, req executor.Request) *executor.Result {
	res := t.Run(s, req)
	if res.Status != executor.StatusOK {
		t.Fatalf("got %s, want ok", describe(res))
	}
	return res
}

// says runs req in s and checks that it ends without an error and that its stdout is want, lines
// without the end of the last one.
func (t *T) says(s executor.Session, req executor.Request, want string) *executor.Result {
	res := t.ok(s, req)
	if got := strings.TrimSuffix(string(res.Stdout), "\n"); got != want {
		t.Errorf("stdout: got %s, want %q", excerpt(got), want)
	}
	return res
}

// stdout runs req in s, which must end without an error, and returns its stdout without the end of
// the last line.
func (t *T) stdout(s executor.Session, req executor.Request) string {
	return strings.TrimSuffix(string(t.ok(s, req).Stdout), "\n")
}

// ended checks how code ended.
func (t *T) ended(res *executor.Result, status executor.Status, reason executor.Reason) {
	if res.Status != status || res.Reason != reason {
		t.Errorf("got %s, want %s %s", describe(res), status, reason)
	}
	if stopped := status != executor.StatusOK && status != executor.StatusFailed; stopped && res.ExitCode != -1 {
		t.Errorf("exit code of code that was stopped: got %d, want -1", res.ExitCode)
	}
}

// is checks that err is an *executor.Error with a kind and, where ran is not RanMaybe, with that
// Ran.
func (t *T) is(what string, err, kind error, ran executor.Ran) {
	var e *executor.Error
	switch {
	case err == nil:
		t.Errorf("%s: got no error, want %v", what, kind)
	case !errors.As(err, &e):
		t.Errorf("%s: got the error %v of type %T, want an *executor.Error", what, err, err)
	case !errors.Is(err, kind):
		t.Errorf("%s: got the error %v, want one of kind %v", what, err, kind)
	case ran != executor.RanMaybe && e.Ran != ran:
		t.Errorf("%s: may the code have run? got %v, want %v, with %v", what, e.Ran, ran, err)
	}
}

// isNo is is for calls that are not to have run code.
func (t *T) isNo(what string, err, kind error) { t.is(what, err, kind, executor.RanNo) }

// prompt checks that what began at start has not taken longer than most and Grace.
func (t *T) prompt(what string, start time.Time, most time.Duration) {
	if took := time.Since(start); took > most+t.Grace() {
		t.Errorf("%s took %v, want at most %v and %v", what, took.Round(time.Millisecond), most, t.Grace())
	}
}

// describe says in a line how a run ended.
func describe(r *executor.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "status %s", r.Status)
	if r.Reason != "" {
		fmt.Fprintf(&b, ", reason %s", r.Reason)
	}
	fmt.Fprintf(&b, ", exit code %d", r.ExitCode)
	if e := r.Exception; e != nil {
		fmt.Fprintf(&b, ", %s: %s", e.Type, excerpt(e.Message))
	}
	if len(r.Stderr) > 0 {
		fmt.Fprintf(&b, ", stderr %s", excerpt(string(r.Stderr)))
	}
	return b.String()
}

// excerpt quotes as much of s as a reader needs.
func excerpt(s string) string {
	const most = 200
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q ... %q (%d bytes)", s[:most/2], s[len(s)-most/2:], len(s))
}

// text puts together what events of a kind hold.
func text(events []executor.Event, kind executor.EventKind) string {
	var b strings.Builder
	for _, ev := range events {
		if ev.Kind == kind {
			b.Write(ev.Data)
		}
	}
	return b.String()
}

// events runs req in s, as Run does, and returns the events too.
func (t *T) events(s executor.Session, req executor.Request) (*executor.Result, []executor.Event) {
	var all []executor.Event
	res, err := s.Run(t.Context(), req, func(ev executor.Event) error {
		all = append(all, ev)
		return nil
	})
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return res, all
}

// A background is a run on a goroutine of its own. It ends with the case.
type background struct {
	t      *T
	cancel context.CancelFunc
	begun  chan struct{} // closed when the code is known to run
	done   chan struct{} // closed at the end; then res, err and panicked are valid
	res    *executor.Result
	err    error

	once   sync.Once
	mu     sync.Mutex
	events []executor.Event
}

// start begins a run. emit may be nil.
func (t *T) start(s executor.Session, req executor.Request, emit func(executor.Event) error) *background {
	ctx, cancel := context.WithCancel(t.Context())
	r := &background{t: t, cancel: cancel, begun: make(chan struct{}), done: make(chan struct{})}
	go func() { // the cleanup waits for it
		defer close(r.done)
		t.Protect(func() {
			r.res, r.err = s.Run(ctx, req, func(ev executor.Event) error {
				r.mu.Lock()
				r.events = append(r.events, ev)
				r.mu.Unlock()
				// Programs that are started like this print a line first. That they have started is
				// too early: they may not have printed. So is a part of the line: an interpreter
				// without a buffer writes the end of the line by itself.
				if ev.Kind == executor.EventStdout && bytes.Contains(ev.Data, []byte("\n")) {
					r.once.Do(func() { close(r.begun) })
				}
				if emit != nil {
					return emit(ev)
				}
				return nil
			})
		})
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// awaitStart waits until the code runs. Where events do not stream, that is not known: then a
// second must do.
func (r *background) awaitStart() {
	var long <-chan time.Time
	if !r.t.Has(executor.FeatureStreaming) {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		long = timer.C
	}
	select {
	case <-r.begun:
	case <-long:
	case <-r.done:
		r.t.Fatalf("the run ended before anything was done to it: %s", r.outcome())
	case <-r.t.Context().Done():
		r.t.Fatalf("the code did not begin to run")
	}
}

// seen reports whether an event of a kind has come.
func (r *background) seen(kind executor.EventKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(ev executor.Event) bool { return ev.Kind == kind })
}

// wait waits for the end of the run, for at most most and Grace.
func (r *background) wait(most time.Duration) (*executor.Result, error) {
	timer := time.NewTimer(most + r.t.Grace())
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		r.t.Fatalf("the run did not end within %v and %v", most, r.t.Grace())
	case <-r.t.Context().Done():
		r.t.Fatalf("the run did not end in the time of the case")
	}
	return r.res, r.err
}

// outcome describes the end of the run.
func (r *background) outcome() string {
	switch {
	case r.res != nil && r.err != nil:
		return fmt.Sprintf("%s, error %v", describe(r.res), r.err)
	case r.res != nil:
		return describe(r.res)
	}
	return fmt.Sprintf("no result, error %v", r.err)
}

// limited returns req with a wall time.
func limited(req executor.Request, wall time.Duration) executor.Request {
	req.Limits.WallTime = wall
	return req
}

// kept is what cases put into a variable and a file before they stop code.
const kept = "kept value"

// keptFile is the file.
const keptFile = "kept.txt"

// remembers puts kept into the default interpreter of s and into a file, where there are state and
// files.
func (t *T) remembers(s executor.Session) {
	if t.Has(executor.FeatureState) {
		t.ok(s, t.Program("remember", "value", kept))
	}
	if t.Has(executor.FeatureFiles) {
		t.put(s.Files(), keptFile, kept)
	}
}

// aftermath checks that what res says about state and files after code was stopped is so: either
// the variables are there, or they are gone and the next run says that it began without them. It
// checks as well that the interpreter is free again.
func (t *T) aftermath(s executor.Session, res *executor.Result) {
	after := t.ok(s, t.Program("recall"))
	switch {
	case !t.Has(executor.FeatureFiles):
	case res.FilesLost:
		t.missing(s.Files(), keptFile)
	default:
		t.holds(s.Files(), keptFile, kept)
	}
	if !t.Has(executor.FeatureState) {
		return
	}
	want, fresh := kept, false
	if res.StateLost {
		want, fresh = "absent", true
	}
	got := strings.TrimSuffix(string(after.Stdout), "\n")
	if got != want || after.StateFresh != fresh {
		t.Errorf("the stopped run said StateLost %v; then the next found %q and said StateFresh %v", res.StateLost, got, after.StateFresh)
	}
}

// keeps is aftermath for code that heeds the interrupt of its language.
func (t *T) keeps(s executor.Session, res *executor.Result) {
	if res.StateLost {
		t.Errorf("the state is lost, although the code heeds interrupts")
	}
	t.aftermath(s, res)
}

// refuses checks that s refuses req for want of features, and runs nothing.
func (t *T) refuses(s executor.Session, req executor.Request, missing ...executor.Feature) {
	res, err := s.Run(t.Context(), req, func(ev executor.Event) error {
		t.Errorf("a request that is to be refused made the event %s", ev.Kind)
		return nil
	})
	if res != nil {
		t.Errorf("a request that is to be refused has a result: %s", describe(res))
	}
	t.Refused("run", err, missing...)
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		if want := s.Info().Capabilities.MissingForRequest(req); !sameWords(e.Missing, want) {
			t.Errorf("missing: got %q, want %q", e.Missing, want)
		}
	}
}

// refusesSpec checks that Create refuses a spec for want of what MissingFor says, and makes no
// sandbox.
func (t *T) refusesSpec(what string, edit func(*executor.Spec), missing ...executor.Feature) {
	spec := t.Spec(edit)
	s, err := t.Executor().Create(t.Context(), spec)
	if err == nil {
		t.Errorf("%s: not refused", what)
		s.Close()
		return
	}
	t.Refused(what, err, missing...)
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		if want := t.Executor().Info().Capabilities.MissingFor(spec); !sameWords(e.Missing, want) {
			t.Errorf("%s: missing: got %q, want %q", what, e.Missing, want)
		}
	}
	t.noSandbox(what)
}

// noSandbox checks that no sandbox of the case is there, as far as the backend lists them.
func (t *T) noSandbox(what string) {
	if !t.Has(executor.FeatureList) {
		return
	}
	for i, err := range t.Executor().Sessions(t.Context(), t.Labels()) {
		if err != nil {
			t.Errorf("%s: sessions: %v", what, err)
		} else {
			t.Errorf("%s: the sandbox %s was created", what, i.Handle.Session)
		}
	}
}

// sameWords reports whether a and b hold the same strings.
func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
