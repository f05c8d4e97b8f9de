package sessions_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// world is a deployment in a synctest bubble: a backend, a store, and processes that start and end.
type world struct {
	*testing.T
	b     *fake.Backend
	store sessions.Store
	alive map[*process]bool
}

// process is a program with a Manager.
type process struct {
	w *world
	x executor.Executor
	m *sessions.Manager
}

func bubble(t *testing.T, o fake.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, b: fake.New(o), store: sessions.NewMemoryStore(), alive: map[*process]bool{}}
		f(w)
		for p := range w.alive {
			p.stop()
		}
		if left := w.b.Sandboxes(); len(left) > 0 {
			// Sandboxes that were detached end by their idle TTL.
			time.Sleep(26 * time.Hour)
			synctest.Wait()
			if left = w.b.Sandboxes(); len(left) > 0 {
				t.Errorf("%d sandboxes left after their TTL", len(left))
			}
		}
	})
}

func (w *world) start(instance string, edit ...func(*sessions.Options)) *process {
	w.Helper()
	x, err := w.b.Open(driver.Env{Instance: instance})
	if err != nil {
		w.Fatal(err)
	}
	return w.over(x, instance, edit...)
}

// over is start over another Executor.
func (w *world) over(x executor.Executor, instance string, edit ...func(*sessions.Options)) *process {
	w.Helper()
	o := sessions.Options{Instance: instance}
	for _, e := range edit {
		e(&o)
	}
	m, err := sessions.New(x, w.store, o)
	if err != nil {
		w.Fatal(err)
	}
	p := &process{w, x, m}
	w.alive[p] = true
	return p
}

// stop ends a process regularly.
func (p *process) stop() {
	p.w.Helper()
	if err := p.m.Close(context.Background()); err != nil {
		p.w.Error(err)
	}
	if err := p.x.Close(); err != nil {
		p.w.Error(err)
	}
	delete(p.w.alive, p)
}

// kill ends a process at once: it closes nothing, and its connections end.
func (p *process) kill() {
	p.m.Crash()
	p.w.b.Cut(0)
	delete(p.w.alive, p)
}

func (p *process) acquire(key string, spec ...executor.Spec) *sessions.Lease {
	p.w.Helper()
	var s executor.Spec
	if len(spec) > 0 {
		s = spec[0]
	}
	l, err := p.m.Acquire(p.w.Context(), key, s)
	if err != nil {
		p.w.Fatalf("acquire %s: %v", key, err)
	}
	return l
}

// run counts in the sandbox: the counter shows how much of its state is left.
func run(t testing.TB, l *sessions.Lease, code string) *executor.Result {
	t.Helper()
	r, err := l.Run(t.Context(), executor.Request{Language: executor.Python, Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func release(t testing.TB, l *sessions.Lease) {
	t.Helper()
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// noAttach is a backend whose sandboxes end with their process.
func noAttach() fake.Options {
	return fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList)}
}

func TestOneSessionForAKey(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		if !l.Fresh {
			w.Error("got a session that is not fresh, want a fresh one")
		}
		first := l.Info().Handle.Session
		if r := run(w, l, `print("x")`); !r.StateFresh {
			w.Errorf("got %+v", r)
		}
		release(w, l)
		release(w, l)
		l = p.acquire("chat")
		if l.Fresh || l.Info().Handle.Session != first {
			w.Errorf("got fresh %v %s, want %s again", l.Fresh, l.Info().Handle.Session, first)
		}
		if r := run(w, l, `print("x")`); r.StateFresh || r.Cell != 2 {
			w.Errorf("got %+v, want the second cell", r)
		}
		release(w, l)
		other := p.acquire("other chat")
		if other.Info().Handle.Session == first {
			w.Error("two keys have one session")
		}
		release(w, other)
	})
}

func TestConcurrentCallsCreateOne(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		ps := []*process{w.start("one"), w.start("two")}
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen, held, fresh := map[string]bool{}, 0, 0
		for i := range 20 {
			wg.Go(func() {
				l, err := ps[i%2].m.Acquire(w.Context(), "chat", executor.Spec{})
				if err != nil {
					w.Error(err)
					return
				}
				mu.Lock()
				seen[l.Info().Handle.Session] = true
				if held++; held > 1 {
					w.Error("two have the lease at once")
				}
				if l.Fresh {
					fresh++
				}
				mu.Unlock()
				if _, err := l.Run(w.Context(), executor.Request{Language: executor.Python, Code: `print("x")`}, nil); err != nil {
					w.Error(err)
				}
				mu.Lock()
				held--
				mu.Unlock()
				release(w, l)
			})
		}
		wg.Wait()
		if len(seen) != 1 || fresh != 1 || w.b.Calls(fake.OpCreate) != 1 {
			w.Errorf("got %d sessions, %d fresh, %d creations, want one of each", len(seen), fresh, w.b.Calls(fake.OpCreate))
		}
	})
}

