package compat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/websocket"
)

const (
	// initTime is how long the first message may take.
	initTime = 10 * time.Second
	// maxMessage bounds a message after the first.
	maxMessage = 1 << 20
)

// closing ends a connection with a code of the interface.
type closing int

func (closing) Error() string { return "the connection is closed" }

// socket is a WebSocket whose messages are JSON. One goroutine may receive, and one may send.
type socket struct {
	ws  *websocket.Conn
	in  *limited
	dec *json.Decoder // of the messages; a message may come in several frames
}

// connect accepts a WebSocket, and closes it with the code that serve returns. serve gets until the
// end of the server. An error that is no code goes to fail, which returns one.
func (c *call) connect(serve func(*socket) error, fail func(*socket, error) closing) error {
	if !upgrades(c.r) {
		return refusal{http.StatusUpgradeRequired, "want a WebSocket"}
	}
	leave, ok := c.live.Enter()
	if !ok {
		return refusal{http.StatusServiceUnavailable, "the server is shutting down"}
	}
	defer leave()
	// admit has checked the origin.
	websocket.Server{Handler: func(ws *websocket.Conn) {
		defer context.AfterFunc(c.ctx, func() { _ = ws.SetDeadline(time.Now()) })()
		s := &socket{ws: ws, in: &limited{r: ws}}
		s.dec = json.NewDecoder(s.in)
		code, err := closing(0), serve(s)
		if !errors.As(err, &code) {
			code = fail(s, err)
		}
		_ = ws.WriteClose(int(code))
	}}.ServeHTTP(c.w, c.r)
	return nil
}

// receive reads a message of at most some bytes.
func (s *socket) receive(most int64) (raw json.RawMessage, err error) {
	s.in.left = most
	err = s.dec.Decode(&raw)
	return raw, err
}

// send writes messages. A client that does not read them ends its run.
func (s *socket) send(messages ...any) error {
	for _, m := range messages {
		if err := websocket.JSON.Send(s.ws, m); err != nil {
			return err
		}
	}
	return nil
}

// listen calls f for each message until it returns an error, and returns that, and stop ends the
// listening. ctx ends with it.
func (s *socket) listen(ctx context.Context, f func(json.RawMessage) error) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			raw, err := s.receive(maxMessage)
			if err == nil {
				err = f(raw)
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		_ = s.ws.SetReadDeadline(time.Now())
		<-done
	}
}

// limited bounds the size of each message of a client.
type limited struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, refusal{http.StatusRequestEntityTooLarge, "a message is too large"}
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
