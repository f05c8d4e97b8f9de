package backends_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestManagerAcrossProcesses(t *testing.T) {
	for name, open := range sharedStores {
		t.Run(name, func(t *testing.T) { acrossProcesses(t, open(t).config) })
	}
}

func acrossProcesses(t *testing.T, store string) {
	w := newWorld(t, fake.Options{})
	file := "{backends: {a: {type: fake, on: a}}, sessions: " + store + ", guard: {runs_per_minute: 3}}"
	spec := executor.Spec{Subject: "u"}
	first := w.openAs("one", file)
	lease, err := first.Manager().Acquire(t.Context(), "chat-1", spec)
	if err != nil || !lease.Fresh {
		t.Fatalf("got %+v, %v", lease, err)
	}
	w.says(lease, "x = 41", "")
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	w.close(first)
	second := w.openAs("two", file)
	lease, err = second.Manager().Acquire(t.Context(), "chat-1", spec)
	if err != nil || lease.Fresh {
		t.Fatalf("got %+v, %v", lease, err)
	}
	w.says(lease, "print(x + 1)", "42\n")
	w.says(lease, "x", "")
	_, err = lease.Run(t.Context(), executor.Request{Code: "x"}, nil)
	if e := w.fails(err, executor.ErrDenied); e.Denied.Have != 3 { // the record says whose session it is, and the store what was used
		t.Errorf("got %+v", e.Denied)
	}
	if o := second.Stats().Arms; len(o) != 1 || o[0].Route != "default" || o[0].Assigned != "a" {
		t.Errorf("got %+v: the route is not known after the change of process", o)
	}
	if err := lease.Discard(); err != nil {
		t.Error(err)
	}
	w.close(second)
	if left := w.at["a"].Sandboxes(); len(left) > 0 {
		t.Errorf("%d sandboxes left", len(left))
	}
}

// Conversations that only this process knows about end with it, because no other process could find
// them.
func TestManagerInMemory(t *testing.T) {
	w := newWorld(t, fake.Options{})
	b := w.open("backends: {a: {type: fake, on: a}}")
	lease, err := b.Manager().Acquire(t.Context(), "chat", executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	w.says(lease, "x = 1", "")
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	w.close(b)
	if left := w.at["a"].Sandboxes(); len(left) > 0 {
		t.Errorf("%d sandboxes left", len(left))
	}
}

// The next process removes what a killed process has left, except sessions that have a record.
func TestReaper(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := sessions.NewMemoryStore()
		file := "backends: {a: {type: fake, on: a, broker: {pools: [{size: 2}]}}}"
		killed := w.openAs("killed", file, backends.WithStore(store))
		lease, err := killed.Manager().Acquire(w.Context(), "chat", executor.Spec{})
		if err != nil {
			w.Fatal(err)
		}
		w.says(lease, "x = 1", "")
		w.create(killed, executor.Spec{})
		synctest.Wait()
		left := len(w.at["a"].Sandboxes())
		if left != 4 {
			w.Fatalf("got %d sandboxes", left)
		}
		// In this test the memory of the killed process is still there. Its connections can be
		// ended, and its heartbeat removed.
		w.at["a"].Cut(0)
		e, err := store.Get(w.Context(), "instance/killed")
		if err != nil {
			w.Fatal(err)
		}
		e.Expires = time.Now().Add(time.Second)
		if _, err := store.Put(w.Context(), "instance/killed", e); err != nil {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Second)

		next := w.openAs("next", "backends: {a: {type: fake, on: a}}", backends.WithStore(store))
		synctest.Wait()
		if got := len(w.at["a"].Sandboxes()); got != left {
			w.Errorf("young ones were removed: got %d", got)
		}
		w.close(next)
		time.Sleep(time.Minute)
		if e, err = store.Get(w.Context(), "instance/killed"); err != nil {
			w.Fatal(err)
		}
		if err := store.Delete(w.Context(), "instance/killed", e.Rev); err != nil {
			w.Fatal(err)
		}
		next = w.openAs("next", "backends: {a: {type: fake, on: a}}", backends.WithStore(store))
		synctest.Wait()
		if got := w.at["a"].Sandboxes(); len(got) != 1 || got[0] != lease.Info().Handle.Session {
			w.Errorf("got %q, want the one that the store names", got)
		}
		if err := next.Manager().Discard(w.Context(), "chat"); err != nil {
			w.Error(err)
		}
		w.close(next)
		killed.Close() // an error about sessions that are gone is fine
	})
}