func TestSurvivesARestart(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		run(w, l, `print("x")`)
		token := l.Token
		release(w, l)
		p.stop()
		p = w.start("one")
		l = p.acquire("chat")
		if r := run(w, l, `print("x")`); l.Fresh || r.StateFresh || r.Cell != 2 || l.Token <= token {
			w.Errorf("got fresh %v, %+v, token %d after %d", l.Fresh, r, l.Token, token)
		}
		release(w, l)
	})
}

func TestSurvivesAKill(t *testing.T) {
	for name, next := range map[string]string{"the-same-instance": "one", "another": "two"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one")
				l := p.acquire("chat")
				run(w, l, `print("x")`)
				p.kill() // while it has the lease
				begin := time.Now()
				p = w.start(next)
				l = p.acquire("chat")
				if d := time.Since(begin); next == "one" && d > 0 || d > 31*time.Second {
					w.Errorf("got %v to wait", d)
				}
				if r := run(w, l, `print("x")`); l.Fresh || r.Cell != 2 {
					w.Errorf("got fresh %v, %+v, want the state", l.Fresh, r)
				}
				release(w, l)
			})
		})
	}
}

func TestWithoutAttach(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		one, two := w.start("one"), w.start("two")
		l := one.acquire("chat")
		release(w, l)
		_, err := two.m.Acquire(w.Context(), "chat", executor.Spec{})
		var elsewhere *sessions.ElsewhereError
		if !errors.As(err, &elsewhere) || elsewhere.Instance != "one" || !elsewhere.Until.After(time.Now()) || executor.Retryable(err) {
			w.Fatalf("got %v, want it elsewhere", err)
		}
		if err := two.m.Discard(w.Context(), "chat"); !errors.As(err, &elsewhere) {
			w.Errorf("discard: got %v, want it elsewhere", err)
		}
		one.kill()
		time.Sleep(31 * time.Second) // time of the bubble; now the process counts as dead
		l = two.acquire("chat")
		if !l.Fresh {
			w.Error("got a session that is not fresh, want it said that the state is lost")
		}
		release(w, l)
		two.stop()
		for r, err := range w.start("three").m.Records(w.Context(), "") {
			w.Errorf("got %+v %v, want no record of what was destroyed", r, err)
		}
	})
}

func TestGoneIsMadeAnew(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		first := l.Info().Handle.Session
		release(w, l)
		w.b.Break(first)
		l = p.acquire("chat")
		if !l.Fresh || l.Info().Handle.Session == first {
			w.Errorf("broken: got fresh %v %s", l.Fresh, l.Info().Handle.Session)
		}
		release(w, l)
		time.Sleep(2 * time.Hour) // beyond its idle TTL
		synctest.Wait()
		if left := w.b.Sandboxes(); len(left) > 0 {
			w.Errorf("got %q, want nothing after the idle TTL", left)
		}
		l = p.acquire("chat")
		if !l.Fresh {
			w.Error("expired: got a session that is not fresh")
		}
		release(w, l)
	})
}

func TestDiscard(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		one, two := w.start("one"), w.start("two")
		l := one.acquire("chat")
		if err := l.Discard(); err != nil {
			w.Fatal(err)
		}
		if left := w.b.Sandboxes(); len(left) > 0 {
			w.Errorf("left %q", left)
		}
		l = one.acquire("chat")
		if !l.Fresh {
			w.Error("got a session that is not fresh")
		}
		// Discard while it is leased, and from another process.
		if err := two.m.Discard(w.Context(), "chat"); err != nil {
			w.Fatal(err)
		}
		if left := w.b.Sandboxes(); len(left) > 0 {
			w.Errorf("left %q", left)
		}
		time.Sleep(time.Minute) // the renewal notices
		if _, err := l.Run(w.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrClosed) {
			w.Errorf("got %v, want %v", err, executor.ErrClosed)
		}
		release(w, l)
		if err := one.m.Discard(w.Context(), "never there"); err != nil {
			w.Error(err)
		}
	})
}

// Even if the provider is slow to destroy a sandbox, or does not, the next caller gets the key.
func TestDiscardOfWhatDoesNotEnd(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		one, two := w.start("one"), w.start("two")
		l := one.acquire("chat")
		free := w.b.Hold(fake.OpDestroy)
		err := l.Discard()
		free()
		if !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v, want that the provider did not answer", err)
		}
		began := time.Now()
		if l := two.acquire("chat"); !l.Fresh || time.Since(began) > time.Second {
			w.Errorf("fresh %v after %v", l.Fresh, time.Since(began))
		} else {
			release(w, l)
		}
	})
}

