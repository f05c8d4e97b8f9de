package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/waittest"
)

// leavers is how many conversations move in TestMoveDrill.
const leavers = 100

// state is what a conversation has in TestMoveDrill, and know says whether it still has it.
const (
	state = `import math
class Basket:
    def __init__(self): self.items, self.owner = [], self
def area(r): return math.pi * r * r
basket = Basket(); items = basket.items; items.append(%q)
open('notes.txt', 'w').write(%[1]q)`
	know = `items.append('more')
print(basket.items[0], basket.owner is basket, round(area(2), 3), open('notes.txt').read(), len(basket.items))`
)

// TestMoveDrill: conversations move from Pyodide to Docker by a change of the configuration while
// their users talk. No turn fails, each has its variables, functions, classes and files afterwards,
// and nothing is left on Pyodide.
func TestMoveDrill(t *testing.T) {
	host, err := dockertest.Host()
	check(t, err)
	t.Setenv("CHECKPOINT_KEY", string(bytes.Repeat([]byte("k"), 32)))
	file := func(to, more string) backends.Config {
		cfg, err := backends.Parse(fmt.Appendf(nil, `
backends:
  local: {type: pyodide, broker: {queue: {max: 200, wait: 5m}}}
  box: {type: docker, host: %q, image: %q, pull: never, broker: {queue: {max: 200, wait: 5m}}}
sessions: {%scheckpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}
routes: [{name: all, split: [{backend: %s, weight: 1}]}]`, host, dockertest.Python, more, to))
		check(t, errors.Join(err, cfg.Check(all.Registry())))
		return cfg
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "move-drill"}, all.Registry(), file("local", ""))
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })

	// each lets every conversation have a turn, some at a time, and returns how long they took.
	each := func(code func(name string) string, want func(name string) string, on string) (took []time.Duration, moved int) {
		t.Helper()
		var mu sync.Mutex
		var some sync.WaitGroup
		for first := range speaking {
			some.Go(func() {
				for i := first; i < leavers; i += speaking {
					name := fmt.Sprint("conversation-", i)
					began := time.Now()
					l, err := turn(t.Context(), b, name, code(name), want(name))
					switch {
					case err != nil:
						t.Errorf("%s: %v", name, err)
						continue
					case l.Info().Handle.Backend != on:
						t.Errorf("%s: is on %s, want %s", name, l.Info().Handle.Backend, on)
					}
					mu.Lock()
					took = append(took, time.Since(began))
					if l.Why == sessions.LossMoved && len(l.Kept.Omitted) == 0 {
						moved++
					}
					mu.Unlock()
				}
			})
		}
		some.Wait()
		if t.Failed() {
			t.FailNow()
		}
		slices.Sort(took)
		return took, moved
	}
	knows := func(n int) func(string) string {
		return func(name string) string { return fmt.Sprintf("%s True 12.566 %[1]s %d\n", name, n) }
	}
	first, _ := each(func(name string) string { return fmt.Sprintf(state, name) }, func(string) string { return "" }, "local")
	stay, _ := each(func(string) string { return know }, knows(2), "local")
	check(t, b.Reload(t.Context(), file("box", "drain: [local], ")))
	move, moved := each(func(string) string { return know }, knows(3), "box")
	after, _ := each(func(string) string { return know }, knows(4), "box")
	if moved != leavers {
		t.Errorf("%d of %d have moved", moved, leavers)
	}
	waittest.Until(t, "no session is left on Pyodide", func() error {
		i := slices.IndexFunc(b.Stats().Backends, func(s backends.BackendStats) bool { return s.Name == "local" })
		if n := b.Stats().Backends[i].Sessions; n > 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	half := func(all []time.Duration) time.Duration { return all[len(all)/2].Round(time.Millisecond) }
	t.Logf("medians of a turn: the first %v, one on Pyodide %v, the one that moves %v, one on Docker %v", half(first), half(stay), half(move), half(after))
	for i := range leavers {
		check(t, b.Manager().Discard(t.Context(), fmt.Sprint("conversation-", i)))
	}
}

// turn is one message of a conversation.
func turn(ctx context.Context, b *backends.Broker, name, code, want string) (*sessions.Lease, error) {
	l, err := b.Manager().Acquire(ctx, name, executor.Spec{Subject: name, Languages: []executor.Language{executor.Python}})
	if err != nil {
		return nil, err
	}
	res, err := l.Run(ctx, executor.Request{Code: code}, nil)
	if err == nil && (res.Status != executor.StatusOK || !strings.HasSuffix(string(res.Stdout), want)) {
		err = fmt.Errorf("got %q, %s, %+v, want %q", res.Stdout, res.Status, res.Exception, want)
	}
	return l, errors.Join(err, l.Release())
}
