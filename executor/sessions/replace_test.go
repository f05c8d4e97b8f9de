package sessions_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

var down = driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down"))

// silence makes the backend stop answering for existing sandboxes. New ones can be created.
func (w *world) silence(n int) {
	for _, op := range []fake.Op{fake.OpRefresh, fake.OpLookup, fake.OpDestroy} {
		w.b.Fail(op, n, down)
	}
}

func (p *process) unavailable(key string) {
	p.w.Helper()
	if _, err := p.m.Acquire(p.w.Context(), key, executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) {
		p.w.Fatalf("got %v, want %v", err, executor.ErrUnavailable)
	}
}

// TestReplaced: if the backend of a conversation does not answer, the conversation goes on in a new
// sandbox from the last checkpoint, and is told why.
func TestReplaced(t *testing.T) {
	for name, attached := range map[string]bool{"held": true, "after-a-restart": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one", keeping(1, 0))
				l := p.acquire("chat")
				old := l.Info().Handle.Session
				run(w, l, `print("x")`)
				put(w.T, l, "a.txt", "kept", 0)
				release(w, l)
				if !attached {
					p.stop()
					p = w.start("two", keeping(1, 0))
				}
				w.silence(-1)
				p.unavailable("chat")
				time.Sleep(119 * time.Second)
				p.unavailable("chat")
				time.Sleep(time.Second)
				l = p.acquire("chat")
				if !l.Fresh || !l.Lost || l.Why != sessions.LossUnavailable || l.Info().Handle.Session == old || l.Kept == nil || !slices.Equal(l.Kept.Files, []string{"a.txt"}) {
					w.Errorf("got %+v", l)
				}
				run(w, l, `print("x")`)
				release(w, l)
				w.silence(0)
				if !slices.Contains(w.b.Sandboxes(), old) {
					w.Error("the old sandbox is not left to its TTL")
				}
				l = p.acquire("chat")
				if l.Fresh || l.Lost || l.Why != "" {
					w.Errorf("the next message: got %+v", l)
				}
				release(w, l)
				// A sandbox that no key uses is reaped even if its creator is alive.
				for i, err := range p.m.Reap(w.Context(), 0, false) {
					if err != nil || i.Handle.Session != old {
						w.Errorf("reaped %s, %v", i.Handle.Session, err)
					}
				}
				if slices.Contains(w.b.Sandboxes(), old) {
					w.Error("the old sandbox was not reaped")
				}
			})
		})
	}
}

// TestNotReplaced: a session is not replaced if its backend is only slow, if the backend works in
// between, or if it must be waited for.
func TestNotReplaced(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		release(w, p.acquire("chat"))
		for range 3 {
			w.silence(-1)
			p.unavailable("chat")
			w.silence(0)
			time.Sleep(90 * time.Second) // somebody looks after it meanwhile, or
			l := p.acquire("chat")       // uses it
			if l.Fresh {
				w.Error("replaced although it works")
			}
			release(w, l)
		}
		p.stop()
		wait := w.start("two", func(o *sessions.Options) { o.Replace = func(executor.Handle) time.Duration { return -1 } })
		w.silence(-1)
		for range 5 {
			wait.unavailable("chat")
			time.Sleep(10 * time.Minute)
		}
		at := w.start("three", func(o *sessions.Options) { o.Replace = func(executor.Handle) time.Duration { return 0 } })
		if l := at.acquire("chat"); !l.Fresh || l.Why != sessions.LossUnavailable {
			w.Errorf("at once: got %+v", l)
		} else {
			release(w, l)
		}
		w.silence(0)
	})
}

// TestHungBackendIsReplaced: a backend that never replies leaves enough time for the new sandbox.
func TestHungBackendIsReplaced(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		p := w.start("one")
		release(w, p.acquire("chat"))
		free := w.b.Hold(fake.OpRefresh)
		defer free()
		try := func() (*sessions.Lease, error) {
			ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
			defer cancel()
			return p.m.Acquire(ctx, "chat", executor.Spec{})
		}
		if _, err := try(); err == nil {
			w.Fatal("got a session")
		}
		time.Sleep(2 * time.Minute)
		l, err := try()
		if err != nil {
			w.Fatal(err)
		}
		if l.Why != sessions.LossUnavailable {
			w.Errorf("got %+v", l)
		}
		free()
		release(w, l)
	})
}

// TestHungBackendIsUnavailable also holds for a caller without a time limit.
func TestHungBackendIsUnavailable(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		release(w, p.acquire("chat"))
		free := w.b.Hold(fake.OpRefresh)
		began := time.Now()
		p.unavailable("chat")
		if took := time.Since(began); took > 2*time.Minute {
			w.Errorf("took %v", took)
		}
		free()
		release(w, p.acquire("chat"))
	})
}

// TestNotReplacedDuringARun: a run whose end nobody knows keeps the sandbox until its wall time is
// over, whether its holder lost contact or died.
func TestNotReplacedDuringARun(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, l *sessions.Lease) *process{
		"lost": func(w *world, p *process, l *sessions.Lease) *process {
			w.b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, nil))
			if _, err := l.Run(w.Context(), executor.Request{Code: "x = 1"}, nil); err == nil {
				w.Error("got no error")
			}
			release(w, l)
			return p
		},
		"killed": func(w *world, p *process, _ *sessions.Lease) *process {
			p.kill()
			time.Sleep(30 * time.Second)
			return w.start("two")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one")
				l := p.acquire("chat", executor.Spec{Run: executor.RunLimits{WallTime: 10 * time.Minute}})
				p = end(w, p, l)
				w.silence(-1)
				began := time.Now()
				p.unavailable("chat")
				time.Sleep(9 * time.Minute)
				p.unavailable("chat")
				time.Sleep(time.Until(began.Add(10*time.Minute + time.Second)))
				l = p.acquire("chat")
				if l.Why != sessions.LossUnavailable {
					w.Errorf("got %+v", l)
				}
				release(w, l)
				w.silence(0)
			})
		})
	}
}

