package sessions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// bigger is a second backend, to which conversations of the first escalate.
type bigger struct {
	*fake.Backend
	x executor.Executor
}

// escalating starts a process whose conversations escalate for these needs.
func (w *world) escalating(instance string, o fake.Options, on ...sessions.Need) (*process, *bigger) {
	w.Helper()
	box := &bigger{Backend: fake.New(o)}
	var err error
	box.x, err = box.Open(driver.Env{Instance: instance})
	w.do(err)
	small, err := w.b.Open(driver.Env{Instance: instance})
	w.do(err)
	p := w.over(&either{small, box}, instance, keeping(5, 0), func(o *sessions.Options) {
		o.Escalate = sessions.Escalation{
			To: func(backend string) (string, []sessions.Need) { return "box", on },
			Create: func(ctx context.Context, backend string, spec executor.Spec) (executor.Session, error) {
				return box.x.Create(ctx, spec)
			},
		}
	})
	return p, box
}

// either asks the backend that has the sandbox of a handle.
type either struct {
	executor.Executor
	box *bigger
}

func (x *either) at(h executor.Handle) executor.Executor {
	if slices.Contains(x.box.Sandboxes(), h.Session) {
		return x.box.x
	}
	return x.Executor
}

func (x *either) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	return x.at(h).Attach(ctx, h)
}

func (x *either) Destroy(ctx context.Context, h executor.Handle) error {
	return x.at(h).Destroy(ctx, h)
}

func (x *either) Close() error { return errors.Join(x.Executor.Close(), x.box.x.Close()) }

// TestEscalateBefore: code that imports what its backend lacks runs on the other one, once, with
// the variables of the conversation.
func TestEscalateBefore(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p, box := w.escalating("one", fake.Options{}, sessions.NeedSubprocess)
		l := p.acquire("k")
		run(w, l, "x = [5]")
		put(w.T, l, "a.txt", "kept", 0)
		run(w, l, "import threading") // no need of the configuration
		if n := len(box.Sandboxes()); n != 0 {
			w.Fatalf("%d sandboxes at the target", n)
		}
		r := run(w, l, "import subprocess") // which the language of the fake does not have
		if len(r.Notices) != 1 || !strings.HasPrefix(r.Notices[0], "moved from") {
			w.Errorf("got %q", r.Notices)
		}
		run(w, l, "x.append(6)")
		if got := says(w, l, "print(x)"); got != "[5,6]" || content(w.T, l, "a.txt") != "kept" {
			w.Errorf("got %s", got)
		}
		synctest.Wait()
		if a, b := w.b.Sandboxes(), box.Sandboxes(); len(a) != 0 || len(b) != 1 || l.Info().Handle.Session != b[0] {
			w.Errorf("got %q and %q", a, b)
		}
		release(w, l)
		l = p.acquire("k")
		if l.Fresh || l.Lost || says(w, l, "print(x)") != "[5,6]" {
			w.Errorf("the next message: got %+v", l)
		}
		release(w, l)
		// Its next sandbox is there too.
		box.Break(l.Info().Handle.Session)
		l = p.acquire("k")
		if len(box.Sandboxes()) != 1 || len(w.b.Sandboxes()) != 0 || l.Kept == nil || l.Kept.Refused != "" {
			w.Errorf("after a loss: got %+v", l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestEscalateAfter: a run that fails for want of something is not repeated, and the next one is on
// the other backend, also if the sandbox was lost.
func TestEscalateAfter(t *testing.T) {
	for name, lost := range map[string]bool{"alive": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				p, box := w.escalating("one", fake.Options{}, sessions.NeedTimeout)
				l := p.acquire("k")
				run(w, l, "x = [5]")
				w.do(l.Checkpoint(w.Context()))
				r, err := l.Run(w.Context(), executor.Request{Code: "x.append(6)\nsleep(60000)", Limits: executor.RunLimits{WallTime: time.Second}}, nil)
				w.do(err)
				if r.Status != executor.StatusTimedOut || len(r.Notices) != 1 || !strings.Contains(r.Notices[0], "is not repeated") {
					w.Errorf("got %s, %q", r.Status, r.Notices)
				}
				if n := len(box.Sandboxes()); n != 0 {
					w.Errorf("%d sandboxes at the target", n)
				}
				release(w, l)
				want := "[5,6]"
				if lost {
					w.b.Break(l.Info().Handle.Session)
					want = "[5]"
				}
				l = p.acquire("k")
				if got := says(w, l, "print(x)"); got != want || lost != (l.Kept != nil && l.Kept.Behind == 1) {
					w.Errorf("got %s, kept %+v", got, l.Kept)
				}
				synctest.Wait()
				if a, b := w.b.Sandboxes(), box.Sandboxes(); len(a) != 0 || len(b) != 1 || l.Info().Handle.Session != b[0] {
					w.Errorf("got %q and %q", a, b)
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestEscalationThatFails: the code runs where the conversation is, and the user is told.
func TestEscalationThatFails(t *testing.T) {
	unavailable := driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down"))
	for name, c := range map[string]struct {
		isolation executor.Isolation
		spoil     func(from, to *fake.Backend)
	}{
		"checkpoint": {executor.IsolationContainer, func(from, _ *fake.Backend) { from.Fail(fake.OpRun, 1, unavailable) }},
		"create":     {executor.IsolationContainer, func(_, to *fake.Backend) { to.Fail(fake.OpCreate, 1, unavailable) }},
		"restore":    {executor.IsolationContainer, func(_, to *fake.Backend) { to.Fail(fake.OpRun, 1, unavailable) }},
		"isolation":  {executor.IsolationProcess, func(_, _ *fake.Backend) {}},
	} {
		t.Run(name, func(t *testing.T) {
			o := fake.Options{Capabilities: fake.All()}
			o.Capabilities.Isolation = executor.IsolationContainer
			bubble(t, o, func(w *world) {
				o.Capabilities.Isolation = c.isolation
				p, box := w.escalating("one", o, sessions.NeedThreads)
				l := p.acquire("k", executor.Spec{MinIsolation: executor.IsolationContainer})
				run(w, l, "x = [5]")
				c.spoil(w.b, box.Backend)
				r := run(w, l, "import threading")
				if len(r.Notices) != 1 || !strings.Contains(r.Notices[0], "could not move") {
					w.Errorf("got %q", r.Notices)
				}
				if strings.Contains(r.Notices[0], "down") { // of the provider
					w.Errorf("the user is told %q", r.Notices[0])
				}
				if got := says(w, l, "print(x)"); got != "[5]" || len(box.Sandboxes()) != 0 {
					w.Errorf("got %s, %q", got, box.Sandboxes())
				}
				w.do(l.Discard())
			})
		})
	}
}

// TestEscalationWaitsForOthers: while another call uses the session, the conversation stays.
func TestEscalationWaitsForOthers(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		p, box := w.escalating("one", fake.Options{}, sessions.NeedThreads)
		l := p.acquire("k")
		put(w.T, l, "a.txt", "kept", 0)
		f, err := l.Files().Read(w.Context(), "a.txt")
		w.do(err)
		if r := run(w, l, "import threading"); len(r.Notices) != 0 || len(box.Sandboxes()) != 0 {
			w.Errorf("got %q, %q", r.Notices, box.Sandboxes())
		}
		w.do(f.Close())
		if r := run(w, l, "import threading"); len(r.Notices) != 1 || len(box.Sandboxes()) != 1 {
			w.Errorf("got %q, %q", r.Notices, box.Sandboxes())
		}
		w.do(l.Discard())
	})
}
