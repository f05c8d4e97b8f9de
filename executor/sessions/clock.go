package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Clock is implemented by Stores that have a clock of their own, which says whether an entry has
// expired.
type Clock interface {
	// Now returns the time of that clock.
	Now(ctx context.Context) (time.Time, error)
}

// ClockAhead returns how far the clock of this process is at least ahead of the clock of a Store; a
// negative result means behind. The time that the Store takes to answer is not counted. Zero means
// that the clocks agree, or that the Store has no Clock.
func ClockAhead(ctx context.Context, s Store) (time.Duration, error) {
	c, ok := s.(Clock)
	if !ok {
		return 0, nil
	}
	before := time.Now()
	at, err := c.Now(ctx)
	after := time.Now()
	switch {
	case err != nil:
		return 0, err
	case at.Before(before):
		return before.Sub(at), nil
	case at.After(after):
		return after.Sub(at), nil
	}
	return 0, nil
}

// ClockDifference describes a result of ClockAhead, or returns "" if it is at most tolerance.
func ClockDifference(ahead, tolerance time.Duration) string {
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	if ahead.Abs() <= tolerance {
		return ""
	}
	return fmt.Sprintf("the clock of this machine is %v %s the clock of the session store", ahead.Abs().Round(time.Second), where)
}

// checkClock refuses to reap if the clock of this process cannot say how old a sandbox is.
func (m *Manager) checkClock(ctx context.Context) error {
	ahead, err := ClockAhead(ctx, m.store)
	if err != nil {
		return m.storeError(ctx, "reap", err)
	}
	if d := ClockDifference(ahead, m.opts.LeaseTTL); d != "" {
		return m.fail("reap", executor.ErrUnavailable, fmt.Errorf("%s, more than lease_ttl (%v); nothing is removed until the clocks agree", d, m.opts.LeaseTTL))
	}
	return nil
}
