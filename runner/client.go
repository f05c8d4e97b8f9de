package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// LostError says that the connection to a runner has ended without a word of it: it was cut, or the
// sandbox has died. Adapters find it with errors.As in what a client returns, and ask their
// provider which of the two it was.
type LostError struct {
	Err  error  // of the connection; io.EOF if it was closed
	Said []byte // what came instead of the protocol, at most 4 KB
}

// Error implements error.
func (e *LostError) Error() string {
	if len(e.Said) > 0 {
		return fmt.Sprintf("the runner broke off: %v: %q", e.Err, e.Said)
	}
	return fmt.Sprintf("the connection to the runner has ended: %v", e.Err)
}

// Unwrap returns the error of the connection.
func (e *LostError) Unwrap() error { return e.Err }

// client is one holder's connection to a runner. All methods are safe for concurrent use.
type client struct {
	conn io.ReadWriteCloser
	info hello
	out  chan []byte   // encoded frames for the writer
	over chan struct{} // closed when the connection has ended
	wg   sync.WaitGroup

	observed atomic.Bool // the runner may be asked for its last contact

	life context.Context // ends if the connection ends otherwise than by this holder
	die  context.CancelFunc

	mu      sync.Mutex
	err     error           // why the connection has ended
	begun   map[uint32]bool // streams that the runner knew when it ended the connection; nil if it did not say
	next    uint32
	streams map[uint32]*stream
	pongs   []chan struct{}
}

// setUp sets up a runner whose process was started as Command, over its standard input and output.
// It sends the program. The client owns conn from then on, also if Start fails.
func setUp(ctx context.Context, conn io.ReadWriteCloser, cfg Config) (*client, error) {
	var first []byte
	if cfg.Guest == nil { // else it has been a file of the machine
		first = ahead(cfg.compiled)
	}
	return open(ctx, conn, first, wire.Map{"version": wire.Version, "config": cfg.encode()})
}

// join opens a further connection to a runner, over the standard input and output of a process that
// was started as BridgeCommand. A fence that is not zero shuts out the holders with a lower one. It
// fails with ErrClosed if a holder with a higher one is there.
func join(ctx context.Context, conn io.ReadWriteCloser, fence int64) (*client, error) {
	return open(ctx, conn, nil, wire.Map{"version": wire.Version, "fence": fence})
}

func open(ctx context.Context, conn io.ReadWriteCloser, before []byte, hello wire.Map) (*client, error) {
	c := &client{conn: conn, out: make(chan []byte), over: make(chan struct{}), streams: map[uint32]*stream{}}
	c.life, c.die = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })
	c.wg.Go(c.write)
	frames := wire.NewReader(conn)
	greeting := make(chan error, 1)
	c.wg.Go(func() {
		err := c.greeted(frames)
		greeting <- err
		if err == nil {
			c.read(frames)
		}
	})
	first := wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, hello)}.Append(before)
	_ = c.write1(ctx, first) // its failure shows in the greeting
	err := <-greeting
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.end(err)
		c.wg.Wait()
		return nil, err
	}
	return c, nil
}

// ErrUnprepared is found in what join returns of a runner that nobody has set up, or that was
// started anew and has lost its set-up.
var ErrUnprepared = errors.New("the sandbox was not set up by its creator")

// greeted waits for the first frame of the runner.
func (c *client) greeted(frames *wire.Reader) error {
	f, err := frames.Next()
	if err != nil {
		select {
		case <-c.over:
			return c.failure(executor.RanNo)
		default:
			if errors.As(err, new(*executor.Error)) {
				return err // the stream knows better
			}
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, &LostError{Err: err, Said: said(frames)})
		}
	}
	m, err := wire.ParseMap(f.Payload)
	switch {
	case err != nil:
		return driver.Fail(executor.ErrInternal, executor.RanNo, err)
	case f.Type == wire.Bye:
		if m.Text("reason") == "unprepared" {
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, ErrUnprepared)
		}
		return driver.Fail(byeKind(m.Text("reason")), executor.RanNo, errors.New(m.Text("message")))
	case f.Type != wire.Hello || m.Int("version") != wire.Version:
		return driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the runner began with %v, version %d", f.Type, m.Int("version")))
	}
	c.info = hello{Python: m.Text("python"), Workdir: m.Text("workdir"), Expires: expires(m.Int("left"))}
	if made := (&compiled{bytes.Clone(m.Bytes("runner")), bytes.Clone(m.Bytes("parts"))}); len(made.parts) > 0 {
		c.info.Compiled = made
	}
	for _, l := range m.List("languages") {
		if b, ok := l.([]byte); ok {
			c.info.Languages = append(c.info.Languages, executor.Language(b))
		}
	}
	for _, d := range m.List("degraded") {
		if b, ok := d.([]byte); ok {
			c.info.Degraded = append(c.info.Degraded, string(b))
		}
	}
	return nil
}

