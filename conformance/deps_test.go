package conformance

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies keeps testing, and the layer of the adapters, out of programs that run the
// suite.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/execbroker/execbroker/"
	deps := strings.Fields(string(out))
	for _, not := range []string{"testing", "flag", module + "executor/driver", module + "internal/fake"} {
		if slices.Contains(deps, not) {
			t.Errorf("the engine depends on %s", not)
		}
	}
}
