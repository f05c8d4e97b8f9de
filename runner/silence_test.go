package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// swamp is a way to a server in which everything can get stuck: connections stay open and say
// nothing.
type swamp struct {
	net.Listener
	came atomic.Int64 // connections

	mu    sync.Mutex
	stuck chan struct{} // closed while the way is free
}

func newSwamp(t testing.TB, to string) *swamp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &swamp{Listener: l, stuck: make(chan struct{})}
	close(s.stuck)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			s.mu.Lock()
			free := s.stuck
			s.mu.Unlock()
			<-free
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.came.Add(1)
			wg.Go(func() {
				defer c.Close()
				d, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer d.Close()
				defer context.AfterFunc(ctx, func() { c.Close(); d.Close() })()
				wg.Go(func() { pass(d, c) })
				pass(c, d)
			})
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); s.free(); wg.Wait() })
	return s
}

// stick keeps back what is on its way from now on.
func (s *swamp) stick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = make(chan struct{})
}

// free lets it go on.
func (s *swamp) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stuck:
	default:
		close(s.stuck)
	}
}

// endless is a run that is ended from outside.
func endless() *executor.Request {
	return &executor.Request{Language: executor.Python, Code: "import time; time.sleep(600)", Limits: executor.RunLimits{WallTime: time.Hour, OutputBytes: 1 << 20}}
}

// A machine may die without closing a connection. That it says nothing more is the reason to ask,
// and the answer ends what is under way, long before anything is tried again.
func TestHTTPSilentDeath(t *testing.T) {
	t.Parallel()
	g := startGuest(t, host)
	way := newSwamp(t, strings.TrimPrefix(g.URL, "http://"))
	e := g.Endpoint
	e.URL, e.Transport = "http://"+way.Addr().String(), newTransport(t)
	gone := errors.New("it was destroyed")
	var dead atomic.Bool
	e.Gone = func(context.Context) error {
		if dead.Load() {
			return gone
		}
		return nil
	}
	c, err := join(t.Context(), e.Dial(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Detach()
	before := way.came.Load()
	_, err = c.Run(t.Context(), endless(), func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted {
			way.stick()
			dead.Store(true)
		}
		return nil
	})
	var lost *LostError
	var e2 *executor.Error
	if !errors.As(err, &lost) || !errors.Is(err, gone) || !errors.As(err, &e2) || e2.Ran != executor.RanYes {
		t.Errorf("got %v", err)
	}
	if n := way.came.Load() - before; n != 0 {
		t.Errorf("got %d more connections, want none: the end was to be known before", n)
	}
	// It is the same for who only comes now: what is dialled takes the request and never answers.
	before = way.came.Load()
	if c, err := join(t.Context(), e.Dial(), 0); !errors.Is(err, gone) {
		t.Errorf("got %v, %v, want that it is gone", c, err)
	}
	if n := way.came.Load() - before; n > 2 { // one to send and one to receive
		t.Errorf("got %d connections, want no second attempt", n)
	}
}

// A silence that is not for good is waited out: nothing is lost, nothing comes twice, and the
// connection is the same.
func TestHTTPSilence(t *testing.T) {
	t.Parallel()
	g := startGuest(t, host)
	way := newSwamp(t, strings.TrimPrefix(g.URL, "http://"))
	e := g.Endpoint
	e.URL, e.Transport = "http://"+way.Addr().String(), newTransport(t)
	var asked atomic.Int64
	e.Gone = func(context.Context) error {
		if asked.Add(1) == 2 {
			way.free()
		}
		return nil
	}
	c, err := join(t.Context(), e.Dial(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Detach()
	asked.Store(0)
	in, out := io.Pipe()
	defer in.Close()
	var said strings.Builder
	req := executor.Request{
		Language: executor.Python, Code: "print('first', flush=True)\nprint(input(), 6 * 7)", Stdin: in,
		Limits: executor.RunLimits{WallTime: time.Hour, OutputBytes: 1 << 20},
	}
	exit, err := c.Run(t.Context(), &req, func(ev executor.Event) error {
		said.Write(ev.Data)
		if strings.Contains(string(ev.Data), "first") {
			way.stick()
			go func() { io.WriteString(out, "second\n"); out.Close() }()
		}
		return nil
	})
	if err != nil || exit.Code != 0 || said.String() != "first\nsecond 42\n" {
		t.Errorf("got %+v, %v, output %q", exit, err, said.String())
	}
	if n := asked.Load(); n < 2 {
		t.Errorf("got %d questions, want at least 2", n)
	}
}
