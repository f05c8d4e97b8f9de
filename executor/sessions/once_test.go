package sessions_test

import (
	"errors"
	"fmt"
	"testing"

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
			w.Errorf("got %v", err)
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
