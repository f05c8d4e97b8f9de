package kubernetes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// testCluster brings up a real cluster for a test, and ends it with it.
func testCluster(t *testing.T) *kubetest.Cluster {
	t.Helper()
	c, err := startCluster(t.Context())
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

func startCluster(ctx context.Context) (*kubetest.Cluster, error) {
	cache, err := kubetest.Dir()
	if err != nil {
		return nil, err
	}
	programs, err := kubetest.Build(ctx, cache)
	if err != nil {
		return nil, err
	}
	images, err := kubetest.EngineImages(ctx, dockertest.Python, dockertest.NoPython)
	if err != nil {
		return nil, err
	}
	return kubetest.Start(ctx, kubetest.Options{Cache: cache, Images: images, Programs: programs})
}

// newNamespace makes a namespace for sandboxes.
func newNamespace(ctx context.Context, c *kubetest.Cluster) (string, error) {
	name := "test-" + strings.ToLower(rand.Text()[:10])
	_, err := c.Do(ctx, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
	if err == nil {
		// Pods are refused until the namespace has its service account.
		err = untilOK(ctx, func() error {
			_, err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", "")
			return err
		})
	}
	return name, err
}

// testConfig is the configuration of a backend in a namespace of a cluster.
func testConfig(kubeconfig, namespace string) Config {
	return Config{
		Kubeconfig: kubeconfig, Namespace: namespace, Image: dockertest.Python, Pull: PullNever,
		Requests: 0.02, // the node is small
	}
}

func TestMain(m *testing.M) { os.Exit(mainOf(m)) }
