package flymachines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// sandbox is the Machine of a session.
type sandbox struct {
	b  *backend
	id string // of the session

	seen    atomic.Int64 // the time of the last event of the Machine that came before the connection
	unheard atomic.Bool  // the API has just been asked for it in vain

	mu     sync.Mutex
	m      *fly.Machine // nil: nobody knows whether there is one
	secret string       // of its runner; empty: not asked for yet
	woken  bool         // by the last Connect
}

var (
	_ runner.Sandbox   = (*sandbox)(nil)
	_ runner.Base      = (*sandbox)(nil)
	_ runner.Observer  = (*sandbox)(nil)
	_ runner.Suspender = (*sandbox)(nil)
	_ runner.Explainer = (*sandbox)(nil)
	_ driver.Aser      = (*sandbox)(nil)
)

// machine returns the Machine as it was last seen.
func (s *sandbox) machine() *fly.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m
}

// As implements driver.Aser.
func (s *sandbox) As(target any) bool {
	switch t := target.(type) {
	case **fly.Machine:
		*t = s.machine()
	case *Machine:
		*t = Machine{Client: s.b.api.flaps, App: s.b.api.app, Machine: s.machine()}
	default:
		return false
	}
	return true
}

// Base implements runner.Base.
func (s *sandbox) Base() string { return s.machine().GetConfig().Image }

// Connect implements runner.Sandbox. It wakes the Machine first if that is suspended.
func (s *sandbox) Connect(ctx context.Context, _ []string) (io.ReadWriteCloser, error) {
	return s.connect(ctx, s.b.wake)
}

// Observe implements runner.Observer. A suspended Machine cannot be asked.
func (s *sandbox) Observe(ctx context.Context, _ []string) (io.ReadWriteCloser, error) {
	return s.connect(ctx, func(_ context.Context, m *fly.Machine) (*fly.Machine, error) {
		return nil, driver.Fail(executor.ErrUnsupported, executor.RanNo, fmt.Errorf("Machine %s is suspended", m.ID))
	})
}

func (s *sandbox) connect(ctx context.Context, wake func(context.Context, *fly.Machine) (*fly.Machine, error)) (io.ReadWriteCloser, error) {
	m, err := s.b.api.get(ctx, s.machine().ID) // its address may have changed
	if err != nil {
		return nil, fail(ctx, err)
	}
	r, err := specOf(m)
	switch {
	case slices.Contains(ended, m.State):
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, &goneError{m.State})
	case m.Config == nil:
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the host of Machine %s is %s", m.ID, m.HostStatus))
	case err != nil:
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, err)
	}
	woken := isSuspended(m)
	if woken {
		if m, err = wake(ctx, m); err != nil {
			return nil, fail(ctx, err)
		}
	}
	secret, err := s.b.secretOf(s.id)
	if err != nil {
		return nil, err
	}
	s.seen.Store(lastEvent(m))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m, s.woken = m, woken
	return s.b.endpoint(m, cmp.Or(s.secret, secret), r.Port).Dial(), nil
}

// Explain implements runner.Explainer.
func (s *sandbox) Explain(_ context.Context, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status *runner.StatusError
	switch {
	case errors.As(err, &status) && status.Status == http.StatusUnauthorized:
		return driver.Fail(executor.ErrAuth, executor.RanNo, fmt.Errorf(
			"the runner of Machine %s does not know the secret of this program: the session was created with another token; set key to the same in both programs", s.m.ID))
	case errors.Is(err, runner.ErrUnprepared) && (s.woken || endOf(s.m, 0).gone):
		return driver.Fail(executor.ErrNotFound, executor.RanNo, errForgotten)
	}
	return err
}

// Remove implements runner.Sandbox.
func (s *sandbox) Remove(ctx context.Context) error {
	if s.unheard.CompareAndSwap(true, false) {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the API does not answer"))
	}
	if err := s.b.remove(ctx, s.machine(), s.id); err != nil {
		return fail(ctx, err)
	}
	return nil
}

