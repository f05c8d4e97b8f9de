package backends_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

func TestQueueIsFair(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {queue: {max: 1, length: 6, wait: 1h}}}}")
		defer w.close(b)
		first := w.create(b, executor.Spec{Subject: "busy"})
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for _, who := range []string{"busy 1", "busy 2", "busy 3", "busy 4", "calm 1", "other 1"} {
			wg.Go(func() {
				s := w.create(b, executor.Spec{Subject: strings.Fields(who)[0]})
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
				time.Sleep(time.Second)
				s.Close()
			})
			synctest.Wait() // it waits in its line
		}
		if got := b.Stats().Backends[0]; got.Sessions != 1 || got.Waiting != 6 {
			w.Errorf("got %+v", got)
		}
		_, err := b.Create(w.Context(), executor.Spec{Subject: "seventh"})
		w.fails(err, executor.ErrExhausted)
		first.Close()
		wg.Wait()
		if want := []string{"busy 1", "calm 1", "other 1", "busy 2", "busy 3", "busy 4"}; !slices.Equal(order, want) {
			w.Errorf("got %q, want %q", order, want)
		}
		if q := b.Stats().Arms; len(q) != 2 || time.Duration(q[1].Queue.P99) < 5*time.Second {
			w.Errorf("got %+v", q)
		}
	})
}

func TestQueueGivesUp(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {queue: {max: 1, wait: 5s}}}}")
		defer w.close(b)
		s := w.create(b, executor.Spec{})
		began := time.Now()
		_, err := b.Create(w.Context(), executor.Spec{})
		w.fails(err, executor.ErrExhausted)
		if got := time.Since(began); got != 5*time.Second {
			w.Errorf("gave up after %v", got)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err = b.Create(ctx, executor.Spec{})
		w.fails(err, context.DeadlineExceeded)
		if got := b.Stats().Backends[0]; got.Sessions != 1 || got.Waiting != 0 {
			w.Errorf("got %+v", got)
		}
		// A sandbox that is gone releases its slot before it is closed.
		w.at["a"].Break(s.Info().Handle.Session)
		if err := b.Destroy(w.Context(), s.Info().Handle); err != nil {
			w.Error(err)
		}
		if _, err := s.Refresh(w.Context()); err == nil {
			w.Error("got no error of what is gone")
		}
		w.create(b, executor.Spec{}).Close()
		s.Close()
		if got := b.Stats().Backends[0].Sessions; got != 0 {
			w.Errorf("got %d sessions", got)
		}
	})
}

// Concurrent calls keep the limit, and the count is right in the end.
func TestQueueCounts(t *testing.T) {
	w := newWorld(t, fake.Options{})
	b := w.open("backends: {a: {type: fake, on: a, broker: {queue: {max: 3, length: 50, wait: 1ms}}}}")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 25 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4)*100*time.Microsecond+time.Microsecond)
				s, err := b.Create(ctx, executor.Spec{Subject: fmt.Sprint(i % 5)})
				cancel()
				if n := len(w.at["a"].Sandboxes()); n > 3 {
					t.Errorf("got %d sandboxes", n)
				}
				if err == nil {
					s.Close()
				}
			}
		})
	}
	wg.Wait()
	if got := b.Stats().Backends[0]; got.Sessions != 0 || got.Waiting != 0 {
		t.Errorf("got %+v", got)
	}
	w.close(b)
}

func TestBreaker(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(`
backends: {a: {type: fake, on: a, broker: {breaker: {failures: 3, open: 10s}}}, b: {type: fake, on: b}}
routes: [{name: r, split: [{backend: a, weight: 1}], fallback: [b]}]`)
		defer w.close(b)
		a := w.at["a"]
		backend := func() string {
			s := w.create(b, executor.Spec{})
			defer s.Close()
			return s.Info().Handle.Backend
		}
		state := func() string { return b.Stats().Backends[0].Breaker }
		if got := backend() + " " + state(); got != "a closed" {
			w.Errorf("got %s", got)
		}
		a.Fail(fake.OpCreate, -1, unavailable)
		for range 3 {
			if got := backend(); got != "b" {
				w.Errorf("got %s", got)
			}
		}
		calls := a.Calls(fake.OpCreate)
		for range 50 {
			backend()
		}
		if got := a.Calls(fake.OpCreate); got != calls || state() != "open" {
			w.Errorf("the backend was asked %d times while the breaker was %s", got-calls, state())
		}
		x, _ := b.Backend("a")
		_, err := x.Create(w.Context(), executor.Spec{})
		if e := w.fails(err, executor.ErrUnavailable); e.RetryAfter <= 0 || e.RetryAfter > 10*time.Second {
			w.Errorf("got %+v", e)
		}
		time.Sleep(35 * time.Second) // the broker tries the backend, without a call of a user
		if got := a.Calls(fake.OpCreate) - calls; got != 3 || state() != "open" {
			w.Errorf("got %d tries, the breaker is %s", got, state())
		}
		a.Fail(fake.OpCreate, 0, nil)
		time.Sleep(11 * time.Second)
		if got := backend() + " " + state(); got != "a closed" {
			w.Errorf("got %s", got)
		}
	})
}

