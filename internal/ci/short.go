package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// modulePath is the path of what is tested.
const modulePath = "github.com/execbroker/execbroker"

// isSandbox reports whether who uses a package in a test needs what prepare makes available, and minutes.
func isSandbox(path string) bool {
	dir := strings.TrimPrefix(path, modulePath+"/")
	return dir == "docker/dockertest" || dir == "internal/runner" || slices.ContainsFunc(subjects, func(s subject) bool { return s.dir == dir })
}

// short runs the tests that need nothing but Go, Python and Node.js and are done in a minute or two: what a change may have broken shows
// most often there. It looks for no data races, which test does.
func short(ctx context.Context, _ options) (tally, error) {
	packages, err := withoutSandbox(ctx)
	if err != nil {
		return tally{}, err
	}
	headline("go test -short of %d packages", len(packages))
	t, _, err := runTests(ctx, os.Stdout, ".", false, append([]string{"-short", "-shuffle=on", "-vet=off"}, packages...)...)
	return t, err
}

// withoutSandbox lists the packages with tests none of which depends on a sandbox.
func withoutSandbox(ctx context.Context) (packages []string, err error) {
	// One line for each program that go test would build of a package, one for the package with its tests, and one for its external tests.
	out, err := output(ctx, "go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	needs := map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if !slices.Contains(packages, f[0]) {
			packages = append(packages, f[0])
		}
		needs[f[0]] = needs[f[0]] || slices.ContainsFunc(f, isSandbox) // itself or one that it depends on
	}
	packages = slices.DeleteFunc(packages, func(p string) bool { return needs[p] })
	if len(packages) == 0 {
		return nil, fmt.Errorf("go list ./... finds no package to test")
	}
	return packages, nil
}
