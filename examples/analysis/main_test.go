package main

import (
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
)

var update = flag.Bool("update", false, "renew testdata")

// docker returns a configuration with the engine and image of the tests.
func docker(t *testing.T) string {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("backends:\n  local: {type: pyodide}\n  box: {type: docker, host: %q, image: %q, pull: never}\n", host, dockertest.Python)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return config
}

// The program prints and creates the same on every backend.
func TestRun(t *testing.T) {
	for name, args := range map[string]func(t *testing.T) []string{
		"default": func(*testing.T) []string { return nil },
		"pyodide": func(t *testing.T) []string { return []string{"--config", docker(t), "--backend", "local"} },
		"docker":  func(t *testing.T) []string { return []string{"--config", docker(t), "--backend", "box"} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var out strings.Builder
			if err := run(t.Context(), append(args(t), "--out", dir), &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			chart, err := os.ReadFile(filepath.Join(dir, "seattle.svg"))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "testdata/output.txt", out.String())
			golden(t, "testdata/seattle.svg", string(chart))
		})
	}
}

// The variant gives the same answers. The charts depend on the version of matplotlib.
func TestPandas(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	if err := run(t.Context(), []string{"--config", docker(t), "--backend", "box", "--pandas", "--out", dir}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	golden(t, "testdata/output-pandas.txt", regexp.MustCompile(`\d+ bytes`).ReplaceAllString(out.String(), "N bytes"))
	plain, err := os.ReadFile("testdata/output.txt")
	if err != nil {
		t.Fatal(err)
	}
	if answers, _, _ := strings.Cut(string(plain), "\n\n|"); !strings.HasPrefix(out.String(), answers) {
		t.Errorf("got other answers than\n%s", answers)
	}
	chart, err := os.ReadFile(filepath.Join(dir, "seattle.svg"))
	if err != nil || !strings.Contains(string(chart), "<svg") {
		t.Errorf("got %.100q, %v", chart, err)
	}
	f, err := os.Open(filepath.Join(dir, "figure-1.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c, err := png.DecodeConfig(f); err != nil || c.Width <= c.Height {
		t.Errorf("got %dx%d, %v, want a broad figure", c.Width, c.Height, err)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestUnknownBackend(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("backends:\n  local: {type: pyodide}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := run(t.Context(), []string{"--config", config, "--backend", "locla"}, &out)
	if err == nil || !strings.Contains(err.Error(), "local") {
		t.Errorf("got %v, want an error that names the backends there are", err)
	}
}
