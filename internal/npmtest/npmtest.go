// Package npmtest installs npm programs for tests, at the versions of a lock file. npm uses its
// cache for packages that it has downloaded before.
package npmtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Install copies a directory with a package.json, a package-lock.json and possibly programs to a
// temporary directory of the test, and installs the packages there. It returns that directory.
func Install(t testing.TB, from string) string {
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
