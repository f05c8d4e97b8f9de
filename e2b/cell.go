package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Run implements driver.Session.
func (n *notebook) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	switch {
	case len(req.Command) > 0:
		return n.runnerSession.Run(ctx, req, emit)
	case ctx.Err() != nil:
		return driver.Exit{}, context.Cause(ctx)
	}
	which := executor.Interpreter{Language: req.Language, Context: req.Context}
	l, noted, err := n.lease(ctx, which, req)
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	defer l.end(ctx)
	c := &cell{n: n, l: l, req: req, ctx: ctx, emit: emit}
	exit, err := c.run(which, noted)
	if exit.FilesLost {
		return exit, err // what the lease has said
	}
	l.end(ctx)
	exit.StateLost = exit.StateLost || l.alone()
	exit.Artifacts, exit.ArtifactsOmitted = l.exit.Artifacts, l.exit.ArtifactsOmitted
	if err == nil && l.err != nil && req.Artifacts != nil {
		err = c.fail(l.err)
	}
	return exit, err
}

// cell is a run in a context. Only the goroutine that called Run uses it.
type cell struct {
	n    *notebook
	l    *lease
	k    *kernel
	x    *execution
	req  *executor.Request
	ctx  context.Context // of the caller
	emit func(executor.Event) error

	sent    bool // the code may have run
	started bool
	emitErr error
	failure *codeError
}

// ran returns whether the code has run, as far as that is known.
func (c *cell) ran() executor.Ran {
	switch {
	case c.started:
		return executor.RanYes
	case c.sent:
		return executor.RanMaybe
	}
	return executor.RanNo
}

// fail makes an error of what went wrong on the way.
func (c *cell) fail(err error) error {
	var e *executor.Error
	var said *ServiceError
	switch {
	case errors.As(err, &e):
		return driver.Fail(e.Kind, c.ran(), e.Err)
	case !c.started && errors.As(err, &said) && said.Status == http.StatusTooManyRequests:
		return &executor.Error{Kind: executor.ErrExhausted, Ran: c.ran(), RetryAfter: said.RetryAfter, Err: fmt.Errorf("running code: %w", said)}
	case !c.sent && c.ctx.Err() != nil:
		err = context.Cause(c.ctx)
	}
	return driver.Fail(executor.ErrUnavailable, c.ran(), fmt.Errorf("running code: %w", err))
}

// run runs the code. noted is what the lease says of the context.
func (c *cell) run(which executor.Interpreter, noted note) (exit driver.Exit, err error) {
	// The lease tells when there is no sense in waiting for the rest.
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.l.live, func() { cancel(errLease) })()
	leave := false
	for try := 0; ; try++ {
		if leave, err = c.open(ctx, which, noted); err == nil {
			break
		}
		if noted = (note{}); try > 0 || !errors.Is(err, errNoContext) {
			return c.prevented(err)
		}
	}
	defer c.abandon() // if emit panics
	exit, err = c.follow()
	c.x.close()
	if leave && !c.k.settled {
		if _, lerr := c.n.hidden(c.ctx, c.k, ""); lerr != nil {
			c.k.suspect = true // the next run finds out, and takes back what this one has set
		}
	}
	return exit, err
}

// open sends the code to its context. leave reports whether settings have to be undone after it.
func (c *cell) open(ctx context.Context, which executor.Interpreter, noted note) (leave bool, err error) {
	if c.k, err = c.n.find(ctx, which, noted); err != nil {
		return false, err
	}
	c.k.settled = false
	if leave, err = c.n.enter(ctx, c.k, c.req, c.k.fresh()); err == nil {
		c.sent = true
		if c.x, err = c.n.code.execute(ctx, c.k.id, "", c.req.Code); err == nil {
			return leave, nil
		}
		c.sent = !undelivered(err) && !errors.Is(err, errNoContext)
	}
	c.k.suspect = true
	if c.sent && ctx.Err() != nil { // it may run all the same
		sctx, cancel := driver.StopContext(c.ctx)
		defer cancel()
		_, serr := c.n.settle(sctx, c.k)
		err = errors.Join(err, serr)
	}
	return leave, err
}

// errLease is the cause for calls that stop because the lease has ended.
var errLease = errors.New("the supervisor has ended the run")

// prevented says why the code was not executed, as far as is known.
func (c *cell) prevented(err error) (driver.Exit, error) {
	if c.l.over() && !c.sent {
		return driver.Exit{Code: -1}, c.l.why()
	}
	return driver.Exit{Code: -1}, c.fail(err)
}

