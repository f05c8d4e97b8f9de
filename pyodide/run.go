package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// resetGrace is how long code may take to stop after a reset before its process is killed. It is a
// little more than the host allows.
const resetGrace = 1500 * time.Millisecond

// run is one execution. Its state follows from the frames, which arrive in a fixed order: given,
// started, output, changed files, the files for the spool, end.
type run struct {
	s    *session
	h    *host
	box  *mailbox
	req  *executor.Request
	emit func(executor.Event) error

	state   runState
	value   wire.Parts // a value whose parts are arriving
	ending  wire.Parts // the end of the code, likewise
	entries []byte     // of changed files
	changed []driver.Changed
	end     driver.Exit // what the host says of it
	shown   bool        // the interpreter was asked for the imports of the code, so earlier code may have seen it
	late    bool        // the wall time is over
	flooded bool        // a value exceeded the limit of all output
	exit    driver.Exit
	input   *stdin

	due        context.Context    // ends with an error when the sandbox should have made its next step; nil: never
	notDue     context.CancelFunc // ends due
	emitFailed bool               // emit has failed and is not called again
	stopErr    error              // why the run is being stopped: the error of emit, or the cause of ctx
	stop       context.Context    // ends when the time to stop is over; before the run is stopped, it is the run's context
	release    context.CancelFunc // ends stop

	resetOnce sync.Once
	resetting chan struct{} // closed by a reset of the session
	done      chan struct{} // closed when the run is over
}

type runState int

const (
	runSent    runState = iota // the code was sent
	runGiven                   // the code is being passed to the interpreter
	runStarted                 // the code runs
	runEnded                   // the code has ended; changed files arrive
	runSynced                  // everything has arrived
)

// Run implements driver.Session.
func (s *session) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if len(req.Code) > maxCode {
		return driver.Exit{}, driver.Fail(executor.ErrTooLarge, executor.RanNo, fmt.Errorf("code of %d bytes, %d are allowed", len(req.Code), maxCode))
	}
	defer s.use()()
	release, err := s.lock(ctx)
	if err != nil {
		return driver.Exit{}, notRun(ctx, err)
	}
	defer release()
	for {
		exit, err := s.try(ctx, req, emit)
		if !errors.Is(err, errLeft) {
			return exit, err
		}
		// In a new process no code has run, so this happens only once.
	}
}

// errLeft says that a process in which earlier code has run is gone, and that its trusted thread
// had not passed the new code to the interpreter. No part of the new code has run, so another
// process may run it.
var errLeft = errors.New("what earlier code has left does not let the next run start")

// try is Run in the current process.
func (s *session) try(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	h, err := s.up(ctx)
	if err != nil {
		return driver.Exit{}, notRun(ctx, err)
	}
	if s.d.cfg.Packages.FromImports {
		if err := s.imports(ctx, h, req.Code); err != nil {
			return driver.Exit{}, notRun(ctx, err)
		}
	}
	r := &run{
		s: s, h: h, req: req, emit: emit, resetting: make(chan struct{}), done: make(chan struct{}),
		shown: s.d.cfg.Packages.FromImports,
		value: wire.Parts{Max: int(min(req.Limits.OutputBytes, wire.MaxOutput)) + 64<<10}, ending: wire.Parts{Max: maxEnd},
	}
	s.mu.Lock()
	r.exit.StateFresh = s.fresh
	s.run, s.fresh = r, false
	s.mu.Unlock()
	defer close(r.done)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run = nil
	}()
	return r.do(ctx)
}

// notRun converts an error from before the code was sent: nothing has run.
func notRun(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return driver.Fail(ctx.Err(), executor.RanNo, err)
	}
	return err
}