// TestReplacedHolderKeepsNothing: a holder that does not know yet that its sandbox was replaced
// cannot write the files of the key.
func TestReplacedHolderKeepsNothing(t *testing.T) {
	for _, name := range []string{"replaced", "abandoned"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				keep := func(o *sessions.Options) {
					keeping(1, 0)(o)
					o.Replace = func(executor.Handle) time.Duration { return 0 }
				}
				one := w.start("one", keep)
				first := one.acquire("chat")
				put(w.T, first, "a.txt", "of before", 0)
				release(w, first)
				first = one.acquire("chat")
				put(w.T, first, "a.txt", "too late", 0)

				// Another process takes over the lease while the first one is stopped.
				two := w.start("two", keep)
				if name == "abandoned" {
					w.do(two.m.Abandon(w.Context(), "chat"))
				} else {
					w.expire("chat")
					w.silence(-1)
				}
				second := two.acquire("chat")
				if got := content(w.T, second, "a.txt"); !second.Fresh || got != "of before" {
					w.Errorf("got fresh %v, %q", second.Fresh, got)
				}
				w.silence(0)
				first.Release()
				put(w.T, second, "a.txt", "of now", 0)
				release(w, second)
				w.do(two.m.Abandon(w.Context(), "chat"))
				third := two.acquire("chat")
				if got := content(w.T, third, "a.txt"); got != "of now" || third.Why != sessions.LossAbandoned {
					w.Errorf("got %q, %+v", got, third)
				}
				release(w, third)
			})
		})
	}
}

// TestAbandon gives up a conversation whose backend does not answer, so that Discard fails.
func TestAbandon(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p := w.start("one")
		l := p.acquire("chat")
		old := l.Info().Handle.Session
		w.silence(-1)
		if err := p.m.Discard(w.Context(), "chat"); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("discard: got %v", err)
		}
		w.do(p.m.Abandon(w.Context(), "chat"))
		w.do(p.m.Abandon(w.Context(), "chat"))
		w.do(p.m.Abandon(w.Context(), "never there"))
		if err := p.m.Abandon(w.Context(), ""); !errors.Is(err, executor.ErrInvalid) {
			w.Errorf("got %v", err)
		}
		if _, err := l.Run(w.Context(), executor.Request{Code: "x = 1"}, nil); !errors.Is(err, executor.ErrClosed) {
			w.Errorf("the lease of before: got %v, want %v", err, executor.ErrClosed)
		}
		release(w, l)
		w.b.Fail(fake.OpCreate, 1, down)
		p.unavailable("chat") // and the reason is kept
		l = p.acquire("chat")
		if !l.Fresh || !l.Lost || l.Why != sessions.LossAbandoned || l.Info().Handle.Session == old {
			w.Errorf("got %+v", l)
		}
		release(w, l)
		w.silence(0)
	})
}

// TestRunOfADeadHolder: a run of a killed process does not make the next run fail, and the
// variables stay if it ends soon.
func TestRunOfADeadHolder(t *testing.T) {
	for name, c := range map[string]struct {
		code  string
		cell  int
		fresh bool
		long  time.Duration
	}{
		"ends":      {`sleep(5000)`, 3, false, 6 * time.Second},
		"goes-on":   {`forever()`, 1, true, 12 * time.Second},
		"unrelated": {``, 2, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p := w.start("one")
				l := p.acquire("chat", executor.Spec{Run: executor.RunLimits{WallTime: time.Hour}})
				run(w, l, "x = 1")
				x, err := w.b.Open(driver.Env{Instance: "one"})
				w.do(err)
				defer x.Close()
				dead, err := x.Attach(w.Context(), l.Info().Handle) // it has the connection of the process that is killed
				w.do(err)
				p.kill()
				time.Sleep(30 * time.Second)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					if c.code != "" {
						dead.Run(w.Context(), executor.Request{Code: c.code}, nil)
					}
				}()
				synctest.Wait()
				began := time.Now()
				l = w.start("two").acquire("chat")
				if res := run(w, l, "x = 1"); res.Cell != c.cell || res.StateFresh != c.fresh || time.Since(began) > c.long {
					w.Errorf("got %+v after %v", res, time.Since(began))
				}
				release(w, l)
				dead.Detach()
				<-ended
			})
		})
	}
}

// expire ends the lease of a key, as if its holder were stopped.
func (w *world) expire(key string) {
	w.Helper()
	e, err := w.store.Get(w.Context(), "session/"+key)
	w.do(err)
	var r sessions.Record
	w.do(json.Unmarshal(e.Value, &r))
	r.Until = time.Now().Add(-time.Minute)
	e.Value, err = json.Marshal(r)
	w.do(err)
	_, err = w.store.Put(w.Context(), "session/"+key, e)
	w.do(err)
}

// do fails the test if err is not nil.
func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
