package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

// protocol is the protocol of a connection to a port: the bytes of TCP without frames. No web page
// can make a browser request it.
const protocol = "tcp"

// headTime is how long it may take to send the answer that a connection is made.
const headTime = 10 * time.Second

// dial connects a client to a server in the sandbox. The request asks for an upgrade, and the
// connection then carries the bytes in both directions.
func (s *Server) dial(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", protocol)
		return 0, nil, refuse(http.StatusUpgradeRequired, "upgrade", "use HTTP/1.1 with the headers Connection: Upgrade and Upgrade: %s", protocol)
	}
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "invalid", "port %.20q: want a number", r.PathValue("port"))
	}
	b, done, err := s.find(r, c)
	if err != nil {
		return 0, nil, err
	}
	conn, err := b.Dial(r.Context(), port)
	done()
	if err != nil {
		return 0, nil, s.gone(b, err)
	}
	defer conn.Close()
	if !s.attend() {
		return 0, nil, draining()
	}
	defer s.ends.Done()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return 0, nil, err
	}
	defer client.Close()
	// The limits of requests do not apply to connections, which have their own limits:
	// executor.MaxForwards and the others there.
	err = client.SetDeadline(time.Now().Add(headTime))
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n" +
		front.RequestIDHeader + ": " + requestID(r) + "\r\n\r\n"
	if err == nil {
		_, err = io.WriteString(client, head)
	}
	if err == nil {
		err = client.SetDeadline(time.Time{})
	}
	if err == nil {
		s.join(b, client, buffered.Reader, conn)
	}
	return 0, nil, nil // there is no response to send any more
}

// attend counts what Close waits for. It returns false if Close has begun.
func (s *Server) attend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.ends.Add(1)
	return true
}

// join carries bytes in both directions until both sides have closed their direction, or one has
// failed. What a client sends counts as use of the session; what a server in the sandbox sends does
// not.
func (s *Server) join(b *session, client net.Conn, sent *bufio.Reader, conn executor.Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		_, err := io.Copy(conn, touching{sent, func() { s.touch(b) }})
		if err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			client.Close()
			conn.Close()
		}
	})
	_, err := io.Copy(client, conn)
	half, ok := client.(interface{ CloseWrite() error })
	if err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil || !ok {
		client.Close()
		conn.Close()
	}
	up.Wait()
}

// touch restarts the idle time of a session.
func (s *Server) touch(b *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.uses == 0 && !b.ended {
		b.timer.Reset(b.idle)
	}
}

// touching calls touch for every read.
type touching struct {
	r    io.Reader
	tell func()
}

// Read implements io.Reader.
func (t touching) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.tell()
	}
	return n, err
}