// Termination implements runner.Sandbox.
func (s *sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	m := s.machine()
	f, err := s.b.ending(ctx, m.ID, s.seen.Load())
	if err != nil || !f.gone {
		return runner.Termination{}, err
	}
	end := runner.Termination{Ended: true, Reason: executor.ReasonSandbox}
	switch {
	case f.oom:
		end.Reason = executor.ReasonMemory
	case f.requested, f.code == 0, !f.known:
		end.Reason = executor.ReasonLifetime // by the watchdog, or by somebody who asked the API for it
	case f.code == runner.ExitNotRoot: // before it was set up
		return end, &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"root"}, Err: fmt.Errorf(
			"the image %s has a USER, and the runner has to be root to give code a user of its own: make one of it with the line USER root",
			m.GetConfig().Image)}
	case f.code == runner.ExitNoProgram:
		return end, &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"runner"}, Err: fmt.Errorf(
			"the image %s has no runner at %s, and the files of a Machine have no room for it: make one of it with flymachines/image/Dockerfile",
			m.GetConfig().Image, RunnerPath)}
	case f.code < 128:
		end.Code, end.Stderr = f.code, "what it said is in fly logs"
	}
	return end, nil
}

// end is how a Machine has ended.
type end struct {
	gone      bool
	known     bool // how it ended
	code      int
	oom       bool // its memory ran out
	requested bool // somebody asked the API for it
}

// errGone is what the API says of a Machine that is no more.
var errGone = errors.New("the Machine is gone")

// goneError ends attempts to reach a runner.
type goneError struct{ state string }

// Is reports whether target is errGone.
func (e *goneError) Is(target error) bool { return target == errGone }

func (e *goneError) Error() string { return fmt.Sprintf("%v: %s", errGone, e.state) }

// gone returns an error if the API says that a Machine has ended. That the API does not answer says
// nothing.
func (b *backend) gone(ctx context.Context, id string) error {
	m, err := b.api.get(ctx, id)
	var e *APIError
	switch {
	case errors.As(err, &e) && e.class == classMissing:
		return &goneError{"the API does not know it"}
	case err == nil && slices.Contains(ended, m.State):
		return &goneError{m.State}
	}
	return nil
}

// eventTime is how long the event of an exit may be behind the exit.
const eventTime = 2 * time.Second

// ending asks the API how a Machine has ended since the time of an event. Only the last 20 events
// are kept, so this is asked at once.
func (b *backend) ending(ctx context.Context, id string, since int64) (end, error) {
	begin := time.Now()
	for n := 0; ; n++ {
		m, err := b.api.get(ctx, id)
		var e *APIError
		if errors.As(err, &e) && e.class == classMissing {
			return end{gone: true}, nil
		}
		if err != nil {
			return end{}, fail(ctx, err)
		}
		f := endOf(m, since)
		if !f.gone || f.known || time.Since(begin) > eventTime {
			return f, nil
		}
		if err := remote.Pause(ctx, pause(min(n, 1), &APIError{})); err != nil {
			return f, nil //nolint:nilerr // that it is gone is known
		}
	}
}

// lastEvent returns the time of the last event of a Machine. Zero: there is none.
func lastEvent(m *fly.Machine) (last int64) {
	for _, ev := range m.Events {
		if ev != nil {
			last = max(last, ev.Timestamp)
		}
	}
	return last
}

// endOf reads the events of a Machine, of which the newest comes first. A Machine whose program has
// ended since then is gone even if it has been started again: what it held is.
func endOf(m *fly.Machine, since int64) end {
	f := end{gone: slices.Contains(ended, m.State)}
	for _, ev := range m.Events {
		if ev == nil {
			continue
		}
		if (ev.Type == "stop" || ev.Type == "destroy") && ev.Source == "user" {
			f.requested = true
		}
		if ev.Request == nil || f.known {
			continue
		}
		x := ev.Request.ExitEvent
		if x == nil && ev.Request.MonitorEvent != nil {
			x = ev.Request.MonitorEvent.ExitEvent
		}
		if x != nil && (f.gone || ev.Timestamp > since) {
			f.gone, f.known, f.code, f.oom = true, true, x.ExitCode, x.OOMKilled
			f.requested = f.requested || x.RequestedStop
		}
	}
	f.known = f.known || f.requested
	if !f.gone {
		return end{}
	}
	return f
}
