package flymachines

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// session is a Machine as this process holds it.
type session struct {
	b      *backend
	m      *fly.Machine
	secret string // of its runner
	fence  int64
	info   executor.SessionInfo

	seen   atomic.Int64   // the time of the last event of the Machine that came before the connection
	made   *driver.Create // nil: by another process
	used   atomic.Bool    // it is no longer as it was made
	asleep atomic.Bool    // it was suspended and not woken since, as far as this holder knows

	*runner.Holder // Reset, Detach
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Detacher   = (*session)(nil)
	_ driver.Refresher  = (*session)(nil)
	_ driver.Resetter   = (*session)(nil)
	_ driver.KeepAliver = (*session)(nil)
	_ driver.Dialer     = (*session)(nil)
	_ driver.Filer      = (*session)(nil)
	_ driver.Installer  = (*session)(nil)
	_ driver.Suspender  = (*session)(nil)
	_ driver.Aser       = (*session)(nil)
	_ runner.Place      = (*place)(nil)
)

// session makes the session of a Machine.
func (b *backend) session(info executor.SessionInfo, m *fly.Machine, r *runner.Client, secret string, fence int64) *session {
	s := &session{b: b, m: m, secret: secret, fence: fence, info: info}
	s.seen.Store(lastEvent(m))
	s.Holder = runner.NewHolder(r, &place{s})
	return s
}

// Info implements driver.Session. Expires is empty: the runner counts use.
func (s *session) Info() executor.SessionInfo { return s.info }

// As implements driver.Aser.
func (s *session) As(target any) bool {
	switch t := target.(type) {
	case **fly.Machine:
		*t = s.m
	case *Machine:
		*t = Machine{Client: s.b.api.flaps, App: s.b.api.app, Machine: s.m}
	default:
		return false
	}
	return true
}

// Refresh implements driver.Refresher.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	return s.Refreshed(ctx, s.info)
}

// place is what the API knows of the Machine of a session.
type place struct{ s *session }

// Bridge implements runner.Place.
func (p *place) Bridge(ctx context.Context) (*runner.Client, error) {
	m, err := p.s.b.api.get(ctx, p.s.m.ID) // its address may have changed
	if err != nil {
		return nil, fail(ctx, err)
	}
	c, err := p.s.b.connect(ctx, m, p.s.secret, p.s.fence, p.s.unused())
	switch {
	case err == nil:
		p.s.asleep.Store(false)
		p.s.seen.Store(lastEvent(m))
	case errors.Is(err, runner.ErrUnprepared): // it was prepared
		err = driver.Fail(executor.ErrNotFound, executor.RanNo, errForgotten)
	}
	return c, err
}

// Remove implements runner.Place.
func (p *place) Remove(ctx context.Context) error {
	if err := p.s.b.api.destroy(ctx, p.s.m.ID); err != nil {
		return fail(ctx, err)
	}
	return nil
}

// Fate implements runner.Place.
func (p *place) Fate(ctx context.Context) (runner.Fate, error) {
	f, err := p.s.b.fate(ctx, p.s.m.ID, p.s.seen.Load())
	if err != nil || !f.gone {
		return runner.Fate{}, err
	}
	switch {
	case f.oom:
		return runner.Fate{Gone: true, Reason: executor.ReasonMemory}, nil
	case f.requested, f.code == 0, !f.known:
		// By the watchdog, or by somebody who asked the API for it.
		return runner.Fate{Gone: true, Reason: executor.ReasonLifetime}, nil
	}
	return runner.Fate{Gone: true, Reason: executor.ReasonSandbox}, nil
}

// fate is what has become of a Machine.
type fate struct {
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

func (e *goneError) Error() string { return fmt.Sprintf("%v: %s", errGone, e.state) }

// gone returns an error if the API says that a Machine has ended. That the API does not answer says nothing.
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

// fate asks the API what has become of a Machine since the time of an event. Only the last 20 events are kept, so this is asked at once.
func (b *backend) fate(ctx context.Context, id string, since int64) (fate, error) {
	begin := time.Now()
	for n := 0; ; n++ {
		m, err := b.api.get(ctx, id)
		var e *APIError
		if errors.As(err, &e) && e.class == classMissing {
			return fate{gone: true}, nil
		}
		if err != nil {
			return fate{}, fail(ctx, err)
		}
		f := fateOf(m, since)
		if !f.gone || f.known || time.Since(begin) > eventTime {
			return f, nil
		}
		if err := sleep(ctx, pause(min(n, 1), &APIError{})); err != nil {
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

// fateOf reads the events of a Machine, of which the newest comes first. A Machine whose program has ended since then is gone even if it
// has been started again: what it held is.
func fateOf(m *fly.Machine, since int64) fate {
	f := fate{gone: slices.Contains(ended, m.State)}
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
		return fate{}
	}
	return f
}

// connect opens a connection to the runner of a Machine, and wakes that first if it is suspended. unused is what the Machine was made for,
// if nothing has used it since: then a runner that has lost its set-up gets it again.
func (b *backend) connect(ctx context.Context, m *fly.Machine, secret string, fence int64, unused *driver.Create) (*runner.Client, error) {
	r, err := specOf(m)
	switch {
	case slices.Contains(ended, m.State):
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, &goneError{m.State})
	case m.Config == nil:
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the host of Machine %s is %s", m.ID, m.HostStatus))
	case err != nil:
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, err)
	case r.Fetches:
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("Machine %s fetches packages", m.ID))
	}
	slept := isSuspended(m)
	if slept {
		if m, err = b.wake(ctx, m); err != nil {
			return nil, fail(ctx, err)
		}
	}
	to := b.endpoint(m, secret, r.Port).Dial()
	var c *runner.Client
	if unused != nil {
		c, err = b.start(ctx, to, unused, r.Limits, time.Since(r.Created))
	} else {
		c, err = runner.Attach(ctx, to, fence)
	}
	var gone *goneError
	var status *runner.StatusError
	switch {
	case errors.As(err, &status) && status.Status == http.StatusUnauthorized:
		return nil, driver.Fail(executor.ErrAuth, executor.RanNo, fmt.Errorf(
			"the runner of Machine %s does not know the secret of this program: the session was created with another token; set key to the same in both programs", m.ID))
	case errors.As(err, &gone):
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, gone)
	case errors.Is(err, runner.ErrUnprepared) && (slept || fateOf(m, 0).gone):
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errForgotten)
	}
	return c, err
}

// userID returns the uid of the code of a session. In a Machine any would do. But the kernel counts processes for each uid, and where a
// stand-in of Fly has one kernel for all Machines, sessions do not share one.
func userID(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return 1<<20 + int(h.Sum32()>>1)
}
