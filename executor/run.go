package executor

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
)

// Run creates a session, runs req in it and destroys it. A Spec without Languages gets that of req.
// That destroying failed is not an error of Run, since the code has run; hooks see it and the TTL
// removes the sandbox.
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

// Stream runs req and yields its events, then EventDone if there is a Result, then the error, if
// any, with a zero Event. Leaving the loop stops the code. The code starts when the loop starts and
// no goroutine is used. The sequence can be used once; a second loop gets ErrInvalid, since it
// would run the code again.
func Stream(ctx context.Context, s Session, req Request) iter.Seq2[Event, error] {
	var used atomic.Bool
	return func(yield func(Event, error) bool) {
		if used.Swap(true) {
			yield(Event{}, &Error{Op: "run", Kind: ErrInvalid, Ran: RanNo, Err: errors.New("the sequence was used before")})
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

// As finds a backend-specific value in s, in the manner of errors.As. It is not a method of Session
// so that wrappers which restrict do not let it through. Code that uses it is not portable.
func As(s Session, target any) bool {
	a, ok := s.(interface{ As(target any) bool })
	return ok && a.As(target)
}
