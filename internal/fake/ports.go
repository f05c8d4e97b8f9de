package fake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// ownPort is the port on which the fake itself listens in every sandbox.
const ownPort = 7

// Dial implements driver.Dialer.
func (h *holder) Dial(ctx context.Context, port int) (executor.Conn, error) {
	if err := h.box.b.enter(ctx, OpDial); err != nil {
		return nil, err
	}
	done, err := h.box.use(h.fence)
	if err != nil {
		return nil, err
	}
	defer done()
	if port == ownPort {
		return nil, driver.Fail(executor.ErrDenied, executor.RanNo, errors.New("the port is the sandbox's own"))
	}
	h.box.mu.Lock()
	l := h.box.listeners[port]
	h.box.mu.Unlock()
	if l == nil {
		return nil, driver.Fail(executor.ErrNoServer, executor.RanNo, errors.New("nothing listens at port "+strconv.Itoa(port)))
	}
	inside, outside := connection()
	if !l.accept(inside) {
		return nil, driver.Fail(executor.ErrNoServer, executor.RanNo, errors.New("the server has ended"))
	}
	return &use{end: outside, h: h}, nil
}

// use is a connection whose writes count as use of the sandbox.
type use struct {
	*end
	h *holder
}

func (u *use) Write(p []byte) (int, error) {
	done, err := u.h.box.use(u.h.fence)
	if err != nil {
		return 0, err
	}
	defer done()
	return u.end.Write(p)
}

// end is one end of a connection in memory. It has no deadlines.
type end struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func connection() (a, b *end) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return &end{ar, aw}, &end{br, bw}
}

func (e *end) Read(p []byte) (int, error) { return e.r.Read(p) }

func (e *end) Write(p []byte) (int, error) { return e.w.Write(p) }

func (e *end) CloseWrite() error { return e.w.Close() }

func (e *end) Close() error { return e.fail(net.ErrClosed, io.EOF) }

// fail ends both directions: with the error here for this side, and there for the reader of the
// other side.
func (e *end) fail(here, there error) error {
	e.r.CloseWithError(here)
	return e.w.CloseWithError(there)
}

func (e *end) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "fake"} }
func (e *end) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "fake"} }

func (e *end) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (e *end) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (e *end) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// listener is a server that the program "serve" has started.
type listener struct {
	mu    sync.Mutex
	over  bool
	conns map[*end]bool
	work  sync.WaitGroup
}

func (l *listener) accept(c *end) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.conns[c] = true
	l.work.Go(func() {
		serveConnection(c)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	})
	return true
}

// close ends the server, and resets its connections.
func (l *listener) close() {
	l.mu.Lock()
	l.over = true
	for c := range l.conns {
		c.fail(net.ErrClosed, syscall.ECONNRESET)
	}
	l.mu.Unlock()
	l.work.Wait()
}

// serve starts a server, as the program "serve" does, and returns its port.
func (e *execution) serve(address string) int64 {
	l := &listener{conns: map[*end]bool{}}
	s := e.box
	s.mu.Lock()
	s.ports++
	port := 20_000 + s.ports
	if address == "127.0.0.1" || address == "::1" || address == "0.0.0.0" {
		if s.listeners == nil {
			s.listeners = map[int]*listener{}
		}
		s.listeners[port] = l
	}
	s.mu.Unlock()
	e.in.leave("server", func(end <-chan struct{}) {
		<-end
		s.mu.Lock()
		delete(s.listeners, port)
		s.mu.Unlock()
		l.close()
	})
	return int64(port)
}

// serveConnection does what the first line of a connection says.
func serveConnection(c *end) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, _ := r.ReadString('\n')
	switch strings.TrimSpace(line) {
	case "echo":
		io.Copy(c, r)
		io.WriteString(c, "end")
	case "flood":
		for block := make([]byte, 64<<10); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	case "half":
		io.WriteString(c, "half")
		c.CloseWrite()
		io.Copy(io.Discard, r)
	case "reset":
		c.fail(net.ErrClosed, syscall.ECONNRESET)
	case "mute":
		io.Copy(io.Discard, r)
	default:
		if strings.HasSuffix(line, " HTTP/1.1\r\n") {
			serveHTTP(c, bufio.NewReader(io.MultiReader(strings.NewReader(line), r)))
		}
	}
}

// serveHTTP answers a request by its path. Most paths answer with the request itself.
func serveHTTP(c *end, r *bufio.Reader) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	switch req.URL.Path {
	case "/endless-header":
		for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; {
			_, err = io.WriteString(c, "X-More: "+strings.Repeat("x", 4<<10)+"\r\n")
		}
	case "/endless":
		for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil; {
			_, err = c.Write(make([]byte, 32<<10))
		}
	case "/nonsense":
		io.WriteString(c, "\x16\x03\x01\r\n\r\n")
	case "/mute":
		io.Copy(io.Discard, r)
	case "/cookies":
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=1; Path=/; Domain=boxes.test\r\nSet-Cookie: b=2\r\n\r\n")
	case "/upgrade":
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+req.Header.Get("Upgrade")+"\r\n\r\n")
		io.Copy(c, r)
	default:
		body, _ := io.ReadAll(req.Body)
		var text strings.Builder
		fmt.Fprintf(&text, "%s %s %s\n", req.Method, req.RequestURI, req.Host)
		req.Header.Write(&text)
		fmt.Fprintf(&text, "\n%s", body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", text.Len(), text.String())
	}
}
