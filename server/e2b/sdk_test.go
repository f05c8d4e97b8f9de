package e2b_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server/e2b"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// shells makes the scripts of the fake what a shell runs, since that is what the SDKs ask for.
type shells struct{ executor.Executor }

func (s shells) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	session, err := s.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return shell{session}, nil
}

type shell struct{ executor.Session }

func (s shell) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if len(req.Command) == 4 && strings.Join(req.Command[:3], " ") == "/bin/bash -l -c" {
		req.Command = []string{"script", req.Command[3]}
	}
	return s.Session.Run(ctx, req, emit)
}

// The judges of this package are E2B's own SDKs: a program that uses them gets what it expects, on every backend that has it.
func TestSDKs(t *testing.T) {
	dir := npmtest.Install(t, "testdata/sdk")
	memory := func(*testing.T) (executor.Executor, error) {
		x, err := fake.New(fake.Options{}).Open(driver.Env{})
		return shells{x}, err
	}
	engine := func(t *testing.T) (executor.Executor, error) {
		return e2btest.Docker(t.Context(), "e2b-sdk", docker.Config{Ports: true})
	}
	wasm := func(t *testing.T) (executor.Executor, error) {
		return pyodide.Open(t.Context(), driver.Env{Owner: "e2b-sdk"}, pyodide.Config{})
	}
	for _, c := range []struct {
		name, program string
		open          func(*testing.T) (executor.Executor, error)
	}{
		{"docker-ports", "ports.mjs", engine},
		{"memory", "check.mjs", memory}, {"docker", "docker.mjs", engine}, {"docker-v1", "v1.mjs", engine}, {"pyodide", "pyodide.mjs", wasm},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := c.open(t)
			if err != nil {
				t.Fatal(err)
			}
			cfg := e2b.Config{Keys: []string{e2btest.Key, "e2b_0123"}}
			if c.program == "ports.mjs" {
				cfg.Domain, cfg.Ports = "boxes.test", e2b.PortsPrivate
			}
			s, err := e2btest.Serve(t.Context(), x, e2btest.Options{Server: cfg})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			node := exec.CommandContext(ctx, "node", filepath.Join(dir, c.program))
			node.Env = append(os.Environ(), "E2B_API_URL="+s.URL, "E2B_SANDBOX_URL="+s.URL, "E2B_API_KEY="+e2btest.Key, "OTHER_KEY=e2b_0123")
			var stderr strings.Builder
			node.Stderr = &stderr
			got, err := node.Output()
			if err != nil || !strings.HasSuffix(string(got), "\ndone\n") {
				t.Errorf("%v\n%s\n%s", err, got, &stderr)
			}
			t.Logf("%s", got)
		})
	}
}
