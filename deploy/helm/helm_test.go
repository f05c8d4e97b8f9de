// Package helm has the chart, and tests that render it and install it.
package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

const chart = "execbroker"

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
