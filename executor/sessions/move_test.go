package sessions_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// leaving makes conversations leave the sandbox that it is set to.
type leaving string

func (s *leaving) keep(o *sessions.Options) {
	keeping(5, 0)(o)
	o.Move = func(h executor.Handle) bool { return h.Session == string(*s) }
}

// TestMove: the next lease is in a new sandbox that has the variables and files, and the old one is
// gone.
func TestMove(t *testing.T) {
	for name, o := range map[string]fake.Options{"attach": {}, "no-attach": noAttach()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, o, func(w *world) {
				var from leaving
				p := w.start("one", from.keep)
				l := p.acquire("k")
				old := l.Info().Handle.Session
				run(w, l, "x = 5")
				put(w.T, l, "a.txt", "first", 0)
				release(w, l)
				from = leaving(old)
				l = p.acquire("k")
				if !l.Fresh || !l.Lost || l.Why != sessions.LossMoved || l.Info().Handle.Session == old || l.Kept == nil || l.Kept.Behind != 0 || l.Kept.Made.IsZero() ||
					!slices.Equal(l.Kept.Files, []string{"a.txt"}) || !slices.Equal(l.Kept.Names, []string{"x"}) {
					w.Errorf("got %+v, kept %+v", l, l.Kept)
				}
				if got := says(w, l, "print(x)"); got != "5" || content(w.T, l, "a.txt") != "first" {
					w.Errorf("got %s", got)
				}
				release(w, l)
				p.stop() // waits for the end of the old sandbox
				if slices.Contains(w.b.Sandboxes(), old) {
					w.Error("the old sandbox is left")
				}
				if o.Capabilities.Languages != nil {
					return // the new one has ended with its process
				}
				p = w.start("two", from.keep)
				l = p.acquire("k")
				if l.Fresh || l.Lost || says(w, l, "print(x)") != "5" {
					w.Errorf("after a restart: got %+v", l)
				}
				release(w, l)
			})
		})
	}
}

// twins creates sessions on another backend than it began with.
type twins struct {
	executor.Executor
	to     executor.Executor
	target *fake.Backend
}

func (x *twins) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return x.to.Create(ctx, spec)
}

func (x *twins) Destroy(ctx context.Context, h executor.Handle) error {
	if slices.Contains(x.target.Sandboxes(), h.Session) {
		return x.to.Destroy(ctx, h)
	}
	return x.Executor.Destroy(ctx, h)
}