// TestSleeperIsShutOut: a process that was stopped and wakes up has lost its lease. It finds that
// out before it does harm.
func TestSleeperIsShutOut(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		broken := &flaky{Store: w.store}
		good := w.store
		w.store = broken
		sleeper := w.start("sleeper")
		w.store = good
		l := sleeper.acquire("chat")
		done := make(chan error, 1)
		go func() {
			_, err := l.Run(w.Context(), executor.Request{Language: executor.Python, Code: "forever()", Limits: executor.RunLimits{}}, nil)
			done <- err
		}()
		synctest.Wait()
		broken.fail(true) // it cannot renew
		begin := time.Now()
		err := <-done
		if d := time.Since(begin); !errors.Is(err, executor.ErrClosed) || d >= 30*time.Second {
			w.Errorf("got %v after %v, want %v before the lease ends in the store", err, d, executor.ErrClosed)
		}
		time.Sleep(10 * time.Second)
		other := w.start("other")
		o := other.acquire("chat")
		if o.Fresh {
			w.Error("got a fresh session, want the same")
		}
		broken.fail(false)
		release(w, l)
		if _, err := l.Run(w.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrClosed) {
			w.Errorf("got %v, want %v", err, executor.ErrClosed)
		}
		run(w, o, `print("x")`)
		release(w, o)
	})
}

func TestLimits(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", func(o *sessions.Options) { o.MaxPerSubject, o.MaxTotal = 2, 3 })
		q := w.start("two", func(o *sessions.Options) { o.MaxPerSubject, o.MaxTotal = 2, 3 })
		of := func(u string) executor.Spec { return executor.Spec{Subject: u} }
		release(w, p.acquire("a1", of("a")))
		release(w, q.acquire("a2", of("a")))
		release(w, q.acquire("a1", of("a"))) // an existing session does not count as a new one
		if _, err := p.m.Acquire(w.Context(), "a3", of("a")); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v, want %v", err, executor.ErrDenied)
		}
		release(w, p.acquire("b1", of("b")))
		if _, err := q.m.Acquire(w.Context(), "b2", of("b")); !errors.Is(err, executor.ErrExhausted) {
			w.Errorf("got %v, want %v", err, executor.ErrExhausted)
		}
		if n := len(w.b.Sandboxes()); n != 3 {
			w.Errorf("got %d sandboxes, want 3", n)
		}
		if err := p.m.Discard(w.Context(), "a1"); err != nil {
			w.Fatal(err)
		}
		release(w, p.acquire("a3", of("a")))
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		release(w, p.acquire("chat", executor.Spec{Subject: "u"}))
		for name, c := range map[string]struct {
			key  string
			spec executor.Spec
			want error
		}{
			"template":  {"chat", executor.Spec{Subject: "u", Template: "data-science"}, executor.ErrInvalid},
			"languages": {"chat", executor.Spec{Subject: "u", Languages: []executor.Language{executor.JavaScript}}, executor.ErrInvalid},
			"network":   {"chat", executor.Spec{Subject: "u", Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, executor.ErrInvalid},
			"subject":   {"chat", executor.Spec{Subject: "v"}, executor.ErrDenied},
			"empty-key": {"", executor.Spec{}, executor.ErrInvalid},
			"long-key":  {strings.Repeat("k", 1000), executor.Spec{}, executor.ErrInvalid},
			"bad-spec":  {"other", executor.Spec{IdleTTL: -1}, executor.ErrInvalid},
		} {
			if _, err := p.m.Acquire(w.Context(), c.key, c.spec); !errors.Is(err, c.want) {
				w.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
		l := p.acquire("chat", executor.Spec{Subject: "u", Run: executor.RunLimits{WallTime: time.Second}})
		for name, err := range map[string]error{"close": l.Close(), "detach": l.Detach()} {
			if !errors.Is(err, executor.ErrUnsupported) {
				w.Errorf("%s: got %v, want %v", name, err, executor.ErrUnsupported)
			}
		}
		release(w, l)
		if _, err := sessions.New(p.x, w.store, sessions.Options{}); !errors.Is(err, executor.ErrInvalid) {
			w.Errorf("no instance: got %v, want %v", err, executor.ErrInvalid)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		one, two := w.start("one"), w.start("two")
		l := one.acquire("chat")
		for _, p := range []*process{one, two} {
			ctx, cancel := context.WithTimeout(w.Context(), 90*time.Second) // longer than a lease: it is renewed
			if _, err := p.m.Acquire(ctx, "chat", executor.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
			cancel()
		}
		release(w, l)
	})
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		w.b.Fail(fake.OpCreate, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
		if _, err := p.m.Acquire(w.Context(), "chat", executor.Spec{Subject: "u"}); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v, want %v", err, executor.ErrUnavailable)
		}
		for r := range p.m.Records(w.Context(), "") {
			w.Errorf("got %+v, want no record", r)
		}
		release(w, p.acquire("chat", executor.Spec{Subject: "u"}))
		// A backend that cannot be reached is no reason to create a second sandbox.
		p.stop()
		p = w.start("one")
		w.b.Fail(fake.OpLookup, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
		if _, err := p.m.Acquire(w.Context(), "chat", executor.Spec{Subject: "u"}); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v, want %v", err, executor.ErrUnavailable)
		}
		l := p.acquire("chat", executor.Spec{Subject: "u"})
		if l.Fresh {
			w.Error("got a fresh session, want the old one")
		}
		release(w, l)
	})
}

