package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func TestMain(m *testing.M) {
	if was, err := RunChild(context.Background(), stub{}.target()); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stub is an Executor that does nothing, and that does as its fields say.
type stub struct {
	executor.BaseExecutor
	caps   executor.Capabilities
	create func(context.Context, executor.Spec) (executor.Session, error)
	close  func() error
}

func (s stub) Info() executor.Info {
	return executor.Info{Name: "stub", Type: "stub", Capabilities: s.caps}
}

func (s stub) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	if s.create != nil {
		return s.create(ctx, spec)
	}
	return &stubSession{}, nil
}

func (s stub) Close() error {
	if s.close != nil {
		return s.close()
	}
	return nil
}

// target returns a target of s in one language. What s does not declare is declared as little as
// possible.
func (s stub) target() Target {
	if len(s.caps.Languages) == 0 {
		s.caps.Languages = []executor.Runtime{{Language: executor.Python}}
	}
	return Target{
		Implementation: Implementation{Name: "stub", Version: "1"}, Mode: Fake, Grace: time.Second,
		Open:     func(context.Context, map[string]string) (executor.Executor, error) { return s, nil },
		Programs: []Programs{{Language: executor.Python, Source: map[string]string{"print": "print({{text}})"}}},
	}
}

type stubSession struct {
	executor.BaseSession
	run    func(ctx context.Context) error
	closed *atomic.Int64
	close  func() error
}

func (s *stubSession) Info() executor.SessionInfo { return executor.SessionInfo{} }

func (s *stubSession) Run(ctx context.Context, _ executor.Request, _ func(executor.Event) error) (*executor.Result, error) {
	if s.run != nil {
		return nil, s.run(ctx)
	}
	return &executor.Result{Status: executor.StatusOK}, nil
}

func (s *stubSession) Close() error {
	if s.closed != nil {
		s.closed.Add(1)
	}
	if s.close != nil {
		return s.close()
	}
	return nil
}

// runDefs runs cases of a test's own.
func runDefs(ctx context.Context, target Target, defs ...caseDef) (*Report, error) {
	return runSuite(ctx, target.withDefaults(), expand(defs, target.languages()))
}

func lineOf(t *testing.T, r *Report, id string) Line {
	t.Helper()
	for _, l := range r.Cases {
		if l.ID == id {
			return l
		}
	}
	t.Fatalf("the report has no line %q", id)
	return Line{}
}

func internal(context.Context) error {
	return &executor.Error{Op: "run", Kind: executor.ErrInternal}
}

