package backends_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// outage makes a backend stop answering; n is 0 for the end of the outage.
func (w *world) outage(name string, n int) {
	for _, op := range []fake.Op{fake.OpCreate, fake.OpLookup, fake.OpRefresh, fake.OpDestroy, fake.OpRun, fake.OpFiles} {
		w.at[name].Fail(op, n, unavailable)
	}
}

// TestConversationInAnOutage: a conversation goes on with the fallback of its route and with its
// files, and is told that its variables are lost and why. If its route has on_unavailable: wait, it
// waits.
func TestConversationInAnOutage(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	bubble(t, fake.Options{}, func(w *world) {
		store := sessions.NewMemoryStore()
		b := w.open(`
backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}
routes:
  - {name: waits, match: {attributes: {plan: pro}}, split: [{backend: a, weight: 1}], fallback: [b], on_unavailable: wait}
  - {name: moves, split: [{backend: a, weight: 1}], fallback: [b]}
sessions: {checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}, replace_after: 3m}`, backends.WithStore(store))
		defer w.close(b)
		specs := map[string]executor.Spec{"moves": {Subject: "u"}, "waits": {Subject: "v", Attributes: map[string]string{"plan": "pro"}}}
		message := func(key, code string) (*sessions.Lease, error) {
			l, err := b.Manager().Acquire(w.Context(), key, specs[key])
			if err != nil {
				return nil, err
			}
			defer l.Release()
			_, err = l.Run(w.Context(), executor.Request{Code: code}, nil)
			return l, err
		}
		for key := range specs {
			if _, err := message(key, `write("a.txt", "x"); y = 1`); err != nil {
				w.Fatal(err)
			}
		}
		left := w.at["a"].Sandboxes()
		w.outage("a", -1)
		for range 3 {
			for key := range specs {
				if _, err := message(key, "x = 1"); !errors.Is(err, executor.ErrUnavailable) || !executor.Retryable(err) {
					w.Errorf("%s: got %v", key, err)
				}
			}
			time.Sleep(time.Minute)
		}
		l, err := message("moves", "x = 1")
		if err != nil {
			w.Fatal(err)
		}
		if o := l.Info().Handle; o.Backend != "b" || !l.Fresh || l.Why != sessions.LossUnavailable || l.Kept == nil || len(l.Kept.Files) != 1 || len(l.Kept.Names) != 1 {
			w.Errorf("got %+v on %s", l, o.Backend)
		}
		if _, err := message("waits", "x = 1"); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v", err)
		}
		w.outage("a", 0)
		if _, err := message("waits", "x = 1"); err != nil {
			w.Error(err)
		}
		if got := len(w.at["a"].Sandboxes()); got != len(left) {
			w.Errorf("got %d sandboxes, want the old one left alone", got)
		}
		time.Sleep(20 * time.Minute) // long enough for the reaper
		if got := len(w.at["a"].Sandboxes()); got != len(left)-1 {
			w.Errorf("got %d sandboxes after the reaper", got)
		}
		for key := range specs {
			if err := b.Manager().Discard(w.Context(), key); err != nil {
				w.Error(err)
			}
		}
	})
}

// TestCloseIsAsLongAsTheSlowest: sixty conversations are closed at the same time, and sandboxes
// that a second attempt has removed are not an error.
func TestCloseIsAsLongAsTheSlowest(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a}}")
		const n = 60
		for i := range n {
			l, err := b.Manager().Acquire(w.Context(), fmt.Sprint("chat-", i), executor.Spec{})
			if err != nil {
				w.Fatal(err)
			}
			if err := l.Release(); err != nil {
				w.Error(err)
			}
		}
		w.at["a"].Fail(fake.OpDestroy, 5, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("a moment")))
		free := w.at["a"].Hold(fake.OpDestroy)
		closed := make(chan error)
		go func() { closed <- b.Close() }()
		synctest.Wait()
		if got := w.at["a"].Calls(fake.OpDestroy); got != n {
			w.Errorf("%d of %d are given up at once", got, n)
		}
		free()
		if err := <-closed; err != nil {
			w.Errorf("nothing is left, but got %v", err)
		}
	})
}

