package modal

import (
	"maps"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
	"github.com/execbroker/execbroker/modal/modaltest"
)

// TestAttempts makes in a Sandbox what attackers try.
func TestAttempts(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	const inConfiguration, image = "docker.io/library/hostile:trixie", "execbroker-test/modal-attempts:hostile"
	remove, err := dockertest.Commit(t.Context(), host, image, dockertest.Trixie, attempttest.Image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(c *modaltest.Config) {
		c.Images = maps.Clone(c.Images)
		c.Images[inConfiguration] = image
	})
	s := create(t, w.open(t, plain, func(c *Config) { c.Image = inConfiguration }), executor.Spec{})
	attempttest.Try(t, s, Type, attempttest.Network, attempttest.Files, attempttest.Supervisor)
}
