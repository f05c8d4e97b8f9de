package dockertest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Where is a place in a step: before anything of it has arrived, when half of it has, and when all
// of it has.
type Where int

// The places in a step.
const (
	Before Where = iota
	Middle
	After
)

// String returns the name of w.
func (w Where) String() string { return [...]string{"before", "middle", "after"}[w] }

// Cut is where a [Cable] is cut. The zero Cut is nowhere.
type Cut struct {
	Step  string // as Steps names it
	Where Where
	Stays bool // nobody gets through until it is mended; otherwise only the connections of that moment end
}

// Cable is a way to an engine that can be cut: by hand, or at a step of what is said over it. A
// step is a request, its answer, the beginning of an answer's body if it is told bit by bit, or a
// frame that goes to a runner in a container or comes from it. All methods are safe for concurrent
// use.
type Cable struct {
	Host string // where clients reach the engine

	to  string // the socket of the engine
	dir string
	l   net.Listener
	wg  sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	steps []string       // since it was armed
	count map[string]int // of them, by what they are
	cut   Cut
	hit   bool // it was cut there
	down  bool
	hush  chan struct{} // nothing is carried until it is closed; nil: everything is
	ahead int           // bytes of the program that goes to a container before the frames
}

var errCut = errors.New("cut")

// NewCable lays a cable to the engine at host, which listens on a Unix socket.
func NewCable(host string) (*Cable, error) {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("%s: want a Unix socket", host)
	}
	dir, err := os.MkdirTemp("", "cable")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketFile))
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	c := &Cable{Host: "unix://" + l.Addr().String(), to: path, dir: dir, l: l, open: map[net.Conn]bool{}, count: map[string]int{}}
	c.wg.Go(c.serve)
	return c, nil
}

// Close ends the cable and what goes through it.
func (c *Cable) Close() error {
	err := c.l.Close()
	c.Cut()
	c.wg.Wait()
	os.RemoveAll(c.dir)
	return err
}

// Cut ends all connections. Nobody gets through until Mend or Arm.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sever(true)
}

// Hush makes the engine one that hangs: connections stay, new ones are taken, and nothing is
// carried until Cut, Mend or Arm. What was said meanwhile is carried then.
func (c *Cable) Hush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hush == nil {
		c.hush = make(chan struct{})
	}
}

// speak ends Hush.
func (c *Cable) speak() {
	if c.hush != nil {
		close(c.hush)
		c.hush = nil
	}
}

// hushed returns what is closed when something is carried again, or nil.
func (c *Cable) hushed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hush
}

func (c *Cable) sever(stays bool) {
	c.speak()
	c.down = stays
	for conn := range c.open {
		conn.Close()
	}
	clear(c.open)
}

// Mend lets everybody through, and has the cable cut nowhere.
func (c *Cable) Mend() { c.Arm(Cut{}) }

// Arm mends the cable and has it cut at a step from now on, once. Steps are counted from here.
func (c *Cable) Arm(at Cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.speak()
	c.cut, c.hit, c.down, c.steps = at, false, false, nil
	clear(c.count)
}

// Steps returns the steps since Arm, and whether the cable was cut where Arm has said. The second
// step of a kind ends in " 2" and so on, so that a step has the same name whatever goes on beside
// it.
func (c *Cable) Steps() (steps []string, hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps, c.hit
}

// step counts a step, and reports whether the cable is to be cut there.
func (c *Cable) step(what string) (Where, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[what]++
	if n := c.count[what]; n > 1 {
		what = fmt.Sprintf("%s %d", what, n)
	}
	c.steps = append(c.steps, what)
	if c.hit || what != c.cut.Step {
		return 0, false
	}
	c.hit = true
	return c.cut.Where, true
}

// pass sends a step on, or as much of it as gets through.
func (c *Cable) pass(to io.Writer, what string, b []byte) error {
	if until := c.hushed(); until != nil {
		<-until
	}
	where, cut := c.step(what)
	if !cut {
		_, err := to.Write(b)
		return err
	}
	if where != Before {
		_, _ = to.Write(b[:len(b)*int(where)/2]) // the other end may have gone by itself
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sever(c.cut.Stays)
	return errCut
}

func (c *Cable) serve() {
	for {
		client, err := c.l.Accept()
		if err != nil {
			return
		}
		engine, err := net.Dial("unix", c.to)
		if err != nil || !c.add(client, engine) {
			client.Close()
			if engine != nil {
				engine.Close()
			}
			continue
		}
		t := &talk{c: c, asked: make(chan question, 16), over: make(chan struct{})}
		c.wg.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { defer end(engine); defer close(t.asked); t.up(engine, client) })
			both.Go(func() { defer end(client); defer close(t.over); t.down(client, engine) })
			both.Wait()
			c.remove(client, engine)
		})
	}
}

// add remembers connections, unless the cable is cut.
func (c *Cable) add(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return false
	}
	for _, conn := range conns {
		c.open[conn] = true
	}
	return true
}

// remove closes connections over which nothing comes any more.
func (c *Cable) remove(conns ...net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
		delete(c.open, conn)
	}
}

// end tells the one side that nothing comes from the other any more.
func end(conn net.Conn) {
	if w, ok := conn.(*net.UnixConn); ok {
		w.CloseWrite() // fails if it is cut
	}
}
