package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The clocks of a link.
const (
	linkSilence  = 35 * time.Second // then a stream is opened anew; runners of old send a heartbeat every 10 seconds
	linkDoubt    = 2 * time.Second  // one that lives has sent a heartbeat by then
	linkPatience = 60 * time.Second // the runner gives a link up after as long without a connection
	linkAttempt  = 30 * time.Second // of a request
	linkFarewell = 300 * time.Millisecond
)

// Pauses between attempts grow from the first to the last.
const (
	linkFirstPause = 20 * time.Millisecond
	linkLastPause  = 2 * time.Second
)

const (
	linkBody    = 1 << 20  // of a request
	linkPiece   = 16 << 10 // of a body that did not get through
	linkAckStep = 1 << 20  // received and not acknowledged
)

// Endpoint is where a runner that serves HTTP is reached: one that was started as GuestCommand.
type Endpoint struct {
	URL    string      // "http://[fdaa::3]:8731", without a path
	Token  string      // the secret of this sandbox
	Header http.Header // added to each request; may be nil
	// Transport carries the requests. It must not repeat them on its own account, and should not
	// buffer bodies of answers.
	Transport http.RoundTripper
	// Gone is asked whether a runner is silent for good: between attempts to reach it, and now and
	// then when it has said nothing for longer than a heartbeat takes. An error ends the connection
	// and is that of it. May be nil.
	Gone func(ctx context.Context) error
}

// StatusError is an answer of something that is not the runner, or not of this sandbox, or that no
// longer knows a connection.
type StatusError struct {
	Status int
	Text   string // the beginning of the body
}

// Error implements error.
func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the runner's address answered %d %s: %s", e.Status, http.StatusText(e.Status), e.Text))
}

// transient reports whether another attempt may do better: proxies answer so for machines that they
// do not reach at the moment.
func (e *StatusError) transient() bool {
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// Ready asks once whether the runner answers.
func (e Endpoint) Ready(ctx context.Context) error {
	res, err := e.do(ctx, http.MethodGet, "/v1/ready", nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// do sends a request. Any status but 200 is a *StatusError.
func (e Endpoint) do(ctx context.Context, method, target string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(e.URL, "/")+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range e.Header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+e.Token)
	res, err := e.Transport.RoundTrip(req) // no redirects, no cookies
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 256)) // an error of an error
		res.Body.Close()
		return nil, &StatusError{Status: res.StatusCode, Text: strings.ToValidUTF8(strings.TrimSpace(string(text)), "\uFFFD")}
	}
	return res, nil
}

// Dial returns a connection to the runner, for StartGuest and Attach. It reaches for the runner
// when it is used.
//
// Interruptions of what carries it are bridged: what did not arrive is sent again from where it
// stopped, so that no byte is lost and none comes twice.
func (e Endpoint) Dial() io.ReadWriteCloser {
	l := &link{e: e, path: "/v1/links/" + strings.ToLower(rand.Text()), writable: make(chan struct{}, 1), wake: make(chan struct{}, 1), begun: time.Now()}
	l.life, l.end = context.WithCancelCause(context.Background())
	l.work.Go(l.send)
	if e.Gone != nil {
		l.work.Go(l.doubt)
	}
	return l
}

// link is a connection that HTTP carries. Package comment of internal/program/http.py tells the
// protocol.
type link struct {
	e    Endpoint
	path string

	life  context.Context // until Close, or an error that is final
	end   context.CancelCauseFunc
	work  sync.WaitGroup // of send and doubt
	begun time.Time
	heard atomic.Int64 // when the runner has last said something, after begun

	// For the goroutine that reads.
	body     io.Closer
	stream   *bufio.Reader
	left     int         // of the record that is being read
	silence  *time.Timer // ends a body that says nothing
	stopBody context.CancelFunc

	mu       sync.Mutex
	out      []byte // written, and not sent
	sent     int64  // position of out
	received int64  // what the reader has
	acked    int64  // what the runner knows of that
	alive    bool   // the last request was answered

	writable chan struct{} // out has become shorter
	wake     chan struct{} // there is something to send
}

// errLinkClosed is the end of a link by its owner.
var errLinkClosed = errors.New("the connection was closed")

// Write takes p and sends it soon. Errors of sending come with the next call.
func (l *link) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		l.mu.Lock()
		some := min(len(p), linkBody-len(l.out))
		if some > 0 {
			l.out = append(l.out, p[:some]...)
		}
		l.mu.Unlock()
		if some > 0 {
			n, p = n+some, p[some:]
			signal(l.wake)
			continue
		}
		select {
		case <-l.writable:
		case <-l.life.Done():
			return n, context.Cause(l.life)
		}
	}
	if l.life.Err() != nil {
		return n, context.Cause(l.life)
	}
	return n, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send posts what was written, and what has to be acknowledged, until the link ends.
func (l *link) send() {
	for {
		select {
		case <-l.wake:
		case <-l.life.Done():
			return
		}
		l.mu.Lock()
		// The array goes to the request; nobody writes to it meanwhile.
		data, at, ack := l.out, l.sent, l.received
		l.out, l.sent = nil, l.sent+int64(len(data))
		l.mu.Unlock()
		signal(l.writable)
		if err := l.post(data, at, ack); err != nil {
			l.end(err)
			return
		}
		l.mu.Lock()
		l.acked = ack
		l.mu.Unlock()
	}
}