func TestOutcomes(t *testing.T) {
	ok, bad := func(*T) {}, func(t *T) { t.Errorf("broken") }
	for name, c := range map[string]struct {
		def     caseDef
		caps    []executor.Feature // of the language
		known   string
		want    Outcome
		reason  string
		applies bool
		green   bool
	}{
		"passed":          {def: caseDef{Positive: ok}, want: Passed, green: true},
		"failed":          {def: caseDef{Positive: bad}, want: Failed, reason: "broken"},
		"declared":        {def: caseDef{Feature: "stdin", Positive: ok, Negative: bad}, caps: []executor.Feature{"stdin"}, want: Passed, green: true},
		"undeclared":      {def: caseDef{Feature: "stdin", Positive: bad, Negative: ok}, want: Refused, green: true},
		"not-refused":     {def: caseDef{Feature: "stdin", Positive: ok, Negative: bad}, want: Failed, reason: "broken"},
		"hole":            {def: caseDef{Feature: "stdin", Positive: ok}, want: Unchecked, reason: "stdin is not declared, and the case has no negative form"},
		"promise":         {def: caseDef{Feature: "streaming", Positive: bad}, want: Unchecked, reason: "promise not declared", green: true},
		"promise-made":    {def: caseDef{Feature: "streaming", Positive: ok}, caps: []executor.Feature{"streaming"}, want: Passed, green: true},
		"promise-refused": {def: caseDef{Feature: "streaming", Positive: bad, Negative: ok}, want: Refused, green: true},
		"needs": {
			def:  caseDef{Feature: "stdin", Needs: []executor.Feature{"files"}, Positive: bad, Negative: ok},
			caps: []executor.Feature{"stdin"}, want: Unchecked, reason: "needs files, which is not declared", green: true,
		},
		"needs-undeclared": {def: caseDef{Feature: "stdin", Needs: []executor.Feature{"files"}, Positive: bad, Negative: ok}, want: Refused, green: true},
		"program":          {def: caseDef{PerLanguage: true, Programs: []string{"print"}, Positive: ok}, want: Passed, green: true},
		"no-program":       {def: caseDef{PerLanguage: true, Programs: []string{"spin"}, Positive: ok}, want: Unchecked, reason: `no program "spin" for python`},
		"undeclared-use":   {def: caseDef{PerLanguage: true, Positive: func(t *T) { t.Program("spin") }}, want: Errored, reason: `no program "spin" for python, and the case does not say that it needs one`},
		"aborted":          {def: caseDef{Positive: func(t *T) { t.Abort("no engine") }}, want: Errored, reason: "no engine"},
		"failed-first":     {def: caseDef{Positive: func(t *T) { t.Errorf("one"); t.Abort("two") }}, want: Failed, reason: "one"},
		"aborted-first":    {def: caseDef{Positive: func(t *T) { t.cleanup(func() { t.Errorf("two") }); t.Abort("one") }}, want: Errored, reason: "one"},
		"fatal":            {def: caseDef{Positive: func(t *T) { t.Fatalf("one"); panic("not reached") }}, want: Failed, reason: "one"},
		"known":            {def: caseDef{Positive: bad}, known: "ticket 7", want: Known, reason: "ticket 7: broken"},
		"stale":            {def: caseDef{Positive: ok}, known: "ticket 7", want: Stale, reason: "listed as a known failure, but it holds: ticket 7"},
		"known-errored":    {def: caseDef{Positive: func(t *T) { t.Abort("no engine") }}, known: "ticket 7", want: Errored, reason: "no engine"},
		"panic-of-case":    {def: caseDef{Positive: func(t *T) { var m map[string]int; m["x"] = 1 }}, want: Errored, reason: "panic: assignment to entry in nil map"},
		"panic-below":      {def: caseDef{Positive: func(t *T) { strings.Repeat("x", -1) }}, want: Failed, reason: "panic: strings: negative Repeat count"},
	} {
		t.Run(name, func(t *testing.T) {
			c.def.ID = "case"
			s := stub{caps: executor.Capabilities{Languages: []executor.Runtime{{Language: executor.Python, Features: c.caps}}}}
			target := s.target()
			id := expand([]caseDef{c.def}, target.languages())[0].ID
			if c.known != "" {
				target.KnownFailures = map[string]string{id: c.known}
			}
			r, err := runDefs(t.Context(), target, c.def)
			if err != nil {
				t.Fatal(err)
			}
			l := lineOf(t, r, id)
			if l.Outcome != c.want || l.Reason != c.reason || r.Conformant != c.green || r.Totals[c.want] != 1 {
				t.Errorf("got %s, %q, conformant %v, totals %v, want %s, %q, %v", l.Outcome, l.Reason, r.Conformant, r.Totals, c.want, c.reason, c.green)
			}
		})
	}
}

func TestPanicHasStackAndNewExecutor(t *testing.T) {
	opened := 0
	target := stub{}.target()
	open := target.Open
	target.Open = func(ctx context.Context, p map[string]string) (executor.Executor, error) {
		opened++
		return open(ctx, p)
	}
	r, err := runDefs(t.Context(), target,
		caseDef{ID: "a", Positive: func(*T) { strings.Repeat("x", -1) }}, caseDef{ID: "b", Positive: func(*T) {}})
	if err != nil {
		t.Fatal(err)
	}
	if l := lineOf(t, r, "a"); !slices.ContainsFunc(l.Log, func(s string) bool { return strings.Contains(s, "strings.Repeat") }) {
		t.Errorf("got the log %q, want the stack", l.Log)
	}
	if l := lineOf(t, r, "b"); l.Outcome != Passed || opened != 2 {
		t.Errorf("got %s and %d Executors, want passed and 2", l.Outcome, opened)
	}
}

