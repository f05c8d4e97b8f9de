package all_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
)

// migration is the configuration of the drill with the given weights.
func (f *four) migration(t *testing.T, weights map[string]int) backends.Config {
	t.Helper()
	var file, split strings.Builder
	for _, name := range []string{local, box, cloud, machines} {
		fmt.Fprintf(&file, "  %s: {%s, broker: {queue: {max: 6, wait: 2m}, breaker: {failures: 2, open: 1s}}}\n", name, f.settings[name])
		fmt.Fprintf(&split, "{backend: %s, weight: %d},", name, weights[name])
	}
	cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n%sroutes:\n  - {name: all, split: [%s], fallback: [local]}\n", &file, &split))
	if err := errors.Join(err, cfg.Check(all.Registry())); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// load is a set of users who always talk, each in one session after the other.
type load struct {
	t      *testing.T
	box    *backends.Broker
	ctx    context.Context
	wg     sync.WaitGroup
	broken atomic.Value // the backend, if any, whose sessions may be lost and are started again
	served sync.Map     // backend -> *atomic.Int64: the number of completed conversations
	lost   atomic.Int64

	mu      sync.Mutex
	talking map[string]bool // conversations that have not ended, by subject
}

func (c *load) count(backend string) int64 {
	n, ok := c.served.Load(backend)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// total is the number of conversations on all backends.
func (c *load) total() (n int64) {
	for _, name := range []string{local, box, cloud, machines} {
		n += c.count(name)
	}
	return n
}

func (c *load) user(i int) {
	for n := 0; c.ctx.Err() == nil; n++ {
		if !c.talk(fmt.Sprintf("user-%d-%d", i, n)) {
			return
		}
	}
}

// talk runs a conversation, counts it, and reports whether the user wants another one.
func (c *load) talk(subject string) bool {
	c.mu.Lock()
	c.talking[subject] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.talking, subject)
	}()
	backend, err := c.conversation(executor.Spec{Subject: subject, Languages: []executor.Language{executor.Python}})
	switch {
	case err == nil:
		n, _ := c.served.LoadOrStore(backend, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	case backend != "" && c.broken.Load() == backend:
		c.lost.Add(1)
	default:
		c.t.Errorf("a conversation on %q failed: %v", backend, err)
		return false
	}
	return true
}

// conversation has three messages with state. It must always be possible to start one.
func (c *load) conversation(spec executor.Spec) (backend string, err error) {
	s, err := c.box.Create(c.t.Context(), spec)
	if err != nil {
		return "", err
	}
	defer s.Close()
	backend = s.Info().Handle.Backend
	for i := range 3 {
		res, err := s.Run(c.t.Context(), executor.Request{Code: fmt.Sprintf("n = 0 if %d == 0 else n + 1\nprint(n)", i)}, nil)
		if err != nil {
			return backend, err
		}
		if got, want := string(res.Stdout), strconv.Itoa(i)+"\n"; got != want || res.Origin.Backend != backend {
			return backend, fmt.Errorf("got %q on %s in message %d", got, res.Origin.Backend, i)
		}
	}
	return backend, nil
}

// until waits until a backend has completed more conversations.
func (c *load) until(backend string, more int64) {
	c.t.Helper()
	from := c.count(backend)
	waittest.Until(c.t, "more conversations on "+backend, func() error {
		if c.t.Failed() {
			c.t.FailNow()
		}
		if n := c.count(backend) - from; n < more {
			return fmt.Errorf("only %d\n%s", n, c.box.Stats())
		}
		return nil
	})
}

// ended waits until all current conversations have ended.
func (c *load) ended() {
	c.t.Helper()
	c.mu.Lock()
	old := maps.Clone(c.talking)
	c.mu.Unlock()
	waittest.Until(c.t, "conversations end", func() error {
		if c.t.Failed() {
			c.t.FailNow()
		}
		c.mu.Lock()
		maps.DeleteFunc(old, func(subject string, _ bool) bool { return !c.talking[subject] })
		n := len(old)
		c.mu.Unlock()
		if n > 0 {
			return fmt.Errorf("%d go on\n%s", n, c.box.Stats())
		}
		return nil
	})
}

// TestMigration moves traffic under load from backend to backend by changing only the
// configuration, makes each new backend fail for a while, and goes back.
func TestMigration(t *testing.T) {
	t.Parallel()
	f := newFour(t)
	b, err := backends.Open(t.Context(), driver.Env{Owner: f.owner}, all.Registry(), f.migration(t, map[string]int{local: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &load{t: t, box: b, ctx: ctx, talking: map[string]bool{}}
	c.broken.Store("")
	for i := range 2 {
		c.wg.Go(func() { c.user(i) })
	}
	stop := sync.OnceFunc(func() { cancel(); c.wg.Wait() })
	defer stop()
	reload := func(weights map[string]int) {
		t.Helper()
		if err := b.Reload(t.Context(), f.migration(t, weights)); err != nil {
			t.Fatal(err)
		}
	}
	// moved waits until the conversations that began before a reload have ended, and checks that
	// none begins on another backend.
	moved := func(to string) {
		t.Helper()
		c.ended()
		before := c.total() - c.count(to)
		c.until(to, 4)
		if n := c.total() - c.count(to) - before; n != 0 {
			t.Errorf("%d conversations elsewhere after the move to %s", n, to)
		}
	}

	moved(local)
	stays := map[string]executor.Session{} // these sessions stay where they are until the end of the test
	stay := func(name string) {
		t.Helper()
		s, err := b.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.Python}})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Info().Handle.Backend; got != name {
			t.Fatalf("the session is on %s, want %s", got, name)
		}
		if _, err := s.Run(t.Context(), executor.Request{Code: "here = 'still here'"}, nil); err != nil {
			t.Fatal(err)
		}
		stays[name] = s
	}
	stay(local)
	way := []string{local, box, cloud, machines}
	for i, to := range way[1:] {
		from := way[i]
		reload(map[string]int{from: 1, to: 1})
		c.until(from, 2)
		c.until(to, 2)
		reload(map[string]int{to: 1})
		moved(to)

		c.broken.Store(to)
		f.links[to].Cut()
		c.until(local, 4) // every conversation is served
		if got := breaker(b, to); got == "closed" {
			t.Errorf("the breaker of %s is closed while it is down", to)
		}
		f.links[to].Mend()
		c.until(to, 6) // the backend takes traffic again without further action
		c.broken.Store("")
		stay(to)
	}
	for _, to := range []string{cloud, box, local} {
		reload(map[string]int{to: 1})
		moved(to)
	}
	stop()

	for name, s := range stays {
		res, err := s.Run(t.Context(), executor.Request{Code: "print(here)"}, nil)
		if err != nil || string(res.Stdout) != "still here\n" || res.Origin.Backend != name {
			t.Errorf("the session of the beginning on %s: got %+v, %v", name, res, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing that on %s: %v", name, err)
		}
	}
	for _, name := range way {
		t.Logf("%d conversations on %s", c.count(name), name)
	}
	t.Logf("%d lost with a backend that was cut off\n%s", c.lost.Load(), b.Stats())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	f.nothingLeft(t)
}

// breaker is the state of a backend's circuit breaker.
func breaker(b *backends.Broker, name string) string {
	for _, s := range b.Stats().Backends {
		if s.Name == name {
			return s.Breaker
		}
	}
	return ""
}
