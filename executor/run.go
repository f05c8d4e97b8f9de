package executor

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
)

// Run creates a session, runs req in it and destroys it. A Spec without Languages gets the language
// of req. A failure to destroy the session is not an error of Run, because the code has run. Hooks
// see that failure, and the idle TTL removes the sandbox.
func Run(ctx context.Context, x Executor, spec Spec, req Request) (*Result, error) {
	if len(spec.Languages) == 0 && req.Language != "" {
		spec.Languages = []Language{req.Language}
	}
	s, err := x.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Run(ctx, req, nil)
}

// Stream runs req. It yields its events, then EventDone if there is a Result, then the error, if
// any, with a zero Event. Leaving the loop stops the code. The code starts when the loop starts.
// Stream uses no goroutine. The sequence can be used only once: a second loop would run the code
// again, so it gets ErrInvalid.
func Stream(ctx context.Context, s Session, req Request) iter.Seq2[Event, error] {
	var used atomic.Bool
	return func(yield func(Event, error) bool) {
		if used.Swap(true) {
			yield(Event{}, &Error{Op: "run", Kind: ErrInvalid, Ran: RanNo, Err: errors.New("a sequence of Stream can be used only once")})
			return
		}
		left, next := false, 0
		r, err := s.Run(ctx, req, func(ev Event) error {
			next = ev.Seq + 1
			if !yield(ev, nil) {
				left = true
				return errLeft
			}
			return nil
		})
		if left {
			return
		}
		if r != nil && !yield(Event{Seq: next, Time: r.Started.Add(r.Duration), Kind: EventDone, Result: r}, nil) {
			return
		}
		if err != nil {
			yield(Event{}, err)
		}
	}
}

var errLeft = errors.New("executor: consumer left the loop")

// As finds a backend-specific value in s, like errors.As. It is not a method of Session, so that
// restricting wrappers do not pass it through. Code that uses it is not portable.
func As(s Session, target any) bool {
	a, ok := s.(interface{ As(target any) bool })
	return ok && a.As(target)
}