// TestBreakerTriesWhatFailed: the success of another Spec does not close the breaker, and neither
// does a refusal without asking the backend.
func TestBreakerTriesWhatFailed(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		var (
			mu    sync.Mutex
			made  []executor.Spec
			fails atomic.Bool
		)
		fails.Store(true)
		asked := func() []executor.Spec {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(made)
		}
		w.wrap = func(_ driver.Env, x executor.Executor) executor.Executor {
			return &picky{Executor: x, create: func(spec executor.Spec) error {
				mu.Lock()
				defer mu.Unlock()
				made = append(made, spec)
				switch {
				case spec.Template == "":
					return &executor.Error{Op: "create", Backend: "a", Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"template:"}}
				case fails.Load():
					return &executor.Error{Op: "create", Backend: "a", Kind: executor.ErrUnavailable, Ran: executor.RanNo}
				}
				return nil
			}}
		}
		b := w.open("backends: {a: {type: fake, on: a, broker: {breaker: {failures: 2, open: 10s}}}}")
		defer w.close(b)
		state := func() string { return b.Stats().Backends[0].Breaker }
		spec := executor.Spec{Template: "data-science", Labels: map[string]string{"user": "7"}, Subject: "u"}
		_, err := b.Create(w.Context(), spec)
		w.fails(err, executor.ErrUnavailable)
		_, err = b.Create(w.Context(), executor.Spec{})
		w.fails(err, executor.ErrUnsupported)
		_, err = b.Create(w.Context(), spec)
		w.fails(err, executor.ErrUnavailable)
		if state() != "open" {
			w.Errorf("got %s: what was refused without being asked has counted as health", state())
		}
		before := len(asked())
		time.Sleep(11 * time.Second)
		if got := asked()[before:]; len(got) != 1 || got[0].Template != spec.Template || got[0].Labels != nil || state() != "open" {
			w.Errorf("tried %+v, the breaker is %s", got, state())
		}
		// During an outage of the whole provider the broker asks for lists and creates no sandbox.
		fails.Store(false)
		before = len(asked())
		w.at["a"].Fail(fake.OpSessions, -1, unavailable)
		time.Sleep(31 * time.Second)
		if got := asked()[before:]; len(got) != 0 || state() != "open" {
			w.Errorf("tried %+v, the breaker is %s", got, state())
		}
		w.at["a"].Fail(fake.OpSessions, 0, nil)
		time.Sleep(11 * time.Second)
		if got := asked()[before:]; len(got) != 1 || state() != "closed" {
			w.Errorf("tried %+v, the breaker is %s", got, state())
		}
	})
}

// picky is a backend that refuses the Specs that create refuses.
type picky struct {
	executor.Executor
	create func(executor.Spec) error
}

func (x *picky) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	if err := x.create(spec); err != nil {
		return nil, err
	}
	return x.Executor.Create(ctx, spec)
}

// Errors and cancellations by the caller do not count against the backend.
func TestBreakerStaysClosed(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {breaker: {failures: 1}}}}")
		defer w.close(b)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_, err := b.Create(ctx, executor.Spec{})
		w.fails(err, context.Canceled)
		_, err = b.Create(w.Context(), executor.Spec{Template: "unknown"})
		w.fails(err, executor.ErrUnsupported)
		w.at["a"].Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, &executor.PackageError{Err: errors.New("the index is down")}))
		_, err = b.Create(w.Context(), executor.Spec{})
		w.fails(err, executor.ErrUnavailable)
		if got := b.Stats().Backends[0].Breaker; got != "closed" {
			w.Errorf("got %s", got)
		}
		late, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		defer cancel()
		_, err = b.Create(late, executor.Spec{})
		w.fails(err, context.DeadlineExceeded)
		if got := b.Stats().Backends[0].Breaker; got != "open" {
			w.Errorf("got %s after a deadline", got)
		}
	})
}