// TestInternalErrors checks that an internal error fails the case that meets it, also one that does
// not look at it.
func TestInternalErrors(t *testing.T) {
	s := stub{create: func(context.Context, executor.Spec) (executor.Session, error) {
		return &stubSession{run: internal}, nil
	}}
	r, err := runDefs(t.Context(), s.target(), caseDef{ID: "a", Positive: func(t *T) {
		t.Session().Run(t.Context(), executor.Request{Code: "x"}, nil)
	}})
	if l := lineOf(t, r, "a"); err != nil || l.Outcome != Failed || !strings.Contains(l.Reason, "internal error") {
		t.Errorf("got %s, %q, %v", l.Outcome, l.Reason, err)
	}
}

func TestServiceDownIsErrored(t *testing.T) {
	for kind, want := range map[error]Outcome{
		executor.ErrUnavailable: Errored, executor.ErrExhausted: Errored, executor.ErrAuth: Errored,
		executor.ErrInvalid: Failed, executor.ErrUnsupported: Failed,
	} {
		s := stub{create: func(context.Context, executor.Spec) (executor.Session, error) {
			return nil, &executor.Error{Op: "create", Kind: kind}
		}}
		r, err := runDefs(t.Context(), s.target(), caseDef{ID: "a", Positive: func(t *T) { t.Session() }})
		if l := lineOf(t, r, "a"); err != nil || l.Outcome != want {
			t.Errorf("%v: got %s, %v, want %s", kind, l.Outcome, err, want)
		}
	}
}

func TestSessionsAreLabelledCountedAndClosed(t *testing.T) {
	var closed atomic.Int64
	var labels []map[string]string
	s := stub{create: func(_ context.Context, spec executor.Spec) (executor.Session, error) {
		labels = append(labels, spec.Labels)
		return &stubSession{closed: &closed}, nil
	}}
	target := s.target()
	target.MaxSessions = 3
	target.Spec.Labels = map[string]string{"mine": "kept"}
	r, err := runDefs(t.Context(), target,
		caseDef{ID: "a", Positive: func(t *T) {
			t.Session()
			t.Executor().Create(t.Context(), executor.Spec{})
		}},
		caseDef{ID: "b", Positive: func(t *T) { t.Session(); t.Session() }},
		caseDef{ID: "c", Positive: func(t *T) {}})
	if err != nil {
		t.Fatal(err)
	}
	if got := closed.Load(); got != 3 || len(labels) != 3 {
		t.Fatalf("got %d sessions created and %d closed, want 3", len(labels), got)
	}
	if l := labels[0]; l["mine"] != "kept" || l[LabelCase] != "a" || l[LabelRun] == "" || labels[1][LabelRun] != l[LabelRun] {
		t.Errorf("got the labels %v", labels)
	}
	if l := lineOf(t, r, "b"); l.Outcome != Errored || !strings.Contains(l.Reason, "MaxSessions") {
		t.Errorf("got %s, %q beyond MaxSessions", l.Outcome, l.Reason)
	}
	if l := lineOf(t, r, "c"); l.Outcome != Passed {
		t.Errorf("got %s of a case without sessions, want passed", l.Outcome)
	}
}

// TestSharedSessions checks that cases share a session until one of them finds something, or does
// to it what the next could notice.
func TestSharedSessions(t *testing.T) {
	for name, c := range map[string]struct {
		first func(*T, executor.Session)
		want  int // sessions of two cases
	}{
		"run":     {func(t *T, s executor.Session) { t.Run(s, executor.Request{}) }, 1},
		"failed":  {func(t *T, s executor.Session) { t.Errorf("broken") }, 2},
		"errored": {func(t *T, s executor.Session) { t.Abort("no engine") }, 2},
		"closed":  {func(t *T, s executor.Session) { s.Close() }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			created, closed := 0, new(atomic.Int64)
			target := stub{create: func(context.Context, executor.Spec) (executor.Session, error) {
				created++
				return &stubSession{closed: closed}, nil
			}}.target()
			r, err := runDefs(t.Context(), target,
				caseDef{ID: "a", PerLanguage: true, Positive: func(t *T) { c.first(t, t.Shared()) }},
				caseDef{ID: "b", PerLanguage: true, Positive: func(t *T) { t.Run(t.Shared(), executor.Request{}) }},
			)
			if err != nil || created != c.want || closed.Load() < int64(created) {
				t.Errorf("got %v, %d sessions, %d calls of Close, want %d sessions", err, created, closed.Load(), c.want)
			}
			if l := lineOf(t, r, "python/b"); l.Outcome != Passed {
				t.Errorf("the next case: got %+v", l)
			}
		})
	}
}

