package pyodide

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/execbroker/execbroker/executor"
)

// install installs Deno and Pyodide into dir with npm.
//
// The lock file pins every package by its hash and contains no address: npm uses the registry,
// mirror or proxy that the user has configured. No package scripts are run. The binary for the
// user's platform is an optional dependency, which some configurations leave out, so it is
// requested explicitly.
func install(ctx context.Context, dir string) error {
	if err := room(filepath.Dir(dir), neededBytes); err != nil { // the name of dir is one of a moment
		return err
	}
	npm, err := findNPM(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := runtimeFiles.ReadFile("runtime/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	executor.ReportProgress(ctx, executor.Progress{What: fmt.Sprintf("installing Deno %s and Pyodide %s (about 45 MB, once)", DenoVersion, PyodideVersion)})
	checkpoint("npm")
	if err := runNPM(ctx, npm, dir, "ci", "--ignore-scripts", "--include=optional", "--no-audit", "--no-fund", "--no-progress",
		"--fetch-retries=1", "--fetch-retry-mintimeout=2000"); err != nil {
		return err
	}
	checkpoint("installed")
	return nil
}
