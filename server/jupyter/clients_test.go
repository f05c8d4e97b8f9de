package jupyter

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
)

// overPyodide serves kernels of Pyodide, and returns the URL.
func overPyodide(t *testing.T) string {
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

// JupyterLab's own client comes from npm. With --gateway-url, JupyterLab's server is between it and
// the kernels, here that of Debian.
func TestLab(t *testing.T) {
	t.Parallel()
	program := filepath.Join(npmtest.Install(t, "testdata/clients"), "lab.mjs")
	lab := func(t *testing.T, env ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		node := exec.CommandContext(ctx, "node", program)
		node.Env = append(os.Environ(), env...)
		if out, err := node.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		lab(t, "SERVER_URL="+overPyodide(t), "SERVER_KEY="+alice)
	})
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		lab(t, "GATEWAY=1", "SERVER_URL="+gateway(t, overPyodide(t)), "SERVER_KEY="+bob)
	})
}

// gateway starts a Jupyter server that takes its kernels from another, and returns its URL. Its
// token is bob's key.
func gateway(t *testing.T, url string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close() // it is free for the server
	home := t.TempDir()
	python := exec.Command("/usr/bin/python3", "-m", "jupyter_server", "--gateway-url="+url, "--allow-root", "--no-browser", "--port="+port,
		"--ServerApp.port_retries=0", "--ServerApp.token="+bob, "--ServerApp.root_dir="+home)
	python.Env = append(os.Environ(), "HOME="+home, "JUPYTER_GATEWAY_AUTH_TOKEN="+alice)
	said, err := python.StderrPipe()
	if err == nil {
		err = python.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	t.Cleanup(func() {
		_ = python.Process.Kill()
		reading.Wait()
		_ = python.Wait()
	})
	lines := bufio.NewScanner(said)
	for !strings.Contains(lines.Text(), "Kernels will be managed by the Gateway") {
		if !lines.Scan() {
			t.Fatalf("the server has not started: %v", lines.Err())
		}
	}
	reading.Go(func() { _, _ = io.Copy(io.Discard, said) })
	return "http://127.0.0.1:" + port
}

// nbclient and jupyter_kernel_test are Debian's, and so is the client of gateways below them.
func TestGateway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	python := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/clients/gateway.py")
	python.Env = append(os.Environ(), "JUPYTER_GATEWAY_URL="+overPyodide(t), "JUPYTER_GATEWAY_AUTH_TOKEN="+alice, "HOME="+t.TempDir())
	out, err := python.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "OK (skipped=2)\n") { // pagers, and clear_output, which kernels do not have
		t.Fatalf("%v\n%s", err, out)
	}
}