func TestCloseThatFailsIsFound(t *testing.T) {
	s := stub{create: func(context.Context, executor.Spec) (executor.Session, error) {
		return &stubSession{close: func() error { return errors.New("still there") }}, nil
	}}
	r, _ := runDefs(t.Context(), s.target(), caseDef{ID: "a", Positive: func(t *T) { t.Session() }})
	if l := lineOf(t, r, "a"); l.Outcome != Failed || !strings.Contains(l.Reason, "still there") {
		t.Errorf("got %s, %q", l.Outcome, l.Reason)
	}
}

// TestHangingDriver checks that a driver that ignores its context fails the case and does not hold
// up the others, that they get another Executor, and that nothing is claimed about what the hanging
// one holds.
func TestHangingDriver(t *testing.T) {
	for name, hang := range map[string]struct {
		create, run, close bool
	}{"create": {create: true}, "run": {run: true}, "close": {close: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer synctest.Wait()
				defer close(release)
				var used atomic.Bool
				s := stub{create: func(context.Context, executor.Spec) (executor.Session, error) {
					hangs := !used.Swap(true)
					if hangs && hang.create {
						<-release
					}
					s := &stubSession{}
					if hangs && hang.run {
						s.run = func(context.Context) error { <-release; return nil }
					}
					if hangs && hang.close {
						s.close = func() error { <-release; return nil }
					}
					return s, nil
				}}
				target := s.target()
				opened := 0
				open := target.Open
				target.Open = func(ctx context.Context, p map[string]string) (executor.Executor, error) {
					opened++
					return open(ctx, p)
				}
				use := func(t *T) { t.Run(t.Session(), executor.Request{Code: "x"}) }
				begun := time.Now()
				r, err := runDefs(t.Context(), target, caseDef{ID: "a", Bound: 10 * time.Second, Positive: use}, caseDef{ID: "b", Positive: use},
					caseDef{ID: "leak", last: true, Positive: left("thing", goroutines, func(s *suite) map[string]string { return s.before.goroutines })})
				if err != nil {
					t.Fatal(err)
				}
				if l := lineOf(t, r, "a"); l.Outcome != Failed || !strings.Contains(l.Reason, "left behind") {
					t.Errorf("got %s, %q, want failed", l.Outcome, l.Reason)
				}
				if l := lineOf(t, r, "b"); l.Outcome != Passed || opened != 2 {
					t.Errorf("got %s with %d Executors, want passed with a second one", l.Outcome, opened)
				}
				if l := lineOf(t, r, "leak"); l.Outcome != Errored {
					t.Errorf("got %s of the count of goroutines, want errored", l.Outcome)
				}
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("the run took %v", took)
				}
			})
		})
	}
}

func TestTimeOfACase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Bound: 5 * time.Second, Positive: func(t *T) {
			begun := time.Now()
			<-t.Context().Done()
			t.Errorf("%v, %v", time.Since(begun), context.Cause(t.Context()))
		}})
		if got, want := lineOf(t, r, "a").Reason, "6s, the case ran out of time"; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, alone atomic.Int64
		var defs []caseDef
		for i := range 12 {
			def := caseDef{ID: fmt.Sprintf("case-%d", i), Alone: i%4 == 0}
			def.Positive = func(*T) {
				n := now.Add(1)
				defer now.Add(-1)
				most.Store(max(most.Load(), n))
				if def.Alone {
					alone.Store(max(alone.Load(), n))
				}
				time.Sleep(time.Second)
			}
			defs = append(defs, def)
		}
		target := stub{}.target()
		target.Parallel = 3
		var lines []string
		target.Progress = func(l Line) { lines = append(lines, l.ID) }
		r, err := runDefs(t.Context(), target, defs...)
		if err != nil || r.Totals[Passed] != 12 || len(lines) != 12 {
			t.Errorf("got %v, %v, and progress %q", r.Totals, err, lines)
		}
		if most.Load() != 3 || alone.Load() != 1 {
			t.Errorf("got %d cases at a time, and %d beside one that runs alone, want 3 and 1", most.Load(), alone.Load())
		}
	})
}