// said returns the beginning of what is not the protocol: an error message of the image's Python,
// perhaps.
func said(frames *wire.Reader) []byte {
	b := frames.Buffered()
	return append([]byte(nil), b[:min(len(b), 4096)]...)
}

// expires returns when nanoseconds from now are over.
func expires(left int64) time.Time {
	if left < 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(left))
}

// byeKind returns the kind of error that the end of a connection is for a holder.
func byeKind(reason string) error {
	switch reason {
	case "fenced":
		return executor.ErrClosed
	case "idle", "lifetime", "terminated", "stuck", "ended":
		return executor.ErrNotFound
	case "refused":
		return executor.ErrInvalid
	case "unsupported":
		return executor.ErrUnsupported
	}
	return executor.ErrInternal
}

// Info returns what the runner has said of itself when this connection was opened.
func (c *client) Info() hello { return c.info }

// Done is closed when the connection has ended.
func (c *client) Done() <-chan struct{} { return c.over }

// Err returns why the connection has ended: a *LostError, or what the runner said. It is nil
// before.
func (c *client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Detach closes the connection and leaves the sandbox to its idle TTL. What is under way in it is
// not stopped.
func (c *client) Detach() error {
	c.end(driver.Fail(executor.ErrClosed, executor.RanNo, nil))
	c.wg.Wait()
	return nil
}

// ended closes a connection that has ended otherwise than by this holder.
func (c *client) ended(err error) {
	if c.end(err) {
		c.die()
	}
}

// end closes the connection, and reports whether it was open.
func (c *client) end(err error) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.err = err
	streams := c.streams
	c.streams = nil
	c.mu.Unlock()
	close(c.over)
	c.conn.Close() // also ends a Read or Write that waits
	for _, s := range streams {
		s.credits.Close(c.failure(c.ran(s.id)))
	}
	return true
}

// failure returns the error of a call that the end of the connection has cut short.
func (c *client) failure(ran executor.Ran) error {
	err := c.Err()
	var e *executor.Error
	if errors.As(err, &e) && !errors.As(err, new(*LostError)) {
		return driver.Fail(e.Kind, ran, e.Err)
	}
	return driver.Fail(executor.ErrUnavailable, ran, err)
}

// ran returns whether what was asked for on a stream, of which nothing was heard before the
// connection ended, may have been done.
func (c *client) ran(stream uint32) executor.Ran {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil || c.begun[stream] {
		return executor.RanMaybe
	}
	return executor.RanNo
}

// write sends what others have encoded. What waits is sent together. To a runner that may be asked
// for its last contact it also sends something when there is nothing to send.
func (c *client) write() {
	silent := time.NewTicker(contactEvery)
	defer silent.Stop()
	for {
		var b []byte
		select {
		case b = <-c.out:
		case <-silent.C:
			if c.observed.Load() {
				c.mu.Lock()
				c.pongs = append(c.pongs, make(chan struct{})) // nobody waits for it
				c.mu.Unlock()
				b = wire.Frame{Type: wire.Ping}.Append(nil)
			}
		case <-c.over:
			return
		}
		if b != nil {
			silent.Reset(contactEvery)
			if _, err := c.conn.Write(b); err != nil {
				// The reader may know more: what the runner said before it ended.
				select {
				case <-c.over:
				case <-time.After(time.Second):
					c.ended(&LostError{Err: err})
				}
				return
			}
		}
	}
}

