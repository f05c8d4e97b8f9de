package engine

import (
	"context"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// call is an operation in progress. Its zero value but for x and s is ready for begin.
type call struct {
	x      *exec
	s      *session // nil: of the Executor
	op     executor.Op
	ctx    context.Context
	cancel context.CancelCauseFunc // nil: a clean-up, which Close does not cancel

	entered bool
	ended   bool // the operation has returned, and not panicked
	hook    func(executor.Outcome)
	began   time.Time
	out     executor.Outcome // for the hook
}

// begin starts an operation: hooks, dead contexts, closed states. Whatever it returns, finish must
// follow.
func (c *call) begin(ctx context.Context, op executor.Op) error {
	c.began, c.op = time.Now(), op
	c.ctx, c.hook = c.x.hook(ctx, op)
	if err := c.ctx.Err(); err != nil {
		return Fail(err, executor.RanNo, nil)
	}
	c.ctx, c.cancel = context.WithCancelCause(c.ctx)
	if err := c.x.calls.enter(c, false); err != nil {
		return err
	}
	if c.s != nil {
		if err := c.s.calls.enter(c, true); err != nil {
			c.x.calls.leave(c)
			return err
		}
	}
	c.entered = true
	return nil
}

// beginCleanUp starts an operation that works on what is closed and that nothing cancels.
func (c *call) beginCleanUp(ctx context.Context, op executor.Op) {
	c.began, c.op = time.Now(), op
	c.ctx, c.hook = c.x.hook(ctx, op)
	c.entered, c.ended = c.x.calls.enter(c, false) == nil, true // it is always let in
}

// errPanicked is what hooks see of an operation that a panic has ended, of the driver or of a
// function of the caller.
var errPanicked = errors.New("a panic ended the operation")

// finish ends the operation. It is called by defer.
func (c *call) finish() {
	if !c.ended {
		c.out.Err = &executor.Error{Op: c.op.Name, Backend: c.x.env.Name, Session: c.op.Session, Kind: executor.ErrInternal, Err: errPanicked}
	}
	if c.cancel != nil {
		c.cancel(nil)
	}
	if c.entered {
		if c.s != nil {
			c.s.calls.leave(c)
		}
		c.x.calls.leave(c)
	}
	if c.out.Status == "" {
		c.out.Duration = time.Since(c.began)
	}
	c.hook(c.out)
}

// end notes how the operation ended and returns the error for the caller. No user code runs in it.
func (c *call) end(err error) error {
	if err != nil {
		err = c.x.fail(c.ctx, c.op.Name, c.op.Session, true, err)
	}
	if c.ended = true; err != nil { // the hook may have an error of a part already
		c.out.Err = err
	}
	return err
}

// do does a whole operation in which no user code runs.
func (x *exec) do(ctx context.Context, op executor.Op, f func(c *call) error) error {
	c := &call{x: x}
	defer c.finish()
	err := c.begin(ctx, op)
	if err == nil {
		err = f(c)
	}
	return c.end(err)
}

// do does a whole operation of a session in which no user code runs. If need is not empty, it is
// refused unless the session has it.
func (s *session) do(ctx context.Context, name string, need executor.Feature, f func(ctx context.Context) error) error {
	c := &call{x: s.x, s: s}
	defer c.finish()
	err := c.begin(ctx, executor.Op{Name: name, Session: s.id})
	if err == nil {
		err = s.lacks(need)
	}
	if err == nil {
		err = f(c.ctx)
	}
	return c.end(err)
}

// hook tells the program that an operation begins. The function is for its end.
func (x *exec) hook(ctx context.Context, op executor.Op) (context.Context, func(executor.Outcome)) {
	op.Layer, op.Backend, op.Type = "backend", x.env.Name, x.o.Type
	return x.env.Hooks.Start(ctx, op)
}
