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
}

// newBreaker returns nil if cfg asks for none. opened is called when users are no longer let through, with the time until the next try.
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
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) }, // says nothing about the backend
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.until.Store(time.Now().Add(pause).UnixNano())
				opened(pause)
			}
		},
	})
	return b
}

// down reports whether err says that a backend did not answer. A deadline that passed does: whose patience it was makes no difference
// when it happens several times in a row.
func down(err error) bool {
	var e *executor.Error
	if !errors.As(err, &e) {
		return false
	}
	return errors.Is(e.Kind, executor.ErrUnavailable) || errors.Is(e.Kind, context.DeadlineExceeded)
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

// begin is called before the backend is asked, and what it returns with the answer.
func (b *breaker) begin() func(error) {
	if b == nil {
		return func(error) {}
	}
	done, err := b.cb.Allow()
	if err != nil { // it opened in this moment; the answer says nothing new
		return func(error) {}
	}
	return done
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
