package sessions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// A message that a client repeats, to whichever process, does not run again.
func TestOnce(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		a, b := w.start("a"), w.start("b")
		l := a.acquire("k")
		if _, err := l.Once(w.Context(), "m1"); err != nil {
			w.Fatal(err)
		}
		undo, err := l.Once(w.Context(), "m2")
		if err != nil {
			w.Fatal(err)
		}
		undo()
		w.do(l.Release())
		l = b.acquire("k")
		var e *executor.Error
		if _, err := l.Once(w.Context(), "m1"); !errors.Is(err, sessions.ErrRepeated) || !errors.As(err, &e) || e.Ran != executor.RanMaybe {
			w.Errorf("nothing has run: got %v", err)
		}
		for i := range 100 { // m2 was not run
			if _, err := l.Once(w.Context(), fmt.Sprint("m", 2+i)); err != nil {
				w.Fatal(err)
			}
		}
		if _, err := l.Once(w.Context(), "m2"); !errors.Is(err, sessions.ErrRepeated) {
			w.Errorf("the last 100 are remembered: got %v", err)
		}
		w.b.Break(w.b.Sandboxes()[0])
		w.do(l.Release())
		l = a.acquire("k") // a new sandbox
		if _, err := l.Once(w.Context(), "m50"); !l.Fresh || !errors.Is(err, sessions.ErrRepeated) {
			w.Errorf("got fresh %v, %v", l.Fresh, err)
		}
		w.do(l.Discard())
	})
}

// TestOnceAfterTheSandbox ends a sandbox in each way there is, and waits for what processes do in
// the background. The next lease says that the sandbox was lost, and its messages do not run again.
func TestOnceAfterTheSandbox(t *testing.T) {
	const later = 5 * time.Minute
	for name, c := range map[string]struct {
		options fake.Options
		why     sessions.Loss
		end     func(w *world, p *process) *process // returns the process that goes on
	}{
		"broken": {why: sessions.LossGone, end: func(w *world, p *process) *process { w.b.Break(w.b.Sandboxes()[0]); return p }},
		"destroyed": {why: sessions.LossGone, end: func(w *world, p *process) *process {
			for i, err := range p.x.Sessions(w.Context(), nil) {
				w.do(errors.Join(err, p.x.Destroy(w.Context(), i.Handle)))
			}
			return p
		}},
		"idle":      {why: sessions.LossGone, end: func(w *world, p *process) *process { time.Sleep(2 * executor.DefaultIdleTTL); return p }},
		"abandoned": {why: sessions.LossAbandoned, end: func(w *world, p *process) *process { w.do(p.m.Abandon(w.Context(), "k")); return p }},
		"evicted":   {why: sessions.LossEvicted, end: func(w *world, p *process) *process { w.do(p.m.Evict(w.Context(), "k")); return p }},
		"closed": {options: noAttach(), why: sessions.LossGone, end: func(w *world, p *process) *process {
			p.stop()
			return w.start("two", keeping(1, 0))
		}},
		"killed": {options: noAttach(), why: sessions.LossGone, end: func(w *world, p *process) *process {
			p.kill()
			return w.start("two", keeping(1, 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.options, func(w *world) {
				p := w.start("one", keeping(1, 0))
				spec := executor.Spec{Subject: "ann"}
				l := p.acquire("k", spec)
				_, err := l.Once(w.Context(), "ran")
				w.do(err)
				run(w, l, "x = 5")
				_, err = l.Once(w.Context(), "unknown")
				w.do(err)
				release(w, l)
				p = c.end(w, p)
				time.Sleep(later)
				l = p.acquire("k", spec)
				if !l.Fresh || !l.Lost || l.Why != c.why {
					w.Errorf("got fresh %v, lost %v, why %q", l.Fresh, l.Lost, l.Why)
				}
				for id, ran := range map[string]executor.Ran{"ran": executor.RanYes, "unknown": executor.RanMaybe} {
					var e *executor.Error
					if _, err := l.Once(w.Context(), id); !errors.Is(err, sessions.ErrRepeated) || !errors.As(err, &e) || e.Ran != ran {
						w.Errorf("%s: got %v", id, err)
					}
				}
				w.do(l.Discard())
				l = p.acquire("k", spec)
				if _, err := l.Once(w.Context(), "ran"); err != nil || l.Lost {
					w.Errorf("after Discard: got lost %v, %v", l.Lost, err)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestEndOfAnother: another subject that uses the key of a conversation whose sandbox has ended
// learns nothing of it, and Erase forgets its messages.
func TestEndOfAnother(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		ann := executor.Spec{Subject: "ann"}
		ends := func() {
			l := p.acquire("k", ann)
			_, err := l.Once(w.Context(), "m")
			w.do(err)
			run(w, l, "x = 5")
			release(w, l)
			w.b.Break(w.b.Sandboxes()[0])
			time.Sleep(5 * time.Minute)
		}
		ends()
		l := p.acquire("k", executor.Spec{Subject: "bob"})
		if _, err := l.Once(w.Context(), "m"); err != nil || l.Lost {
			w.Errorf("got lost %v, %v", l.Lost, err)
		}
		w.do(l.Discard())
		ends()
		w.do(p.m.Erase(w.Context(), "ann"))
		for key, err := range w.store.Keys(w.Context(), "") {
			if w.do(err); !strings.HasPrefix(key, "instance/") {
				w.Errorf("after Erase there is %q", key)
			}
		}
	})
}

// AcquireExisting uses what is there, and makes nothing.
func TestAcquireExisting(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		a, b := w.start("a"), w.start("b")
		none := func(p *process) {
			w.Helper()
			if _, err := p.m.AcquireExisting(w.Context(), "k", executor.Spec{Subject: "u"}); !errors.Is(err, executor.ErrNotFound) {
				w.Errorf("got %v", err)
			}
		}
		none(a)
		spec := executor.Spec{Subject: "u", Languages: []executor.Language{executor.JavaScript}}
		l := a.acquire("k", spec)
		w.do(l.Release())
		for _, p := range []*process{a, b} {
			l, err := p.m.AcquireExisting(w.Context(), "k", executor.Spec{Subject: "u"})
			if err != nil || l.Fresh || l.Lost {
				w.Fatalf("got %+v, %v", l, err)
			}
			w.do(l.Release())
		}
		if _, err := b.m.AcquireExisting(w.Context(), "k", executor.Spec{Subject: "other"}); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("another subject: got %v", err)
		}
		w.silence(-1)
		if _, err := a.m.AcquireExisting(w.Context(), "k", executor.Spec{Subject: "u"}); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v", err)
		}
		w.silence(0)
		w.b.Break(w.b.Sandboxes()[0])
		none(b)
		none(a)
		if l = b.acquire("k", spec); !l.Fresh || !l.Lost {
			w.Errorf("got fresh %v, lost %v", l.Fresh, l.Lost)
		}
		w.do(l.Discard())
	})
}
