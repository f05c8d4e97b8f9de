// Package helm has the chart, and tests that render it and install it.
package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// version is that of Helm. It is built from its source once and kept in the cache, as the programs
// of the cluster are.
const version = "v4.3.1"

const chart = "execbroker"

var helmProgram = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "execbroker", "helm", version)
	program := filepath.Join(dir, "helm")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	cmd := exec.CommandContext(context.Background(), "nice", "-n", "10", "go", "install", "-trimpath", "-ldflags=-s -w", "helm.sh/helm/v4/cmd/helm@"+version)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build of Helm: %w\n%s", err, out)
	}
	return program, nil
})

// helm returns the path of Helm.
func helm(t *testing.T) string {
	t.Helper()
	program, err := helmProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// environment is that of a person without settings of Helm.
func environment(t *testing.T, more ...string) (env []string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "HELM_") && !strings.HasPrefix(name, "XDG_") && name != "KUBECONFIG" {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+t.TempDir()), more...)
}

// static builds execbroker as its image has it.
func static(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "execbroker")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "../../cmd/execbroker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// output runs a command and returns what it wrote to standard output. The error has what it wrote
// to standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, &stderr)
	}
	return stdout.String(), nil
}
