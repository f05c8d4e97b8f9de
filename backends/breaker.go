package backends

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/execbroker/execbroker/executor"
)

// breaker remembers that a backend fails. The nil breaker lets everything through.
type breaker struct {
	cfg   Breaker
	cb    *gobreaker.TwoStepCircuitBreaker[struct{}]
	until atomic.Int64 // end of the present pause, in Unix nanoseconds

	last atomic.Pointer[executor.Spec] // what failed last, and is tried again
}

// newBreaker returns nil if cfg asks for none. opened is called when users are no longer let
// through, with the time until the next try.
func newBreaker(cfg Breaker, opened func(pause time.Duration)) *breaker {
	if cfg.Failures == 0 {
		return nil
	}
	b := &breaker{cfg: cfg}
	pause := orDefault(cfg.Open, defaultOpen)
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:      pause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(cfg.Failures) },
		IsSuccessful: func(err error) bool { return !down(err) },
		IsExcluded:   func(err error) bool { return !down(err) && !answered(err) }, // says nothing about the backend
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.until.Store(time.Now().Add(pause).UnixNano())
				opened(pause)
			}
		},
	})
	return b
}

// down reports whether err says that a backend did not answer. A deadline that passed does: whose
// patience it was makes no difference when it happens several times in a row.
func down(err error) bool {
	var e *executor.Error
	if !errors.As(err, &e) {
		return false
	}
	if p := (*executor.PackageError)(nil); errors.As(err, &p) {
		return false // it is what packages come from that did not answer
	}
	return errors.Is(e.Kind, executor.ErrUnavailable) || errors.Is(e.Kind, context.DeadlineExceeded)
}

// answered reports whether err, or that there is none, is an answer of the provider. What is
// refused before it is asked says nothing about it: a backend is not well because somebody asks it
// for what it does not have.
func answered(err error) bool {
	var e *executor.Error
	if err == nil || !errors.As(err, &e) {
		return err == nil
	}
	switch e.Kind {
	case executor.ErrExhausted, executor.ErrAuth, executor.ErrNotFound:
		return true
	}
	return false
}

// check refuses users while the backend is not known to work. The error has no backend yet.
func (b *breaker) check() *executor.Error {
	if b == nil || b.cb.State() == gobreaker.StateClosed {
		return nil
	}
	e := &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo}
	wait := time.Until(time.Unix(0, b.until.Load()))
	if wait > 0 {
		e.RetryAfter = wait
	}
	e.Err = fmt.Errorf("breaker: %d attempts in a row failed; it is asked again every %v", b.cfg.Failures, orDefault(b.cfg.Open, defaultOpen))
	return e
}

// begin is called before the backend is asked for a session of spec, and what it returns with the
// answer.
func (b *breaker) begin(spec executor.Spec) func(error) {
	if b == nil {
		return func(error) {}
	}
	done, err := b.cb.Allow()
	if err != nil { // it opened in this moment; the answer says nothing new
		return func(error) {}
	}
	return func(err error) {
		if down(err) {
			b.last.Store(&spec)
		}
		done(err)
	}
}

// probe returns what is to be tried: what failed last, without what is a user's. Another Spec may
// be refused without being asked for, or work where that one does not.
func (b *breaker) probe() executor.Spec {
	spec := *b.last.Load() // it has failed, or the breaker would not be open
	spec.Subject, spec.Attributes, spec.Labels, spec.Env = "", nil, nil, nil
	return spec
}

// state is "closed", "open" or "trying"; "" without a breaker.
func (b *breaker) state() string {
	if b == nil {
		return ""
	}
	switch b.cb.State() {
	case gobreaker.StateClosed:
		return "closed"
	case gobreaker.StateOpen:
		return "open"
	}
	return "trying"
}
