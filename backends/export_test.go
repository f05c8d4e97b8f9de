package backends

import (
	"context"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// DoctorClock is what Doctor finds of the clock of a Store.
func DoctorClock(ctx context.Context, s Sessions, st sessions.Store) driver.Check {
	return s.doctorClock(ctx, st)
}

// ShadowBytes returns how much of the conversations that are repeated waits in memory.
func (b *Broker) ShadowBytes() int64 { return b.shadows.held.Load() }
