package backends

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/execbroker/execbroker/executor"
)

// breaker is a circuit breaker for a backend that fails. The nil breaker lets everything through.
type breaker struct {
	cfg   Breaker
	cb    *gobreaker.TwoStepCircuitBreaker[struct{}]
	until atomic.Int64 // end of the present pause, in Unix nanoseconds

	last atomic.Pointer[executor.Spec] // the Spec that failed last, for the next probe
}

// newBreaker returns nil if cfg has no breaker. opened is called when the breaker opens, with the
// time until the next probe, and closed when the backend works again.
func newBreaker(cfg Breaker, opened func(pause time.Duration), closed func()) *breaker {
	if cfg.Failures == 0 {
		return nil
	}
	b := &breaker{cfg: cfg}
	pause := orDefault(cfg.Open, defaultOpen)
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:      pause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(cfg.Failures) },
		IsSuccessful: func(err error) bool { return !down(err) },
		IsExcluded:   func(err error) bool { return !down(err) && !answered(err) }, // such an error says nothing about the backend
		OnStateChange: func(_ string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				b.until.Store(time.Now().Add(pause).UnixNano())
				opened(pause)
			case gobreaker.StateClosed:
				closed()
			}
		},
	})
	return b
}

// down reports whether err says that a backend did not answer. That includes a deadline that
// passed: if that happens several times in a row, it does not matter who set the deadline.
func down(err error) bool {
	var e *executor.Error
	if !errors.As(err, &e) {
		return false
	}
	if p := (*executor.PackageError)(nil); errors.As(err, &p) {
		return false // the source of the packages did not answer, not the backend
	}
	return errors.Is(e.Kind, executor.ErrUnavailable) || errors.Is(e.Kind, context.DeadlineExceeded)
}

// answered reports whether err, or nil, is an answer of the provider. A refusal before the provider
// is asked says nothing about it: a backend does not count as working because it was asked for
// something that it does not have.
func answered(err error) bool {
	var e *executor.Error
	if err == nil || !errors.As(err, &e) {
		return err == nil
	}
	return slices.Contains([]error{executor.ErrExhausted, executor.ErrAuth, executor.ErrNotFound}, e.Kind)
}

// check refuses requests of users while the breaker is open. The error has no backend yet.
func (b *breaker) check() *executor.Error {
	if b == nil || b.cb.State() == gobreaker.StateClosed {
		return nil
	}
	e := &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo}
	wait := time.Until(time.Unix(0, b.until.Load()))
	if wait > 0 {
		e.RetryAfter = wait
	}
	e.Err = fmt.Errorf("breaker: %d attempts in a row failed; the backend is tried again every %v", b.cfg.Failures, orDefault(b.cfg.Open, defaultOpen))
	return e
}

// begin is called before the backend is asked for a session of spec. The function that it returns
// is called with the answer.
func (b *breaker) begin(spec executor.Spec) func(error) {
	if b == nil {
		return func(error) {}
	}
	done, err := b.cb.Allow()
	if err != nil { // the breaker has just opened; the answer adds nothing
		return func(error) {}
	}
	return func(err error) {
		if down(err) {
			b.last.Store(&spec)
		}
		done(err)
	}
}

// probe returns the Spec to try: the one that failed last, without the data of a user. Another Spec
// might be refused before the provider is asked, or might work although this one does not.
func (b *breaker) probe() executor.Spec {
	spec := *b.last.Load() // it has failed, or the breaker would not be open
	spec.Subject, spec.Attributes, spec.Labels, spec.Env = "", nil, nil, nil
	return spec
}

// state returns "closed", "open" or "trying", or "" without a breaker.
func (b *breaker) state() string {
	if b == nil {
		return ""
	}
	return map[gobreaker.State]string{
		gobreaker.StateClosed: "closed", gobreaker.StateOpen: "open", gobreaker.StateHalfOpen: "trying",
	}[b.cb.State()]
}
