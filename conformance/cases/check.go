package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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

// ends runs req in s and checks how the code ends.
func (t *T) ends(s executor.Session, req executor.Request, status executor.Status, reason executor.Reason) *executor.Result {
	res := t.Run(s, req)
	t.ended(res, status, reason)
	return res
}

// timesOut runs req in s and checks that the code is stopped at its wall time.
func (t *T) timesOut(s executor.Session, req executor.Request) *executor.Result {
	return t.ends(s, req, executor.StatusTimedOut, executor.ReasonWallTime)
}

// timesOutWithin is timesOut for code that has to be stopped within most and Grace.
func (t *T) timesOutWithin(most time.Duration, s executor.Session, req executor.Request) *executor.Result {
	start := time.Now()
	res := t.timesOut(s, req)
	t.prompt("stopping the code at its wall time", start, most)
	return res
}

// inTime calls try with a time that is enough for its code where a processor is free, and if it
// fails with four times as much, twice at most: a busy machine is not a wrong backend. The last
// error fails the case. What no time can change fails it in try.
func (t *T) inTime(enough time.Duration, try func(enough time.Duration) error) {
	for tries := 1; ; tries++ {
		err := try(enough)
		if err == nil {
			return
		}
		if tries == 3 {
			t.Fatalf("%v, also with %v", err, enough)
		}
		enough *= 4
	}
}

// stoppedAfter runs code that prints want and does not end, and checks that it is stopped at its
// wall time, and within soon and Grace after it, with that output.
func (t *T) stoppedAfter(want string, s executor.Session, req executor.Request, wall, soon time.Duration) {
	t.inTime(wall, func(wall time.Duration) error {
		if got := string(t.timesOutWithin(wall+soon, s, limited(req, wall)).Stdout); got != want {
			return fmt.Errorf("stdout: got %q, want %q", got, want)
		}
		return nil
	})
}

// raises runs req in s, whose code has to fail with an exception, and returns that.
func (t *T) raises(s executor.Session, req executor.Request) *executor.Exception {
	return failed(t, t.Run(s, req))
}

// runFails checks that a run of req is an error of a kind, without a result, and has run nothing.
func (t *T) runFails(what string, s executor.Session, req executor.Request, kind error) {
	res, err := s.Run(t.Context(), req, nil)
	t.isNo(what, err, kind)
	t.noResult(what, res)
}

// over returns a context that has ended.
func (t *T) over() context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// noResult checks that what did not run has no result.
func (t *T) noResult(what string, res *executor.Result) {
	if res != nil {
		t.Errorf("%s: got the result %s", what, describe(res))
	}
}

// printed checks the stdout of code that did not end well.
func (t *T) printed(res *executor.Result, want string) {
	if string(res.Stdout) != want {
		t.Errorf("stdout: got %q, want %q", res.Stdout, want)
	}
}

// mentions checks that the stdout of code has a word.
func (t *T) mentions(res *executor.Result, word string) {
	if !strings.Contains(string(res.Stdout), word) {
		t.Errorf("stdout: got %s, want %q in it", excerpt(string(res.Stdout)), word)
	}
}

// equal checks a value of a comparable type.
func equal[V comparable](t *T, what string, got, want V) {
	if got != want {
		t.Errorf("%s: got %#v, want %#v", what, got, want)
	}
}

// noneOf checks that a list of what must not be is empty.
func noneOf[V any](t *T, what string, found []V) {
	if len(found) > 0 {
		t.Errorf("%s: %s", what, excerpt(fmt.Sprintf("%+v", found)))
	}
}

