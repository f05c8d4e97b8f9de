package backends_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// outage makes a backend answer nothing; with 0 it is over.
func (w *world) outage(name string, n int) {
	for _, op := range []fake.Op{fake.OpCreate, fake.OpLookup, fake.OpRefresh, fake.OpDestroy, fake.OpRun, fake.OpFiles} {
		w.at[name].Fail(op, n, unavailable)
	}
}

// TestConversationInAnOutage: a conversation goes on with the fallback of its route, with its files, and is told that its variables are
// gone and why. One whose route says so waits.
func TestConversationInAnOutage(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := sessions.NewMemoryStore()
		b := w.open(`
backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}
routes:
  - {name: waits, match: {attributes: {plan: pro}}, split: [{backend: a, weight: 1}], fallback: [b], on_unavailable: wait}
  - {name: moves, split: [{backend: a, weight: 1}], fallback: [b]}
sessions: {keep_files_bytes: 1048576, replace_after: 3m}`, backends.WithStore(store))
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
			if _, err := message(key, `write("a.txt", "x")`); err != nil {
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
		if o := l.Info().Handle; o.Backend != "b" || !l.Fresh || l.Why != sessions.LossUnavailable || len(l.Restored) != 1 {
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
		time.Sleep(20 * time.Minute) // the reaper comes by
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

// TestCloseIsAsLongAsTheSlowest: sixty conversations are given up side by side, and what a second attempt has removed is no error.
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
