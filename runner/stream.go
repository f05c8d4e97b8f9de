package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// maxPending bounds the frames of a stream that cost no credit and wait for its user. A runner
// sends a handful.
const maxPending = 16 << 20

// stream is one request and what has come for it. All but receive is for one goroutine at a time.
type stream struct {
	c       *client
	id      uint32
	credits wire.Credits // what may be sent

	mu      sync.Mutex
	granted wire.Granted // what may be received
	buf     []byte       // encoded frames that the user has not seen
	notify  chan struct{}

	taken []byte // frames that the user has begun to look at
	begun []byte // taken, from its beginning
	spare []byte // for buf, if not nil
	ended bool   // its last frame was returned
}

// open sends a request on a new stream.
func (c *client) open(ctx context.Context, request wire.Map) (*stream, error) {
	s := &stream{c: c, granted: wire.NewGranted(), notify: make(chan struct{}, 1)}
	_ = s.credits.Grant(wire.Window) // less than the maximum
	c.mu.Lock()
	if c.streams == nil {
		c.mu.Unlock()
		return nil, c.failure(executor.RanNo)
	}
	for s.id == 0 || c.streams[s.id] != nil {
		c.next++
		s.id = c.next
	}
	c.streams[s.id] = s
	c.mu.Unlock()
	b := wire.Frame{Type: wire.Open, Stream: s.id, Payload: wire.AppendValue(nil, request)}.AppendLong(nil)
	if err := c.write1(ctx, b); err != nil {
		s.forget()
		return nil, err
	}
	return s, nil
}

