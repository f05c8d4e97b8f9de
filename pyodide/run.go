package pyodide

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

const (
	// maxEnd bounds the JSON of runEnd: an exception and the names of changed files.
	maxEnd = 16 << 20
	// resetGrace is how long code may take to stop after a reset before its process is killed. It
	// is a little more than the host allows.
	resetGrace = 1500 * time.Millisecond
)

// runRequest is the header of toRun.
type runRequest struct {
	Dir     string            `json:"dir"`
	Env     map[string]string `json:"env"`
	Changes bool              `json:"changes"` // report the files that the run changes
	Linger  float64           `json:"linger"`  // how many seconds the run waits for what it has started; -1: forever
	Types   bool              `json:"types"`   // the code is TypeScript
}

// runEnd says how the code ended.
type runEnd struct {
	ExitCode  int `json:"exit_code"`
	Exception *struct {
		Type      string `json:"type"`
		Message   string `json:"message"`
		Traceback string `json:"traceback"`
		Line      int    `json:"line"`
	} `json:"exception"`
	Interrupted bool         `json:"interrupted"`
	Exited      bool         `json:"exited"` // the code has ended its interpreter
	Changes     []runChanged `json:"changes"`
	Left        []string     `json:"left"` // names of what still runs
}

// runChanged is a file that a run changed: its name, size and time of modification in ns.
type runChanged struct {
	name  string
	size  int64
	mtime int64
}

// UnmarshalJSON decodes a list of three.
func (c *runChanged) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&c.name, &c.size, &c.mtime})
}

// run is one execution. Its state follows from the frames, which arrive in a fixed order: given,
// started, output, end, files, synced.
type run struct {
	s    *session
	h    *host
	box  *mailbox
	req  *executor.Request
	emit func(executor.Event) error

	state   runState
	value   parts // a value whose parts are arriving
	ending  parts // the end of the code, likewise
	shown   bool  // the interpreter was asked for the imports of the code, so earlier code may have seen it
	late    bool  // the wall time is over
	flooded bool  // a value exceeded the limit of all output
	end     runEnd
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
		value: parts{max: int(min(req.Limits.OutputBytes, maxBundle)) + 64<<10}, ending: parts{max: maxEnd},
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
	wall := -1.0
	if w := r.req.Limits.WallTime; w != executor.NoLimit {
		wall = float64(w) / float64(time.Millisecond)
	}
	if err := r.h.allow(r.req.Limits.WallTime); err != nil {
		return r.exit, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	head := binary.LittleEndian.AppendUint64(nil, math.Float64bits(wall))
	if r.req.Stdin != nil {
		head = append(head, 1)
	} else {
		head = append(head, 0)
	}
	linger := -1.0
	if r.req.Linger != nil {
		linger = r.req.Linger.Seconds()
	}
	request := envelope(runRequest{Dir: r.req.Dir, Env: r.req.Env, Changes: r.req.Artifacts != nil, Linger: linger, Types: r.req.Language == executor.TypeScript})
	r.within(ctx, r.s.d.patience.start, errNotStarted)
	sending, cancel := context.WithTimeout(ctx, r.s.d.patience.start)
	defer cancel()
	if err := r.h.ask(sending, toRun, r.box.id, head, request, []byte(r.req.Code)); err != nil {
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
func (r *run) next(ctx context.Context) (frame, error) {
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
			return frame{}, errStopTime
		case over(due):
			return frame{}, context.Cause(r.due)
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
			return frame{}, io.EOF
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
		r.h.send(toInterrupt, r.box.id) //nolint:errcheck // an error means that the process has ended, which is handled elsewhere
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

// frame handles one frame. An error means that the run cannot continue.
func (r *run) frame(ctx context.Context, f frame) error {
	wrong := func() error { return fmt.Errorf("%w: type %d in state %d of a run", errFrame, f.typ, r.state) }
	switch f.typ {
	case fromGiven:
		if r.state != runSent {
			return wrong()
		}
		r.state = runGiven
		return nil
	case fromStarted:
		if r.state != runGiven || len(f.payload) != 4 {
			return wrong()
		}
		r.state, r.due = runStarted, nil
		r.pass(ctx, executor.Event{Kind: executor.EventStarted, Cell: int(binary.LittleEndian.Uint32(f.payload))})
		return nil
	case fromStuck:
		if r.state > runStarted {
			return wrong()
		}
		r.h.kill()
		return nil
	case fromFile, fromData, fromSynced:
		if r.state != runEnded {
			return wrong()
		}
		if f.typ != fromSynced {
			return r.s.spool.frame(f)
		}
		r.state = runSynced
		return r.s.spool.commit()
	}
	if r.state != runStarted {
		return wrong()
	}
	switch f.typ {
	case fromStdout:
		r.pass(ctx, executor.Event{Kind: executor.EventStdout, Data: f.payload})
	case fromStderr:
		r.pass(ctx, executor.Event{Kind: executor.EventStderr, Data: f.payload})
	case fromOutput:
		return r.output(ctx, f.payload)
	case fromWant:
		if r.req.Stdin == nil || len(f.payload) != 4 {
			return wrong()
		}
		if r.input == nil {
			r.input = newStdin(r.h, r.box.id, r.req.Stdin)
		}
		r.input.want(int(binary.LittleEndian.Uint32(f.payload)))
	case fromLate:
		r.late = true
	case fromEnd:
		msg, err := r.ending.add(f.payload)
		if err != nil || msg == nil {
			return err
		}
		if err := json.Unmarshal(msg, &r.end); err != nil {
			return fmt.Errorf("%w: %w", errFrame, err)
		}
		if len(r.end.Changes) > r.s.spool.maxNodes {
			return fmt.Errorf("%w: %d changed files, which is more than there can be", errFrame, len(r.end.Changes))
		}
		r.state = runEnded
		r.within(ctx, r.s.d.patience.handOver(r.s.opts.disk), errNotSynced)
	default:
		return wrong()
	}
	return nil
}

// output handles a part of a value. A value that exceeds the limit of all output ends the run
// before it is collected.
func (r *run) output(ctx context.Context, payload []byte) error {
	if r.flooded {
		return nil
	}
	msg, err := r.value.add(payload)
	if errors.Is(err, errTooLong) {
		r.flooded, r.value.buf = true, nil
		r.halt(ctx, nil)
		return nil
	}
	if err != nil || msg == nil {
		return err
	}
	out, err := decodeBundle(msg)
	if err != nil {
		return err
	}
	r.pass(ctx, executor.Event{Kind: executor.EventOutput, Output: out})
	return nil
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
	r.exit.Code, r.exit.LeftRunning = r.end.ExitCode, r.end.Left
	if e := r.end.Exception; e != nil {
		r.exit.Exception = &executor.Exception{Type: e.Type, Message: e.Message, Traceback: e.Traceback, Line: max(e.Line, 0)}
	}
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
	if r.end.Exited {
		r.exit.StateLost = true
		defer r.h.end()
	}
	var err error
	r.exit.Artifacts, r.exit.ArtifactsOmitted, err = r.s.artifacts(actx, r.h, r.req.Artifacts, r.end.Changes)
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
