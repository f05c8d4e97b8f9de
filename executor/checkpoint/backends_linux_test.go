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

// TestPyodideToDocker carries the values from WebAssembly to a container with another version of
// Python, and back.
func TestPyodideToDocker(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	owner := "test-" + strings.ToLower(rand.Text())
	far, err := docker.Open(t.Context(), driver.Env{Owner: owner}, docker.Config{Host: host, Image: dockertest.Trixie, Pull: docker.PullNever, Timeout: driver.Duration(time.Minute)})
	check(t, err)
	t.Cleanup(func() { check(t, far.Close()) })
	near, err := pyodide.Open(t.Context(), driver.Env{Owner: owner, OneShot: true}, pyodide.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, near.Close()) })
	first, second := create(t, near, executor.Spec{}), create(t, near, executor.Spec{})
	carry(t, talk{first, ""}, talk{create(t, far, executor.Spec{}), ""}, talk{second, ""})
}