// TestBreakerCountsNoCode: code that makes its run look like a failure of the sandbox does not open
// the breaker for others, and counts as an answer in the statistics.
func TestBreakerCountsNoCode(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.wrap = func(_ driver.Env, x executor.Executor) executor.Executor { return &liars{x} }
		b := w.open("backends: {a: {type: fake, on: a, broker: {breaker: {failures: 1}}}}")
		defer w.close(b)
		const runs = 5
		run := func(s interface {
			Run(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error)
		}) {
			r, err := s.Run(w.Context(), executor.Request{Code: "1"}, nil)
			if err != nil || r.Status != executor.StatusKilled || r.Reason != executor.ReasonCode {
				w.Fatalf("got %+v, %v", r, err)
			}
			if got := b.Stats().Backends[0].Breaker; got != "closed" {
				w.Errorf("the breaker is %s after a run that the code spoiled", got)
			}
		}
		for i := range runs {
			s := w.create(b, executor.Spec{})
			run(s)
			s.Close()
			l, err := b.Manager().Acquire(w.Context(), fmt.Sprint("chat-", i), executor.Spec{})
			if err != nil {
				w.Fatal(err)
			}
			run(l)
			if err := errors.Join(l.Release(), b.Manager().Discard(w.Context(), l.Key)); err != nil {
				w.Error(err)
			}
		}
		var killed int64
		for _, a := range b.Stats().Arms {
			if killed += a.Runs[executor.StatusKilled]; a.Answered != a.Turns || len(a.RunErrors) > 0 {
				w.Errorf("got %+v", a)
			}
		}
		if killed != 2*runs {
			w.Errorf("the figures have %d of %d runs", killed, 2*runs)
		}
	})
}

// liars is a backend whose code always lies about how it ended.
type liars struct{ executor.Executor }

func (x *liars) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &liar{s}, nil
}

type liar struct{ executor.Session }

func (s *liar) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	r, err := s.Session.Run(ctx, req, emit)
	if r != nil {
		r.Status, r.Reason, r.StateLost = executor.StatusKilled, executor.ReasonCode, true
	}
	return r, err
}

func TestGuard(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(`
backends: {a: {type: fake, on: a}}
guard: {code_bytes: 12, runs_per_minute: 3, runs_at_once: 1, sessions_per_subject: 2, packages: {python: [Num_Py, pandas]}}`)
		defer w.close(b)
		denied := func(want string, err error) *executor.Error {
			w.Helper()
			e := w.fails(err, executor.ErrDenied)
			if !strings.Contains(e.Error(), "guard: "+want) {
				w.Errorf("got %v, want %s", e, want)
			}
			return e
		}
		run := func(s executor.Session, code string) error {
			_, err := s.Run(w.Context(), executor.Request{Code: code}, nil)
			return err
		}
		s, other := w.create(b, executor.Spec{Subject: "u"}), w.create(b, executor.Spec{Subject: "v"})
		s2 := w.create(b, executor.Spec{Subject: "u"})
		_, err := b.Create(w.Context(), executor.Spec{Subject: "u"})
		if d := denied("sessions_per_subject", err).Denied; d != (executor.Denial{Rule: executor.RuleSessions, Limit: 2, Have: 2}) {
			w.Errorf("got %+v", d)
		}
		s2.Close()
		s2 = w.create(b, executor.Spec{Subject: "u"})

		if d := denied("code_bytes", run(s, "print(123456)")).Denied; d != (executor.Denial{Rule: executor.RuleCodeSize, Limit: 12, Have: 13}) {
			w.Errorf("got %+v", d)
		}
		_, err = s.Run(w.Context(), executor.Request{Command: []string{"echo", "123456789"}}, nil)
		denied("code_bytes", err)
		_, err = s.Install(w.Context(), executor.Packages{Names: []string{"requests"}}, nil)
		denied("packages", err)
		_, err = s.Install(w.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{"left-pad"}}, nil)
		denied("packages", err)
		_, err = b.Create(w.Context(), executor.Spec{Subject: "w", Packages: []executor.Packages{{Names: []string{"pandas", "requests"}}}})
		if d := denied("packages", err).Denied; d.Rule != executor.RulePackage || d.Package != "requests" {
			w.Errorf("got %+v", d)
		}
		_, err = s.Install(w.Context(), executor.Packages{Names: []string{"git+https://example.org/x"}}, nil)
		w.fails(err, executor.ErrInvalid) // the same as without a guard

		var wg sync.WaitGroup
		wg.Go(func() {
			if err := run(s, "sleep(1000)"); err != nil {
				w.Error(err)
			}
		})
		synctest.Wait()
		if d := denied("runs_at_once", run(s2, "x=1")).Denied; d != (executor.Denial{Rule: executor.RuleRunsAtOnce, Limit: 1, Have: 1}) {
			w.Errorf("got %+v", d)
		}
		if err := run(other, "x=1"); err != nil {
			w.Error(err) // a run of another subject
		}
		wg.Wait()
		for range 2 {
			if err := run(s2, "x=1"); err != nil {
				w.Error(err)
			}
			time.Sleep(time.Second)
		}
		if e := denied("runs_per_minute", run(s, "x=1")); e.RetryAfter != 57*time.Second || e.Denied != (executor.Denial{Rule: executor.RuleRate, Limit: 3, Have: 3}) {
			w.Errorf("got retry after %v, %+v", e.RetryAfter, e.Denied)
		}
		time.Sleep(57 * time.Second)
		if err := run(s, "x=1"); err != nil {
			w.Error(err)
		}
		denied("runs_per_minute", run(s, "x=1"))
		// After Attach the subject is known.
		h := s.Info().Handle
		if err := s.Detach(); err != nil {
			w.Error(err)
		}
		if s, err = b.Attach(w.Context(), h); err != nil {
			w.Fatal(err)
		}
		denied("runs_per_minute", run(s, "x=1"))
		for _, s := range []executor.Session{s, s2, other} {
			if err := s.Close(); err != nil {
				w.Error(err)
			}
		}
		arms := b.Stats().Arms
		if got := arms[len(arms)-1].RunErrors["denied"]; got != 8 {
			w.Errorf("got %d refusals", got)
		}
	})
}

