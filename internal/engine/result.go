package engine

import (
	"context"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// result makes of what the driver says the Result and the error of the run.
func (r *run) result(exit Exit, err error) (*executor.Result, error) {
	r.timer.Stop()
	if r.started.IsZero() {
		return nil, r.end(r.unstarted(err))
	}
	r.flush()
	exit = exit.bounded()
	r.fill(&exit)
	r.res.Status, r.res.Reason, err = r.verdict(&exit, err)
	if s := r.res.Status; s == executor.StatusOK || s == executor.StatusFailed {
		r.res.ExitCode = r.exitCode(&exit)
	} else if r.res.Reason == executor.ReasonSignal {
		r.res.Signal = exit.Signal
	}
	r.out = executor.Outcome{Status: r.res.Status, Queued: r.res.Queued, Duration: r.res.Duration, Origin: r.res.Origin}
	return &r.res, r.end(err)
}

// refused ends a run whose code was not sent.
func (r *run) refused(err error) error { return r.call.end(err) }

// end notes how the run ended and returns the error for the caller. An error of the caller's emit
// is returned as it is.
func (r *run) end(err error) error {
	if err != nil && r.emitErr == nil {
		err = r.x.fail(r.caller, r.op.Name, r.s.id, false, err)
	}
	r.out.Err, r.ended = err, true
	return err
}

// unstarted says why the code is not known to have started.
func (r *run) unstarted(err error) error {
	switch cause := context.Cause(r.ctx); {
	case err == nil:
		return Fail(executor.ErrInternal, executor.RanMaybe, errors.New("the driver has reported an end without a start"))
	case cause == errStart:
		return Fail(executor.ErrUnavailable, ranOf(err), errStart)
	case cause == errClosed:
		return Fail(executor.ErrClosed, ranOf(err), nil)
	}
	return err
}

// flush passes on the bytes that were carried in case a character goes on. After the output limit
// it probably would have.
func (r *run) flush() {
	for _, s := range []struct {
		kind executor.EventKind
		*stream
	}{{executor.EventStdout, &r.stdout}, {executor.EventStderr, &r.stderr}} {
		if s.n == 0 || r.emitErr != nil || r.over {
			continue
		}
		rest := append([]byte(nil), s.carry[:s.n]...)
		s.n = 0
		s.write(rest)
		r.pass(executor.Event{Kind: s.kind, Data: rest})
	}
}

// fill fills in all of the Result but the verdict.
func (r *run) fill(exit *Exit) {
	res := &r.res
	res.ID, res.ExitCode = r.req.ID, -1
	res.Started, res.Queued, res.Duration = r.started, r.started.Sub(r.began), time.Since(r.started)
	res.Origin = executor.Origin{Backend: r.x.env.Name, Session: r.s.id}
	res.Exception, res.Usage, res.LeftRunning = exit.Exception, exit.Usage, exit.LeftRunning
	res.StateFresh, res.StateLost, res.FilesLost = exit.StateFresh, exit.StateLost, exit.FilesLost
	if r.req.Artifacts != nil {
		res.Artifacts, res.ArtifactsOmitted = exit.Artifacts, exit.ArtifactsOmitted
	}
	var gap *executor.Gap
	if res.Stdout, gap = r.stdout.bytes(executor.EventStdout); gap != nil {
		res.Dropped = append(res.Dropped, *gap)
	}
	if res.Stderr, gap = r.stderr.bytes(executor.EventStderr); gap != nil {
		res.Dropped = append(res.Dropped, *gap)
	}
}

// verdict decides. The driver has said how the code ended (err is nil), that it has stopped it (err
// is the cause of the context or what emit returned), or that it does not know. Of several reasons
// to stop the first is the cause; only an error of emit goes before it, since Run has to return it.
func (r *run) verdict(exit *Exit, err error) (executor.Status, executor.Reason, error) {
	cause := context.Cause(r.ctx)
	stopped := err != nil && (sameError(err, cause) || sameError(err, r.stopErr))
	if err != nil && !stopped && cause == errClosed && !r.s.detached.Load() {
		stopped = r.s.closing.settled() // the sandbox is gone, and the code with it
	}
	switch known := err == nil || stopped; {
	case known && r.emitErr != nil:
		return executor.StatusCanceled, "", r.emitErr
	case known && r.over && (err == nil || cause == errOutput):
		return executor.StatusKilled, executor.ReasonOutput, nil
	case err == nil && exit.Reason == executor.ReasonWallTime, stopped && cause == errWall:
		return executor.StatusTimedOut, executor.ReasonWallTime, nil
	case err == nil && exit.Reason != "":
		return executor.StatusKilled, exit.Reason, nil
	case err == nil && (exit.Exception != nil || exit.Code != 0):
		return executor.StatusFailed, "", nil
	case err == nil:
		return executor.StatusOK, "", nil
	case r.emitErr != nil:
		return executor.StatusLost, "", r.emitErr
	}
	e := &executor.Error{Kind: executor.ErrInternal, Ran: executor.RanYes, Err: err}
	var de *executor.Error
	if errors.As(err, &de) && de.Kind != nil {
		if e.Kind, e.Missing, e.RetryAfter = de.Kind, de.Missing, de.RetryAfter; err == error(de) {
			e.Err = de.Err
		}
	}
	switch { // that it stopped for a reason of the caller's is what the caller wants to hear; the Status says the rest
	case cause == errStart:
		e.Kind = executor.ErrUnavailable
	case cause == errClosed:
		e.Kind = executor.ErrClosed
	case r.caller.Err() != nil:
		e.Kind = r.caller.Err()
	}
	if stopped {
		if e.Err = nil; e.Kind == executor.ErrUnavailable {
			e.Err = errStart
		}
		return executor.StatusCanceled, "", e
	}
	return executor.StatusLost, "", e
}

// exitCode returns what a script with this code would have exited with.
func (r *run) exitCode(exit *Exit) int {
	if exit.Exception == nil || exit.Code != 0 {
		return max(exit.Code, -1)
	}
	if r.s.caps.HasFor(r.req.Language, executor.FeatureExitCode) {
		return 1
	}
	return -1
}