// TestMoveThatFails: the conversation stays in its sandbox as it is, and tries again.
func TestMoveThatFails(t *testing.T) {
	unavailable := driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down"))
	for name, c := range map[string]struct {
		isolation executor.Isolation // of the target
		spoil     func(from, to *fake.Backend)
	}{
		"checkpoint": {spoil: func(from, _ *fake.Backend) { from.Fail(fake.OpRun, 1, unavailable) }},
		"create":     {spoil: func(_, to *fake.Backend) { to.Fail(fake.OpCreate, 1, unavailable) }},
		"restore":    {spoil: func(_, to *fake.Backend) { to.Fail(fake.OpRun, 1, unavailable) }},
		"isolation":  {isolation: executor.IsolationProcess, spoil: func(_, _ *fake.Backend) {}},
	} {
		t.Run(name, func(t *testing.T) {
			o := fake.Options{Capabilities: fake.All()}
			o.Capabilities.Isolation = executor.IsolationContainer
			bubble(t, o, func(w *world) {
				if c.isolation != "" {
					o.Capabilities.Isolation = c.isolation
				}
				target := fake.New(o)
				to, err := target.Open(driver.Env{Instance: "one"})
				w.do(err)
				defer to.Close()
				var from leaving
				p := w.start("one", from.keep)
				of := executor.Spec{MinIsolation: executor.IsolationContainer}
				l := p.acquire("k", of)
				old := l.Info().Handle.Session
				run(w, l, "x = 5")
				release(w, l)
				p.stop()

				from = leaving(old)
				x, err := w.b.Open(driver.Env{Instance: "two"})
				w.do(err)
				p = w.over(&twins{Executor: x, to: to, target: target}, "two", from.keep)
				c.spoil(w.b, target)
				l = p.acquire("k", of)
				if l.Fresh || l.Lost || l.Info().Handle.Session != old || says(w, l, "print(x)") != "5" {
					w.Errorf("got %+v", l)
				}
				release(w, l)
				if n := len(target.Sandboxes()); n != 0 {
					w.Errorf("%d sandboxes are left at the target", n)
				}
				l = p.acquire("k", of)
				if moved := c.isolation == ""; l.Fresh != moved || says(w, l, "print(x)") != "5" {
					w.Errorf("the next: got %+v, want moved %t", l, moved)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestEvict: a session becomes a checkpoint, from which the next one goes on.
func TestEvict(t *testing.T) {
	for name, o := range map[string]fake.Options{"attach": {}, "no-attach": noAttach()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, o, func(w *world) {
				p := w.start("one", keeping(5, 0))
				w.do(p.m.Evict(w.Context(), "never"))
				l := p.acquire("k", executor.Spec{Subject: "u"})
				run(w, l, "x = 5")
				release(w, l)
				w.do(p.m.Evict(w.Context(), "k"))
				if n := len(w.b.Sandboxes()); n != 0 {
					w.Errorf("%d sandboxes are left", n)
				}
				w.do(p.m.Evict(w.Context(), "k")) // there is none
				l = p.acquire("k", executor.Spec{Subject: "u"})
				if !l.Fresh || !l.Lost || l.Why != sessions.LossEvicted || l.Kept == nil || l.Kept.Behind != 0 || says(w, l, "print(x)") != "5" {
					w.Errorf("got %+v, kept %+v", l, l.Kept)
				}
				release(w, l)
				// One whose checkpoint cannot be made stays.
				w.b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
				if err := p.m.Evict(w.Context(), "k"); !errors.Is(err, executor.ErrUnavailable) {
					w.Errorf("got %v", err)
				}
				l = p.acquire("k", executor.Spec{Subject: "u"})
				if l.Fresh || says(w, l, "print(x)") != "5" {
					w.Errorf("got %+v", l)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestEvictsTheLeastRecentlyUsed: a subject that has enough sessions gets another one, and loses
// nothing.
func TestEvictsTheLeastRecentlyUsed(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(5, 0), func(o *sessions.Options) { o.MaxPerSubject, o.Evict = 2, true })
		of := executor.Spec{Subject: "u"}
		for _, key := range []string{"a", "b", "a", "c"} { // b is used least recently
			l := p.acquire(key, of)
			run(w, l, "x = '"+key+"'")
			release(w, l)
			time.Sleep(time.Second)
		}
		var have []string
		for r, err := range p.m.Records(w.Context(), "") {
			w.do(err)
			have = append(have, r.Key)
		}
		if slices.Sort(have); !slices.Equal(have, []string{"a", "c"}) {
			w.Errorf("got %q", have)
		}
		b := p.acquire("b", of) // a goes
		if b.Why != sessions.LossEvicted || says(w, b, "print(x)") != "b" {
			w.Errorf("got %+v", b)
		}
		c := p.acquire("c", of)
		if c.Fresh {
			w.Error("the one that was used last was evicted")
		}
		// Those in use are not evicted.
		if _, err := p.m.Acquire(w.Context(), "d", of); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v", err)
		}
		release(w, b)
		release(w, c)
	})
}

// TestDrain evicts what is on a backend, and nothing else.
func TestDrain(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(5, 0))
		var backend string
		for _, key := range []string{"a", "b"} {
			l := p.acquire(key)
			backend = l.Info().Handle.Backend
			run(w, l, "x = '"+key+"'")
			release(w, l)
		}
		for r, err := range p.m.Drain(w.Context(), "another") {
			w.Errorf("got %s, %v", r.Key, err)
		}
		n := 0
		for _, err := range p.m.Drain(w.Context(), backend) {
			w.do(err)
			n++
		}
		if n != 2 || len(w.b.Sandboxes()) != 0 {
			w.Errorf("evicted %d, %d sandboxes are left", n, len(w.b.Sandboxes()))
		}
		l := p.acquire("b")
		if says(w, l, "print(x)") != "b" {
			w.Errorf("got %+v", l)
		}
		release(w, l)
	})
}

// TestFork: the forks have the same state, and are independent from then on.
func TestFork(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one", keeping(5, 0))
		of := executor.Spec{Subject: "u"}
		l := p.acquire("k", of)
		run(w, l, "x = [1]")
		put(w.T, l, "a.txt", "first", 0)
		for _, keys := range [][]string{{"k"}, {"f", "f"}, {""}} {
			if err := l.Fork(w.Context(), keys...); !errors.Is(err, executor.ErrInvalid) {
				w.Errorf("%q: got %v", keys, err)
			}
		}
		w.do(l.Fork(w.Context(), "f1", "f2"))
		if err := l.Fork(w.Context(), "f1"); !errors.Is(err, executor.ErrInvalid) {
			w.Errorf("again: got %v", err)
		}
		run(w, l, "x.append(2)")
		f1 := p.acquire("f1", of)
		if !f1.Fresh || f1.Why != sessions.LossForked || f1.Kept == nil || f1.Kept.Behind != 0 || content(w.T, f1, "a.txt") != "first" {
			w.Errorf("got %+v, kept %+v", f1, f1.Kept)
		}
		run(w, f1, "x.append(3)")
		f2 := p.acquire("f2", of)
		for s, want := range map[*sessions.Lease]string{l: "[1,2]", f1: "[1,3]", f2: "[1]"} {
			if got := says(w, s, "print(x)"); got != want {
				w.Errorf("%s: got %s, want %s", s.Key, got, want)
			}
		}
		// A fork of a fork, of which another subject gets nothing.
		w.do(f1.Fork(w.Context(), "f3"))
		other := p.acquire("f3", executor.Spec{Subject: "v"})
		if other.Kept != nil || says(w, other, `print(recall("x", "absent"))`) != "absent" {
			w.Errorf("another subject got %+v", other.Kept)
		}
		for _, s := range []*sessions.Lease{l, f1, f2, other} {
			w.do(s.Discard())
		}
		if left := w.left(); len(left) > 0 {
			w.Errorf("left: %q", left)
		}
	})
}

// TestMovesNeedCheckpoints: without checkpoints conversations would be lost.
func TestMovesNeedCheckpoints(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		for name, o := range map[string]sessions.Options{
			"evict": {Instance: "one", Evict: true},
			"move":  {Instance: "one", Move: func(executor.Handle) bool { return false }},
		} {
			if _, err := sessions.New(unused(w), w.store, o); !errors.Is(err, executor.ErrInvalid) {
				w.Errorf("%s: got %v", name, err)
			}
		}
		p := w.start("one")
		l := p.acquire("k")
		errs := map[string]error{"checkpoint": l.Checkpoint(w.Context()), "fork": l.Fork(w.Context(), "f")}
		release(w, l)
		errs["evict"] = p.m.Evict(w.Context(), "k")
		for what, err := range errs {
			if !errors.Is(err, executor.ErrUnsupported) {
				w.Errorf("%s: got %v", what, err)
			}
		}
	})
}
