package api

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// go generate makes of the description what is committed.
func TestGenerated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "api.gen.go")
	out, err := exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-config", "generate.yaml", "-o", name, "openapi.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("api.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("api.gen.go is not what openapi.yaml makes; run go generate ./e2b/internal/api")
	}
}
