package docker

import (
	"context"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// sandbox is the container of a session.
type sandbox struct {
	b         *backend
	id        string // of the session
	container string // ID at the engine
	image     string // ID of that of the container
	main      *stdio // of the runner; nil in a process that has attached
	failure   error  // of the start; nil: it has started
}

var (
	_ runner.Sandbox  = (*sandbox)(nil)
	_ runner.Base     = (*sandbox)(nil)
	_ runner.Observer = (*sandbox)(nil)
	_ driver.Aser     = (*sandbox)(nil)
)

// As implements driver.Aser.
func (s *sandbox) As(target any) bool {
	c, ok := target.(*Container)
	if ok {
		*c = Container{Client: s.b.engine.Client, ID: s.container}
	}
	return ok
}

// Base implements runner.Base.
func (s *sandbox) Base() string { return s.image }

// Connect implements runner.Sandbox, through a process of root in the container.
func (s *sandbox) Connect(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	e := s.b.engine
	made, err := e.ExecCreate(ctx, s.container, client.ExecCreateOptions{
		User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true, WorkingDir: "/", Cmd: command,
	})
	if errdefs.IsNotFound(err) {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	}
	if err == nil {
		a, aerr := e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
		if aerr == nil {
			return newStdio(a.Conn), nil
		}
		err = aerr
	}
	if f, ferr := e.exit(ctx, s.container); ferr == nil && f.ended {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
	}
	return nil, e.fail(ctx, err)
}

// Observe implements runner.Observer.
func (s *sandbox) Observe(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	return s.Connect(ctx, command)
}

// Termination implements runner.Sandbox.
func (s *sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	f, err := s.b.engine.exit(ctx, s.container)
	if err != nil || !f.ended {
		return runner.Termination{}, err
	}
	end := runner.Termination{Ended: true, Reason: executor.ReasonSandbox}
	switch {
	case f.code < 0: // the engine was restarted: that says nothing about the code
		end.Reason = ""
	case f.killed, f.code == 0:
		end.Reason = executor.ReasonLifetime
	case f.oom:
		end.Reason = executor.ReasonMemory
	case s.main != nil && s.main.stderr() != "":
		end.Code, end.Stderr = f.code, s.main.stderr()
	}
	return end, nil
}

// Remove implements runner.Sandbox.
func (s *sandbox) Remove(ctx context.Context) error {
	if s.failure != nil {
		return s.b.engine.undo(ctx, s.id, s.failure)
	}
	return s.b.engine.destroy(ctx, s.id)
}
