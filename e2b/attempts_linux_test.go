package e2b

import (
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// TestAttempts makes in a sandbox of the stand-in what attackers try.
func TestAttempts(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	const image = "execbroker-test/e2b-attempts:hostile"
	remove, err := dockertest.Commit(t.Context(), host, image, dockertest.Python, attempttest.Image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	containers := containersWithRoom
	containers.Image = image
	w := newWorldOver(t, containers, func(c *Config) { c.Languages = []executor.Language{executor.Python} })
	attempttest.Try(t, w.session(), Type, attempttest.Kernel, attempttest.Network, attempttest.Files, attempttest.Supervisor)
}