// equalLists is equal for lists of values.
func equalLists[V comparable](t *T, what string, got, want []V) {
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// errorOf returns the error of a call that has a value too.
func errorOf[V any](_ V, err error) error { return err }

// onlyError returns the error of a list that has to be just that.
func onlyError[V any](t *T, list iter.Seq2[V, error]) (last error) {
	n := 0
	for _, last = range list {
		n++
	}
	equal(t, "elements of a list that is refused", n, 1)
	return last
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

// noError checks that a call has not failed.
func (t *T) noError(err error, format string, args ...any) {
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// must is noError for what the case cannot go on without.
func (t *T) must(err error, format string, args ...any) {
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// isNo is is for calls that are not to have run code.
func (t *T) isNo(what string, err, kind error) { t.is(what, err, kind, executor.RanNo) }

// notRetryable checks an error that is not a failure of the backend.
func (t *T) notRetryable(err error) {
	if executor.Retryable(err) {
		t.Errorf("retryable, although it is no failure of the backend: %v", err)
	}
}

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
	t.must(err, "run")
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
		select {
		case <-r.begun: // and whoever waits for it was late
		default:
			r.t.Fatalf("the run ended before anything was done to it: %s", r.outcome())
		}
	case <-r.t.Context().Done():
		r.t.Fatalf("the code did not begin to run")
	}
}

// over reports whether the run has ended.
func (r *background) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
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

// begin is start of code that prints a line at once, and waits for that.
func (t *T) begin(s executor.Session, req executor.Request) *background {
	r := t.start(s, req, nil)
	r.awaitStart()
	return r
}

// spins begins to run code that does not end.
func (t *T) spins(s executor.Session) *background {
	return t.begin(s, limited(t.Program("spin", "text", "ready"), 25*time.Second))
}

// stop ends the context of the run, and waits for its end.
func (r *background) stop() (*executor.Result, error) {
	r.cancel()
	return r.wait(5 * time.Second)
}

// canceled ends the context of a run in progress, checks what the run says, and returns its result.
func (r *background) canceled(most time.Duration) *executor.Result {
	r.cancel()
	res, err := r.wait(most)
	r.t.is("a cancelled run", err, context.Canceled, executor.RanYes)
	if res == nil {
		r.t.Fatalf("no result of a run that had started")
	}
	r.t.ended(res, executor.StatusCanceled, "")
	return res
}

// ends waits for the end of the run, which has to be a result, and checks that.
func (r *background) ends(what string, most time.Duration, status executor.Status, reason executor.Reason) *executor.Result {
	res, err := r.wait(most)
	if err != nil || res == nil {
		r.t.Fatalf("%s: got %s, want a result", what, r.outcome())
	}
	r.t.ended(res, status, reason)
	return res
}

// fresh is a form of a case that uses a new session.
func fresh(form func(*T, executor.Session)) func(*T) {
	return func(t *T) { form(t, t.Session()) }
}

// shared is a form of a case that uses the session of T.Shared.
func shared(form func(*T, executor.Session)) func(*T) {
	return func(t *T) { form(t, t.Shared()) }
}

// remembering is a form of a case that uses the session of T.Shared with something to keep.
func remembering(form func(*T, executor.Session)) func(*T) {
	return shared(func(t *T, s executor.Session) {
		t.remembers(s)
		form(t, s)
	})
}

// emptied is a form of a case that uses the session of T.Shared with an empty working directory, or
// a new session where that cannot be emptied.
func emptied(form func(*T, executor.Session)) func(*T) {
	return shared(func(t *T, s executor.Session) {
		if !t.Has(executor.FeatureFiles) || !t.empties(s.Files()) {
			s = t.Session()
		}
		form(t, s)
	})
}

// saying is a form of a case that runs a program, which prints want.
func saying(want, program string, args ...any) func(*T) {
	return func(t *T) { t.says(t.Shared(), t.Program(program, args...), want) }
}

// refusing is a form of a case for which Create refuses a spec: see refusesSpec.
func refusing(what string, edit func(*executor.Spec), missing executor.Feature) func(*T) {
	return func(t *T) { t.refusesSpec(what, edit, missing) }
}

// inDir returns req with a directory.
func inDir(req executor.Request, dir string) executor.Request {
	req.Dir = dir
	return req
}

// withStdin returns req with standard input.
func withStdin(req executor.Request, in io.Reader) executor.Request {
	req.Stdin = in
	return req
}

// withEnv returns req with variables.
func withEnv(req executor.Request, env map[string]string) executor.Request {
	req.Env = env
	return req
}

// keeping returns req with how much of the output the result is to keep.
func keeping(req executor.Request, bytes int) executor.Request {
	req.Keep = bytes
	return req
}

// bounded returns req with a limit of its output.
func bounded(req executor.Request, bytes int64) executor.Request {
	req.Limits.OutputBytes = bytes
	return req
}

// limited returns req with a wall time.
func limited(req executor.Request, wall time.Duration) executor.Request {
	req.Limits.WallTime = wall
	return req
}

// kept is what cases put into a variable and a file of a session that no other case uses.
const kept = "kept value"

// own is what the case puts there where others have used the session: none of them has put the
// same.
func (t *T) own() string { return "kept by " + t.ID() }

// keptFile is the file.
const keptFile = "kept.txt"

// remembers puts own into the default interpreter of s and into a file, where there are state and
// files.
func (t *T) remembers(s executor.Session) {
	if t.Has(executor.FeatureState) {
		t.ok(s, t.Program("remember", "value", t.own()))
	}
	if t.Has(executor.FeatureFiles) {
		t.put(s.Files(), keptFile, t.own())
	}
}

// recalls checks that s still has what remembers has put into its interpreter.
func (t *T) recalls(s executor.Session) {
	if t.Has(executor.FeatureState) {
		t.says(s, t.Program("recall"), t.own())
	}
}

// anew checks that the interpreter of s has begun without variables, and that the next run says so.
func (t *T) anew(s executor.Session) {
	if res := t.says(s, t.Program("recall"), "absent"); !res.StateFresh {
		t.Errorf("StateFresh of the first run in an interpreter: got false")
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
		t.holds(s.Files(), keptFile, t.own())
	}
	if !t.Has(executor.FeatureState) {
		return
	}
	want, fresh := t.own(), false
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

// createFails checks that Create is an error of a kind for a spec, and makes no sandbox.
func (t *T) createFails(what string, edit func(*executor.Spec), kind error) error {
	s, err := t.Executor().Create(t.Context(), t.Spec(edit))
	t.isNo(what, err, kind)
	if err == nil {
		s.Close()
	}
	t.noSandbox(what)
	return err
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

// listsNone checks that x lists no sandbox of the case.
func (t *T) listsNone(what string, x executor.Executor) {
	noneOf(t, what, t.listed(x))
}

// eventuallyNone waits until no sandbox of the case is there, as far as the backend lists them.
func (t *T) eventuallyNone(what string) {
	if t.Has(executor.FeatureList) {
		t.Eventually(5*time.Second, what, func() bool { return len(t.listed(t.Executor())) == 0 })
	}
}

// sameWords reports whether a and b hold the same strings.
func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