// abandon stops the code if follow has not come to an end.
func (c *cell) abandon() {
	if c.x.left.Err() == nil {
		_, _ = c.stop() // the panic goes on
	}
}

// stop ends the code, and reports whether the state is lost.
func (c *cell) stop() (lost bool, err error) {
	c.x.close()
	ctx, cancel := driver.StopContext(c.ctx)
	defer cancel()
	if c.l.alone() {
		c.k.suspect, c.k.settled = true, true
		return true, c.n.drop(ctx, c.k, true) // a lease may have been deceived
	}
	return c.n.settle(ctx, c.k)
}

// stopped is the end of code that was stopped, for a reason or with an error.
func (c *cell) stopped(reason executor.Reason, cause error) (driver.Exit, error) {
	lost, err := c.stop()
	exit := driver.Exit{Code: -1, StateLost: lost}
	switch {
	case err != nil:
		return exit, driver.Fail(executor.ErrUnavailable, c.ran(), errors.New("the run did not end when it was stopped"))
	case c.emitErr != nil:
		return exit, c.emitErr
	case reason == "":
		return exit, cause
	}
	exit.Reason = reason
	return exit, nil
}

// beginTime is how long a kernel may take to say that code has begun. After that the code has begun
// and holds the lock of its interpreter: the headers of the answer say that the code was accepted,
// and nothing runs before it.
const beginTime = 5 * time.Second

// goneTime is how long the code interpreter may take to report that the process of a context has
// ended, and to send its last output.
const goneTime = 4 * time.Second

// follow passes on the events of the code until its end. The wall time counts from the headers of
// the answer: code that holds the lock of its interpreter from the beginning keeps the kernel from
// saying that it has begun.
func (c *cell) follow() (driver.Exit, error) {
	wall := time.NewTimer(c.req.Limits.WallTime)
	defer wall.Stop()
	if c.req.Limits.WallTime == executor.NoLimit {
		wall.Stop()
	}
	begun := time.NewTimer(beginTime)
	defer begun.Stop()
	dead := time.NewTimer(goneTime)
	dead.Stop()
	defer dead.Stop()
	gone := c.l.gone
	for {
		select {
		case h := <-c.x.events:
			c.x.took(h)
			over, err := c.event(h)
			switch {
			case c.emitErr != nil:
				return c.stopped("", nil)
			case errors.Is(err, errLongLine) && c.started: // a value that goes beyond every limit
				return c.stopped(executor.ReasonOutput, nil)
			case err != nil:
				return c.broken(err)
			case over:
				c.x.drain(c.ctx)
				return c.verdict()
			}
		case <-c.ctx.Done():
			c.rest()
			return c.stopped("", context.Cause(c.ctx))
		case <-wall.C:
			c.rest()
			c.starts(c.k.cell() + 1)
			return c.stopped(executor.ReasonWallTime, nil)
		case <-begun.C:
			if c.starts(c.k.cell() + 1); c.emitErr != nil {
				return c.stopped("", nil)
			}
		case <-gone:
			gone = nil
			dead.Reset(goneTime)
		case <-dead.C:
			c.starts(c.k.cell() + 1)
			return c.stopped(executor.ReasonSandbox, nil)
		case <-c.l.live.Done():
			return c.ended()
		}
	}
}

// rest passes on what has come already.
func (c *cell) rest() {
	for {
		select {
		case h := <-c.x.events:
			c.x.took(h)
			if over, err := c.event(h); over || err != nil || c.emitErr != nil {
				return
			}
		default:
			return
		}
	}
}

// event handles an event. over says that it was the last.
func (c *cell) event(h heard) (over bool, err error) {
	if h.err != nil {
		return false, h.err
	}
	switch h.kind {
	case evStarted:
		c.k.begins(h.count)
	case evStdout, evStderr, evResult, evError, evEnd: // empty code does not begin
	default:
		return false, nil
	}
	c.starts(c.k.cell())
	switch h.kind {
	case evStdout:
		c.pass(executor.Event{Kind: executor.EventStdout, Data: h.text})
	case evStderr:
		c.pass(executor.Event{Kind: executor.EventStderr, Data: h.text})
	case evResult:
		c.pass(executor.Event{Kind: executor.EventOutput, Output: h.out})
	case evError:
		if c.failure == nil || !services[c.failure.name] {
			c.failure = &h.fail
		}
	}
	return h.kind == evEnd, nil
}

