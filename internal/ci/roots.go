package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// rootsVariable tells the tests of runner where the roots are.
const rootsVariable = "EXECBROKER_ROOTS"

// roots are systems whose Python, and perhaps Node, the runner has to work with, beside those of
// this machine: directories that are made like the images of the same names, for tests that need no
// engine.
var roots = []recipe{
	{Image: "bullseye", Suite: "bullseye", Packages: []string{"python3"}},           // Python 3.9
	{Image: "bookworm", Suite: "bookworm", Packages: []string{"python3", "nodejs"}}, // Python 3.11, Node.js 18
	{Image: "trixie", Suite: "trixie", Packages: []string{"python3"}},               // Python 3.13
}

// ensureRoots makes the roots that are not there, side by side.
func ensureRoots(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return "", errors.New("only root on Linux can make and enter them")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "execbroker", "roots")
	dirs, errs := make([]string, len(roots)), make([]error, len(roots))
	var missing []int
	for i, r := range roots {
		dirs[i] = filepath.Join(dir, r.hash()[:12], r.Image)
		if _, err := os.Stat(dirs[i]); err != nil {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		from, err := debian(ctx)
		if err != nil {
			return "", err
		}
		var wg sync.WaitGroup
		for _, i := range missing {
			wg.Go(func() { errs[i] = roots[i].unpack(ctx, dirs[i], from) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
	}
	if err := os.Setenv(rootsVariable, strings.Join(dirs, string(filepath.ListSeparator))); err != nil {
		return "", err
	}
	return fmt.Sprintf("found %d, made %d", len(roots)-len(missing), len(missing)), nil
}

// unpack makes a root directory. It gets its name when it is complete.
func (r recipe) unpack(ctx context.Context, dir string, from source) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), ".part-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
	if err := os.Chmod(part, 0o755); err != nil { // it is the root directory of those who run in it
		return err
	}
	cmd := r.mmdebstrap(ctx, part, from)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: mmdebstrap: %w: %s", r.Image, err, tail(stderr.String(), 500))
	}
	if err := os.Rename(part, dir); err != nil && !isThere(dir) { // another run may have made it meanwhile
		return err
	}
	return os.RemoveAll(part)
}

func isThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// extract unpacks packages of Debian of any architecture into dir, with what they depend on and
// without running anything of them.
func extract(ctx context.Context, arch, dir string, packages ...string) error {
	from, err := debian(ctx)
	if err != nil {
		return err
	}
	cmd := recipe{Suite: "trixie", Packages: packages}.mmdebstrap(ctx, dir, from)
	cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool { // licences are among the documents
		return strings.HasPrefix(arg, "--variant=") || strings.HasPrefix(arg, "--dpkgopt=")
	})
	cmd.Args = slices.Insert(cmd.Args, 1, "--variant=extract", "--architectures="+arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, tail(stderr.String(), 500))
	}
	return nil
}
