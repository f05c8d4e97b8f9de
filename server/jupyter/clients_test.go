package jupyter

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
)

// real serves kernels of Pyodide, and returns the URL.
func real(t *testing.T) string {
	t.Helper()
	x, err := pyodide.Open(t.Context(), driver.Env{Owner: "jupyter"}, pyodide.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	cfg := Config{}
	if err := cfg.Keys.Add(alice, server.Client{Subject: "alice"}); err != nil {
		t.Fatal(err)
	}
	s, err := New(x, cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	return h.URL
}

// JupyterLab's own client comes from npm.
func TestLab(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", filepath.Join(npmtest.Install(t, "testdata/clients"), "lab.mjs"))
	node.Env = append(os.Environ(), "SERVER_URL="+real(t), "SERVER_KEY="+alice)
	if out, err := node.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// nbclient and jupyter_kernel_test are Debian's, and so is the client of gateways below them.
func TestGateway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	python := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/clients/gateway.py")
	python.Env = append(os.Environ(), "JUPYTER_GATEWAY_URL="+real(t), "JUPYTER_GATEWAY_AUTH_TOKEN="+alice, "HOME="+t.TempDir())
	out, err := python.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nOK") {
		t.Fatalf("%v\n%s", err, out)
	}
}
