package flymachines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

// suspendMB is the most memory that a Machine may have to be suspended.
const suspendMB = 2048

// The time limits of suspending, which has been seen to take long at Fly, and of waking. After that
// the host counts as full or down.
const (
	suspendTimeout = 2 * time.Minute
	wakeTimeout    = time.Minute
)

// suspends reports whether Machines of the default size can be suspended.
func (c *Config) suspends() bool {
	g, _, err := c.guest(&executor.Spec{})
	return err == nil && g.MemoryMB <= suspendMB
}

// stateSuspending is not among those of fly-go.
const stateSuspending = "suspending"

func isSuspended(m *fly.Machine) bool {
	return m.State == fly.MachineStateSuspended || m.State == stateSuspending
}

// errForgotten says that a Machine was started anew: by Fly while it was suspended, or by somebody
// who asked the API for it.
var errForgotten = errors.New("the Machine was started anew: what it held is lost")

// Suspend implements runner.Suspender.
func (s *sandbox) Suspend(ctx context.Context) error {
	m := s.machine()
	if g := m.GetConfig().Guest; g == nil || g.MemoryMB > suspendMB {
		return &executor.Error{
			Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{fmt.Sprintf("memory<=%d", int64(suspendMB-supervisorMB)*mib)},
			Err: fmt.Errorf("Fly suspends Machines of at most %d MB", suspendMB),
		}
	}
	if s.b.cfg.Proxy == "" {
		s.b.data.CloseIdleConnections() // one to this Machine would be dead when it wakes, and would not say so
	}
	return within(ctx, suspendTimeout, "be suspended", m.ID, s.b.suspend)
}

// Suspended implements runner.Suspender.
func (s *sandbox) Suspended(ctx context.Context) (bool, error) {
	m, err := s.b.api.get(ctx, s.machine().ID)
	return err == nil && isSuspended(m), err
}

// within calls f for a Machine, and returns an error that says so if it takes too long.
func within(ctx context.Context, d time.Duration, what, id string, f func(ctx context.Context, id string) error) error {
	bound, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := f(bound, id)
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("Machine %s did not %s within %v", id, what, d))
	}
	if err != nil {
		return fail(ctx, err)
	}
	return nil
}

// suspend suspends a Machine and waits until it is.
func (b *backend) suspend(ctx context.Context, id string) error {
	err := b.api.repeat(ctx, actionSuspend, id, func(ctx context.Context) error { return b.api.flaps.Suspend(ctx, b.api.app, id, "") })
	for n := 0; err == nil; n++ {
		werr := b.api.waitFor(ctx, id, fly.MachineStateSuspended)
		if werr == nil {
			return nil
		}
		m, gerr := b.api.get(ctx, id)
		switch {
		case gerr != nil:
			return gerr
		case m.State == fly.MachineStateSuspended:
			return nil
		case slices.Contains(ended, m.State):
			return driver.Fail(executor.ErrNotFound, executor.RanNo, &goneError{m.State})
		}
		err = remote.Pause(ctx, pause(min(n, 2), &APIError{}))
	}
	return err
}

// wake starts a suspended Machine. Fly resumes it, or boots it if its state is lost. Its address
// may change.
func (b *backend) wake(ctx context.Context, m *fly.Machine) (*fly.Machine, error) {
	err := within(ctx, wakeTimeout, "wake", m.ID, func(ctx context.Context, id string) (err error) {
		err = b.api.repeat(ctx, actionStart, id, func(ctx context.Context) error {
			_, err := b.api.flaps.Start(ctx, b.api.app, id, "")
			return err
		})
		if err == nil {
			again := *m
			again.PrivateIP = "" // that of another host is another
			m, err = b.up(ctx, &again)
		}
		return err
	})
	return m, err
}
