package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

func withPorts(c *Config) { c.Ports = true }

// servers is a program of the sandbox: a server that does what the first line of each connection
// says. It prints its port.
const servers = `
import socket, struct, sys, threading
address, port = ADDRESS
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
s.bind((address, port))
s.listen(100)
def serve(c):
    f = c.makefile("rb")
    what = f.readline().strip()
    if what == b"echo":
        while data := f.read1(65536):
            c.sendall(data)
        c.sendall(b"end")
    elif what == b"flood":
        while True:
            c.sendall(b"x" * 65536)
    elif what == b"half":
        c.sendall(b"half")
        c.shutdown(socket.SHUT_WR)
        global heard
        heard = f.read()
    elif what == b"reset":
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif what == b"mute":
        threading.Event().wait()
    f.close()
    c.close()
def accept():
    while True:
        c = s.accept()[0]
        threading.Thread(target=serve, args=(c,), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
print(s.getsockname()[1])
`

// serve starts servers and returns its port.
func (s *sandbox) serve(t testing.TB, address string) (port int) {
	t.Helper()
	r := s.code(t, strings.ReplaceAll(servers, "ADDRESS", fmt.Sprintf("(%q, 0)", address)))
	if _, err := fmt.Sscan(r.stdout, &port); r.err != nil || err != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
	return port
}

// dial connects, and says what the server is to do.
func (s *sandbox) dial(t testing.TB, port int, what string) executor.Conn {
	t.Helper()
	c, err := s.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, what+"\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDial(t *testing.T) {
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withPorts)
		for _, address := range []string{"127.0.0.1", "0.0.0.0", "::1"} {
			c := s.dial(t, s.serve(t, address), "echo")
			data := bytes.Repeat([]byte("0123456789"), 300_000)
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || string(got) != string(data)+"end" {
				t.Errorf("%s: got %d bytes, %v", address, len(got), err)
			}
		}
	})
}

// Nothing but 127.0.0.1 and ::1 is connected to, and there to no port of the supervisor's user.
func TestDialRefuses(t *testing.T) {
	s := start(t, host, withPorts)
	other := s.serve(t, "127.0.0.2")
	l, err := net.Listen("tcp", "127.0.0.1:0") // by root, which is too late to be a daemon of the machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		port int64
		want error
	}{
		"other-address": {int64(other), executor.ErrNoServer}, "nobody": {int64(freePort(t)), executor.ErrNoServer},
		"zero": {0, executor.ErrInvalid}, "negative": {-1, executor.ErrInvalid}, "large": {1 << 16, executor.ErrInvalid}, "huge": {1<<32 + 80, executor.ErrInvalid},
	} {
		if int64(int(c.port)) != c.port {
			continue // int has 32 bits here
		}
		if c2, err := s.Dial(t.Context(), int(c.port)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v %v, want %v", name, c2, err, c.want)
		}
	}
	if _, err := start(t, host).Dial(t.Context(), other); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v from a runner that was not set up for it", err)
	}
}

// What root listened at before there was user code stays closed: the runner's own port, and those
// of daemons.
func TestDialOwnPort(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := startGuest(t, host, func(_ *guestBox, c *Config, guest *Guest) { c.Ports, guest.Network = true, "full" })
	for _, port := range []int{g.port, l.Addr().(*net.TCPAddr).Port} {
		if _, err := g.sandbox.Dial(t.Context(), port); !errors.Is(err, executor.ErrDenied) {
			t.Errorf("got %v", err)
		}
	}
	none := startGuest(t, host, func(_ *guestBox, c *Config, _ *Guest) { c.Ports = true })
	if _, err := none.sandbox.Dial(t.Context(), none.port); !errors.Is(err, executor.ErrNoServer) {
		t.Errorf("got %v from a network without it", err)
	}
	c := none.dial(t, none.serve(t, "127.0.0.1"), "half")
	if got, err := io.ReadAll(c); string(got) != "half" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDialEnds(t *testing.T) {
	s := start(t, host, withPorts)
	port := s.serve(t, "127.0.0.1")
	t.Run("half", func(t *testing.T) { // what the server has closed can still be written to
		c := s.dial(t, port, "half")
		if got, err := io.ReadAll(c); string(got) != "half" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		io.WriteString(c, "more")
		c.CloseWrite()
		waittest.Until(t, "it is heard", func() error {
			if r := s.code(t, "print(heard.decode())"); r.stdout != "more\n" {
				return fmt.Errorf("got %+v", r)
			}
			return nil
		})
		if _, err := io.WriteString(c, "too late"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("reset", func(t *testing.T) { // is no end of what the server says
		if got, err := io.ReadAll(s.dial(t, port, "reset")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("mute", func(t *testing.T) {
		c := s.dial(t, port, "mute")
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d, %v", n, err)
		}
		c.SetReadDeadline(time.Time{})
		c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := io.Copy(c, io.LimitReader(zeros{}, 1<<30)); !errors.Is(err, os.ErrDeadlineExceeded) || n > 32<<20 {
			t.Errorf("got %d, %v: what is not read is kept somewhere", n, err)
		}
		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		c.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("flood", func(t *testing.T) { // waits for who reads, and is in nobody's way
		c := s.dial(t, port, "flood")
		if r := s.code(t, "print(1)"); r.stdout != "1\n" {
			t.Errorf("got %+v", r)
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(c, 8<<20)); n != 8<<20 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
	t.Run("server-dies", func(t *testing.T) {
		c := s.dial(t, port, "mute")
		if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("got %d, %v", n, err)
		}
	})
	t.Run("holder-leaves", func(t *testing.T) {
		c := s.dial(t, s.serve(t, "127.0.0.1"), "mute")
		s.Detach()
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, executor.ErrClosed) {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A server cannot keep its own sandbox alive: what it writes is no use, and what its client writes
// is.
func TestDialIsUse(t *testing.T) {
	s := start(t, host, withPorts)
	c := s.dial(t, s.serve(t, "127.0.0.1"), "echo")
	expires := func() time.Time {
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Expires
	}
	var before time.Time
	waittest.Until(t, "some of its time is over", func() error {
		before = expires()
		if l := time.Until(before); l > idleTTL-2*time.Second {
			return fmt.Errorf("%v are left", l)
		}
		return nil
	})
	io.WriteString(c, "used")
	waittest.Until(t, "what was written is a use", func() error {
		if d := expires().Sub(before); d < time.Second {
			return fmt.Errorf("it expires %v later", d)
		}
		return nil
	})
	flood := s.dial(t, s.serve(t, "127.0.0.1"), "flood")
	if _, err := s.KeepAlive(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, flood) // until the sandbox ends
	if err == nil || errors.Is(err, net.ErrClosed) || n < 1<<20 {
		t.Errorf("got %d, %v", n, err)
	}
}
