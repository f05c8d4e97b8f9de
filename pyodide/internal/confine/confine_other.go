//go:build !linux || !(amd64 || arm64)

package confine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Probe reports why m cannot be used on this machine, or nil.
func Probe(_ context.Context, m Method) error {
	if m == None {
		return nil
	}
	return fmt.Errorf("%s on %s/%s: %w", m, runtime.GOOS, runtime.GOARCH, ErrUnavailable)
}

// Of returns the layers that m puts around a program.
func Of(Method) Layers { return Layers{} }

// Command returns the command that starts p. Limits are not applied on this system.
func Command(m Method, p Program) (c *exec.Cmd, done func(), err error) {
	if err := Probe(context.Background(), m); err != nil {
		return nil, nil, err
	}
	c = exec.Command(p.Path, p.Args...) //nolint:noctx // the caller owns the life of the process
	c.Env = append([]string{}, p.Env...)
	return c, func() {}, nil
}

// OwnUsers returns false: processes run as the user of this one.
func OwnUsers() bool { return false }

// Adjustable returns nil: there are no limits to change.
func Adjustable(Method) error { return nil }

// PID returns the number of the program itself.
func PID(_ Method, started int) int { return started }

// Kill reports false: no process watches over another.
func Kill(Method, int) bool { return false }

// Signal returns the number of the signal that ended the program, or zero.
func Signal(_ Method, p *os.ProcessState) syscall.Signal {
	if w, ok := p.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && w.Signaled() {
		return w.Signal()
	}
	return 0
}
