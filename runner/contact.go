package runner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// Observer is implemented by sandboxes whose runner can be asked, without a change to the sandbox,
// when it last received something from a holder. It is not implemented where code has the user of
// the runner, and could pose as a holder.
type Observer interface {
	// Observe is Connect for a process that only asks. It neither wakes a suspended sandbox nor
	// prolongs its life: where it would, it fails with executor.ErrUnsupported.
	Observe(ctx context.Context, command []string) (io.ReadWriteCloser, error)
}

// contactEvery is how often a holder says something to a runner that an Observer may ask.
const contactEvery = 20 * time.Second

// observe makes a client say something every contactEvery, if its sandbox is an Observer.
func (c *client) observe(box Sandbox) {
	_, ok := box.(Observer)
	c.observed.Store(ok)
}

var errUnobserved = errors.New("the runner cannot be asked without a change to the sandbox, or code could answer in its place")

// LastContact implements driver.Observer.
func (f *finder) LastContact(ctx context.Context, h executor.Handle) (time.Time, error) {
	box, _, err := f.find(ctx, h)
	if err != nil {
		return time.Time{}, err
	}
	o, ok := box.(Observer)
	if !ok {
		return time.Time{}, driver.Fail(executor.ErrUnsupported, executor.RanNo, errUnobserved)
	}
	actx, cancel := f.answer(ctx)
	defer cancel()
	conn, err := o.Observe(actx, bridgeCommand(f.o.Python, f.socket(h.Session)))
	var since time.Duration
	if err == nil {
		since, err = sinceContact(actx, conn)
	}
	if err != nil {
		return time.Time{}, f.unreachable(ctx, box, err)
	}
	return time.Now().Add(-since), nil
}

// sinceContact asks a runner how long ago it received something from a holder. A Ping in the place
// of a Hello is such a question. A runner of an earlier version ends the connection.
func sinceContact(ctx context.Context, conn io.ReadWriteCloser) (time.Duration, error) {
	end := sync.OnceFunc(func() { conn.Close() })
	defer end()
	defer context.AfterFunc(ctx, end)()
	frames := wire.NewReader(conn)
	_, err := conn.Write(wire.Frame{Type: wire.Ping}.Append(nil))
	var f wire.Frame
	if err == nil {
		f, err = frames.Next()
	}
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil && errors.As(err, new(*executor.Error)):
		return 0, err // the stream knows better
	case err != nil:
		return 0, driver.Fail(executor.ErrUnavailable, executor.RanNo, &LostError{Err: err, Said: said(frames)})
	case f.Type == wire.Bye:
		m, err := wire.ParseMap(f.Payload)
		if err != nil {
			return 0, driver.Fail(executor.ErrInternal, executor.RanNo, err)
		}
		return 0, driver.Fail(byeKind(m.Text("reason")), executor.RanNo, errors.New(m.Text("message")))
	case f.Type != wire.Pong || len(f.Payload) != 8:
		return 0, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the runner answered a ping with %v of %d bytes", f.Type, len(f.Payload)))
	}
	return time.Duration(binary.BigEndian.Uint64(f.Payload) & (1<<63 - 1)), nil
}
