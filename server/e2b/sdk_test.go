package e2b_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// The judges of this package are E2B's own SDKs: a program that uses them gets what it expects, on
// every backend that has it.
func TestSDKs(t *testing.T) {
	dir := npmtest.Install(t, "testdata/sdk")
	t.Run("version", func(t *testing.T) { testVersion(t, filepath.Join(dir, "node_modules/e2b/dist/index.mjs")) })
	t.Run("methods", func(t *testing.T) { testMethods(t, dir) })
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
		{"memory", "check.mjs", memory}, {"refusals", "refusals.mjs", memory}, {"docker", "docker.mjs", engine}, {"docker-v1", "v1.mjs", engine}, {"pyodide", "pyodide.mjs", wasm},
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
			if c.program == "refusals.mjs" {
				testRefusals(t, string(got))
			}
		})
	}
}

// compared finds the versions that the SDK compares with.
var compared = regexp.MustCompile(`compareVersions\((\S+), (?:"([\d.]+)"|(\w+))\)`)

// gates are the versions of sandboxes from which on the SDK does something, and what that is. The
// step "version" of check.mjs does it.
var gates = map[string]string{
	"0.1.0": "Sandbox.create goes on", "0.1.4": "recursive watchDir", "0.1.5": "getMetrics", "0.2.4": "disks in getMetrics", "0.3.0": "stdin: false",
	"0.4.0": "no user is sent", "0.5.2": "closeStdin", "0.5.7": "useOctetStream", "0.6.2": "metadata of files", "0.6.3": "includeEntry", "0.6.4": "allowNetworkMounts",
}

// testVersion tests that the SDK, which is at path, finds no sandbox of this server too old, for
// anything.
func testVersion(t *testing.T, path string) {
	code, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range compared.FindAllSubmatch(code, -1) {
		if string(m[1]) == "nodeVersion" {
			continue
		}
		v := string(m[2])
		if v == "" {
			d := regexp.MustCompile(`const ` + string(m[3]) + ` = "([\d.]+)"`).FindSubmatch(code)
			if d == nil {
				t.Fatalf("%s: nothing says what %s is", path, m[3])
			}
			v = string(d[1])
		}
		found[v] = true
		if gates[v] == "" {
			t.Errorf("the SDK does something from version %s on: add it to gates, and to check.mjs", v)
		}
	}
	for v, what := range gates {
		if !found[v] {
			t.Errorf("the SDK no longer looks at %s for %s", v, what)
		}
		if slices.Compare(numbers(t, v), numbers(t, e2b.EnvdVersion)) > 0 {
			t.Errorf("%s is from version %s on, and sandboxes have %s", what, v, e2b.EnvdVersion)
		}
	}
}

func numbers(t *testing.T, version string) (n []int) {
	t.Helper()
	for part := range strings.SplitSeq(version, ".") {
		i, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, i)
	}
	return n
}
