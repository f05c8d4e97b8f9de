package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// The labels that every session of the suite carries, so that what is left can be found at the
// backend, and whose it is.
const (
	LabelRun  = "conformance-run"  // one value for each call of Run
	LabelCase = "conformance-case" // the ID of the case, or "shared" for a session that several cases use
)

// labelShared is the value of LabelCase of a session that several cases use.
const labelShared = "shared"

// T is what cases use: the backend under test, and a way to say what was found. Its methods are
// safe for concurrent use, but those that end the case (Session, Run, Program, Child, Eventually,
// Fatalf, Abort) work only on the goroutine that the case was called on.
//
// What a case finds first decides: Errorf after Abort does not make a failure, and Abort after
// Errorf does not hide one.
type T struct {
	s   *suite
	c   Case
	ctx context.Context
	x   executor.Executor
	w   *worker // nil in a child process

	child *childEnd // in a child process: the way to the parent

	mu       sync.Mutex
	over     bool // what goroutines that were left behind find no longer counts
	verdict  Outcome
	reason   string
	panicked bool
	changed  bool // the case has done to a session of Shared what others may notice
	log      []string
	cleanups []func()
}

// The bounds of what a case may put into the report: its lines may quote output of hostile code.
const (
	maxLogLines = 100
	maxLogBytes = 4 << 10
)

// Context ends when the case must be over.
func (t *T) Context() context.Context { return t.ctx }

// Language returns the language of the case; in a case that is not about one, the first that the
// target has programs for.
func (t *T) Language() executor.Language {
	if t.c.Language != "" {
		return t.c.Language
	}
	for _, l := range t.Languages() {
		return l
	}
	return ""
}

// Languages returns the languages that the target has programs for and the backend declares.
func (t *T) Languages() (ls []executor.Language) {
	for _, l := range t.s.target.languages() {
		if _, ok := t.s.info.Capabilities.Runtime(l); ok {
			ls = append(ls, l)
		}
	}
	return ls
}

// Has reports whether the backend declares f; a PerLanguage feature, for the language of the case.
func (t *T) Has(f executor.Feature) bool {
	return t.s.info.Capabilities.HasFor(t.Language(), f)
}

// Executor returns the Executor of the case. Cases that run later use it too, so a case that closes
// an Executor opens another one.
//
// Sessions that are made with it, in whatever way, are labelled, counted, and closed at the end of
// the case.
func (t *T) Executor() executor.Executor { return t.x }

// Open opens another one, with params changed as given. It is closed at the end of the case.
func (t *T) Open(params map[string]string) executor.Executor {
	all := map[string]string{}
	maps.Copy(all, t.s.params)
	maps.Copy(all, params)
	x, err := t.s.target.Open(t.ctx, all)
	t.needs("open", err)
	t.cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close of an Executor of the case: %v", err)
		}
	})
	return watch(t, x)
}

// Spec returns the Target's Spec for the language of the case, edited and labelled.
func (t *T) Spec(edit ...func(*executor.Spec)) executor.Spec {
	spec := t.s.target.Spec
	spec.Languages = []executor.Language{t.Language()}
	spec.Labels, spec.Attributes, spec.Env = maps.Clone(spec.Labels), maps.Clone(spec.Attributes), maps.Clone(spec.Env)
	for _, e := range edit {
		e(&spec)
	}
	return t.label(spec)
}

// label adds the labels of the suite.
func (t *T) label(spec executor.Spec) executor.Spec {
	labels := map[string]string{}
	maps.Copy(labels, spec.Labels)
	labels[LabelRun], labels[LabelCase] = t.s.run, t.c.ID
	spec.Labels = labels
	return spec
}

// Session creates a session of the Target's Spec, labelled, closed at the end of the case. A
// failure fails the case, unless it says that the service is down, out of capacity, or does not
// know the key: that says nothing about the contract.
func (t *T) Session(edit ...func(*executor.Spec)) executor.Session {
	return t.created(t.x.Create(t.ctx, t.Spec(edit...)))
}

// Shared returns a session of the Target's Spec in which cases before have run code, and later ones
// will. It is for cases that neither look at what earlier runs have left nor leave anything that a
// later run could notice. A case that finds something is the last one of its session, and so is one
// that installs packages in it, sets its idle TTL, detaches from it or closes it.
func (t *T) Shared() executor.Session {
	if t.w == nil {
		return t.Session() // in a child process
	}
	l := t.Language()
	if t.w.shared[l] == nil {
		spec := t.Spec()
		spec.Labels[LabelCase] = labelShared
		x := t.x.(*watched)
		s, err := x.create(t.ctx, spec)
		s = t.created(x.examined("create", s, err))
		if t.w.shared == nil {
			t.w.shared = map[executor.Language]executor.Session{}
		}
		t.w.shared[l] = s
	}
	return &watchedSession{Session: t.w.shared[l], t: t, x: t.w.x, shared: true}
}

// created returns a session that was created, or ends the case.
func (t *T) created(s executor.Session, err error) executor.Session {
	for _, kind := range []error{executor.ErrUnavailable, executor.ErrExhausted, executor.ErrAuth} {
		if errors.Is(err, kind) {
			t.Abort("create: %v", err)
		}
	}
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return s
}

