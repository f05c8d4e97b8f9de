package kubetest

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// TestCluster brings up a cluster, kills its API server and its kubelet, and ends it: nothing of it
// is left on this machine.
func TestCluster(t *testing.T) {
	cache, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := Build(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Options{Cache: cache, Programs: programs})
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Kill(APIServer), c.StartAPIServer(t.Context()), c.Kill(Kubelet), c.StartKubelet(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := c.Do(t.Context(), http.MethodGet, "/api/v1/nodes", ""); err != nil {
		t.Error(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.InterfaceByName(link); err == nil {
		t.Errorf("interface %s is left", link)
	}
	if left, err := filepath.Glob(groups); err != nil || len(left) > 0 {
		t.Errorf("control groups are left: %q, %v", left, err)
	}
}
