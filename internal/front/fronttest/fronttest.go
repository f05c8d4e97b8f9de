// Package fronttest has the clients that hold a connection as long as a server lets them. Each
// front runs them against its handler, in an http.Server that has no limits of its own, as in
// another program. Time is virtual, and connections buffer nothing.
package fronttest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Front is a handler and requests for it. A request is its first line without the version, and
// headers.
type Front struct {
	http.Handler
	Refused [][]string // those that are refused before their body is read
	Reads   [][]string // those whose body is read
	Answers [][]string // those without a body
}

// Long is longer than a server may wait for a client that does nothing.
const Long = 5 * time.Minute

// Clients runs the clients against the front that open returns.
func Clients(t *testing.T, open func(t *testing.T) Front) {
	t.Helper()
	each := func(name string, requests func(Front) [][]string, client func(*testing.T, *Server, []string)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t)
				s := Serve(t, &http.Server{Handler: f})
				for _, request := range requests(f) {
					client(t, s, request)
				}
			})
		})
	}
	refused := func(f Front) [][]string { return f.Refused }
	reads := func(f Front) [][]string { return f.Reads }
	answers := func(f Front) [][]string { return f.Answers }
	// A refusal needs no body.
	each("refused", refused, func(t *testing.T, s *Server, request []string) {
		c, began := s.Dial(t), time.Now()
		c.Send(request, "Content-Length: 100", "", "{")
		c.WantRefusal(request)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: it was refused after %v", request[0], took)
		}
		c.WantEnd(request)
	})
	each("silence", reads, func(t *testing.T, s *Server, request []string) {
		c := s.Dial(t)
		c.Send(request, "Content-Length: 100", "", "{")
		c.WantRefusal(request)
		c.WantEnd(request)
	})
	each("trickle", func(f Front) [][]string { return append(refused(f), reads(f)...) }, func(t *testing.T, s *Server, request []string) {
		c := s.Dial(t)
		c.Send(request, "Content-Length: 1000000", "", "{")
		over, end := make(chan struct{}), time.NewTicker(time.Second)
		go func() {
			defer close(over)
			for {
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
				<-end.C
			}
		}()
		c.WantRefusal(request)
		c.WantEnd(request)
		c.Close()
		<-over
	})
	// The body of a request that needs none is not waited for.
	each("unread", answers, func(t *testing.T, s *Server, request []string) {
		c := s.Dial(t)
		c.Send(request, "Content-Length: 100", "", "{")
		c.WantAnswer(request)
		c.WantEnd(request)
	})
	each("no-reader", answers, func(t *testing.T, s *Server, request []string) {
		c := s.Dial(t)
		c.Send(request, "", "")
		time.Sleep(Long) //nolint:forbidigo // time of the bubble
		if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: the connection of a client that does not read is open", request[0])
		}
	})
	// What a front sets does not affect the other handlers of a connection, nor later requests.
	each("another-handler", answers, func(t *testing.T, s *Server, request []string) {
		c := s.Dial(t)
		c.Send(request, "", "")
		if res := c.WantAnswer(request); res.Close {
			return
		}
		for range 2 {
			c.Send([]string{"GET " + SlowPath}, "", "")
			if res := c.WantAnswer(request); res.StatusCode != http.StatusOK || res.ContentLength != 4 {
				t.Errorf("after %s: got %v from a slow handler on the same connection", request[0], res.Status)
			}
		}
		c.Send(request, "", "")
		c.WantAnswer(request)
	})
}

// SlowPath is the path of a handler of Server that takes an hour.
const SlowPath = "/slow-handler-of-another-program"

// Server is an http.Server over connections in memory.
type Server struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Serve starts srv, with a handler at SlowPath. It ends with the test. limit wraps its listener.
func Serve(t *testing.T, srv *http.Server, limit ...func(net.Listener) net.Listener) *Server {
	t.Helper()
	s := &Server{conns: make(chan net.Conn), closed: make(chan struct{})}
	inner := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != SlowPath {
			inner.ServeHTTP(w, r)
			return
		}
		time.Sleep(time.Hour)            //nolint:forbidigo // time of the bubble
		_, _ = io.WriteString(w, "slow") // a client that has disconnected needs no answer
	})
	l := net.Listener(s)
	for _, f := range limit {
		l = f(l)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		_ = srv.Close()
		serving.Wait()
	})
	return s
}

// Accept implements net.Listener.
func (s *Server) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *Server) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr implements net.Listener.
func (s *Server) Addr() net.Addr { return &net.TCPAddr{} }

// Conn is the connection of a client.
type Conn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// Dial connects from an address that is that of no other client.
func (s *Server) Dial(t *testing.T) *Conn { return s.DialFrom(t, &net.UnixAddr{}) }

// DialFrom connects from an address. It waits until the server accepts.
func (s *Server) DialFrom(t *testing.T, from net.Addr) *Conn {
	t.Helper()
	here, there := net.Pipe()
	s.conns <- addressed{there, from}
	t.Cleanup(func() { here.Close() })
	return &Conn{here, t, bufio.NewReader(here)}
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from net.Addr
}

// RemoteAddr implements net.Conn.
func (a addressed) RemoteAddr() net.Addr { return a.from }

// Send sends the head of a request and more lines. The last line has no end.
func (c *Conn) Send(request []string, more ...string) {
	c.t.Helper()
	lines := slices.Concat([]string{request[0] + " HTTP/1.1", "Host: localhost"}, request[1:], more)
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")); err != nil {
		c.t.Errorf("%s: %v", request[0], err)
	}
}

// Answer is an answer that was read to its end.
type Answer struct {
	Status        string
	StatusCode    int
	Header        http.Header
	ContentLength int64
	Close         bool // the connection ends with it
}

// WantAnswer reads an answer.
func (c *Conn) WantAnswer(request []string) Answer {
	c.t.Helper()
	began := time.Now()
	res, err := http.ReadResponse(c.r, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	if err != nil {
		c.t.Fatalf("%s: no answer after %v: %v", request[0], time.Since(began), err)
	}
	return Answer{res.Status, res.StatusCode, res.Header, res.ContentLength, res.Close}
}

// WantRefusal reads an answer with a status of an error.
func (c *Conn) WantRefusal(request []string) {
	c.t.Helper()
	began := time.Now()
	res := c.WantAnswer(request)
	if took := time.Since(began); res.StatusCode < 400 || took > Long {
		c.t.Errorf("%s: got %s after %v", request[0], res.Status, took)
	}
}

// WantEnd fails the test if the server does not close the connection.
func (c *Conn) WantEnd(request []string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(Long)) // a pipe has deadlines
	if n, err := c.r.Read(make([]byte, 1)); err != io.EOF {
		c.t.Errorf("%s: the connection is open after the answer: %d bytes, %v", request[0], n, err)
	}
}