// Run runs r in s. An error fails the case.
func (t *T) Run(s executor.Session, r executor.Request) *executor.Result {
	res, err := s.Run(t.ctx, r, nil)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if res == nil {
		t.Fatalf("run: neither a result nor an error")
	}
	return res
}

// Program returns a request for a program in the language of the case. args alternate names and
// values: where the text has {{name}}, it gets the value as a literal, a string as JSON writes it,
// which is one in Python and JavaScript too.
func (t *T) Program(name string, args ...any) executor.Request {
	return t.ProgramIn(t.Language(), name, args...)
}

// ProgramIn is Program for another language.
func (t *T) ProgramIn(l executor.Language, name string, args ...any) executor.Request {
	return executor.Request{Language: l, Code: t.Source(l, name, args...)}
}

// Source returns the text of a program, with args as in Program.
func (t *T) Source(l executor.Language, name string, args ...any) string {
	src, ok := t.s.target.program(l, name)
	if !ok {
		t.Abort("no program %q for %s, and the case does not say that it needs one", name, l)
	}
	if t.child == nil && !slices.Contains(t.c.Programs, name) { // a child has its case by name only
		t.Abort("the case uses the program %q and does not say so", name)
	}
	for i := 0; i+1 < len(args); i += 2 {
		hole := fmt.Sprintf("{{%v}}", args[i])
		if !strings.Contains(src, hole) {
			t.Abort("program %q for %s has no %s", name, l, hole)
		}
		literal, err := json.Marshal(args[i+1])
		if err != nil {
			t.Abort("program %q: %s: %v", name, args[i], err)
		}
		src = strings.ReplaceAll(src, hole, string(literal))
	}
	return src
}

// Eventually waits until f holds, for at most within and Grace, and fails the case if it does not.
// f is called now and then.
func (t *T) Eventually(within time.Duration, what string, f func() bool) {
	deadline := time.Now().Add(within + t.Grace())
	for pause := time.Millisecond; !f(); pause = min(2*pause, 200*time.Millisecond) {
		if time.Now().After(deadline) || t.ctx.Err() != nil {
			t.Fatalf("not within %v: %s", within+t.Grace(), what)
		}
		select {
		case <-time.After(pause):
		case <-t.ctx.Done():
		}
	}
}

// Refused checks that err refuses something that is not declared: ErrUnsupported, before any code
// has run, and with the names of what is missing. A PerLanguage feature may be named with a
// language behind it.
func (t *T) Refused(what string, err error, missing ...executor.Feature) {
	var e *executor.Error
	switch {
	case err == nil:
		t.Errorf("%s: not refused", what)
	case !errors.As(err, &e) || !errors.Is(err, executor.ErrUnsupported):
		t.Errorf("%s: got the error %v, want one of kind ErrUnsupported", what, err)
	case e.Ran != executor.RanNo:
		t.Errorf("%s: the refusal says that the code may have run: %v", what, e.Ran)
	default:
		for _, f := range missing {
			if !slices.ContainsFunc(e.Missing, func(m string) bool { name, _, _ := strings.Cut(m, ":"); return name == string(f) }) {
				t.Errorf("%s: the refusal names %q as missing, want %s", what, e.Missing, f)
			}
		}
	}
}

// Grace is Target.Grace.
func (t *T) Grace() time.Duration { return t.s.target.Grace }

// Errorf says that the contract was broken.
func (t *T) Errorf(format string, args ...any) { t.find(Failed, fmt.Sprintf(format, args...)) }

// Fatalf is Errorf and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	t.find(Failed, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Abort says that the suite cannot find out, and ends the case.
func (t *T) Abort(format string, args ...any) {
	t.find(Errored, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// needs aborts the case for an error of what the suite needs.
func (t *T) needs(what string, err error) {
	if err != nil {
		t.Abort("%s: %v", what, err)
	}
}

// Logf adds a line to the report.
func (t *T) Logf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if t.child != nil {
		t.child.send(message{Kind: msgLog, Text: bounded(line)})
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logLocked(line)
}

// find notes a finding. The first one decides about the outcome; all are in the log. In a child, it
// is the parent who notes it.
func (t *T) find(o Outcome, what string) {
	if t.child != nil {
		t.child.send(message{Kind: string(o), Text: bounded(what)})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if t.verdict == "" {
		t.verdict, t.reason = o, bounded(what)
	}
	t.logLocked(what)
}

func (t *T) logLocked(line string) {
	switch {
	case t.over || len(t.log) > maxLogLines:
	case len(t.log) == maxLogLines:
		t.log = append(t.log, "(more lines)")
	default:
		t.log = append(t.log, bounded(line))
	}
}

// bounded cuts a line to what a report may hold, in valid UTF-8.
func bounded(line string) string {
	if len(line) > maxLogBytes {
		line = line[:maxLogBytes] + "(cut)"
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}

// Failed reports whether something was found.
func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict != ""
}

// cleanup calls f at the end of the case, last first.
func (t *T) cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// finish calls the cleanups. A cleanup may add further ones.
func (t *T) finish() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		f()
	}
}
