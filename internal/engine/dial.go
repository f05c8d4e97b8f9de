package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// portsAsked is the value of LabelPorts.
const portsAsked = "yes"

var errForwards = errors.New("the session has as many connections open as it may; close one")

// Dial implements executor.Session.
func (s *session) Dial(ctx context.Context, port int) (executor.Conn, error) {
	f := &forward{call: call{x: s.x, s: s}}
	err := f.begin(context.WithoutCancel(ctx), executor.Op{Name: "dial", Session: s.id}) // the end of ctx does not end the connection
	if err == nil {
		err = f.connect(ctx, port)
	}
	if err != nil {
		err = f.end(err)
		f.leave()
		return nil, err
	}
	f.left.Store(executor.MaxForwardBytes)
	f.expire = time.AfterFunc(executor.MaxForwardTime, f.shut)
	f.forget = context.AfterFunc(f.ctx, f.shut)
	return f, nil
}

// forward is a connection of a caller to a port of the sandbox.
type forward struct {
	executor.Conn
	call
	held   bool
	left   atomic.Int64 // bytes that may pass yet
	used   atomic.Int64 // when its provider was last told of the use, in Unix nanoseconds
	expire *time.Timer
	forget func() bool // stops waiting for the end of the session
	once   sync.Once
	over   atomic.Bool
	closed error
}

// connect opens the connection.
func (f *forward) connect(ctx context.Context, port int) error {
	if err := ctx.Err(); err != nil {
		return Fail(err, executor.RanNo, nil)
	}
	if err := f.s.lacks(executor.FeaturePorts); err != nil {
		return err
	}
	if err := executor.CheckPort(port); err != nil {
		return err
	}
	if err := f.s.acquireForward(); err != nil {
		return err
	}
	f.held = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.ctx, func() { cancel(context.Cause(f.ctx)) })() // the session was closed
	if err := f.use(ctx); err != nil {
		return err
	}
	return f.x.attempt(&call{x: f.x, op: f.op, ctx: ctx}, f.x.o.StartTimeout, func(ctx context.Context) (err error) {
		f.Conn, err = f.s.box.Dial(ctx, port)
		return err
	})
}

// use counts as use of the sandbox, now and then where its provider has to be told.
func (f *forward) use(ctx context.Context) error {
	now := time.Now()
	last := f.used.Load()
	if f.s.expiry.fixed && now.Sub(time.Unix(0, last)) > f.s.idleTTL()/8 && f.used.CompareAndSwap(last, now.UnixNano()) {
		done, err := f.s.outlive(ctx, 0)
		if err == nil {
			done()
		}
		return err
	}
	return nil
}

// spend takes n bytes off what may pass. A connection with nothing left is closed.
func (f *forward) spend(n int) {
	if f.left.Add(int64(-n)) <= 0 {
		f.shut()
	}
}

// Read implements net.Conn.
func (f *forward) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p[:min(int64(len(p)), max(f.left.Load(), 0))])
	f.spend(n)
	return n, f.fail(err)
}

// Write implements net.Conn.
func (f *forward) Write(p []byte) (int, error) {
	if err := f.use(f.ctx); err != nil {
		return 0, f.fail(err)
	}
	most := min(int64(len(p)), max(f.left.Load(), 0))
	n, err := f.Conn.Write(p[:most])
	f.spend(n)
	if err == nil && n < len(p) {
		err = net.ErrClosed
	}
	return n, f.fail(err)
}

// fail completes an error. What the standard library looks for in errors of connections stays as it
// is, and one that this side has ended is closed, whatever the driver makes of that.
func (f *forward) fail(err error) error {
	switch {
	case err == nil:
		return nil
	case f.over.Load(), f.ctx.Err() != nil: // shut and the end of the session are concurrent: the sandbox may have ended the connection first
		return net.ErrClosed
	case err == io.EOF, errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return f.x.fail(f.ctx, f.op.Name, f.s.id, true, err)
}

// Close implements net.Conn. Further calls return what the first did.
func (f *forward) Close() error {
	f.expire.Stop()
	f.forget()
	f.shut()
	return f.closed
}

func (f *forward) shut() {
	f.once.Do(func() {
		defer f.leave()
		f.over.Store(true)
		f.closed = f.end(f.Conn.Close())
	})
}

// leave ends the operation.
func (f *forward) leave() {
	if f.held {
		f.s.releaseForward()
	}
	f.finish()
}
