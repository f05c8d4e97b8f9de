package sessions_test

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// install installs a package by a lease.
func (w *world) install(l *sessions.Lease, name string) {
	w.Helper()
	r, err := l.Install(w.Context(), executor.Packages{Names: []string{name}}, nil)
	w.do(err)
	w.do(r.Err())
}

// TestInstalledAgain: the next sandbox of a conversation has the packages of the one before, also
// in another process.
func TestInstalledAgain(t *testing.T) {
	bubble(t, fake.Options{Packages: []string{"six", "attrs"}}, func(w *world) {
		const both = "print(imported('six'), imported('attrs'))"
		p := w.start("one", keeping(1, 0))
		l := p.acquire("k")
		w.install(l, "six")
		w.install(l, "six")
		release(w, l) // makes a checkpoint, although no code has run
		w.b.Break(l.Info().Handle.Session)
		l = p.acquire("k")
		if got := says(w, l, both); got != "true false" || len(l.Kept.Installed) != 1 || l.Kept.Installed[0].Language != executor.Python {
			w.Errorf("got %s, kept %+v", got, l.Kept)
		}
		w.install(l, "attrs")
		release(w, l)
		p.stop()
		p = w.start("two", keeping(1, 0))
		w.b.Break(l.Info().Handle.Session)
		l = p.acquire("k")
		if got := says(w, l, both); got != "true true" {
			w.Errorf("in another process: got %s, kept %+v", got, l.Kept)
		}
		w.do(l.Discard())
	})
}

// TestInstalledElsewhere: what the next backend refuses to install is listed, and the conversation
// goes on.
func TestInstalledElsewhere(t *testing.T) {
	bubble(t, fake.Options{Packages: []string{"six", "attrs"}}, func(w *world) {
		p, _ := w.escalating("one", fake.Options{Packages: []string{"six"}}, sessions.NeedThreads)
		l := p.acquire("k")
		run(w, l, "x = 5")
		w.install(l, "six")
		w.install(l, "attrs")
		if r := run(w, l, "import threading"); len(r.Notices) != 1 || !strings.HasSuffix(r.Notices[0], `1 things were not carried, among them "attrs"`) {
			w.Errorf("got %q", r.Notices)
		}
		if got := says(w, l, "print(x, imported('six'), imported('attrs'))"); got != "5 true false" {
			w.Errorf("got %s", got)
		}
		w.do(l.Checkpoint(w.Context()))
		w.do(l.Discard())
	})
}
