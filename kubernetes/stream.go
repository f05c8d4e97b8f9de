package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/execbroker/execbroker/internal/remote"
)

// stream is the standard input and output of a process in a pod, over a WebSocket with the protocol
// v5.channel.k8s.io: the first byte of each message says which stream it is of. What the process
// writes to its standard error is diagnosis; its end is kept.
type stream struct {
	conn *gorilla.Conn
	done chan struct{} // closed by Close
	over chan struct{} // closed when the process has ended
	lost chan struct{} // closed when the connection has, without a word of that
	ping sync.WaitGroup

	writing sync.Mutex // one writer at a time; held over I/O, which is what it is for
	reading sync.Mutex // likewise
	r       io.Reader  // rest of a message of standard output; nil: none

	mu     sync.Mutex
	kept   int    // by keep
	err    []byte // end of standard error
	status error  // how the process has ended; io.EOF if well. nil: not yet
}

// The protocol and its channels.
const (
	protocol      = "v5.channel.k8s.io"
	channelIn     = 0
	channelOut    = 1
	channelErr    = 2
	channelStatus = 3
)

const (
	maxMessage = 32 << 10 // of what is sent
	keepStderr = 4 << 10
	maxStatus  = 64 << 10
	pingEvery  = 15 * time.Second // balancers cut what is idle for a minute
	pongWithin = 60 * time.Second
	pingWrite  = 5 * time.Second
)

// errProtocol says that the other side does not keep to the protocol.
var errProtocol = errors.New("the API server broke the protocol of exec")

// exitError says that a process in a pod has ended with an error, or was not started.
type exitError struct{ status metav1.Status }

func (e *exitError) Error() string { return remote.Words(e.status.Message, maxWords) }

// notStarted reports whether the process was never there: the node did not know the container yet,
// or no more. An exit code says that it was there.
func (e *exitError) notStarted() bool { return e.status.Reason != "NonZeroExitCode" }

// exec starts a process in the container of a pod. The API server may answer before it has asked
// the node, so a process that cannot be started shows as the end of the stream.
func (c *client) exec(ctx context.Context, pod string, command []string) (*stream, error) {
	return c.stream(ctx, c.execURL(pod, command))
}

// stream connects to the streams of a process.
func (c *client) stream(ctx context.Context, u *url.URL) (*stream, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	rt, holder, err := websocket.RoundTripperFor(c.cfg)
	if err != nil {
		return nil, err
	}
	conn, err := websocket.Negotiate(rt, holder, req, protocol)
	if err != nil {
		return nil, cut(ctx, statusOf(err))
	}
	s := &stream{conn: conn, done: make(chan struct{}), over: make(chan struct{}), lost: make(chan struct{})}
	conn.SetReadDeadline(time.Now().Add(pongWithin)) // fails on a closed connection, as the next read does
	conn.SetPongHandler(func(string) error { return conn.SetReadDeadline(time.Now().Add(pongWithin)) })
	s.ping.Go(s.keepAlive)
	return s, nil
}

// statusOf finds in the error of a handshake what the API server has answered.
func statusOf(err error) error {
	var u *httpstream.UpgradeFailureError
	if errors.As(err, &u) { // which does not unwrap
		err = u.Cause
	}
	var s *apierrors.StatusError
	if errors.As(err, &s) {
		return s
	}
	return fmt.Errorf("exec: %w", err)
}

// keepAlive shows the other side, and what is in between, that the connection is in use.
func (s *stream) keepAlive() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.over:
			return
		case <-tick.C:
			if s.conn.WriteControl(gorilla.PingMessage, nil, time.Now().Add(pingWrite)) != nil {
				return // the reader finds out as well
			}
		}
	}
}

// Read implements io.Reader: what the process wrote to its standard output.
func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		if closed(s.done) {
			return 0, net.ErrClosed
		}
		for s.r == nil {
			if err := s.next(); err != nil {
				return 0, err
			}
		}
		n, err := s.r.Read(p)
		if err == io.EOF {
			s.r, err = nil, nil
			if n == 0 {
				continue
			}
		}
		return n, err
	}
}

// next reads messages until there is one of standard output.
func (s *stream) next() error {
	kind, r, err := s.conn.NextReader()
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status != nil {
			return s.status
		}
		if !closed(s.lost) {
			close(s.lost)
		}
		return err
	}
	s.conn.SetReadDeadline(time.Now().Add(pongWithin)) // as above
	var channel [1]byte
	if _, err := io.ReadFull(r, channel[:]); err != nil || kind != gorilla.BinaryMessage {
		return errProtocol
	}
	switch channel[0] {
	case channelOut:
		s.r = r
	case channelErr:
		return s.keepError(r)
	case channelStatus:
		return s.ended(r)
	default:
		return errProtocol
	}
	return nil
}

// keepError keeps the end of what was written to standard error.
func (s *stream) keepError(r io.Reader) error {
	var piece [keepStderr]byte
	for {
		n, err := r.Read(piece[:])
		s.mu.Lock()
		s.err = append(s.err, piece[:n]...)
		s.err = s.err[max(0, len(s.err)-keepStderr):]
		s.mu.Unlock()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ended reads how the process has ended. It is the last that is said.
func (s *stream) ended(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxStatus))
	if err != nil {
		return err
	}
	e := &exitError{}
	if json.Unmarshal(text, &e.status) != nil {
		return errProtocol
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != nil {
		return errProtocol
	}
	if s.status = io.EOF; e.status.Status != metav1.StatusSuccess {
		s.status = e
	}
	if s.status == io.EOF || !e.notStarted() {
		close(s.over)
	}
	return s.status
}

// Write implements io.Writer: standard input of the process.
func (s *stream) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(p) > 0 {
		piece := p[:min(len(p), maxMessage)]
		w, err := s.conn.NextWriter(gorilla.BinaryMessage)
		if err != nil {
			return n, err
		}
		if _, err = w.Write([]byte{channelIn}); err == nil {
			_, err = w.Write(piece)
		}
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return n, err
		}
		n, p = n+len(piece), p[len(piece):]
	}
	return n, nil
}

// Close implements io.Closer. The process sees the end of its input.
func (s *stream) Close() error {
	s.mu.Lock()
	if closed(s.done) {
		s.mu.Unlock()
		return nil
	}
	close(s.done)
	kept := s.kept > 0
	s.mu.Unlock()
	var err error
	if !kept {
		err = s.conn.Close()
	}
	s.ping.Wait()
	return err
}

// keep lets the connection stay when its reader closes it, until the returned function is called:
// how the process has ended comes after the last word of the runner.
func (s *stream) keep() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
	return func() {
		s.mu.Lock()
		s.kept--
		drop := s.kept == 0 && closed(s.done)
		s.mu.Unlock()
		if drop {
			s.conn.Close() // nobody is left to whom the error would say something
		}
	}
}

// closed reports whether a channel is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ends waits for the end of the process, and reports whether it has come. The caller keeps the
// connection.
func (s *stream) ends(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-s.over:
		return true
	case <-s.lost:
		return false
	case <-ctx.Done():
		return false
	case <-s.done:
	}
	defer context.AfterFunc(ctx, func() { s.conn.Close() })()
	s.reading.Lock()
	defer s.reading.Unlock()
	for !closed(s.over) && !closed(s.lost) {
		s.r = nil
		if s.next() != nil {
			break
		}
	}
	return closed(s.over)
}

// stderr returns the end of what the process wrote to its standard error.
func (s *stream) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return remote.Words(string(s.err), maxWords)
}
