package sessions_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// lost checks what a lease says about an older sandbox, and releases the lease.
func lost(w *world, l *sessions.Lease, fresh, want bool) {
	w.Helper()
	if l.Fresh != fresh || l.Lost != want {
		w.Errorf("got fresh %v, lost %v, want %v, %v", l.Fresh, l.Lost, fresh, want)
	}
	release(w, l)
}

func TestLostIsNotFirstEver(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		first := l.Info().Handle.Session
		run(w, l, `print("x")`)
		lost(w, l, true, false)
		lost(w, p.acquire("chat"), false, false)
		w.b.Break(first)
		// A caller that runs nothing does not clear Lost, not even with a restart.
		lost(w, p.acquire("chat"), true, true)
		p.stop()
		p = w.start("two")
		l = p.acquire("chat")
		run(w, l, `print("x")`)
		lost(w, l, false, true)
		lost(w, p.acquire("chat"), false, false)
		if err := p.m.Discard(w.Context(), "chat"); err != nil {
			w.Fatal(err)
		}
		lost(w, p.acquire("chat"), true, false)
	})
}

// If sandboxes end with their process, so do their records, and the next process says that there
// was one.
func TestLostWithItsProcess(t *testing.T) {
	bubble(t, noAttach(), func(w *world) {
		p := w.start("one")
		for _, key := range []string{"chat", "discarded", "again"} {
			release(w, p.acquire(key))
		}
		p.stop()
		p = w.start("two")
		lost(w, p.acquire("chat"), true, true)
		if err := p.m.Discard(w.Context(), "discarded"); err != nil {
			w.Fatal(err)
		}
		lost(w, p.acquire("discarded"), true, false)
		// A creation that fails does not clear Lost either.
		w.b.Fail(fake.OpCreate, 1, executor.ErrUnavailable)
		if _, err := p.m.Acquire(w.Context(), "again", executor.Spec{}); err == nil {
			w.Fatal("got a session, want a failure")
		}
		lost(w, p.acquire("again"), true, true)
		p.stop()
		time.Sleep(50 * time.Hour) // time of the bubble
		lost(w, w.start("three").acquire("chat"), true, false)
	})
}

// A new interpreter is a loss only if code had run in the old one.
func TestRanIsKept(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat", executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}})
		first := l.Info().Handle.Session
		ran := func(python, javascript bool) {
			w.Helper()
			if l.Ran(executor.Python) != python || l.Ran(executor.JavaScript) != javascript {
				w.Errorf("got python %v, javascript %v, want %v, %v", l.Ran(executor.Python), l.Ran(executor.JavaScript), python, javascript)
			}
		}
		ran(false, false)
		run(w, l, `print("x")`)
		ran(true, false)
		release(w, l)
		p.stop()
		p = w.start("two")
		again := func() {
			l = p.acquire("chat", executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}})
		}
		again()
		ran(true, false)
		release(w, l)
		w.b.Break(first)
		again()
		ran(false, false)
		release(w, l)
	})
}

// TestLeaseLostWhileAcquired: a caller that has not given up is not told that it has.
func TestLeaseLostWhileAcquired(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(w *world, p *process)
		want error
	}{
		"another process": {func(w *world, _ *process) {
			e, err := w.store.Get(w.Context(), "session/k")
			w.do(err)
			e.Value = bytes.ReplaceAll(e.Value, []byte(`"life":"`), []byte(`"life":"not `))
			_, err = w.store.Put(w.Context(), "session/k", e)
			w.do(err)
		}, executor.ErrUnavailable},
		"close": {func(_ *world, p *process) { go p.m.Close(context.Background()) }, executor.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one")
				release := w.b.Hold(fake.OpCreate)
				got := make(chan error)
				go func() {
					_, err := p.m.Acquire(w.Context(), "k", executor.Spec{})
					got <- err
				}()
				time.Sleep(time.Second)
				c.lose(w, p)
				err := <-got
				release()
				if !errors.Is(err, c.want) || errors.Is(err, context.Canceled) {
					w.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}
