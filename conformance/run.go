package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// suite is one call of Run, or its share in a child process.
type suite struct {
	target  Target // with its defaults
	params  map[string]string
	run     string // value of LabelRun
	info    executor.Info
	created atomic.Int64 // sessions, of children too

	before  census // of what the process holds, before the first Executor
	tempDir string // the temporary directory of the process while the suite runs

	mu        sync.Mutex
	abandoned []string // cases whose goroutine did not come back
	closeErrs []string // of the Executors of the cases
	progress  sync.Mutex
}

var (
	errBudget = errors.New("the suite may create no more sessions: Target.MaxSessions")
	errBound  = errors.New("the case ran out of time")
)

// busy is held by the one Run of this process: what a process holds can be counted for one suite at
// a time only.
var busy = make(chan struct{}, 1)

// Run runs the suite. The error is about the suite: an error in the target, a Setup or an Open
// that failed, the end of ctx. What was found is in the Report, which is never nil and has a line
// for every case also then.
//
// A second Run in the same process waits for the first. While it runs, $TMPDIR of the process names
// a directory of the suite's, and on Linux processes that lost their parent become children of this
// one, so that what is left of either can be told from other programs'.
func Run(ctx context.Context, target Target) (*Report, error) {
	return runSuite(ctx, target.withDefaults(), Cases(target.languages()...))
}

func runSuite(ctx context.Context, target Target, cases []Case) (*Report, error) {
	r := newReport(target)
	if os.Getenv(childEnv) != "" {
		return r.allErrored(cases, errors.New("this process is a child of the suite: call RunChild first in main or TestMain"))
	}
	if err := errors.Join(target.validate(), unmatched(target.Only, cases)); err != nil {
		return r.allErrored(cases, err)
	}
	select {
	case busy <- struct{}{}:
		defer func() { <-busy }()
	case <-ctx.Done():
		return r.allErrored(cases, context.Cause(ctx))
	}
	s := &suite{target: target, run: strings.ToLower(rand.Text())}
	restore, err := s.surround()
	if err != nil {
		return r.allErrored(cases, err)
	}
	defer restore()
	cleanup := func() error { return nil }
	if target.Setup != nil {
		params, c, err := target.Setup(ctx)
		if c != nil {
			cleanup = c
		}
		if err != nil {
			err = errors.Join(err, cleanup())
			return r.allErrored(cases, fmt.Errorf("setup: %w", err))
		}
		s.params = params
	}
	err = s.all(ctx, r, cases)
	if cerr := cleanup(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("cleanup: %w", cerr))
	}
	return r, err
}

// unmatched reports the patterns that select no case: a filter with a typing error must not pass
// for a green run.
func unmatched(only []string, cases []Case) error {
	var errs []error
	for _, p := range only {
		if !slices.ContainsFunc(cases, func(c Case) bool { ok, err := matches(p, c.ID); return ok || err != nil }) {
			errs = append(errs, fmt.Errorf("only: %q selects no case", p))
		}
	}
	return errors.Join(errs...)
}