func TestStoppedSuite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := runDefs(ctx, stub{}.target(), caseDef{ID: "a", Positive: func(*T) { cancel() }}, caseDef{ID: "b", Positive: func(*T) {}})
	if !errors.Is(err, context.Canceled) || r.Totals[Errored] != 2 {
		t.Errorf("got %v, %v, want every case errored", err, r.Totals)
	}
}

func TestSetup(t *testing.T) {
	def := caseDef{ID: "a", Positive: func(t *T) {}}
	t.Run("params", func(t *testing.T) {
		target := stub{}.target()
		cleaned := false
		target.Setup = func(context.Context) (map[string]string, func() error, error) {
			return map[string]string{"key": "value"}, func() error { cleaned = true; return nil }, nil
		}
		var seen []map[string]string
		open := target.Open
		target.Open = func(ctx context.Context, p map[string]string) (executor.Executor, error) {
			seen = append(seen, p)
			return open(ctx, p)
		}
		if _, err := runDefs(t.Context(), target, caseDef{ID: "a", Positive: func(t *T) { t.Open(map[string]string{ParamOwner: "other"}) }}); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 2 || seen[0]["key"] != "value" || seen[1]["key"] != "value" || seen[0][ParamOwner] != "" || seen[1][ParamOwner] != "other" || !cleaned {
			t.Errorf("got the params %v, cleaned up %v", seen, cleaned)
		}
	})
	for name, c := range map[string]struct {
		setup, open, cleanup error
		line                 Outcome
	}{
		"setup-fails":   {setup: errors.New("no engine"), line: Errored},
		"open-fails":    {open: errors.New("no engine"), line: Errored},
		"cleanup-fails": {cleanup: errors.New("no engine"), line: Passed},
	} {
		t.Run(name, func(t *testing.T) {
			target := stub{}.target()
			target.Setup = func(context.Context) (map[string]string, func() error, error) {
				return nil, func() error { return c.cleanup }, c.setup
			}
			if c.open != nil {
				target.Open = func(context.Context, map[string]string) (executor.Executor, error) { return nil, c.open }
			}
			r, err := runDefs(t.Context(), target, def)
			if l := lineOf(t, r, "a"); err == nil || !strings.Contains(err.Error(), "no engine") || l.Outcome != c.line {
				t.Errorf("got %v and %s, want the error and %s", err, l.Outcome, c.line)
			}
		})
	}
}

func TestInvalidTargets(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Target)
		want string
	}{
		"name":      {func(t *Target) { t.Implementation.Name = "" }, "implementation: name and version"},
		"version":   {func(t *Target) { t.Implementation.Version = "" }, "implementation: name and version"},
		"mode":      {func(t *Target) { t.Mode = "real" }, `mode: "real"`},
		"open":      {func(t *Target) { t.Open = nil }, "open:"},
		"programs":  {func(t *Target) { t.Programs = nil }, "programs: must be set"},
		"repeated":  {func(t *Target) { t.Programs = append(t.Programs, t.Programs[0]) }, `language "python" is empty or repeated`},
		"program":   {func(t *Target) { t.Programs[0].Source = map[string]string{"prnit": ""} }, `"prnit" is not the name of a program`},
		"reason":    {func(t *Target) { t.KnownFailures = map[string]string{"a": ""} }, "known failures: a"},
		"pattern":   {func(t *Target) { t.Only = []string{"["} }, `only: "["`},
		"unmatched": {func(t *Target) { t.Only = []string{"a", "b*"} }, `only: "b*" selects no case`},
	} {
		t.Run(name, func(t *testing.T) {
			target := stub{}.target()
			c.edit(&target)
			r, err := runDefs(t.Context(), target, caseDef{ID: "a", Positive: func(*T) {}})
			if err == nil || !strings.Contains(err.Error(), c.want) || r.Conformant || r.Totals[Errored] != len(r.Cases) {
				t.Errorf("got %v, %v, want %q and every case errored", err, r.Totals, c.want)
			}
		})
	}
}