// write1 hands encoded frames to the writer.
func (c *client) write1(ctx context.Context, b []byte) error {
	select {
	case c.out <- b:
		return nil
	case <-c.over:
		return c.failure(executor.RanNo)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read distributes what the runner sends, until the connection ends. It never waits for the user of
// a stream.
func (c *client) read(frames *wire.Reader) {
	for {
		f, err := frames.Next()
		if err == nil {
			err = c.receive(f)
		} else {
			err = &LostError{Err: err, Said: said(frames)}
		}
		if err != nil {
			c.ended(err)
			return
		}
	}
}

func (c *client) receive(f wire.Frame) error {
	switch f.Type {
	case wire.Bye:
		m, err := wire.ParseMap(f.Payload)
		if err != nil {
			return driver.Fail(executor.ErrInternal, executor.RanMaybe, err)
		}
		c.mu.Lock()
		c.begun = map[uint32]bool{}
		for _, n := range m.List("streams") {
			if n, ok := n.(int64); ok {
				c.begun[uint32(n)] = true
			}
		}
		c.mu.Unlock()
		return driver.Fail(byeKind(m.Text("reason")), executor.RanMaybe, errors.New(m.Text("message")))
	case wire.Pong:
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.pongs) > 0 {
			close(c.pongs[0])
			c.pongs = c.pongs[1:]
		}
		return nil
	case wire.Credit, wire.Data, wire.Started, wire.Output, wire.Done, wire.Fail:
		c.mu.Lock()
		s := c.streams[f.Stream]
		c.mu.Unlock()
		if s == nil {
			return nil // its user has given up
		}
		if err := s.receive(f); err != nil {
			return driver.Fail(executor.ErrInternal, executor.RanMaybe, err)
		}
		return nil
	}
	return driver.Fail(executor.ErrInternal, executor.RanMaybe, fmt.Errorf("the runner sent an unexpected %v", f.Type))
}

// Ping waits for an answer of the supervisor.
func (c *client) Ping(ctx context.Context) error {
	pong := make(chan struct{})
	c.mu.Lock()
	c.pongs = append(c.pongs, pong)
	c.mu.Unlock()
	if err := c.write1(ctx, wire.Frame{Type: wire.Ping}.Append(nil)); err != nil {
		return err
	}
	select {
	case <-pong:
		return nil
	case <-c.over:
		return c.failure(executor.RanNo)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reset ends the interpreters that match which, with everything they have started, whoever runs
// something there.
func (c *client) Reset(ctx context.Context, which executor.Interpreter) error {
	_, err := c.ask(ctx, wire.Map{"op": "reset", "language": string(which.Language), "context": which.Context})
	return err
}

// Leave ends the idle interpreters whose code has registered something to be called at their end,
// because the sandbox is about to end.
func (c *client) Leave(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Map{"op": "leave"})
	return err
}

// KeepAlive sets the idle TTL, counts it from now, and returns when the runner will end.
func (c *client) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	m, err := c.ask(ctx, wire.Map{"op": "keepalive", "idle": int64(idle)})
	return expires(m.Int("left")), err
}

// Suspend stops all processes of user code until the next request of any holder, and counts the
// idle TTL from now, whatever runs. A run goes on afterwards. Its wall time does not wait for that:
// a run that is stopped while it is suspended is killed.
func (c *client) Suspend(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Map{"op": "suspend"})
	return err
}

// Status asks the runner. It does not count as use.
func (c *client) Status(ctx context.Context) (status, error) {
	m, err := c.ask(ctx, wire.Map{"op": "status"})
	return status{Expires: expires(m.Int("left")), Runs: int(m.Int("runs")), CPU: time.Duration(max(0, m.Int("cpu")))}, err
}

// AddPaths adds directories to Config.Paths, also for interpreters that are running: they see them
// from their next run on.
func (c *client) AddPaths(ctx context.Context, l executor.Language, dirs ...string) error {
	_, err := c.ask(ctx, wire.Map{"op": "paths", "language": string(l), "paths": wire.List(dirs)})
	return err
}

// ask opens a stream for a question that has one answer.
func (c *client) ask(ctx context.Context, request wire.Map) (wire.Map, error) {
	s, err := c.open(ctx, request)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for {
		f, err := s.frame(ctx)
		if err != nil {
			return nil, err
		}
		if f.Type == wire.Done || f.Type == wire.Fail {
			return answer(f)
		}
	}
}
