package backends_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// counting is a Store that lists the requests that it gets, but for those about heartbeats.
type counting struct {
	sessions.Store
	mu     sync.Mutex
	reads  []string
	writes []string
}

func (c *counting) count(list *[]string, what, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.HasPrefix(key, "instance/") {
		*list = append(*list, what+" "+key)
	}
}

func (c *counting) Get(ctx context.Context, key string) (sessions.Entry, error) {
	c.count(&c.reads, "get", key)
	return c.Store.Get(ctx, key)
}

func (c *counting) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	c.count(&c.writes, "put", key)
	return c.Store.Put(ctx, key, e)
}

func (c *counting) Delete(ctx context.Context, key, rev string) error {
	c.count(&c.writes, "delete", key)
	return c.Store.Delete(ctx, key, rev)
}

func (c *counting) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	c.count(&c.reads, "keys", prefix)
	return c.Store.Keys(ctx, prefix)
}

// take returns the requests since the last call.
func (c *counting) take() (reads, writes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads, writes = c.reads, c.writes
	c.reads, c.writes = nil, nil
	return reads, writes
}

// TestMessageCost bounds the requests of a message to the store and to the provider.
func TestMessageCost(t *testing.T) {
	const prices = ", broker: {prices: {run: 0.1, second: 0.01}}"
	for name, c := range map[string]struct {
		prices, guard string
		reads, writes int
	}{
		"none": {"", "", 2, 4},
		"runs": {"", "guard: {quotas: [{per: day, runs: 100}]}", 3, 5},
		"time": {"", "guard: {quotas: [{per: day, time: 10h}]}", 3, 5},
		"cost": {prices, "guard: {quotas: [{per: day, cost: 1000}]}", 3, 5},
		"rate": {"", "guard: {runs_per_minute: 100}", 3, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				store := &counting{Store: sessions.NewMemoryStore()}
				b := w.openAs("one", "backends: {a: {type: fake, on: a"+c.prices+"}}\n"+c.guard, backends.WithStore(store))
				defer w.close(b)
				for i := range 4 {
					time.Sleep(7 * time.Second)
					synctest.Wait()
					store.take()
					asked := w.at["a"].Calls(fake.OpRefresh) + w.at["a"].Calls(fake.OpLookup)
					lease, err := b.Manager().Acquire(w.Context(), "chat", executor.Spec{Subject: "u"})
					if err != nil {
						w.Fatal(err)
					}
					if _, err := lease.Once(w.Context(), fmt.Sprint("m-", i)); err != nil {
						w.Fatal(err)
					}
					if _, err := lease.Run(w.Context(), executor.Request{Code: "sleep(500)"}, nil); err != nil {
						w.Fatal(err)
					}
					if err := lease.Release(); err != nil {
						w.Fatal(err)
					}
					synctest.Wait()
					reads, writes := store.take()
					if n := w.at["a"].Calls(fake.OpRefresh) + w.at["a"].Calls(fake.OpLookup) - asked; n > 1 {
						w.Errorf("message %d: asked the provider %d times", i, n)
					}
					if i > 0 && (len(reads) > c.reads || len(writes) > c.writes) {
						w.Errorf("message %d: got %d reads and %d writes:\n%s", i, len(reads), len(writes), strings.Join(append(reads, writes...), "\n"))
					}
				}
				w.discard(b, "chat")
			})
		})
	}
}

func (w *world) discard(b *backends.Broker, key string) {
	w.Helper()
	if err := b.Manager().Discard(w.Context(), key); err != nil {
		w.Error(err)
	}
}

// TestBillEndsWithSandbox: a sandbox costs nothing after its end, which nobody has asked for, even
// while the store and the provider do not answer. One that was only cut off costs all of its time.
func TestBillEndsWithSandbox(t *testing.T) {
	const priced = "backends: {a: {type: fake, on: a, broker: {prices: {second: 0.01}}}}"
	spec := executor.Spec{Subject: "u", IdleTTL: 100 * time.Second}
	for name, c := range map[string]func(w *world, b *backends.Broker){
		"its own": func(w *world, b *backends.Broker) {
			s := w.create(b, spec)
			time.Sleep(time.Hour)
			w.do(s.Close())
		},
		"a conversation": func(w *world, b *backends.Broker) {
			lease, err := b.Manager().Acquire(w.Context(), "k", spec)
			w.do(err)
			w.do(lease.Release())
			time.Sleep(time.Hour)
			if b.Manager().Stays("k") {
				w.Error("it is still held")
			}
		},
		"unanswered": func(w *world, b *backends.Broker) {
			s := w.create(b, spec)
			w.at["a"].Fail(fake.OpRefresh, -1, unavailable)
			time.Sleep(time.Hour)
			w.at["a"].Fail(fake.OpRefresh, 0, nil)
			w.do(s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				b := w.open(priced)
				defer w.close(b)
				c(w, b)
				if got := b.Stats().Arms[0].Cost.String(); got != "1" {
					w.Errorf("100 seconds cost %s", got)
				}
			})
		})
	}
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
