package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// session is a sandbox as this process holds it.
type session struct {
	b     *backend
	id    string // of the sandbox
	fence int64
	info  executor.SessionInfo
	d     *daemon
	main  *process // the runner's, if this process has created the sandbox

	*runner.Holder // Run, Reset, Files, Dial, Destroy, Detach
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Detacher   = (*session)(nil)
	_ driver.Refresher  = (*session)(nil)
	_ driver.Resetter   = (*session)(nil)
	_ driver.KeepAliver = (*session)(nil)
	_ driver.Filer      = (*session)(nil)
	_ driver.Dialer     = (*session)(nil)
	_ driver.Installer  = (*session)(nil)
	_ driver.Aser       = (*session)(nil)
	_ runner.Place      = (*place)(nil)
)

// session makes the session of a sandbox.
func (b *backend) session(info executor.SessionInfo, d *daemon, r *runner.Client, main *process, fence int64) *session {
	s := &session{b: b, id: info.Handle.Session, fence: fence, info: info, d: d, main: main}
	s.Holder = runner.NewHolder(r, &place{s})
	return s
}

// Info implements driver.Session. Expires is set: the service ends a sandbox at a time, used or not, unless that is moved.
func (s *session) Info() executor.SessionInfo { return s.info }

// As implements driver.Aser.
func (s *session) As(target any) bool {
	b, ok := target.(*Sandbox)
	if ok {
		*b = Sandbox{ID: s.id}
	}
	return ok
}

// Refresh implements driver.Refresher.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	info := s.info
	d, offset, err := s.b.get(ctx, s.id)
	if err != nil {
		return info, err
	}
	if d.State != api.Running && d.State != api.Paused || s.over() {
		info.State = executor.SessionDead
	}
	info.Expires = d.EndAt.Add(-offset)
	return info, nil
}

// over reports whether the runner is known to have ended.
func (s *session) over() bool { return s.main != nil && s.main.ended.Load() != nil }

// KeepAlive implements driver.KeepAliver. It asks the service what has come of it, which shortens in silence what its plan does not allow.
func (s *session) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	c, err := s.Client(ctx)
	if err == nil {
		err = s.Explain(ctx, c.Ping(ctx)) // a later holder may have taken over
	}
	if err != nil {
		return time.Time{}, err
	}
	left := time.Until(s.info.Created.Add(s.b.cfg.maxLife()))
	if err := s.b.service.setTimeout(ctx, s.id, wholeSeconds(min(idle, left))); err != nil {
		return time.Time{}, s.b.failed(ctx, s.id, "moving the end of a sandbox", err)
	}
	d, offset, err := s.b.get(ctx, s.id)
	if err != nil {
		return time.Time{}, err
	}
	return d.EndAt.Add(-offset), nil
}

// get describes a sandbox.
func (b *backend) get(ctx context.Context, id string) (*api.SandboxDetail, time.Duration, error) {
	d, offset, err := b.service.get(ctx, id)
	if err != nil {
		return nil, 0, b.failed(ctx, id, "asking for a sandbox", err)
	}
	return d, offset, nil
}

// failed says of a request about a sandbox whether there is none.
func (b *backend) failed(ctx context.Context, id, what string, err error) error {
	var said *ServiceError
	if errors.As(err, &said) && said.Status == http.StatusNotFound {
		return errGone(id)
	}
	return b.service.fail(ctx, what, err)
}

// place is what the service knows of a sandbox.
type place struct{ s *session }

// Remove implements runner.Place.
func (p *place) Remove(ctx context.Context) error {
	if err := p.s.b.service.kill(ctx, p.s.id); err != nil {
		return p.s.b.service.fail(ctx, "killing a sandbox", err)
	}
	return nil
}

// Fate implements runner.Place.
func (p *place) Fate(ctx context.Context) (runner.Fate, error) {
	_, _, err := p.s.b.get(ctx, p.s.id)
	switch {
	case errors.Is(err, executor.ErrNotFound):
		// Its time was over or it was killed: the service does not tell which.
		return runner.Fate{Gone: true, Reason: executor.ReasonLifetime}, nil
	case err != nil:
		return runner.Fate{}, err
	case !p.s.over():
		return runner.Fate{}, nil
	case p.s.main.ended.Load().GetExitCode() == 0 && p.s.main.ended.Load().GetExited():
		return runner.Fate{Gone: true, Reason: executor.ReasonLifetime}, nil
	}
	return runner.Fate{Gone: true, Reason: executor.ReasonSandbox}, nil
}

// Bridge implements runner.Place.
func (p *place) Bridge(ctx context.Context) (*runner.Client, error) {
	if p.s.over() {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("the supervisor of the sandbox has ended"))
	}
	r, err := p.s.b.bridge(ctx, p.s.d, p.s.fence)
	if !errors.Is(err, executor.ErrNotFound) {
		return r, err
	}
	// To its ports a sandbox that another client has paused is not there.
	d, offset, gerr := p.s.b.get(ctx, p.s.id)
	if gerr != nil || d.State != api.Paused {
		return r, err
	}
	left := max(time.Until(d.EndAt.Add(-offset)), p.s.b.cfg.timeout())
	if _, err := p.s.b.service.connect(ctx, p.s.id, wholeSeconds(left)); err != nil {
		return nil, p.s.b.failed(ctx, p.s.id, "resuming a paused sandbox", err)
	}
	return p.s.b.bridge(ctx, p.s.d, p.s.fence)
}

// bridge opens a further connection to the runner in a sandbox, through a process beside it.
func (b *backend) bridge(ctx context.Context, d *daemon, fence int64) (*runner.Client, error) {
	ctx, cancel := b.service.answer(ctx)
	defer cancel()
	conn, err := d.start(ctx, runner.BridgeCommand(python, socket), b.forget)
	if err != nil {
		var said *ServiceError
		if errors.As(err, &said) && said.gone() {
			return nil, errGone(d.id)
		}
		return nil, b.service.fail(ctx, "reaching the supervisor", err)
	}
	r, err := runner.Attach(ctx, conn, fence)
	var lost *runner.LostError
	if !errors.As(err, &lost) {
		return r, err
	}
	if end := conn.ended.Load(); end != nil && end.GetExitCode() == 1 {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("the supervisor of sandbox %s has ended: %s", d.id, conn.said()))
	}
	return nil, b.service.fail(ctx, "reaching the supervisor", lost.Err)
}

// forgetTime bounds the end of a bridge.
const forgetTime = 5 * time.Second

// forget ends the process of a bridge whose connection is closed: the daemon would keep it, and the supervisor its holder.
func (b *backend) forget(p *process) {
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.life), forgetTime)
		defer cancel()
		_ = p.kill(ctx) // it is gone with its sandbox, or ends with it
	})
}
