package front

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// WriteTime is how long a client may take to read a piece of an answer, of at most pieceBytes.
	WriteTime  = time.Minute
	pieceBytes = 64 << 10
	// uploadBytes must arrive in each body time of an upload.
	uploadBytes = 1 << 20
	// heldBytes is how long an answer may be whose length the server counts.
	heldBytes = 2 << 10
	// drainTime is how long the server waits for the rest of a body that no handler needs.
	drainTime = 5 * time.Second
	// DefaultBodyTime is the body time of a Policy without one.
	DefaultBodyTime = time.Minute
)

// Bounded returns next with limits on how long a request waits for its client. It sets them at the
// connection for each read and each write, and removes them afterwards, so that they also hold in
// an http.Server of another program, and do not affect its other handlers.
//
// The server waits for the whole body for bodyTime. See Upload and Lift. A refused request whose
// body has not arrived is answered at once, and its connection is closed. A client that does not
// read its answer is disconnected. This includes streams and hijacked connections.
func Bounded(next http.Handler, bodyTime time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(exchangeKey{}) != nil { // a handler in front has the limits
			next.ServeHTTP(w, r)
			return
		}
		x := &exchange{ResponseWriter: w, rc: http.NewResponseController(w), method: r.Method, http1: r.ProtoMajor == 1}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		if r.Body != nil && r.Body != http.NoBody {
			x.body = &body{ReadCloser: r.Body, rc: x.rc, time: bodyTime, left: bodyTime}
			r.Body = x.body
		}
		whole := false // false: next has panicked
		defer func() { x.end(whole) }()
		next.ServeHTTP(x, r)
		whole = true
	})
}

type exchangeKey struct{}

func bodyOf(ctx context.Context) *body {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok && x.body != nil {
		return x.body
	}
	return &body{over: true} // which changes nothing
}

// Upload lets the body of a request take the body time for each MiB.
func Upload(ctx context.Context) { bodyOf(ctx).set(pacePieces) }

// Lift removes the limits on the body of a request. It is for streams of clients that have shown a
// key: such a client may send whenever it likes.
func Lift(ctx context.Context) { bodyOf(ctx).set(paceFree) }

// Until ends the reads of the body of a request, with the cause of life, when life ends. The caller
// calls stop before it returns.
func Until(ctx, life context.Context) (stop func()) {
	b := bodyOf(ctx)
	over := make(chan struct{})
	wait := context.AfterFunc(life, func() {
		defer close(over)
		b.cut(context.Cause(life))
	})
	return func() {
		if !wait() {
			<-over
		}
	}
}

// exchange is a ResponseWriter with a deadline for each write.
type exchange struct {
	http.ResponseWriter
	rc       *http.ResponseController
	method   string
	http1    bool
	body     *body  // nil: the request has none
	status   int    // zero: none yet
	held     []byte // the beginning of the answer, until the header is sent
	sent     bool   // the header is sent
	last     bool   // the connection is closed after this answer
	hijacked bool
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	switch {
	case status < http.StatusOK:
		x.ResponseWriter.WriteHeader(status)
	case x.status == 0:
		x.status = status
	}
}

// send sends the header and what is held.
func (x *exchange) send() error {
	x.sent, x.status = true, cmp.Or(x.status, http.StatusOK)
	if x.http1 {
		// net/http would write the end of an answer of unknown length without a deadline, if the
		// connection were to have another request. And it would read the rest of a body first.
		h := x.Header()
		x.last = h.Get("Content-Length") == "" && !x.empty() || x.body != nil && x.status >= http.StatusBadRequest && x.body.remains()
		if x.last {
			h.Set("Connection", "close")
		}
	}
	x.ResponseWriter.WriteHeader(x.status)
	held := x.held
	x.held = nil
	_, err := x.pieces(held)
	return err
}

// empty reports whether the answer has no body, whatever its header says.
func (x *exchange) empty() bool {
	return x.status == http.StatusNoContent || x.status == http.StatusNotModified || x.method == http.MethodHead
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	x.status = cmp.Or(x.status, http.StatusOK)
	if !x.sent && len(x.held)+len(p) <= heldBytes {
		x.held = append(x.held, p...)
		return len(p), nil
	}
	if !x.sent {
		if err := x.send(); err != nil {
			return 0, err
		}
	}
	return x.pieces(p)
}

