package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// sandbox is one at the service.
type sandbox struct {
	b       *backend
	id      string                      // at the service
	created time.Time                   // by the clock of the creator
	expires time.Time                   // as it was found
	main    *process                    // the runner's, if this process has created the sandbox
	unclear func(context.Context) error // nil, or it removes what may have come of a request without an answer

	mu  sync.Mutex
	api *api.Sandbox // as the service has described it; nil before the first connection of a process that attaches
	d   *daemon
}

var (
	_ runner.Sandbox    = (*sandbox)(nil)
	_ runner.Explainer  = (*sandbox)(nil)
	_ runner.Base       = (*sandbox)(nil)
	_ driver.KeepAliver = (*sandbox)(nil)
	_ driver.Refresher  = (*sandbox)(nil)
	_ driver.Aser       = (*sandbox)(nil)
)

// As implements driver.Aser.
func (s *sandbox) As(target any) bool {
	switch t := target.(type) {
	case *Sandbox:
		*t = Sandbox{ID: s.id}
	case **sandbox: // for a notebook
		*t = s
	default:
		return false
	}
	return true
}

// Base implements runner.Base.
func (s *sandbox) Base() string { return s.b.cfg.apiURL() + " " + s.template() }

// Refresh implements driver.Refresher.
func (s *sandbox) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	info := executor.SessionInfo{Handle: executor.Handle{Session: s.id}}
	d, offset, err := s.b.get(ctx, s.id)
	if err != nil {
		return info, err
	}
	info.State = executor.SessionRunning
	if d.State != api.Running && d.State != api.Paused || s.over() {
		info.State = executor.SessionDead
	}
	info.Expires = d.EndAt.Add(-offset)
	return info, nil
}

// over reports whether the runner is known to have ended.
func (s *sandbox) over() bool { return s.main != nil && s.main.ended.Load() != nil }

// KeepAlive implements driver.KeepAliver. It asks the service what has come of it, which shortens in silence what its plan does not allow.
func (s *sandbox) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	left := time.Until(s.created.Add(s.b.cfg.maxLife()))
	if err := s.b.service.setTimeout(ctx, s.id, wholeSeconds(min(idle, left))); err != nil {
		return time.Time{}, s.b.failed(ctx, s.id, "moving the end of a sandbox", err)
	}
	d, offset, err := s.b.get(ctx, s.id)
	if err != nil {
		return time.Time{}, err
	}
	return d.EndAt.Add(-offset), nil
}

// Remove implements runner.Sandbox.
func (s *sandbox) Remove(ctx context.Context) error {
	if s.unclear != nil {
		return s.unclear(ctx)
	}
	if err := s.b.service.kill(ctx, s.id); err != nil {
		return s.b.service.fail(ctx, "killing a sandbox", err)
	}
	return nil
}

// Termination implements runner.Sandbox.
func (s *sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	_, _, err := s.b.get(ctx, s.id)
	switch {
	case errors.Is(err, executor.ErrNotFound):
		// Its time was over or it was killed: the service does not tell which.
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	case err != nil || !s.over():
		return runner.Termination{}, err
	}
	end := s.main.ended.Load()
	if end.GetExitCode() == 0 && end.GetExited() {
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	}
	return runner.Termination{Ended: true, Reason: executor.ReasonSandbox, Code: int(max(0, end.GetExitCode())), Stderr: s.main.said()}, nil
}

// Explain implements runner.Explainer.
func (s *sandbox) Explain(ctx context.Context, err error) error {
	if lost := (*runner.LostError)(nil); errors.As(err, &lost) {
		return s.b.explain(ctx, "reaching the supervisor", lost.Err)
	}
	return err
}

// Connect implements runner.Sandbox, through a process beside the runner.
func (s *sandbox) Connect(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	if s.over() {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("the supervisor of the sandbox has ended"))
	}
	s.mu.Lock()
	d := s.d
	s.mu.Unlock()
	if d == nil {
		// Connecting sets the life of a sandbox to 5 minutes unless it is told another. What is left changes nothing.
		var err error
		if d, err = s.resume(ctx, time.Until(s.expires)); err != nil {
			return nil, err
		}
	}
	p, err := d.start(ctx, command, s.b.forget)
	var said *ServiceError
	if err == nil {
		return p, nil
	}
	if !errors.As(err, &said) || !said.gone() {
		return nil, s.b.service.fail(ctx, "reaching the supervisor", err)
	}
	// To its ports a sandbox that another client has paused is not there.
	found, offset, gerr := s.b.get(ctx, s.id)
	if gerr != nil || found.State != api.Paused {
		return nil, errGone(s.id)
	}
	if d, err = s.resume(ctx, max(time.Until(found.EndAt.Add(-offset)), s.b.cfg.timeout())); err != nil {
		return nil, err
	}
	if p, err = d.start(ctx, command, s.b.forget); err != nil {
		return nil, s.b.service.fail(ctx, "reaching the supervisor", err)
	}
	return p, nil
}

// resume has the service connect to the sandbox, which resumes one that is paused.
func (s *sandbox) resume(ctx context.Context, left time.Duration) (*daemon, error) {
	found, err := s.b.service.connect(ctx, s.id, wholeSeconds(left))
	if err != nil {
		return nil, s.b.failed(ctx, s.id, "connecting to a sandbox", err)
	}
	if found.SandboxID != s.id {
		return nil, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the service has connected to sandbox %s instead", found.SandboxID))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.api, s.d = found, s.b.service.daemon(found)
	return s.d, nil
}

// template returns what the sandbox was made from, as the service calls it.
func (s *sandbox) template() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.api.TemplateID
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
