// Package helmtest has Helm for tests of charts.
package helmtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// version is that of Helm. It is built from its source once and kept in the cache, as the programs
// of the cluster are.
const version = "v4.3.1"

var program = sync.OnceValues(func() (string, error) {
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

// Program returns the path of Helm.
func Program(t testing.TB) string {
	t.Helper()
	program, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Environment is that of a person without settings of Helm, and more.
func Environment(t testing.TB, more ...string) (env []string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "HELM_") && !strings.HasPrefix(name, "XDG_") && name != "KUBECONFIG" {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+t.TempDir()), more...)
}

// Output runs a command and returns what it wrote to standard output. The error has what it wrote
// to standard error.
func Output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// Template renders a chart, a directory or a package, for the release shop in the namespace apps,
// unless further arguments of helm template say otherwise.
func Template(t testing.TB, chart, values string, args ...string) (string, error) {
	t.Helper()
	return run(t, values, append([]string{"template", "shop", chart}, args...)...)
}

// Lint judges a chart with values.
func Lint(t testing.TB, chart, values string) {
	t.Helper()
	if out, err := run(t, values, "lint", "--strict", chart); err != nil {
		t.Errorf("%v%s", err, out)
	}
}

// run runs Helm with values.
func run(t testing.TB, values string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), Program(t), slices.Insert(args, 1, "--namespace", "apps", "--values", file)...)
	cmd.Env = Environment(t)
	return Output(cmd)
}
