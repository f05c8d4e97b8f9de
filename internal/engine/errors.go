package engine

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Fail is driver.Fail.
func Fail(kind error, ran executor.Ran, cause error) error {
	return &executor.Error{Kind: kind, Ran: ran, Err: cause}
}

// The causes by which New ends the context of a call.
var (
	errAttempt = errors.New("the provider did not answer in time")
	errStart   = errors.New("the sandbox did not start the code in time")
	errWall    = errors.New("wall time")
	errOutput  = errors.New("output limit")
	errClosed  = errors.New("closed meanwhile")
)

// endOf returns the kind of error that the end of ctx is for the caller, or nil if ctx has not
// ended.
func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	switch context.Cause(ctx) {
	case errClosed:
		return executor.ErrClosed
	case errAttempt:
		return executor.ErrUnavailable
	}
	return ctx.Err()
}

// fail completes an error of the driver. ctx is that of the operation. Operations that never run
// user code pass neverRuns.
func (x *exec) fail(ctx context.Context, op, session string, neverRuns bool, err error) error {
	e := &executor.Error{Kind: executor.ErrInternal, Err: err}
	end, cause := endOf(ctx), context.Cause(ctx)
	var de *executor.Error
	switch {
	case end != nil && sameError(err, cause):
		e.Kind, e.Err = end, nil
	case errors.As(err, &de):
		*e = *de
		if e.Kind == nil {
			e.Kind = executor.ErrInternal
		}
		if err != error(de) { // wrapped once more: what was added must not be lost
			e.Err = err
		}
	}
	// What a driver makes of a context that has ended is often a broken connection. A definite
	// answer is left as it is.
	if end != nil && (e.Kind == executor.ErrInternal || e.Kind == executor.ErrUnavailable) {
		e.Kind = end
	}
	if e.Kind == end && e.Err == nil && !errors.Is(cause, end) && cause != errClosed {
		e.Err = cause
	}
	e.Op, e.Backend, e.Session = op, x.env.Name, session
	if neverRuns {
		e.Ran = executor.RanNo
	}
	return e
}

// attempt calls f with a timeout, which is ErrUnavailable, not the end of the caller's context.
func (x *exec) attempt(c *call, timeout time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(c.ctx, timeout, errAttempt)
	defer cancel()
	err := f(ctx)
	if err != nil {
		err = x.fail(ctx, c.op.Name, c.op.Session, true, err)
	}
	return err
}

// ranOf returns what the driver says about code that is not known to have started.
func ranOf(err error) executor.Ran {
	var e *executor.Error
	if errors.As(err, &e) && e.Ran == executor.RanNo {
		return executor.RanNo
	}
	return executor.RanMaybe
}

// sameError reports whether a and b are one error, not one around the other: a connection that
// broke because the context ended wraps the cause and claims nothing. Callers' causes may be of
// types that == panics for.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() {
		return a == b
	}
	return reflect.DeepEqual(a, b)
}

// fileKinds are the kinds that only errors of Files have.
var fileKinds = []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid}

// fileError makes one made by Fail of an error of io/fs.
func fileError(err error) error {
	var e *executor.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	for _, kind := range fileKinds {
		if errors.Is(err, kind) {
			if err == kind {
				err = nil
			}
			return Fail(kind, executor.RanNo, err)
		}
	}
	return err
}
