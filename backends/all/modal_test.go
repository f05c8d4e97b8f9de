package all_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/modal/modaltest"
)

// TestParityOfModal is TestParity between Docker and Modal. It runs alone, because the SDK of Modal
// takes the address of its stand-in from the environment.
func TestParityOfModal(t *testing.T) {
	engine, err := dockertest.Host()
	check(t, err)
	const image = "docker.io/library/the:image"
	s, err := modaltest.New(t.Context(), modaltest.Config{Engine: engine, Images: map[string]string{image: dockertest.Python}, MaxSandboxes: 100})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	id, secret := s.Token()
	for name, value := range map[string]string{
		"MODAL_SERVER_URL": s.URL(), "MODAL_TOKEN_ID": id, "MODAL_TOKEN_SECRET": secret, "MODAL_CONFIG_PATH": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	cfg, err := backends.Parse(fmt.Appendf(nil, `
backends:
  docker: {type: docker, host: %q, image: %q, pull: never, languages: [python, javascript]}
  modal: {type: modal, app: sandboxes, token_id: {env: MODAL_TOKEN_ID}, token_secret: {env: MODAL_TOKEN_SECRET}, image: %q, runtime: vm, languages: [python, javascript]}
routes:
  - {name: all, split: [{backend: docker, weight: 1}]}
`, engine, dockertest.Python, image))
	check(t, err)
	b, err := backends.Open(t.Context(), driver.Env{Owner: "parity-of-modal"}, all.Registry(), cfg)
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	var both []executor.Executor
	for _, name := range []string{"docker", "modal"} {
		x, ok := b.Backend(name)
		if !ok {
			t.Fatalf("no backend %s", name)
		}
		both = append(both, x)
	}
	compared(t, both, programs(t, 1))
}