func TestLongCreateKeepsItsLease(t *testing.T) {
	bubble(t, fake.Options{CreateTime: 50 * time.Second}, func(w *world) {
		one, two := w.start("one"), w.start("two")
		var wg sync.WaitGroup
		for _, p := range []*process{one, two} {
			wg.Go(func() { release(w, p.acquire("chat")) })
		}
		wg.Wait()
		if n := w.b.Calls(fake.OpCreate); n != 1 {
			w.Errorf("got %d creations, want 1", n)
		}
	})
}

func TestReap(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		dead, living := w.start("dead"), w.start("living")
		release(w, dead.acquire("kept"))
		orphan, err := dead.x.Create(w.Context(), executor.Spec{})
		if err != nil {
			w.Fatal(err)
		}
		orphanID := orphan.Info().Handle.Session
		mine, err := living.x.Create(w.Context(), executor.Spec{})
		if err != nil {
			w.Fatal(err)
		}
		foreign, err := w.b.Open(driver.Env{Owner: "somebody-else", Instance: "dead"})
		if err != nil {
			w.Fatal(err)
		}
		if _, err := foreign.Create(w.Context(), executor.Spec{}); err != nil {
			w.Fatal(err)
		}
		reap := func(grace time.Duration, dry bool) (ids []string) {
			for i, err := range living.m.Reap(w.Context(), grace, dry) {
				if err != nil {
					w.Error(err)
				}
				ids = append(ids, i.Handle.Session)
			}
			return ids
		}
		synctest.Wait() // both have written their heartbeat
		if ids := reap(0, false); len(ids) > 0 {
			w.Errorf("while the creator lives: got %q, want none", ids)
		}
		dead.kill()
		time.Sleep(time.Minute)
		if ids := reap(time.Hour, false); len(ids) > 0 {
			w.Errorf("younger than the grace: got %q, want none", ids)
		}
		if ids := reap(30*time.Second, true); !slices.Equal(ids, []string{orphanID}) {
			w.Errorf("dry run: got %q, want %q", ids, orphanID)
		}
		before := len(w.b.Sandboxes())
		if ids := reap(30*time.Second, false); !slices.Equal(ids, []string{orphanID}) || len(w.b.Sandboxes()) != before-1 {
			w.Errorf("got %q, want %q", ids, orphanID)
		}
		if err := mine.Close(); err != nil {
			w.Error(err)
		}
		if err := foreign.Close(); err != nil {
			w.Error(err)
		}
	})
}

func TestClosed(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		waiting := make(chan error, 1)
		go func() {
			_, err := p.m.Acquire(w.Context(), "chat", executor.Spec{})
			waiting <- err
		}()
		creating := make(chan error, 1)
		go func() {
			_, err := p.m.Acquire(w.Context(), "new", executor.Spec{})
			creating <- err
		}()
		synctest.Wait()
		if err := p.m.Close(w.Context()); err != nil {
			w.Error(err)
		}
		for _, c := range []chan error{waiting, creating} {
			if err := <-c; !errors.Is(err, executor.ErrClosed) && !errors.Is(err, context.Canceled) {
				w.Errorf("got %v, want %v", err, executor.ErrClosed)
			}
		}
		if _, err := l.Run(w.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrClosed) {
			w.Errorf("a lease: got %v, want %v", err, executor.ErrClosed)
		}
		if _, err := p.m.Acquire(w.Context(), "chat", executor.Spec{}); !errors.Is(err, executor.ErrClosed) {
			w.Errorf("got %v, want %v", err, executor.ErrClosed)
		}
		release(w, l)
	})
}
