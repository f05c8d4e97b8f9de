package docker

import (
	"context"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// session is a container as this process holds it.
type session struct {
	b         *backend
	id        string // of the session
	container string // ID at the engine
	image     string // ID of that of the container
	fence     int64
	info      executor.SessionInfo

	*runner.Holder // Run, Reset, KeepAlive, Suspend, Files, Dial, Destroy, Detach
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Detacher   = (*session)(nil)
	_ driver.Refresher  = (*session)(nil)
	_ driver.Resetter   = (*session)(nil)
	_ driver.KeepAliver = (*session)(nil)
	_ driver.Suspender  = (*session)(nil)
	_ driver.Filer      = (*session)(nil)
	_ driver.Dialer     = (*session)(nil)
	_ driver.Installer  = (*session)(nil)
	_ driver.Aser       = (*session)(nil)
	_ runner.Place      = (*place)(nil)
)

// Info implements driver.Session. Expires is empty: the runner counts use.
func (s *session) Info() executor.SessionInfo { return s.info }

// As implements driver.Aser.
func (s *session) As(target any) bool {
	c, ok := target.(*Container)
	if ok {
		*c = Container{Client: s.b.engine.Client, ID: s.container}
	}
	return ok
}

// Refresh implements driver.Refresher.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	return s.Refreshed(ctx, s.info)
}

// place is what the engine knows of the container of a session.
type place struct{ s *session }

// Bridge implements runner.Place.
func (p *place) Bridge(ctx context.Context) (*runner.Client, error) {
	return p.s.b.engine.bridge(ctx, p.s.container, p.s.fence)
}

// Remove implements runner.Place.
func (p *place) Remove(ctx context.Context) error { return p.s.b.engine.destroy(ctx, p.s.id) }

// Fate implements runner.Place.
func (p *place) Fate(ctx context.Context) (runner.Fate, error) {
	f, err := p.s.b.engine.fate(ctx, p.s.container)
	if err != nil || !f.ended {
		return runner.Fate{}, err
	}
	switch {
	case f.code < 0: // the engine was restarted: that says nothing about the code
		return runner.Fate{Gone: true}, nil
	case f.killed, f.code == 0:
		return runner.Fate{Gone: true, Reason: executor.ReasonLifetime}, nil
	case f.oom:
		return runner.Fate{Gone: true, Reason: executor.ReasonMemory}, nil
	}
	return runner.Fate{Gone: true, Reason: executor.ReasonSandbox}, nil
}
