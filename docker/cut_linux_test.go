package docker

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// cable is the way to an engine. It can be cut after a number of pieces of data have gone through it in either direction.
type cable struct {
	host string
	to   string
	l    net.Listener
	wg   sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	steps int  // pieces that have gone through
	cutAt int  // the piece at which it is cut; 0: never
	stays bool // and then lets nobody through until it is mended
	down  bool
}

func newCable(t *testing.T) *cable {
	t.Helper()
	engine, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", at)
	check(t, err)
	c := &cable{host: "unix://" + at, to: strings.TrimPrefix(engine, "unix://"), l: l, open: map[net.Conn]bool{}}
	c.wg.Go(c.serve)
	t.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		c.cut()
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *cable) serve() {
	for {
		in, err := c.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", c.to)
		if err != nil {
			in.Close()
			continue
		}
		c.mu.Lock()
		if c.down {
			in.Close()
			out.Close()
		} else {
			c.open[in], c.open[out] = true, true
			c.wg.Go(func() { c.copy(in, out) })
			c.wg.Go(func() { c.copy(out, in) })
		}
		c.mu.Unlock()
	}
}

func (c *cable) copy(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && c.step() {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			break
		}
	}
	if w, ok := to.(*net.UnixConn); ok {
		w.CloseWrite() // fails if it is cut
	}
}

// step counts a piece, and reports whether it may go through.
func (c *cable) step() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps++
	if c.steps != c.cutAt {
		return true
	}
	c.down = c.stays
	c.cut()
	return false
}

func (c *cable) cut() {
	for conn := range c.open {
		conn.Close()
	}
	clear(c.open)
}

// arm has the cable cut at a piece from now on, and returns how many have gone through since the last call.
func (c *cable) arm(at int, stays bool) (steps int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	steps = c.steps
	c.steps, c.cutAt, c.stays, c.down = 0, at, stays, false
	return steps
}

// TestCut cuts the connection at every few pieces of what the client and the engine say to each other in Create, Run and Close: for a
// moment, and until after the failure. What an error says of the code is compared with a trace of it in the container, and nothing is
// left.
func TestCut(t *testing.T) {
	c := newCable(t)
	owner := t.Name()
	x, err := Open(t.Context(), driver.Env{Owner: owner}, Config{Host: c.host, Image: dockertest.Trixie, Pull: PullNever, Timeout: driver.Duration(5 * time.Second)})
	check(t, err)
	// How much they say when nothing is cut.
	phases := []string{"create", "run", "close"}
	said := map[string]int{}
	c.arm(0, false)
	s := create(t, x, executor.Spec{})
	said["create"] = c.arm(0, false)
	says(t, s, "print(6*7)", "42")
	said["run"] = c.arm(0, false)
	check(t, s.Close())
	said["close"] = c.arm(0, false)

	for _, phase := range phases {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-%v", phase, stays), func(t *testing.T) {
				cuts, stride := 0, max(1, said[phase]/4)
				for at := 1; at <= said[phase]+1; at += stride {
					c.cutOnce(t, x, phase, at, stays)
					cuts++
				}
				t.Logf("%d cuts in %d pieces", cuts, said[phase])
			})
		}
	}
	c.arm(0, false)
	check(t, x.Close())
	if left := containers(t, "unix://"+c.to, owner); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
}

// cutOnce makes a session, runs code in it and closes it, and cuts the cable at a piece of one of these.
func (c *cable) cutOnce(t *testing.T, x executor.Executor, phase string, at int, stays bool) {
	t.Helper()
	arm := func(now string) {
		if now == phase {
			c.arm(at, stays)
		}
	}
	typed := func(what string, err error, kinds ...error) *executor.Error {
		t.Helper()
		var e *executor.Error
		if !errors.As(err, &e) {
			t.Fatalf("%s, cut at %d: got %v, want a typed error", what, at, err)
		}
		for _, k := range kinds {
			if e.Kind == k {
				return e
			}
		}
		t.Fatalf("%s, cut at %d: got %v (kind %v), want %v", what, at, err, e.Kind, kinds)
		return nil
	}
	arm("create")
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		if e := typed("create", err, executor.ErrUnavailable); phase != "create" || e.Ran != executor.RanNo || !executor.Retryable(err) {
			t.Errorf("create, cut at %d of %s: got %v", at, phase, err)
		}
		c.arm(0, false)
		return
	}
	arm("run")
	const code = "open('/tmp/trace', 'w').close()\nprint(6*7)"
	r, err := s.Run(t.Context(), executor.Request{Code: code}, nil)
	c.mendUnless(phase == "close")
	switch {
	case err == nil && (r.Status != executor.StatusOK || r.Stdout.String() != "42\n"):
		t.Errorf("run, cut at %d of %s: got %+v", at, phase, outcomeOf(r, err))
	case err != nil:
		e := typed("run", err, executor.ErrUnavailable)
		if phase == "close" {
			t.Errorf("run, cut at %d of %s: got %v", at, phase, err)
		}
		trace := strings.Contains(c.directly(t, s), "trace")
		if e.Ran == executor.RanYes && (r == nil || r.Status != executor.StatusLost) || e.Ran == executor.RanNo && (trace || r != nil) {
			t.Errorf("run, cut at %d: got %v, %+v, and a trace of it: %v", at, e, outcomeOf(r, err), trace)
		}
		// The sandbox is there, and the session finds it again.
		says(t, s, "print(6*7)", "42")
	}
	arm("close")
	err = s.Close()
	c.arm(0, false)
	if err != nil {
		typed("close", err, executor.ErrUnavailable)
		if err := s.Close(); err != nil {
			t.Errorf("close again, after a cut at %d of %s: %v", at, phase, err)
		}
	}
}

func (c *cable) mendUnless(not bool) {
	if !not {
		c.arm(0, false)
	}
}

// directly lists the temporary directory of a sandbox.
func (c *cable) directly(t *testing.T, s executor.Session) string {
	t.Helper()
	return execAs(t, s, root, "ls", tempDir)
}
