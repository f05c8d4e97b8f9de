// Package npmtest installs programs of npm for tests, at the versions of a lock file. What npm has
// fetched before it takes from its cache.
package npmtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Install copies a directory with a package.json and a package-lock.json, and whatever programs are
// beside them, to one that the test removes, and installs there what they name. It returns that
// directory.
func Install(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--prefer-offline")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}
