package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/missing"
)

// fail classifies an error of the client. No user code runs in the calls that it is for, and those
// that may have had an effect without telling are idempotent by the name of the container.
func (e *engine) fail(ctx context.Context, err error) error {
	if de := (*executor.Error)(nil); errors.As(err, &de) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if cause == errNoAnswer {
			e.forget()
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, missing.New("", fmt.Errorf("%w within %v: %s (%s)", errNoAnswer, e.timeout, e.at.host, e.at.from),
				"restart it (`sudo systemctl restart docker`), or raise timeout if it is only slow"))
		}
		return cause // the caller's
	}
	switch {
	case errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return driver.Fail(executor.ErrAuth, executor.RanNo, err)
	case errdefs.IsInvalidArgument(err), errdefs.IsNotImplemented(err):
		// What is sent was checked against what the engine says of itself.
		return driver.Fail(executor.ErrInternal, executor.RanNo, err)
	case client.IsErrConnectionFailed(err):
		e.forget()
		return e.diagnose(ctx, err)
	}
	e.forget()
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
}

// diagnose finds out why nobody answers. The client tells it in words only.
func (e *engine) diagnose(ctx context.Context, err error) error {
	path, ok := strings.CutPrefix(e.at.host, "unix://")
	if !ok {
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%s (%s): %w", e.at.host, e.at.from, err))
	}
	fail := func(kind error, problem string, cause error, fix string) error {
		return driver.Fail(kind, executor.RanNo, missing.New("", fmt.Errorf("%s (%s): %s%w", path, e.at.from, problem, cause), fix))
	}
	var d net.Dialer
	c, derr := d.DialContext(ctx, "unix", path)
	switch {
	case derr == nil:
		c.Close()
	case errors.Is(derr, fs.ErrPermission):
		return fail(executor.ErrAuth, "this user may not open the socket: ", fs.ErrPermission,
			"put the user into the group docker (`sudo usermod -aG docker $USER`, which is as good as root) and log in again, or use a rootless engine")
	case errors.Is(derr, fs.ErrNotExist):
		return fail(executor.ErrUnavailable, "", fs.ErrNotExist, "install and start Docker, or say where it is with host, context or DOCKER_HOST")
	case errors.Is(derr, syscall.ECONNREFUSED):
		return fail(executor.ErrUnavailable, "the engine is not running: ", syscall.ECONNREFUSED,
			"start it (`sudo systemctl start docker`), or say where another is with host, context or DOCKER_HOST")
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%s (%s): %w", path, e.at.from, err))
}

// unsupported refuses what this engine or image lacks, though the configuration declares it.
func unsupported(cause error, missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing, Err: cause}
}