// TestDiscardEndsTheSession: a session that is discarded while no lease has it costs nothing from
// then on, does not count for its subject, and is not held.
func TestDiscardEndsTheSession(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(`
backends: {a: {type: fake, on: a, broker: {prices: {second: 0.01}}}}
guard: {sessions_per_subject: 1}`)
		defer w.close(b)
		spec := executor.Spec{Subject: "u"}
		for _, key := range []string{"one", "two"} {
			l, err := b.Manager().Acquire(w.Context(), key, spec)
			if err != nil {
				w.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := l.Release(); err != nil {
				w.Error(err)
			}
			if err := b.Manager().Discard(w.Context(), key); err != nil {
				w.Error(err)
			}
			synctest.Wait()
		}
		time.Sleep(15 * time.Second)
		if a := b.Stats().Arms[0]; time.Duration(a.SandboxTime) != 2*time.Second || a.Cost != 20_000 {
			w.Errorf("got %v for %v", a.Cost, time.Duration(a.SandboxTime))
		}
	})
}

// cutStore is a Store that its process cannot reach while cut is set.
type cutStore struct {
	sessions.Store
	cut *atomic.Bool
}

func (s cutStore) Get(ctx context.Context, key string) (sessions.Entry, error) {
	if s.cut.Load() {
		return sessions.Entry{}, errors.New("the store is away")
	}
	return s.Store.Get(ctx, key)
}

func (s cutStore) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if s.cut.Load() {
		return "", errors.New("the store is away")
	}
	return s.Store.Put(ctx, key, e)
}

// A process that has only lost the store keeps its sessions, its runs and its pool, whatever the
// reaper of another finds. The latter removes them when the process has ended.
func TestReaperSparesWhoHasLostTheStore(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store, cut := sessions.NewMemoryStore(), &atomic.Bool{}
		file := "backends: {a: {type: fake, on: a, broker: {pools: [{size: 2}]}}}"
		lost := w.openAs("lost", file, backends.WithStore(cutStore{store, cut}))
		s := w.create(lost, executor.Spec{MaxRun: executor.RunLimits{WallTime: time.Hour}})
		synctest.Wait()
		cut.Store(true)
		other := w.openAs("other", "backends: {a: {type: fake, on: a}}", backends.WithStore(store))
		r, err := s.Run(w.Context(), executor.Request{Code: "sleep(1500000)\nprint(1)", Limits: executor.RunLimits{WallTime: time.Hour}}, nil)
		if err != nil || r.Status != executor.StatusOK {
			w.Errorf("the run: got %+v, %v", r, err)
		}
		before := w.at["a"].Sandboxes()
		if len(before) != 3 {
			w.Errorf("got %d sandboxes, want the session and two that are warm", len(before))
		}
		w.at["a"].Cut(0)
		time.Sleep(11 * time.Minute)
		for _, id := range w.at["a"].Sandboxes() {
			if slices.Contains(before, id) { // later ones have made a pool full again
				w.Errorf("%s is left of a process without connections", id)
			}
		}
		w.close(other)
		lost.Close() // an error about the store is fine
	})
}

// The reaper of a process with a wrong clock removes nothing, and logs the reason.
func TestReaperOfWrongClock(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		left, err := w.at["a"].Open(driver.Env{Name: "a", Owner: "me", Instance: "gone"})
		if err != nil {
			w.Fatal(err)
		}
		w.create(left, executor.Spec{IdleTTL: time.Hour})
		w.at["a"].Cut(0)
		time.Sleep(10 * time.Minute)
		var log bytes.Buffer
		b, err := backends.Open(w.Context(), driver.Env{Owner: "me", Log: slog.New(slog.NewTextHandler(&log, nil))}, w.reg,
			parse(w.T, "backends: {a: {type: fake, on: a}}"), backends.WithStore(slowClock{Store: sessions.NewMemoryStore(), by: 2 * time.Hour}))
		if err != nil {
			w.Fatal(err)
		}
		synctest.Wait()
		w.close(b)
		if got := w.at["a"].Sandboxes(); len(got) != 1 || !strings.Contains(log.String(), "the clock of this machine is 2h0m0s ahead of") {
			w.Errorf("%d sandboxes are left, log %q", len(got), &log)
		}
		if err := left.Close(); err != nil {
			w.Error(err)
		}
	})
}
