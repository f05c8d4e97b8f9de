package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestRegenerate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test/m\n\ngo 1.26\n")
	write("m.go", "package m\n\n//go:generate sh -c \"printf 'made' > good; printf '// \\tprotoc        v3.21.12\\nsame\\n' > version; printf 'made' > changed; printf 'x' > new\"\n")
	write("good", "made")
	write("version", "// \tprotoc        (unknown)\nsame\n")
	write("changed", "by hand")
	write("version", "// \tprotoc        v6.0\nsame\n")
	if out, err := exec.CommandContext(t.Context(), "git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := regenerate(t.Context(), dir)
	if want := []string{"changed", "new"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "changed")); err != nil || string(b) != "by hand" {
		t.Errorf("got %q, %v: the repository itself is left alone", b, err)
	}
	write("m.go", "package m\n\n//go:generate false\n")
	if _, err := regenerate(t.Context(), dir); err == nil {
		t.Error("got no error of a generator that fails")
	}
}
