package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// reads names files that the tests of a package read and that are neither of it nor of what it
// imports: a path from the root of the repository, or a directory with all below it.
// TestReadsAreKnown finds most of them.
var reads = map[string][]string{
	".":                    {"."},
	"internal/ci":          {"."},
	"backends/all":         {"docs/reports"},
	"clients/npm":          {"LICENSE"},
	"cmd/execbroker":       {"docs/grafana", "docs/guides", "server.json"},
	"deploy/helm":          {"docs/guides/helm.md"},
	"internal/attempttest": {"docs/security"},
	"internal/ci/release":  {"deploy/helm/execbroker", "docs/guides/install.md", "SECURITY.md"},
	"docker":               {"docs/security"},
	"examples/thirdparty":  {"docs/guides/write-an-adapter.md"},
	"pyodide":              {"docs/security", "docs/reports"},
	"server/e2b":           {"docs/guides/e2b-sdks.md"},
	"flymachines/flytest":  {"docs/guides/fly-emulator.md"},
}

// engineReads is what packages of the engine's lane read besides: their images are made of it.
var engineReads = []string{"docker/image", "flymachines/image", "internal/ci/images.go", "internal/ci/images_debian.go"}

// affects reports whether the tests of a package may find something else when a file changes. dirs
// are the directories with packages. What is no Go file belongs to the package in whose directory
// it is, or in the closest above.
func affects(name string, p *testPackage, dirs map[string]bool) bool {
	if name == "go.mod" || name == "go.sum" {
		return true
	}
	dir := path.Dir(name)
	for !dirs[dir] && dir != "." {
		dir = path.Dir(dir)
	}
	if dir == p.dir {
		return true
	}
	if !strings.HasSuffix(name, "_test.go") && dir != "." && p.deps[modulePath+"/"+dir] {
		return true
	}
	others := reads[p.dir]
	if p.lane() == engineLane {
		others = append(slices.Clone(others), engineReads...)
	}
	return slices.ContainsFunc(others, func(of string) bool { return of == "." || name == of || strings.HasPrefix(name, of+"/") })
}

// packageDirs returns the directories with packages.
func packageDirs(ctx context.Context) (map[string]bool, error) {
	out, err := output(ctx, "go", "list", "./...")
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for _, p := range strings.Fields(out) {
		dirs[directory(p)] = true
	}
	return dirs, nil
}

// changed lists the files that differ from what they were when rev and this branch parted,
// committed or not.
func changed(ctx context.Context, rev string) ([]string, error) {
	base, err := output(ctx, "git", "merge-base", rev, "HEAD")
	if err != nil {
		return nil, err
	}
	differ, err := output(ctx, "git", "diff", "--name-only", "--no-renames", "-z", strings.TrimSpace(base))
	if err != nil {
		return nil, err
	}
	unknown, err := output(ctx, "git", "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	names := strings.Split(differ+unknown, "\x00")
	return names[:len(names)-1], nil
}

// contents are the tracked files with a hash of what is in each.
func contents(ctx context.Context) (map[string]string, error) {
	names, err := tracked(ctx, ".")
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(names))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		all[name] = hex.EncodeToString(sum[:])
	}
	return all, nil
}

// inputs identifies everything in the repository that decides what the tests of a package find,
// what else does, such as the selection, and the machine as far as it is known.
func inputs(p *testPackage, files map[string]string, dirs map[string]bool, machine string, others ...string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n", machine, others)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if affects(name, p, dirs) {
			fmt.Fprintf(h, "%s %s\n", name, files[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
