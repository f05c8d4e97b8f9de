package checkpoint_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

// inDocker opens Docker with another version of Python than this machine's.
func inDocker(tb testing.TB, owner string) executor.Executor {
	tb.Helper()
	host, err := dockertest.Host()
	if err != nil {
		tb.Skip(err)
	}
	x, err := docker.Open(tb.Context(), driver.Env{Owner: owner}, docker.Config{Host: host, Image: dockertest.Trixie, Pull: docker.PullNever, Timeout: driver.Duration(time.Minute)})
	check(tb, err)
	tb.Cleanup(func() { check(tb, x.Close()) })
	return x
}

// TestPyodideToDocker carries the values from WebAssembly to a container with another version of
// Python, and back.
func TestPyodideToDocker(t *testing.T) {
	owner := "test-" + strings.ToLower(rand.Text())
	far := inDocker(t, owner)
	near, err := pyodide.Open(t.Context(), driver.Env{Owner: owner, OneShot: true}, pyodide.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, near.Close()) })
	first, second := create(t, near, executor.Spec{}), create(t, near, executor.Spec{})
	carry(t, talk{first, ""}, talk{create(t, far, executor.Spec{}), ""}, talk{second, ""})
}
