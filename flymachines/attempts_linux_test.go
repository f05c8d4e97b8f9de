package flymachines

import (
	"maps"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// TestAttempts makes in a Machine what attackers try.
func TestAttempts(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	const inConfiguration, image = "docker.io/library/hostile:trixie", "execbroker-test/flymachines-attempts:hostile"
	remove, err := dockertest.Commit(t.Context(), host, image, dockertest.Trixie, attempttest.Image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(c *flytest.Config) {
		c.Images = maps.Clone(c.Images)
		c.Images[inConfiguration] = image
	})
	s := create(t, w.open(t, plain, func(c *Config) { c.Image = inConfiguration }), executor.Spec{})
	attempttest.Try(t, s, Type, attempttest.Kernel, attempttest.Network, attempttest.Files, attempttest.Supervisor)
}
