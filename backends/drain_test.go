package backends_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestConversationsMoveByConfiguration: after a reload each conversation goes on on the other
// backend with its next message, and with what it had.
func TestConversationsMoveByConfiguration(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	const before = `
backends: {local: {type: fake, on: a}, box: {type: fake, on: b}}
sessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}
routes: [{name: r, split: [{backend: local, weight: 1}]}]`
	after := strings.NewReplacer("{backend: local,", "{backend: box,", "sessions: {", "sessions: {drain: [local], ").Replace(before)
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(before)
		defer w.close(b)
		turn := func(key, code, want string) *sessions.Lease {
			w.Helper()
			l, err := b.Manager().Acquire(w.Context(), key, executor.Spec{Subject: "u"})
			if err != nil {
				w.Fatal(err)
			}
			r, err := l.Run(w.Context(), executor.Request{Code: code}, nil)
			if err != nil || string(r.Stdout) != want {
				w.Errorf("%s: got %q, %v, want %q", key, r.Stdout, err, want)
			}
			if err := l.Release(); err != nil {
				w.Error(err)
			}
			return l
		}
		for _, key := range []string{"one", "two"} {
			turn(key, "x = '"+key+"'", "")
		}
		w.reload(b, after)
		for range 2 {
			l := turn("one", "print(x)", "one\n")
			if got := l.Info().Handle.Backend; got != "box" {
				w.Errorf("got %s", got)
			}
		}
		synctest.Wait()
		if n, m := len(w.at["a"].Sandboxes()), len(w.at["b"].Sandboxes()); n != 1 || m != 1 {
			w.Errorf("got %d and %d sandboxes, want the other conversation to stay until its next message", n, m)
		}
		// What has not moved yet, moves back with the configuration.
		w.reload(b, before)
		turn("two", "print(x)", "two\n")
		if n, m := len(w.at["a"].Sandboxes()), len(w.at["b"].Sandboxes()); n != 1 || m != 1 {
			w.Errorf("got %d and %d sandboxes", n, m)
		}
	})
}

// TestEvictByConfiguration: an operator whose engine is full lets subjects lose the conversation
// that they have not used for the longest time, while the program runs.
func TestEvictByConfiguration(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	const before = `
backends: {box: {type: fake, on: b}}
sessions: {max_per_subject: 1, checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}`
	after := strings.Replace(before, "sessions: {", "sessions: {evict: true, ", 1)
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(before)
		defer w.close(b)
		acquire := func(key string) error {
			l, err := b.Manager().Acquire(w.Context(), key, executor.Spec{Subject: "u"})
			if err != nil {
				return err
			}
			return l.Release()
		}
		for _, c := range []struct {
			file, key string
			denied    bool
		}{{before, "one", false}, {before, "two", true}, {after, "two", false}, {before, "three", true}} {
			w.reload(b, c.file)
			if err := acquire(c.key); errors.Is(err, executor.ErrDenied) != c.denied || err != nil && !c.denied {
				w.Errorf("%s: got %v, want denied: %t", c.key, err, c.denied)
			}
		}
	})
}

func TestDrainRefusals(t *testing.T) {
	const kept = "checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}"
	for name, c := range map[string]struct{ sessions, routes, want string }{
		"no-checkpoint": {"drain: [a]", "[{name: r, split: [{backend: b, weight: 1}]}]", "sessions.drain: want checkpoint"},
		"no-routes":     {kept + ", drain: [a]", "", "sessions.drain[0]: without routes"},
		"split":         {kept + ", drain: [a]", "[{name: r, split: [{backend: a, weight: 1}]}]", `sessions.drain[0]: route "r" leads there`},
		"fallback":      {kept + ", drain: [a]", "[{name: r, split: [{backend: b, weight: 1}], fallback: [a]}]", `sessions.drain[0]: route "r" leads there`},
		"unknown":       {kept + ", drain: [c]", "[{name: r, split: [{backend: b, weight: 1}]}]", `sessions.drain[0]: unknown backend "c"`},
		"evict":         {kept + ", evict: true", "", "sessions.evict: want checkpoint"},
		"good":          {kept + ", drain: [a], evict: true, max_per_subject: 2", "[{name: r, split: [{backend: b, weight: 1}, {backend: a, weight: 0}]}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				file := "backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}\nsessions: {" + c.sessions + "}\n"
				if c.routes != "" {
					file += "routes: " + c.routes
				}
				cfg, err := backends.Parse([]byte(file))
				if err == nil {
					err = cfg.Check(w.reg)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					w.Errorf("got %v, want %q", err, c.want)
				}
			})
		})
	}
}