func (x *exchange) pieces(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		piece, m := p[n:min(len(p), n+pieceBytes)], 0
		err = x.timed(func() (err error) { m, err = x.ResponseWriter.Write(piece); return err })
		n += m
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (x *exchange) FlushError() error {
	if !x.sent {
		if err := x.send(); err != nil {
			return err
		}
	}
	return x.timed(x.rc.Flush)
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// timed gives a write its deadline. The ResponseWriter of a test has none.
func (x *exchange) timed(write func() error) error {
	if x.body != nil && x.http1 {
		x.body.drain(time.Now().Add(drainTime))
		defer x.body.drain(time.Time{})
	}
	_ = x.rc.SetWriteDeadline(time.Now().Add(WriteTime))
	err := write()
	if err == nil {
		_ = x.rc.SetWriteDeadline(time.Time{})
	}
	return err
}

// Hijack implements http.Hijacker. Writes to the connection have the deadlines of answers.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := x.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	c = conn{c}
	rw.Writer.Reset(c)
	return c, rw, nil
}

// end sends the answer, so that nothing is left to write when the deadlines end.
func (x *exchange) end(whole bool) {
	if x.hijacked {
		return
	}
	if x.body != nil {
		x.body.end()
	}
	if whole && !x.sent {
		if x.Header().Get("Content-Length") == "" && !x.empty() {
			x.Header().Set("Content-Length", strconv.Itoa(len(x.held)))
		}
		_ = x.send() // net/http closes a connection that has failed
	}
	if whole && !x.last {
		_ = x.FlushError()
	} else if x.http1 {
		_ = x.rc.SetWriteDeadline(time.Now().Add(WriteTime))
	}
}

// conn is a hijacked connection.
type conn struct{ net.Conn }

// Write implements net.Conn. Each piece has a deadline.
func (c conn) Write(p []byte) (n int, err error) {
	for {
		if err := c.SetWriteDeadline(time.Now().Add(WriteTime)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(len(p), n+pieceBytes)])
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// CloseWrite closes the direction to the client.
func (c conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// pace says when a body has to arrive.
type pace int

const (
	paceWhole  pace = iota // in the body time
	pacePieces             // each piece of uploadBytes in the body time
	paceFree               // at any time
)

// body is the body of a request. Only the time counts in which a reader waits for the client.
//
// A deadline must not be set once the whole body has arrived: net/http then reads on to notice that
// the client leaves, and takes an expired deadline for that. Nor may it be changed after the
// request, when the connection may have another one.
type body struct {
	io.ReadCloser
	rc   *http.ResponseController
	time time.Duration

	mu      sync.Mutex
	pace    pace
	left    time.Duration // for which a reader may still wait
	reading bool
	whole   bool  // it has arrived
	over    bool  // the request has ended
	ended   error // why reads have been ended
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	began, err := b.wait()
	if err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	return n, b.arrived(time.Since(began), n, err)
}

func (b *body) wait() (began time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began = time.Now()
	switch {
	case b.over:
		return began, http.ErrBodyReadAfterClose
	case b.ended != nil:
		return began, b.ended
	case b.whole || b.pace == paceFree:
	case b.left <= 0:
		return began, ErrBody
	default:
		b.deadline(began.Add(b.left))
	}
	b.reading = true
	return began, nil
}

func (b *body) arrived(waited time.Duration, n int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if b.over {
		return err
	}
	b.left -= waited
	if b.pace == pacePieces {
		b.left = min(b.time, b.left+time.Duration(float64(b.time)*float64(n)/uploadBytes))
	}
	if b.ended == nil {
		b.deadline(time.Time{})
	}
	b.whole = b.whole || err == io.EOF
	switch {
	case b.ended != nil && err != nil && err != io.EOF:
		return b.ended
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.left = 0
		return ErrBody
	}
	return err
}

func (b *body) deadline(t time.Time) { _ = b.rc.SetReadDeadline(t) } // the ResponseWriter of a test has none

// set changes the pace, also of a read in progress.
func (b *body) set(p pace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pace = p; p == paceFree && !b.over && b.ended == nil {
		b.deadline(time.Time{})
	}
}

// cut ends reads.
func (b *body) cut(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.whole {
		return
	}
	b.ended = why
	b.deadline(time.Unix(1, 0))
}

// remains reports whether the body has not arrived as a whole.
func (b *body) remains() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.whole
}

// drain sets the deadline for the rest of a body that nobody reads: net/http reads it before it
// writes the header of an answer.
func (b *body) drain(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole && !b.over && !b.reading && b.ended == nil {
		b.deadline(t)
	}
}

// end bounds how long net/http waits for the rest of the body after the request.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over = true; !b.whole {
		b.deadline(time.Now().Add(drainTime))
	}
}