// receive takes a frame from the reader of the connection.
func (s *stream) receive(f wire.Frame) error {
	if f.Type == wire.Credit {
		n, err := wire.ParseCredit(f)
		if err == nil {
			err = s.credits.Grant(n)
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Costs() {
		if err := s.granted.Receive(len(f.Payload)); err != nil {
			return err
		}
	}
	if len(s.buf)+len(f.Payload) > maxPending {
		return fmt.Errorf("%w: more than %d bytes wait", wire.ErrCredit, maxPending)
	}
	s.buf = f.Append(s.buf)
	select {
	case s.notify <- struct{}{}:
	default:
	}
	return nil
}

// frame waits for the next frame. Its payload may be kept.
func (s *stream) frame(ctx context.Context) (wire.Frame, error) {
	for {
		if len(s.taken) > 0 {
			f, rest, err := wire.Parse(s.taken)
			s.taken = rest
			s.ended = f.Type == wire.Done || f.Type == wire.Fail
			return f, err
		}
		if s.take() {
			continue
		}
		select {
		case <-s.notify:
		case <-s.c.over:
			if !s.take() { // what had arrived before the end still counts
				return wire.Frame{}, s.c.failure(s.c.ran(s.id))
			}
		case <-ctx.Done():
			return wire.Frame{}, context.Cause(ctx)
		}
	}
}

// take moves what has arrived to the user's side.
func (s *stream) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.begun, s.buf, s.spare = s.buf, s.buf, s.spare, nil
	return len(s.taken) > 0
}

// reuse says that the user has kept no payload so far, so that what held them may hold what comes.
func (s *stream) reuse() {
	if len(s.taken) == 0 {
		s.spare = s.begun[:0]
	}
}

// consumed lets the runner send n bytes more, when there is enough to tell it.
func (s *stream) consumed(ctx context.Context, n int) error {
	s.mu.Lock()
	grant := s.granted.Consume(n)
	s.mu.Unlock()
	if grant == 0 {
		return nil
	}
	return s.c.write1(ctx, wire.CreditFrame(s.id, grant).Append(nil))
}

// send sends data on a stream, as the runner takes it.
func (s *stream) send(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n, err := s.credits.Take(ctx, min(len(data), maxData))
		if err != nil {
			return err
		}
		if err := s.c.write1(ctx, wire.Frame{Type: wire.Data, Stream: s.id, Payload: data[:n]}.Append(nil)); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// maxData is the most data in a frame: a quarter of the window, so that there is always something
// under way.
const maxData = wire.Window / 4

// sendAll sends what r has to its end, in frames as large as they may be: each costs every process
// on its way some work.
func (s *stream) sendAll(ctx context.Context, r io.Reader) error {
	var frames [2][]byte // the writer has done with one when it takes the other
	for i := 0; ; i = 1 - i {
		room, err := s.credits.Take(ctx, maxData)
		if err != nil {
			return err
		}
		if frames[i] == nil {
			frames[i] = make([]byte, wire.HeaderSize+maxData)
		}
		f := wire.Frame{Type: wire.Data, Stream: s.id}
		data := frames[i][wire.HeaderSize:][:room]
		n := 0
		for n < room && f.Flags == 0 {
			if ctx.Err() != nil { // before r has much more, which may take as long as it likes
				return context.Cause(ctx)
			}
			k, err := r.Read(data[n:])
			n += k
			if err == io.EOF {
				f.Flags = wire.End
			} else if err != nil {
				return err
			}
		}
		f.Payload = data[:n]
		if err := s.c.write1(ctx, f.Append(frames[i][:0])); err != nil || f.Flags == wire.End {
			return err
		}
	}
}

// finish says that no more data follows.
func (s *stream) finish(ctx context.Context) error {
	return s.c.write1(ctx, wire.Frame{Type: wire.Data, Flags: wire.End, Stream: s.id}.Append(nil))
}

// stop asks the runner to end what the stream is about. It answers with the last frame.
func (s *stream) stop(ctx context.Context) error {
	return s.c.write1(ctx, wire.Frame{Type: wire.Stop, Stream: s.id}.Append(nil))
}

// close lets go of the stream. What it is about is stopped if it has not ended.
func (s *stream) close() {
	if !s.ended {
		ctx, cancel := driver.StopContext(context.Background())
		defer cancel()
		_ = s.stop(ctx) // the connection has ended, or nobody takes what is sent: nothing is left to do
	}
	s.forget()
}

func (s *stream) forget() {
	s.c.mu.Lock()
	delete(s.c.streams, s.id)
	s.c.mu.Unlock()
	s.credits.Close(errEnded)
}

// errEnded stops those who send data for something that has ended.
var errEnded = errors.New("it has ended")

// answer returns what the last frame of a stream says.
func answer(f wire.Frame) (wire.Map, error) {
	m, err := wire.ParseMap(f.Payload)
	if err != nil {
		return nil, driver.Fail(executor.ErrInternal, executor.RanMaybe, err)
	}
	if f.Type == wire.Fail {
		return nil, failure(m)
	}
	return m, nil
}

// kinds are the kinds of errors, by the names that the runner uses.
var kinds = map[string]error{
	"invalid":     executor.ErrInvalid,
	"unsupported": executor.ErrUnsupported,
	"busy":        executor.ErrBusy,
	"exhausted":   executor.ErrExhausted,
	"unavailable": executor.ErrUnavailable,
	"canceled":    context.Canceled,
	"gone":        executor.ErrNotFound,
	"denied":      executor.ErrDenied,
	"no-server":   executor.ErrNoServer,
	"too-large":   executor.ErrTooLarge,
	"not-exist":   fs.ErrNotExist,
	"exist":       fs.ErrExist,
	"permission":  fs.ErrPermission,
	"withheld":    errWithheld,
	"wrong-kind":  fs.ErrInvalid, // of file, or a name that no file can have
}

// errWithheld is found in the error of a file that code does not let others open, by a lease for
// example.
var errWithheld = fmt.Errorf("%w: withheld", fs.ErrPermission)

// failure returns the error of a Fail frame. Such requests were not carried out.
func failure(m wire.Map) error {
	kind, ok := kinds[m.Text("kind")]
	if !ok {
		kind = executor.ErrInternal
	}
	return driver.Fail(kind, executor.RanNo, errors.New(strings.ToValidUTF8(m.Text("message"), "\uFFFD")))
}
