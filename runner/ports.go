package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// Dial connects to a port of the sandbox, by the rules of driver.Dialer. It needs Config.Ports.
func (c *client) Dial(ctx context.Context, port int) (executor.Conn, error) {
	s, err := c.open(ctx, wire.Map{"op": "dial", "port": int64(port)})
	if err != nil {
		return nil, err
	}
	f, err := s.frame(ctx)
	if err == nil && f.Type != wire.Started {
		if _, err = answer(f); err == nil {
			err = driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("%v before the connection was made", f.Type))
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	conn := &conn{s: s, port: port}
	conn.life, conn.end = context.WithCancelCause(context.Background()) // until Close
	conn.reading.life, conn.writing.life = conn.life, conn.life
	return conn, nil
}

// conn is a connection to a port of the sandbox.
type conn struct {
	s    *stream
	port int
	life context.Context
	end  context.CancelCauseFunc

	reading, writing deadline
	once             sync.Once

	taking sync.Mutex // held while something is read
	rest   []byte     // was received and not read
	eof    bool

	sending sync.Mutex // held while something is sent
	ended   bool       // nothing may be sent any more
}

var _ executor.Conn = (*conn)(nil)

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.taking.Lock()
	defer c.taking.Unlock()
	ctx := c.reading.context()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	for len(c.rest) == 0 && len(p) > 0 {
		if c.eof {
			return 0, io.EOF
		}
		f, err := c.s.frame(ctx)
		switch {
		case err != nil:
			return 0, err
		case f.Type == wire.Data:
			c.rest, c.eof = f.Payload, f.Flags&wire.End != 0
		case f.Type == wire.Done:
			m, err := answer(f)
			if err == nil && m.Int("reset") != 0 {
				err = driver.Fail(executor.ErrNoServer, executor.RanNo, syscall.ECONNRESET)
			}
			if err != nil {
				return 0, err
			}
			c.eof = true
		default:
			return 0, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("unexpected %v of a connection", f.Type))
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, c.s.consumed(c.life, n)
}

// Write implements net.Conn. What was sent in part cannot be continued.
func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	ctx := c.writing.context()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if c.ended {
		return 0, net.ErrClosed
	}
	if err := c.s.send(ctx, p); err != nil {
		c.ended = true
		if errors.Is(err, errEnded) {
			err = net.ErrClosed
		}
		return 0, err
	}
	return len(p), nil
}

// CloseWrite implements executor.Conn.
func (c *conn) CloseWrite() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	c.ended = true
	return c.s.finish(c.life)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.end(net.ErrClosed)
		c.taking.Lock() // which nobody holds for long now
		defer c.taking.Unlock()
		c.s.close()
	})
	return nil
}

// LocalAddr implements net.Conn. There is no address on this side.
func (c *conn) LocalAddr() net.Addr { return portAddr(0) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return portAddr(c.port) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writing.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { c.reading.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { c.writing.set(t); return nil }

// portAddr is a port of a sandbox.
type portAddr int

func (portAddr) Network() string  { return "sandbox" }
func (a portAddr) String() string { return net.JoinHostPort("sandbox", strconv.Itoa(int(a))) }

// deadline is a time that operations in progress and later ones end at. The zero deadline but for
// life has none.
type deadline struct {
	life context.Context // ends the operations, too

	mu    sync.Mutex
	ctx   context.Context // of the operations; nil: life
	end   context.CancelCauseFunc
	timer *time.Timer
}

// context returns that of an operation that begins.
func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current()
}

// current is context with mu held.
func (d *deadline) current() context.Context {
	if d.ctx == nil {
		d.ctx, d.end = context.WithCancelCause(d.life)
	}
	return d.ctx
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		d.ctx = nil // it has ended, or is about to
	}
	d.timer = nil
	d.current()
	if t.IsZero() {
		return
	}
	over := d.end
	d.timer = time.AfterFunc(time.Until(t), func() { over(os.ErrDeadlineExceeded) })
}