func TestOnly(t *testing.T) {
	target := stub{}.target()
	target.Only = []string{"python/*", "x/y"}
	pass := func(*T) {}
	r, err := runDefs(t.Context(), target, caseDef{ID: "state/a", PerLanguage: true, Positive: pass}, caseDef{ID: "x/y", Positive: pass},
		caseDef{ID: "x/y/z", Positive: pass})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]Outcome{"python/state/a": Passed, "x/y": Passed, "x/y/z": Unchecked} {
		if l := lineOf(t, r, id); l.Outcome != want || l.Outcome == Unchecked && (l.Reason != notSelected || !l.Skipped()) {
			t.Errorf("%s: got %s, %q, want %s", id, l.Outcome, l.Reason, want)
		}
	}
	if r.Conformant {
		t.Error("a report of some cases is conformant")
	}
}

func TestUnknownKnownFailureIsStale(t *testing.T) {
	target := stub{}.target()
	target.KnownFailures = map[string]string{"gone": "ticket 7"}
	r, err := runDefs(t.Context(), target, caseDef{ID: "a", Positive: func(*T) {}})
	if l := lineOf(t, r, "gone"); err != nil || l.Outcome != Stale || r.Conformant {
		t.Errorf("got %s, %v, conformant %v", l.Outcome, err, r.Conformant)
	}
}

func TestUndeclaredLanguageIsAHole(t *testing.T) {
	s := stub{caps: executor.Capabilities{Languages: []executor.Runtime{{Language: "r"}}}}
	r, err := runDefs(t.Context(), s.target(), caseDef{ID: "a", PerLanguage: true, Positive: func(*T) {}}, declares)
	if l := lineOf(t, r, "python/a"); err != nil || l.Outcome != Unchecked || l.NotApplicable {
		t.Errorf("got %+v, %v", l, err)
	}
	if l := lineOf(t, r, "declares"); l.Outcome != Failed {
		t.Errorf("got %s of declares, want failed", l.Outcome)
	}
}

func TestLogsAreBounded(t *testing.T) {
	r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Positive: func(t *T) {
		for range 1000 {
			t.Errorf("%s", strings.Repeat("\xff", 100_000))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, l := range lineOf(t, r, "a").Log {
		size += len(l)
	}
	if most := 3 * (maxLogLines + 1) * (maxLogBytes + 10); size > most {
		t.Errorf("got a log of %d bytes, want at most %d", size, most)
	}
}

func TestProgramArguments(t *testing.T) {
	target := stub{}.target()
	r, err := runDefs(t.Context(), target, caseDef{ID: "a", PerLanguage: true, Programs: []string{"print"}, Positive: func(t *T) {
		req := t.Program("print", "text", "a\"b\n渐")
		if want := `print("a\"b\n渐")`; req.Code != want || req.Language != executor.Python {
			t.Errorf("got %q in %s, want %q", req.Code, req.Language, want)
		}
		t.Program("print", "other", 1)
	}})
	if l := lineOf(t, r, "python/a"); err != nil || l.Outcome != Errored || !strings.Contains(l.Reason, "has no {{other}}") {
		t.Errorf("got %s, %q, %v", l.Outcome, l.Reason, err)
	}
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Positive: func(t *T) {
			n := 0
			t.Eventually(time.Second, "three", func() bool { n++; return n == 3 })
			t.Eventually(time.Second, "never", func() bool { return false })
		}})
		if got, want := lineOf(t, r, "a").Reason, "not within 2s: never"; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"refused":     {&executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"stdin:python"}}, ""},
		"not-refused": {nil, "not refused"},
		"other-kind":  {&executor.Error{Kind: executor.ErrInvalid, Ran: executor.RanNo}, "want one of kind ErrUnsupported"},
		"plain":       {errors.ErrUnsupported, "want one of kind ErrUnsupported"},
		"may-have":    {&executor.Error{Kind: executor.ErrUnsupported, Missing: []string{"stdin"}}, "may have run"},
		"unnamed":     {&executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo}, "want stdin"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Positive: func(t *T) { t.Refused("run", c.err, executor.FeatureStdin) }})
			if got := lineOf(t, r, "a").Reason; err != nil || !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
