package kubernetes

import (
	"errors"
	"os"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// testCluster brings up a real cluster for a test, and ends it with it.
func testCluster(t testing.TB) *kubetest.Cluster {
	t.Helper()
	c, err := kubetest.Open(t.Context(), dockertest.Python, dockertest.NoPython)
	if errors.Is(err, kubetest.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// testConfig is the configuration of a backend in a namespace of a cluster.
func testConfig(kubeconfig, namespace string) Config {
	return Config{
		Kubeconfig: kubeconfig, Namespace: namespace, Image: dockertest.Python, Pull: PullNever,
		Requests: 0.02, // the node is small
	}
}

func TestMain(m *testing.M) { os.Exit(mainOf(m)) }
