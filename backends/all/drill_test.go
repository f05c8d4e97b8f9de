package all_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// migration is the file of the drill at one weight of the new backend.
func migration(t *testing.T, host string, weight int) backends.Config {
	t.Helper()
	cfg, err := backends.Parse(fmt.Appendf(nil, `
backends:
  local: {type: pyodide, broker: {queue: {max: 6, wait: 2m}}}
  box: {type: docker, host: %q, image: %q, pull: never, timeout: 20s, broker: {queue: {max: 6, wait: 2m}, breaker: {failures: 2, open: 1s}}}
routes:
  - {name: all, split: [{backend: local, weight: %d}, {backend: box, weight: %d}], fallback: [local]}
`, host, dockertest.Trixie, 100-weight, weight))
	if err := errors.Join(err, cfg.Check(all.Registry())); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// crowd is users who talk all the time, each in one session after the other.
type crowd struct {
	t      *testing.T
	box    *backends.Broker
	ctx    context.Context
	wg     sync.WaitGroup
	broken atomic.Bool // sessions may be lost, and are begun anew
	served sync.Map    // backend -> *atomic.Int64, conversations that were completed
	lost   atomic.Int64
}

func (c *crowd) count(backend string) int64 {
	n, ok := c.served.Load(backend)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

func (c *crowd) user(i int) {
	for n := 0; c.ctx.Err() == nil; n++ {
		backend, err := c.conversation(executor.Spec{Subject: fmt.Sprintf("user-%d-%d", i, n), Languages: []executor.Language{executor.Python}})
		switch {
		case err == nil:
			n, _ := c.served.LoadOrStore(backend, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		case c.broken.Load() && backend == "box":
			c.lost.Add(1)
		default:
			c.t.Errorf("a conversation on %q failed: %v", backend, err)
			return
		}
	}
}

// conversation has three messages with state. That it cannot begin is nobody's fault but the broker's.
func (c *crowd) conversation(spec executor.Spec) (backend string, err error) {
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

// until waits for more conversations on a backend.
func (c *crowd) until(backend string, more int64) {
	c.t.Helper()
	from := c.count(backend)
	for end := time.Now().Add(2 * time.Minute); c.count(backend) < from+more; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || c.t.Failed() {
			c.t.Fatalf("only %d more conversations on %s\n%s", c.count(backend)-from, backend, c.box.Stats())
		}
	}
}

// TestMigration moves traffic under load from one backend to the other by the file alone, and then takes the new one away for a while.
func TestMigration(t *testing.T) {
	engine, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	line, err := dockertest.NewCable(engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	owner := "migration-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	box, err := backends.Open(t.Context(), driver.Env{Owner: owner}, all.Registry(), migration(t, line.Host, 0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{t: t, box: box, ctx: ctx}
	for i := range 4 {
		c.wg.Go(func() { c.user(i) })
	}
	stop := sync.OnceFunc(func() { cancel(); c.wg.Wait() })
	defer stop()
	reload := func(weight int) {
		t.Helper()
		if err := box.Reload(t.Context(), migration(t, line.Host, weight)); err != nil {
			t.Fatal(err)
		}
	}

	c.until("local", 4)
	if n := c.count("box"); n != 0 {
		t.Errorf("%d conversations on a backend without weight", n)
	}
	// A session that exists stays where it is through all that follows.
	stays, err := box.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stays.Run(t.Context(), executor.Request{Code: "here = 'still here'"}, nil); err != nil {
		t.Fatal(err)
	}
	reload(10)
	c.until("local", 4)
	reload(50)
	c.until("local", 4)
	c.until("box", 4)
	reload(100)
	c.until("box", 8) // those that began before have ended
	before := c.count("local")
	c.until("box", 6)
	if n := c.count("local") - before; n != 0 {
		t.Errorf("%d conversations on the old backend after the move", n)
	}

	c.broken.Store(true)
	line.Cut()
	c.until("local", 6) // everybody is served
	if got := box.Stats().Backends[0].Breaker; got == "closed" {
		t.Error("the breaker is closed while the backend is down")
	}
	line.Mend()
	c.until("box", 6) // and it takes traffic again, by itself
	c.broken.Store(false)
	c.until("box", 4)
	stop()

	res, err := stays.Run(t.Context(), executor.Request{Code: "print(here)"}, nil)
	if err != nil || string(res.Stdout) != "still here\n" || res.Origin.Backend != "local" {
		t.Errorf("the session of the beginning: got %+v, %v", res, err)
	}
	t.Logf("%d conversations on local, %d on box, %d lost while it was down\n%s", c.count("local"), c.count("box"), c.lost.Load(), box.Stats())
	if err := box.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, owner)
}

// nothingLeft counts at the engine. What could not be removed while it was out of reach has been removed since.
func nothingLeft(t *testing.T, owner string) {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		left, err := dockertest.Containers(context.Background(), host, driver.LabelOwner+"="+owner)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("containers left: %q", left)
		}
	}
}
