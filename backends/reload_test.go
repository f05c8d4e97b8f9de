package backends_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

func (w *world) reload(b *backends.Broker, file string) {
	w.Helper()
	if err := b.Reload(w.Context(), parse(w.T, file)); err != nil {
		w.Fatal(err)
	}
}

const split = `
backends: {a: {type: fake, on: a, broker: {pools: [{size: 2}]}}, b: {type: fake, on: b}}
routes: [{name: r, split: [{backend: a, weight: %d}, {backend: b, weight: %d}]}]
`

func TestReloadMovesNewSessionsOnly(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(fmt.Sprintf(split, 100, 0))
		defer w.close(b)
		synctest.Wait()
		warm := w.at["a"].Sandboxes()
		old := w.create(b, executor.Spec{Subject: "u"})
		w.says(old, "x = 1", "")
		w.reload(b, fmt.Sprintf(split, 0, 100))
		s := w.create(b, executor.Spec{Subject: "u"})
		if got := s.Info().Handle.Backend; got != "b" {
			w.Errorf("got %s", got)
		}
		if o := w.says(old, "print(x)", "1\n").Origin; o.Backend != "a" {
			w.Errorf("got %+v", o)
		}
		synctest.Wait()
		kept := 0
		for _, id := range w.at["a"].Sandboxes() {
			for _, was := range warm {
				if id == was {
					kept++
				}
			}
		}
		if kept != 2 { // one of them is the old session
			w.Errorf("%d of 2 warm sessions live on", kept)
		}
		if st := b.Stats(); st.Backends[0].Pools[0].Hits != 1 || len(st.Arms) != 2 {
			w.Errorf("the figures are gone: %+v", st)
		}
		old.Close()
		s.Close()
	})
}

func TestReloadRemovesABackend(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(fmt.Sprintf(split, 100, 0))
		defer w.close(b)
		synctest.Wait()
		old := w.create(b, executor.Spec{Labels: nil})
		removed, _ := b.Backend("a")
		w.reload(b, "backends: {b: {type: fake, on: b}}")
		w.create(b, executor.Spec{}).Close()
		_, err := removed.Create(w.Context(), executor.Spec{})
		w.fails(err, executor.ErrInvalid)
		for _, err := range removed.Sessions(w.Context(), nil) {
			w.fails(err, executor.ErrInvalid)
		}
		synctest.Wait()
		if got := len(w.at["a"].Sandboxes()); got != 1 {
			w.Errorf("got %d sandboxes, want the one in use", got)
		}
		if st := b.Stats().Backends; len(st) != 2 || !st[1].Removed || st[1].Name != "a" || st[1].Sessions != 1 {
			w.Errorf("got %+v", st)
		}
		// The session can still be detached and attached to again.
		h := old.Info().Handle
		if err := old.Detach(); err != nil {
			w.Error(err)
		}
		old, err = b.Attach(w.Context(), h)
		if err != nil {
			w.Fatal(err)
		}
		w.says(old, "print(1)", "1\n")
		old.Close()
		time.Sleep(time.Second)
		if st := b.Stats().Backends; len(st) != 1 {
			w.Errorf("got %+v", st)
		}
		_, err = b.Attach(w.Context(), h)
		w.fails(err, executor.ErrNotFound)
	})
}

// A backend with other settings is a different backend, even under the same name.
func TestReloadReplacesABackend(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a}}")
		old := w.create(b, executor.Spec{})
		w.reload(b, "backends: {a: {type: fake, on: b}}")
		s := w.create(b, executor.Spec{})
		if len(w.at["a"].Sandboxes()) != 1 || len(w.at["b"].Sandboxes()) != 1 {
			w.Error("the new session is not where the new settings say")
		}
		w.says(old, "print(1)", "1\n")
		w.says(s, "print(2)", "2\n")
		w.close(b) // also the rest of the old backend
	})
}

func TestReloadOfWhatTheBrokerDoes(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open("backends: {a: {type: fake, on: a, broker: {pools: [{size: 3}], queue: {max: 5, wait: 1h}}}}")
		defer w.close(b)
		synctest.Wait()
		sessions := []executor.Session{w.create(b, executor.Spec{})}
		synctest.Wait()
		w.reload(b, "{backends: {a: {type: fake, on: a, broker: {pools: [{size: 1}], queue: {max: 2, wait: 1h}, breaker: {failures: 1}}}}, guard: {code_bytes: 1}, sessions: {max_total: 1}}")
		time.Sleep(time.Minute)
		st := b.Stats().Backends[0]
		if st.Breaker != "closed" || len(st.Pools) != 1 || st.Pools[0].Warm != 1 || len(w.at["a"].Sandboxes()) != 2 {
			w.Errorf("got %+v with %d sandboxes", st, len(w.at["a"].Sandboxes()))
		}
		_, err := sessions[0].Run(w.Context(), executor.Request{Code: "x=1"}, nil)
		w.fails(err, executor.ErrDenied)
		lease, err := b.Manager().Acquire(w.Context(), "k", executor.Spec{})
		if err != nil {
			w.Fatal(err)
		}
		_, err = b.Manager().Acquire(w.Context(), "k2", executor.Spec{})
		w.fails(err, executor.ErrExhausted)
		if err := lease.Discard(); err != nil {
			w.Error(err)
		}
		sessions[0].Close()
	})
}

func TestReloadOfAnErrorChangesNothing(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		file := fmt.Sprintf(split, 100, 0)
		b := w.open(file)
		defer w.close(b)
		for name, bad := range map[string]string{
			"route":   "{backends: {b: {type: fake, on: b}}, routes: [{name: r, split: [{backend: a, weight: 1}]}]}",
			"adapter": "{backends: {b: {type: fake, on: b}, x: {type: fake, on: nowhere}}, routes: [{name: r, split: [{backend: b, weight: 1}]}]}",
			"store":   "{backends: {b: {type: fake, on: b}}, sessions: {store: 'sqlite:x'}}",
			"pool":    "{backends: {b: {type: fake, on: b, broker: {pools: [{size: 1, template: none}]}}}}",
		} {
			err := b.Reload(w.Context(), parse(w.T, bad))
			if err == nil || len(executor.FieldErrors(err)) != 1 || executor.FieldErrors(err)[0].Path == "" {
				w.Errorf("%s: got %v", name, err)
			}
			if st := b.Stats().Backends; len(st) != 2 || st[0].Name != "a" || st[1].Removed {
				w.Errorf("%s: got %+v", name, st)
			}
		}
		w.create(b, executor.Spec{}).Close()
	})
}

// The configuration changes back and forth under load, and no call fails.
func TestReloadUnderLoad(t *testing.T) {
	w := newWorld(t, fake.Options{})
	files := []string{
		fmt.Sprintf(split, 100, 0), fmt.Sprintf(split, 50, 50), fmt.Sprintf(split, 0, 100),
		"backends: {b: {type: fake, on: b}}", "backends: {a: {type: fake, on: a}}",
	}
	b := w.open(files[0])
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil || n < 20; n++ {
				s, err := b.Create(t.Context(), executor.Spec{Subject: fmt.Sprint(i)})
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				for range 5 {
					if _, err := s.Run(t.Context(), executor.Request{Code: "print(1)"}, nil); err != nil {
						t.Errorf("run: %v", err)
					}
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	for i := range 40 {
		w.reload(b, files[i%len(files)])
	}
	cancel()
	wg.Wait()
	w.close(b)
	for name, f := range maps.All(w.at) {
		if left := f.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes left on %s", len(left), name)
		}
	}
}