// starts passes on that the code has begun, if that was not known.
func (c *cell) starts(number int) {
	if !c.started {
		c.started = true
		c.pass(executor.Event{Kind: executor.EventStarted, Cell: number})
	}
}

func (c *cell) pass(e executor.Event) {
	if c.emitErr == nil {
		c.emitErr = c.emit(e)
	}
}

// services are errors that the code interpreter reports itself when a kernel fails. They have no
// traceback.
var services = map[string]bool{"ContextRestarting": true, "WebSocketError": true, "UnexpectedEndOfExecution": true, "ExecutionAborted": true}

// verdict returns the exit of code that came to an end.
func (c *cell) verdict() (driver.Exit, error) {
	exit := driver.Exit{StateFresh: c.k.cell() == 1}
	f := c.failure
	if f == nil {
		return exit, nil
	}
	if services[f.name] && strings.TrimSpace(f.traceback) == "" {
		return c.died(exit, f)
	}
	// JavaScript that ends its process says the same, by what the adapter has put into it, without
	// a stack.
	if f.name == "SystemExit" && (c.req.Language == executor.Python || strings.TrimSpace(f.traceback) == "") {
		return c.exited(exit, f.value)
	}
	exit.Code = -1
	if hasExitCode(c.req.Language) {
		exit.Code = 1
	}
	trace := f.trace()
	exit.Exception = &executor.Exception{Type: f.name, Message: f.value, Traceback: trace, Line: c.line(trace)}
	return exit, nil
}

// exited returns the exit of code that has named an exit code.
func (c *cell) exited(exit driver.Exit, value string) (driver.Exit, error) {
	switch n, err := strconv.Atoi(value); {
	case value == "" || value == "None":
	case err == nil:
		exit.Code = n & 0xff
	default:
		exit.Code = 1
		c.pass(executor.Event{Kind: executor.EventStderr, Data: []byte(value + "\n")})
	}
	return exit, c.emitErr
}

// died returns the exit of code whose kernel has ended under it. The service does not say why it
// did.
func (c *cell) died(exit driver.Exit, f *codeError) (driver.Exit, error) {
	ctx, cancel := driver.StopContext(c.ctx)
	defer cancel()
	lost, err := c.n.settle(ctx, c.k)
	if c.l.over() {
		return c.ended()
	}
	exit.Code, exit.StateLost = -1, lost
	if err == nil && f.name == "ContextRestarting" {
		exit.Reason = executor.ReasonSandbox
		return exit, nil
	}
	return exit, driver.Fail(executor.ErrUnavailable, executor.RanYes, fmt.Errorf("the code interpreter says %s: %s", f.name, printable(f.value, maxMessage)))
}

// ended is the end of a run whose lease has ended before it.
func (c *cell) ended() (driver.Exit, error) {
	exit := c.l.exit
	exit.Code, exit.Exception = -1, nil
	if c.l.err == nil && exit.FilesLost { // the sandbox is gone
		c.x.close()
		return exit, nil
	}
	lost, err := c.stop()
	exit.StateLost = exit.StateLost || lost
	switch {
	case c.l.err != nil:
		return exit, c.fail(c.l.err)
	case err != nil && exit.Reason != executor.ReasonReset: // which ends the context as well
		return exit, c.fail(err)
	case exit.Reason == "":
		return exit, driver.Fail(executor.ErrUnavailable, c.ran(), errLease)
	case exit.Reason == executor.ReasonSignal: // that of the lease, which the code has killed with its own kernel
		exit.Reason, exit.Signal = executor.ReasonSandbox, ""
	}
	return exit, nil
}

// broken is the end of a stream that did not say how the code ended. If the sandbox has gone with
// it, that is what happened.
func (c *cell) broken(cause error) (driver.Exit, error) {
	c.x.close()
	c.k.suspect = true
	if errors.Is(cause, io.EOF) {
		cause = errTruncated
	}
	c.l.end(c.ctx)
	if c.l.err == nil && c.l.exit.FilesLost {
		return c.ended()
	}
	return driver.Exit{Code: -1}, c.fail(cause)
}

// drain waits for the end of a stream whose last event has come, so that its connection can be used
// again.
func (x *execution) drain(ctx context.Context) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	for {
		select {
		case h, ok := <-x.events:
			x.took(h)
			if !ok || h.err != nil {
				return
			}
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