// TestPoolsServeTheTool: a pool with the right languages serves the default Specs of the tool for
// models. Otherwise the differing fields are reported, and the bypass counts in the closest pool.
func TestPoolsServeTheTool(t *testing.T) {
	caps := fake.Without(fake.All(executor.Python), executor.FeatureMixedLanguages)
	bubble(t, fake.Options{Capabilities: caps, CreateTime: time.Second}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {pools: [{size: 1, limits: {processes: 8}, template: data-science}, {size: 1}]}}}")
		defer w.close(b)
		x, err := tool.New(b, b.Manager(), tool.Options{})
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		if out, err := x.Call(w.Context(), tool.Conversation{ID: "c"}, `{"code": "print(1)", "timeout": 100}`, nil); err != nil || out.Stdout != "1\n" {
			w.Errorf("got %+v, %v", out, err)
		}
		if took := time.Since(began); took != 0 {
			w.Errorf("took %v", took)
		}
		w.create(b, executor.Spec{Env: map[string]string{"A": "b"}}).Close()
		pools := b.Stats().Backends[0].Pools
		if pools[0].Bypasses != 0 || pools[1].Hits != 1 || pools[1].Misses != 0 || pools[1].Bypasses != 1 || pools[1].Differs["Env"] != 1 {
			w.Errorf("got %+v", pools)
		}
		if table := b.Stats().String(); !strings.Contains(table, "1 of 2 hits, bypassed by 1 (1 Env)") {
			w.Errorf("got %s", table)
		}
		if err := b.Manager().Discard(w.Context(), "c/python"); err != nil {
			w.Error(err)
		}
	})
}

func TestWithoutPools(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {pools: [{size: 1}]}}}", backends.WithoutPools())
		defer w.close(b)
		synctest.Wait()
		if n, pools := len(w.at["a"].Sandboxes()), b.Stats().Backends[0].Pools; n != 0 || len(pools) != 0 {
			w.Errorf("got %d sandboxes, pools %+v", n, pools)
		}
		_, err := backends.Open(w.Context(), driver.Env{Owner: "me"}, w.reg, parse(w.T, "backends: {a: {type: fake, on: a, broker: {pools: [{size: 1, suspended: true}]}}}"), backends.WithoutPools())
		if !errors.Is(err, executor.ErrUnsupported) || !strings.HasPrefix(err.Error(), "backends.a.broker.pools[0]: ") {
			w.Errorf("got %v", err)
		}
	})
}

func TestPools(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		b := w.open(`
backends:
  a:
    type: fake
    on: a
    broker:
      queue: {max: 4}
      pools:
        - {size: 2, prelude: [{code: "x = 41"}]}
        - {size: 1, languages: [javascript]}`)
		defer w.close(b)
		time.Sleep(10 * time.Second)
		if got := w.at["a"].Sandboxes(); len(got) != 3 {
			w.Fatalf("got %d sandboxes", len(got))
		}
		began := time.Now()
		s := w.create(b, executor.Spec{Subject: "u"})
		if time.Since(began) != 0 {
			w.Errorf("took %v", time.Since(began))
		}
		w.says(s, "print(x + 1)", "42\n")
		time.Sleep(10 * time.Second)
		s2 := w.create(b, executor.Spec{Languages: []executor.Language{executor.JavaScript}})
		if time.Since(began) != 10*time.Second {
			w.Errorf("took %v", time.Since(began))
		}
		st := b.Stats().Backends[0]
		if len(st.Pools) != 2 || st.Pools[0].Hits != 1 || st.Pools[1].Hits != 1 || st.Sessions != 4 {
			w.Errorf("got %+v", st)
		}
		time.Sleep(time.Hour / 4) // the pools leave the last slot to users
		if got := w.at["a"].Sandboxes(); len(got) > 4 {
			w.Errorf("got %d sandboxes", len(got))
		}
		s.Close()
		s2.Close()
	})
}
