package backends_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// slowStore writes a rollout only when the broker closes.
type slowStore struct {
	sessions.Store
	writes chan struct{} // has something when a write has begun
}

func (s *slowStore) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if strings.HasPrefix(key, "rollout/") {
		select {
		case s.writes <- struct{}{}:
		default:
		}
		<-ctx.Done()
	}
	return s.Store.Put(context.WithoutCancel(ctx), key, e)
}

// TestCloseWhileARolloutMoves: a share that changes while the broker closes does not keep it.
func TestCloseWhileARolloutMoves(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := &slowStore{Store: sessions.NewMemoryStore(), writes: make(chan struct{}, 1)}
		b := w.openAs("one", rolloutFile, backends.WithStore(store))
		<-store.writes
		began := time.Now()
		w.close(b)
		if took := time.Since(began); took > 20*time.Second {
			w.Errorf("closing took %v", took)
		}
		if _, err := b.Create(w.Context(), executor.Spec{}); executor.KindName(err) != "closed" {
			w.Errorf("got %v", err)
		}
	})
}
