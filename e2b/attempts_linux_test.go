package e2b

import (
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	tried "github.com/execbroker/execbroker/internal/attempts"
)

// TestAttempts makes in a sandbox of the stand-in what attackers try.
func TestAttempts(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	const image = "execbroker-test/e2b-attempts:hostile"
	remove, err := dockertest.Commit(t.Context(), host, image, dockertest.Python, tried.Image)
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
	tried.Try(t, w.session(), Type, tried.Kernel, tried.Network, tried.Files, tried.Supervisor)
}