// do sends the code and handles its frames until it has ended. Nothing of the run is left when do
// returns: if the end has not arrived, the process is killed.
func (r *run) do(ctx context.Context) (driver.Exit, error) {
	r.box = r.h.open()
	r.stop, r.release, r.notDue = ctx, func() {}, func() {}
	defer func() {
		r.release()
		r.notDue()
	}()
	defer func() {
		if r.state != runSynced {
			r.h.end()
			r.s.spool.abort()
		}
		r.h.close(r.box)
		r.input.close()
	}()
	if err := r.h.allow(r.req.Limits.WallTime); err != nil {
		return r.exit, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	request := wire.RunRequest(r.req)
	request["data"], request["typescript"] = r.req.Code, r.req.Language == executor.TypeScript
	r.within(ctx, r.s.d.patience.start, errNotStarted)
	sending, cancel := context.WithTimeout(ctx, r.s.d.patience.start)
	defer cancel()
	if err := r.h.ask(sending, r.box.id, request); err != nil {
		r.h.kill()
	}
	for r.state != runSynced {
		f, err := r.next(ctx)
		if err == nil {
			err = r.frame(ctx, f)
		}
		if err != nil {
			return r.broken(ctx, err)
		}
	}
	if r.isReset() {
		r.h.end()
		r.exit.StateLost, r.exit.Reason = true, executor.ReasonReset
		return r.exit, r.stopErr
	}
	return r.finish(ctx)
}

var (
	errNotStarted = errors.New("the sandbox did not start the code in time")              // see patience
	errNotSynced  = errors.New("the sandbox did not hand over the changed files in time") // likewise
	errStopTime   = errors.New("the sandbox did not stop the code in time")               // cause of driver.StopContext
)

// within sets the time that the sandbox has for its next step, and the error when that time is
// over.
func (r *run) within(ctx context.Context, d time.Duration, failure error) {
	r.notDue()
	r.due, r.notDue = context.WithTimeoutCause(context.WithoutCancel(ctx), d, failure)
}

// next waits for a frame. If ctx ends, or the session is reset, it tells the host to stop the code,
// and continues to wait.
//
// It checks for pending actions before each frame, so that a host that sends frames continuously
// delays nothing.
func (r *run) next(ctx context.Context) (wire.Frame, error) {
	for {
		ended, resetting := ctx.Done(), r.resetting
		if r.stopErr != nil {
			ended = nil
		}
		var stopped, due <-chan struct{}
		if r.stop != ctx {
			stopped, resetting = r.stop.Done(), nil
		}
		if r.due != nil {
			due = r.due.Done()
		}
		switch {
		case over(ended):
			r.halt(ctx, context.Cause(ctx))
			continue
		case over(resetting):
			r.stop, r.release = context.WithTimeout(context.WithoutCancel(ctx), resetGrace)
			r.interrupt()
			continue
		case over(stopped):
			return wire.Frame{}, errStopTime
		case over(due):
			return wire.Frame{}, context.Cause(r.due)
		}
		if f, ok := r.box.take(); ok {
			return f, nil
		}
		select {
		case <-r.box.bell:
		case <-ended:
		case <-resetting:
		case <-stopped:
		case <-due:
		case <-r.h.dead:
			if f, ok := r.box.take(); ok {
				return f, nil
			}
			return wire.Frame{}, io.EOF
		}
	}
}

// over reports whether a channel is closed. A nil channel is not.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// halt starts to stop the code, because of err.
func (r *run) halt(ctx context.Context, err error) {
	if r.stopErr == nil {
		r.stopErr = err
	}
	if r.stop == ctx {
		r.stop, r.release = driver.StopContext(ctx)
		r.interrupt()
	}
}

func (r *run) interrupt() {
	if r.state < runEnded {
		r.h.send(wire.Frame{Type: wire.Stop, Stream: r.box.id}) //nolint:errcheck // an error means that the process has ended, which is handled elsewhere
	}
}

func (r *run) isReset() bool {
	return over(r.resetting)
}

// reset ends the run and its process.
func (r *run) reset(ctx context.Context) error {
	r.resetOnce.Do(func() { close(r.resetting) })
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wrong says that a working host does not send a frame now.
func (r *run) wrong(f wire.Frame) error {
	return fmt.Errorf("%w: %v in state %d of a run", errFrame, f.Type, r.state)
}

// frame handles one frame. An error means that the run cannot continue.
func (r *run) frame(ctx context.Context, f wire.Frame) error {
	state := runStarted // in which such a frame may come
	switch f.Type {
	case wire.Open:
		state = runSent
	case wire.Started:
		state = runGiven
	case wire.Done:
		state = runEnded
	}
	switch {
	case f.Type == wire.Fail && r.state <= runStarted:
		r.h.kill()
		return nil
	case f.Type == wire.Data && r.state == runEnded:
		return r.s.spool.frame(f)
	case r.state != state:
		return r.wrong(f)
	}
	switch f.Type {
	case wire.Open:
		r.state = runGiven
	case wire.Started:
		m, err := parseMap(f.Payload)
		if err != nil {
			return err
		}
		r.state, r.due = runStarted, nil
		r.pass(ctx, executor.Event{Kind: executor.EventStarted, Cell: int(m.Int("cell"))})
	case wire.Data:
		return r.data(ctx, f)
	case wire.Output:
		return r.output(ctx, f)
	case wire.Credit:
		n, err := wire.ParseCredit(f)
		if r.req.Stdin == nil || err != nil {
			return r.wrong(f)
		}
		if r.input == nil {
			r.input = newStdin(r.h, r.box.id, r.req.Stdin)
		}
		r.input.want(n)
	case wire.Stop:
		r.late = true
	case wire.Done:
		return r.finished(f)
	default:
		return r.wrong(f)
	}
	return nil
}

// data handles output and the names of changed files.
func (r *run) data(ctx context.Context, f wire.Frame) error {
	switch f.Channel {
	case wire.Stdout:
		r.pass(ctx, executor.Event{Kind: executor.EventStdout, Data: f.Payload})
	case wire.Stderr:
		r.pass(ctx, executor.Event{Kind: executor.EventStderr, Data: f.Payload})
	case wire.Entries:
		if r.entries = append(r.entries, f.Payload...); len(r.entries) > maxEnd {
			return fmt.Errorf("%w: names of changed files in %d bytes", errFrame, len(r.entries))
		}
		if f.Flags&wire.End == 0 {
			return nil
		}
		var err error
		if r.changed, err = wire.ParseChanged(r.entries, r.s.spool.maxNodes); err != nil {
			return fmt.Errorf("%w: %w", errFrame, err)
		}
		r.state, r.entries = runEnded, nil
		r.within(ctx, r.s.d.patience.handOver(r.s.opts.disk), errNotSynced)
	default:
		return r.wrong(f)
	}
	return nil
}

// output handles a part of a value. A value that exceeds the limit of all output ends the run
// before it is collected.
func (r *run) output(ctx context.Context, f wire.Frame) error {
	if r.flooded {
		return nil
	}
	payload, err := r.value.Add(f)
	if err != nil {
		r.flooded = true
		r.halt(ctx, nil)
	}
	if payload == nil {
		return nil
	}
	out, err := wire.ParseOutput(payload)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	r.pass(ctx, executor.Event{Kind: executor.EventOutput, Output: out})
	return nil
}

// finished handles a part of the end. Everything has arrived before it.
func (r *run) finished(f wire.Frame) error {
	payload, err := r.ending.Add(f)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if payload == nil {
		return nil
	}
	m, err := parseMap(payload)
	if err != nil {
		return err
	}
	r.end, r.state = m.Exit(), runSynced
	return r.s.spool.commit()
}

// pass passes an event to emit, unless emit has failed.
func (r *run) pass(ctx context.Context, ev executor.Event) {
	if r.emitFailed {
		return
	}
	if err := r.emit(ev); err != nil {
		r.emitFailed, r.stopErr = true, err
		r.halt(ctx, err)
	}
}

// finish returns the Exit of code that has ended while its process lives on.
func (r *run) finish(ctx context.Context) (driver.Exit, error) {
	r.exit.Code, r.exit.LeftRunning, r.exit.Exception = r.end.Code, r.end.LeftRunning, r.end.Exception
	switch {
	case r.stopErr != nil:
		return r.exit, r.stopErr
	case r.flooded:
		r.exit.Reason = executor.ReasonOutput
	case r.late:
		r.exit.Reason = executor.ReasonWallTime
	}
	actx, cancel := context.WithTimeoutCause(ctx, r.s.d.patience.handOver(r.s.opts.disk), errNotSynced)
	defer cancel()
	if r.end.StateLost {
		r.exit.StateLost = true
		defer r.h.end()
	}
	var err error
	r.exit.Artifacts, r.exit.ArtifactsOmitted, err = r.s.artifacts(actx, r.h, r.req.Artifacts, r.changed)
	if err != nil && ctx.Err() == nil && (actx.Err() != nil || r.h.isDead()) {
		return r.broken(ctx, err) // caused by code that was left running
	}
	return r.exit, err
}

// broken returns the Exit of a run whose process has ended, or is killed now because it broke the
// protocol or a time limit.
func (r *run) broken(ctx context.Context, cause error) (driver.Exit, error) {
	r.h.end()
	why := r.h.reason()
	if why == nil || !errors.Is(cause, io.EOF) {
		why = cause
	}
	if r.state == runSent && !r.shown && !r.exit.StateFresh && r.stopErr == nil && ctx.Err() == nil && !r.isReset() {
		return r.exit, errLeft
	}
	if r.state < runStarted && r.stopErr == nil {
		if r.exit.StateFresh || ctx.Err() != nil {
			return r.exit, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, fmt.Errorf("before the code had started: %w", why))
		}
		// The code may have run, and earlier code may be the reason why that is not known. So it is
		// not a failure of the infrastructure.
		r.state = runStarted
		r.pass(ctx, executor.Event{Kind: executor.EventStarted})
	}
	if r.stopErr == nil && ctx.Err() != nil {
		r.stopErr = context.Cause(ctx) // both happened at once, for example by Close
	}
	r.exit.Code, r.exit.StateLost, r.exit.FilesLost = -1, true, r.s.spool.err != nil
	if r.stopErr != nil {
		return r.exit, r.stopErr // the process is gone, so the code has stopped
	}
	r.s.expire()
	r.s.mu.Lock()
	ended := r.s.ended != ""
	r.s.mu.Unlock()
	switch {
	case r.isReset():
		r.exit.Reason = executor.ReasonReset
	case ended:
		r.exit.Reason, r.exit.FilesLost = executor.ReasonLifetime, true
	case r.flooded:
		r.exit.Reason = executor.ReasonOutput
	case r.late || r.h.outOfCPU() || r.h.exitCode() == exitLeft:
		r.exit.Reason = executor.ReasonWallTime
	case r.h.outOfMemory():
		r.exit.Reason = executor.ReasonMemory
	default:
		r.exit.Reason = executor.ReasonSandbox
	}
	if r.s.d.env.Log != nil {
		r.s.d.env.Log.Info("pyodide: the process of a session has ended", "session", r.s.id, "reason", r.exit.Reason, "cause", why)
	}
	return r.exit, nil
}
