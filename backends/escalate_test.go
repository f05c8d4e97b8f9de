package backends_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestEscalationByConfiguration: a conversation goes on on the other backend, and later ones of the
// route begin where they did.
func TestEscalationByConfiguration(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(`
backends: {local: {type: fake, on: a}, box: {type: fake, on: b}}
sessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}
escalate: [{from: local, to: box, on: [threads]}]
routes: [{name: r, split: [{backend: local, weight: 1}]}]`)
		defer w.close(b)
		turn := func(key, code string) *executor.Result {
			w.Helper()
			l, err := b.Manager().Acquire(w.Context(), key, executor.Spec{Subject: "u"})
			if err != nil {
				w.Fatal(err)
			}
			r, err := l.Run(w.Context(), executor.Request{Code: code}, nil)
			if err != nil {
				w.Fatal(err)
			}
			if err := l.Release(); err != nil {
				w.Error(err)
			}
			return r
		}
		turn("k", "x = 5")
		if r := turn("k", "import threading"); r.Origin.Backend != "box" || len(r.Notices) != 1 || !strings.HasPrefix(r.Notices[0], "moved from local to box: needs threads") {
			w.Errorf("got %+v, %q", r.Origin, r.Notices)
		}
		if r := turn("k", "print(x)"); r.Origin.Backend != "box" || string(r.Stdout) != "5\n" {
			w.Errorf("got %+v, %q", r.Origin, r.Stdout)
		}
		if r := turn("other", "print(1)"); r.Origin.Backend != "local" {
			w.Errorf("got %+v", r.Origin)
		}
		synctest.Wait()
		if n, m := len(w.at["a"].Sandboxes()), len(w.at["b"].Sandboxes()); n != 1 || m != 1 {
			w.Errorf("got %d and %d sandboxes", n, m)
		}
	})
}

func TestEscalationRefusals(t *testing.T) {
	const kept = "sessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}\n"
	for name, c := range map[string]struct{ file, want string }{
		"no-checkpoint": {"escalate: [{from: a, to: b, on: [threads]}]", "escalate: want sessions.checkpoint"},
		"from":          {kept + "escalate: [{from: c, to: b, on: [threads]}]", `escalate[0].from: unknown backend "c"`},
		"to":            {kept + "escalate: [{from: a, to: c, on: [threads]}]", `escalate[0].to: unknown backend "c"`},
		"none":          {kept + "escalate: [{from: a, to: b}]", "escalate[0].on: missing"},
		"need":          {kept + "escalate: [{from: a, to: b, on: [thread]}]", `escalate[0].on[0]: unknown need "thread"; did you mean "threads"?`},
		"self":          {kept + "escalate: [{from: a, to: a, on: [threads]}]", `escalate[0].to: leads back to "a"`},
		"circle":        {kept + "escalate: [{from: a, to: b, on: [threads]}, {from: b, to: a, on: [memory]}]", `escalate[1].to: leads back to "b"`},
		"twice":         {kept + "escalate: [{from: a, to: b, on: [threads]}, {from: a, to: b, on: [memory]}]", `escalate[1].from: backend "a" has an entry already`},
		"good":          {kept + "escalate: [{from: a, to: b, on: [subprocess, threads, package, memory, disk, timeout]}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				cfg, err := backends.Parse([]byte("backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}\n" + c.file))
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