// all runs the cases and fills in the report.
func (s *suite) all(ctx context.Context, r *Report, cases []Case) error {
	s.before = takeCensus(s)
	x, err := s.target.Open(ctx, maps.Clone(s.params))
	if err != nil {
		_, err = r.allErrored(cases, fmt.Errorf("open: %w", err))
		return err
	}
	s.info = x.Info()
	r.Info = s.info

	var together, alone, last []*job
	jobs := make([]*job, len(cases))
	for i, c := range cases {
		j := &job{c: c}
		jobs[i] = j
		switch j.form, j.line = s.plan(c); {
		case j.form == nil:
			s.report(j.line)
		case c.last:
			last = append(last, j)
		case c.Alone || s.target.Parallel == 1:
			alone = append(alone, j)
		default:
			together = append(together, j)
		}
	}
	first := &worker{s: s, x: x}
	var wg sync.WaitGroup
	queue := make(chan *job)
	for i := range s.target.Parallel {
		if len(together) == 0 {
			break
		}
		w := first
		if i > 0 {
			w = &worker{s: s}
		}
		wg.Go(func() {
			for j := range queue {
				w.do(ctx, j)
			}
			if w != first {
				w.close()
			}
		})
	}
	for _, j := range together {
		queue <- j
	}
	close(queue)
	wg.Wait()
	for _, j := range alone {
		first.do(ctx, j)
	}
	first.close()
	for _, j := range last {
		(&worker{s: s, none: true}).do(ctx, j)
	}
	for _, j := range jobs {
		r.Cases = append(r.Cases, j.line)
	}
	r.finish(s.target.KnownFailures)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// job is a case to run, with its line.
type job struct {
	c    Case
	form func(*T)
	line Line
}

// plan chooses the form of a case, or says why none runs.
func (s *suite) plan(c Case) (form func(*T), line Line) {
	form, declared, reason, notApplicable := c.form(s.info.Capabilities)
	line = c.line()
	line.Declared, line.Outcome, line.Reason, line.NotApplicable = declared, Unchecked, reason, notApplicable
	if form == nil {
		return nil, line
	}
	if !s.target.Selects(c.ID) {
		line.Reason = notSelected
		return nil, line
	}
	l := c.Language
	l = cmp.Or(l, s.target.languages()[0])
	for _, name := range c.Programs {
		if _, ok := s.target.program(l, name); !ok {
			line.Reason = fmt.Sprintf("no program %q for %s", name, l)
			return nil, line
		}
	}
	if c.unsuited != nil {
		if line.Reason = c.unsuited(s); line.Reason != "" {
			line.NotApplicable = true
			return nil, line
		}
	}
	return form, line
}

// report tells Target.Progress.
func (s *suite) report(l Line) {
	s.progress.Lock()
	defer s.progress.Unlock()
	if s.target.Progress != nil {
		s.target.Progress(l)
	}
}

// spend takes a session from the budget of the suite.
func (s *suite) spend(t *T) bool {
	if t.child != nil {
		t.child.send(message{Kind: msgSession})
	}
	if s.created.Add(1) > int64(s.target.MaxSessions) {
		t.find(Errored, errBudget.Error())
		return false
	}
	return true
}

// budget returns how many sessions may still be created.
func (s *suite) budget() int { return max(s.target.MaxSessions-int(s.created.Load()), 0) }

// stopBound is how long after the end of its context a case may take to return: the stopping of
// code takes time as well, and a driver has 10 s for it by default.
func (s *suite) stopBound() time.Duration { return 3 * s.target.Grace }

// cleanupBound is how long the closing of what a case opened may take. The default of drivers is 30
// s.
func (s *suite) cleanupBound() time.Duration { return 7 * s.target.Grace }

// worker runs cases one after the other on an Executor of its own.
type worker struct {
	s    *suite
	x    executor.Executor // nil: open one for the next case
	none bool              // its cases use no Executor of the suite's

	shared map[executor.Language]executor.Session // of T.Shared; the case that runs uses it alone
}

// do runs a case and reports it.
func (w *worker) do(ctx context.Context, j *job) {
	start := time.Now()
	w.try(ctx, j)
	j.line.Millis = time.Since(start).Milliseconds()
	w.s.report(j.line)
}

func (w *worker) try(ctx context.Context, j *job) {
	s := w.s
	l := &j.line
	if ctx.Err() != nil {
		l.Outcome, l.Reason = Errored, fmt.Sprintf("the suite was stopped: %v", context.Cause(ctx))
		return
	}
	if w.x == nil && !w.none {
		x, err := s.target.Open(ctx, maps.Clone(s.params))
		if err != nil {
			l.Outcome, l.Reason = Errored, fmt.Sprintf("open: %v", err)
			return
		}
		w.x = x
	}
	cctx, cancel := context.WithTimeoutCause(ctx, j.c.Bound+s.target.Grace, errBound)
	defer cancel()
	t := &T{s: s, c: j.c, ctx: cctx, w: w}
	if w.x != nil {
		t.x = watch(t, w.x)
	}
	whole := true
	switch {
	case !s.within(j.c.Bound+s.target.Grace+s.stopBound(), func() { j.form(t) }, t):
		t.find(Failed, "did not return when its context had ended; its goroutine is left behind")
		whole = false
	case !s.within(s.cleanupBound(), t.finish, t):
		t.find(Failed, "what it had opened could not be closed in time; its goroutine is left behind")
		whole = false
	}
	t.mu.Lock()
	t.over = true
	l.Outcome, l.Reason, l.Log = t.verdict, t.reason, t.log
	panicked, changed := t.panicked, t.changed
	t.mu.Unlock()
	if len(l.Log) == 1 && l.Log[0] == l.Reason {
		l.Log = nil
	}
	switch {
	case ctx.Err() != nil: // what then goes wrong says nothing
		l.Outcome, l.Reason = Errored, fmt.Sprintf("the suite was stopped: %v", context.Cause(ctx))
	case l.Outcome != "":
	case l.Declared:
		l.Outcome = Passed
	default:
		l.Outcome = Refused
	}
	if !whole {
		s.mu.Lock()
		s.abandoned = append(s.abandoned, j.c.ID)
		s.mu.Unlock()
	}
	switch {
	case !whole || panicked:
		w.close() // it may hold locks forever, so the next case gets another one
	case l.Outcome == Failed || l.Outcome == Errored || changed:
		w.closeShared() // what is wrong with it, or other than before, is not for the next case
	}
}

// within calls f on a goroutine of its own and reports whether it came back in time. If not, the
// goroutine is left behind: there is no way to end it, and the cases after it must not wait for it.
func (s *suite) within(bound time.Duration, f func(), t *T) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.recover()
		f()
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// close closes the Executor of the worker.
func (w *worker) close() {
	if w.x == nil {
		return
	}
	w.closeShared()
	w.bounded("the Executor", w.x.Close)
	w.x = nil
}

// closeShared closes the sessions that cases of the worker share.
func (w *worker) closeShared() {
	for _, s := range w.shared {
		w.bounded("a session that cases share", s.Close)
	}
	clear(w.shared)
}

// bounded calls the Close of what outlives a case, in bounded time.
func (w *worker) bounded(what string, f func() error) {
	t := &T{s: w.s}
	inTime := w.s.within(w.s.cleanupBound(), func() {
		if err := f(); err != nil {
			t.Errorf("close of %s: %v", what, err)
		}
	}, t)
	if !inTime {
		t.find(Failed, what+" did not close in time")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verdict != "" {
		w.s.mu.Lock()
		w.s.closeErrs = append(w.s.closeErrs, t.reason)
		w.s.mu.Unlock()
	}
}