// post sends what was written from a position on. What does not get through in one piece is tried
// in smaller ones.
func (l *link) post(data []byte, at, ack int64) error {
	size := len(data)
	for {
		piece := data[:min(size, len(data))]
		err := l.persist(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, linkAttempt)
			defer cancel()
			res, err := l.e.do(ctx, http.MethodPost, fmt.Sprintf("%s?at=%d&ack=%d", l.path, at, ack), piece)
			if err != nil {
				size = max(len(piece)/2, linkPiece)
				piece = data[:min(size, len(data))]
				return err
			}
			_, err = io.Copy(io.Discard, res.Body)
			return errors.Join(err, res.Body.Close())
		})
		if err != nil {
			return err
		}
		data, at = data[len(piece):], at+int64(len(piece))
		if len(data) == 0 {
			return nil
		}
	}
}

// persist calls f until it succeeds, fails for good, or has failed for too long.
func (l *link) persist(f func(context.Context) error) error {
	begin, pause := time.Now(), linkFirstPause
	for {
		err := f(l.life)
		l.mu.Lock()
		l.alive = err == nil
		l.mu.Unlock()
		if err == nil {
			l.hear()
			return nil
		}
		if l.life.Err() != nil {
			return context.Cause(l.life)
		}
		var status *StatusError
		if errors.As(err, &status) && !status.transient() || time.Since(begin) > linkPatience {
			return err
		}
		if l.e.Gone != nil && pause > linkFirstPause { // the first pause often suffices
			if gone := l.e.Gone(l.life); gone != nil {
				return gone
			}
		}
		select {
		case <-time.After(pause):
		case <-l.life.Done():
			return context.Cause(l.life)
		}
		pause = min(2*pause, linkLastPause)
	}
}

// hear takes note that the runner has said something.
func (l *link) hear() { l.heard.Store(int64(time.Since(l.begun))) }

// doubt has the link end when the sandbox is gone. A machine that dies does not always close its
// connections, and what is dialled then may be silent for long: only silence says that something is
// amiss, and only the provider what. It is asked less and less often.
func (l *link) doubt() {
	wait := linkDoubt
	for {
		select {
		case <-time.After(wait):
		case <-l.life.Done():
			return
		}
		heard := l.heard.Load()
		if quiet := time.Since(l.begun) - time.Duration(heard); quiet < linkDoubt {
			wait = linkDoubt - quiet
			continue
		}
		gone := l.e.Gone(l.life)
		if l.heard.Load() != heard {
			wait = linkDoubt // it was this program that was late; the last words of what is gone are still being read
			continue
		}
		if gone != nil {
			l.end(gone)
			return
		}
		wait = min(max(wait, linkDoubt)*3/2, linkSilence)
	}
}

// Read reads what the runner says.
func (l *link) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if l.body == nil {
			if err := l.persist(l.open); err != nil {
				l.end(err)
				return 0, context.Cause(l.life)
			}
		}
		n, err := l.record(p)
		if n > 0 {
			l.count(n)
			return n, nil
		}
		if err != nil {
			l.drop()
			if l.life.Err() != nil {
				return 0, context.Cause(l.life)
			}
		}
	}
	return 0, nil
}

// open asks for the stream from where it was cut.
func (l *link) open(ctx context.Context) error {
	l.mu.Lock()
	from := l.received
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	silence := time.AfterFunc(linkSilence, cancel)
	res, err := l.e.do(ctx, http.MethodGet, fmt.Sprintf("%s?from=%d", l.path, from), nil) //nolint:bodyclose // drop closes it
	if err != nil {
		silence.Stop()
		cancel()
		return err
	}
	l.body, l.stream, l.left, l.silence, l.stopBody = res.Body, bufio.NewReaderSize(res.Body, 64<<10), 0, silence, cancel
	return nil
}

// drop lets go of a stream that has ended.
func (l *link) drop() {
	l.silence.Stop()
	l.stopBody()
	l.body.Close()
	l.body = nil
}

// record reads from the record in progress, or the head of the next one.
func (l *link) record(p []byte) (int, error) {
	if l.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(l.stream, head[:]); err != nil {
			return 0, err
		}
		l.silence.Reset(linkSilence)
		l.hear()
		n := binary.BigEndian.Uint32(head[:])
		if n > 1<<30 {
			return 0, errors.New("a record that is too long")
		}
		l.left = int(n)
		return 0, nil
	}
	n, err := l.stream.Read(p[:min(len(p), l.left)])
	l.left -= n
	l.silence.Reset(linkSilence)
	l.hear()
	return n, err
}

// count takes note of n bytes that have arrived, and has them acknowledged now and then.
func (l *link) count(n int) {
	l.mu.Lock()
	l.received += int64(n)
	due := l.received-l.acked >= linkAckStep
	l.mu.Unlock()
	if due {
		signal(l.wake)
	}
}

// Close ends the link. What was written and not sent is lost. It may be called during Read and
// Write, which then fail.
func (l *link) Close() error {
	l.mu.Lock()
	alive := l.alive
	l.mu.Unlock()
	first := l.life.Err() == nil
	l.end(errLinkClosed)
	l.work.Wait()
	if !first || !alive {
		return nil
	}
	// That nobody will come back spares the runner the wait for it.
	ctx, cancel := context.WithTimeout(context.Background(), linkFarewell)
	defer cancel()
	if res, err := l.e.do(ctx, http.MethodDelete, l.path, nil); err == nil {
		return res.Body.Close()
	}
	return nil
}