// TestFiguresOfAnOutage: the statistics by arm agree with what users saw, whether Acquire, Create,
// Attach or Run failed, and they include the time of sandboxes that are still alive.
func TestFiguresOfAnOutage(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}\nroutes: [{name: all, split: [{backend: a, weight: 1}, {backend: b, weight: 1}]}]\nsessions: {replace_after: 1h}")
		defer w.close(b)
		turns, good := map[string]int64{}, map[string]int64{}
		count := func(arm string, err error) {
			turns[arm]++
			if err == nil {
				good[arm]++
			}
		}
		var handles []executor.Handle
		for i := range 40 {
			spec := executor.Spec{Subject: fmt.Sprint("user-", i)}
			d, err := b.Decide(spec)
			if err != nil {
				w.Fatal(err)
			}
			message := func() error {
				l, err := b.Manager().Acquire(w.Context(), spec.Subject, spec)
				if err != nil {
					return err
				}
				defer l.Release()
				handles = append(handles, l.Info().Handle)
				_, err = l.Run(w.Context(), executor.Request{Code: "sleep(1000)"}, nil)
				return err
			}
			if i == 20 {
				w.outage("a", -1)
			}
			count(d.Assigned, message())
			count(d.Assigned, message())
			_, err = executor.Run(w.Context(), b, spec, executor.Request{Code: "x = 1"})
			count(d.Assigned, err)
		}
		for _, h := range handles[:5] {
			s, err := b.Attach(w.Context(), h)
			if err != nil { // a successful Attach is not a turn
				count(h.Backend, err)
				continue
			}
			s.Detach()
		}
		for _, name := range []string{"a", "b"} {
			var got backends.ArmStats
			for _, arm := range b.Stats().Arms {
				if arm.Assigned == name {
					got.Turns += arm.Turns
					got.Answered += arm.Answered
					got.SandboxTime += arm.SandboxTime
					if failed := arm.TurnErrors["unavailable"]; failed != arm.Turns-arm.Answered || arm.Turn.Count != arm.Turns {
						w.Errorf("%s: got %+v", name, arm)
					}
				}
			}
			if got.Turns != turns[name] || got.Answered != good[name] || name == "a" && got.Good() > .6 || name == "b" && got.Good() != 1 {
				w.Errorf("%s: got %d of %d turns, want %d of %d", name, got.Answered, got.Turns, good[name], turns[name])
			}
			if got.SandboxTime == 0 {
				w.Errorf("%s: no time in sandboxes, and %d live", name, len(w.at[name].Sandboxes()))
			}
		}
		// The first turn of a conversation includes the time to create its sandbox.
		if p99 := time.Duration(b.Stats().Arms[len(b.Stats().Arms)-1].Turn.P99); p99 < 2*time.Second {
			w.Errorf("got a p99 of %v", p99)
		}
		w.outage("a", 0)
		for i := range 40 {
			if err := b.Manager().Discard(w.Context(), fmt.Sprint("user-", i)); err != nil {
				w.Error(err)
			}
		}
	})
}

// TestAuditOfAConversation: each record says who, for which user, on which backend, and whether
// anything ran, also if the operation failed.
func TestAuditOfAConversation(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	bubble(t, fake.Options{}, func(w *world) {
		var log []backends.Audit
		b := w.open("backends: {a: {type: fake, on: a}}\nsessions: {checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}}", backends.WithAudit(func(a backends.Audit) { log = append(log, a) }))
		defer w.close(b)
		spec := executor.Spec{Subject: "u", Attributes: map[string]string{"plan": "pro"}}
		var want []string
		expect := func(lines ...string) {
			w.Helper()
			want = append(want, lines...)
			var got []string
			for _, a := range log {
				if a.Time.IsZero() || a.Subject != "u" || a.Attributes["plan"] != "pro" || a.Origin.Route != "default" || a.Origin.Assigned != "a" {
					w.Errorf("got %+v", a)
				}
				if a.Op == "checkpoint" {
					a.Run = "" // the backend makes one up
				}
				got = append(got, fmt.Sprintf("%s %s%s %s%d ran %s %s%s", a.Op, a.Key, a.Run, a.File, a.FileBytes+int64(a.Port), a.Ran, a.Status, a.Error))
			}
			if !slices.Equal(got, want) {
				w.Errorf("got  %q\nwant %q", got, want)
			}
		}
		l, err := b.Manager().Acquire(w.Context(), "chat", spec)
		if err != nil {
			w.Fatal(err)
		}
		expect("create  0 ran no ", "acquire chat 0 ran no ")
		if err := l.Files().Write(w.Context(), "a.txt", strings.NewReader("12345"), 0); err != nil {
			w.Error(err)
		}
		r, err := l.Files().Read(w.Context(), "a.txt")
		if err != nil {
			w.Fatal(err)
		}
		io.Copy(io.Discard, r)
		r.Close()
		if _, err := l.Files().Read(w.Context(), "none"); err == nil {
			w.Error("got no error")
		}
		expect("upload  a.txt5 ran no ", "download  a.txt5 ran no ", "download  none0 ran no file-not-found")
		if _, err := l.Dial(w.Context(), 8000); !errors.Is(err, executor.ErrUnsupported) {
			w.Errorf("got %v", err)
		}
		expect("dial  8000 ran no unsupported")
		if _, err := l.Run(w.Context(), executor.Request{ID: "mine", Code: "x = 1"}, nil); err != nil {
			w.Error(err)
		}
		w.at["a"].Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, nil))
		if _, err := l.Run(w.Context(), executor.Request{ID: "cut-off", Code: "x = 1"}, nil); err == nil {
			w.Error("got no error")
		}
		w.at["a"].Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
		if _, err := l.Run(w.Context(), executor.Request{ID: "not-begun", Code: "x = 1"}, nil); err == nil {
			w.Error("got no error")
		}
		expect("run mine 0 ran yes ok", "run cut-off 0 ran maybe unavailable", "run not-begun 0 ran no unavailable")
		if err := l.Release(); err != nil { // keeping files is not a download by a user
			w.Error(err)
		}
		w.outage("a", -1)
		if _, err := b.Manager().Acquire(w.Context(), "chat", spec); err == nil {
			w.Error("got no error")
		}
		expect("checkpoint  0 ran yes ok", "acquire chat 0 ran no unavailable")
		h := l.Info().Handle
		if _, err := b.Attach(w.Context(), h); err == nil {
			w.Error("got no error")
		}
		expect("attach  0 ran no unavailable")
		w.outage("a", 0)
	})
}
