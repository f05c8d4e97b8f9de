package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/execbroker/execbroker/internal/dbtest"
)

// A step makes available one thing that tests need. What it returns says what was found, installed
// or started.
type step struct {
	name   string
	ensure func(ctx context.Context) (did string, err error)
}

// steps are in the order in which they need each other. What one sets in the environment of this
// process, the tests see.
var steps = []step{
	{"git", command("git", "git")},                                        // the test of the README clones the repository
	{"c compiler", compiler},                                              // the race detector is linked by one
	{"npm", command("npm", "npm")},                                        // the Pyodide runtime comes from the npm registry
	{"python3", command("python3", "python3")},                            // cells, the runner and examples/stateless are Python
	{"protoc", command("protoc", "protobuf-compiler", "libprotobuf-dev")}, // makes code from the messages of E2B's daemon
	{"nbformat", modules("nbformat", "python3-nbformat")},                 // reads the notebooks that package tool writes
	{"jupyter", modules("nbclient, jupyter_server, jupyter_kernel_test", "python3-nbclient", "python3-jupyter-server", "python3-jupyter-kernel-test")}, // clients of kernels
	{"chromium", command("chromium", "chromium")},       // shows pages
	{"bubblewrap", bubblewrap},                          // confines the Pyodide process, and is a backend
	{"postgresql", database("initdb", "postgresql")},    // stores that replicas share
	{"redis", database("redis-server", "redis-server")}, // likewise
	{"uidmap", uidmap},                                  // the same for users who are not root
	{"pyodide runtime", pyodideRuntime},
	{"debian roots", ensureRoots},         // other versions of Python and Node for the runner
	{"gvisor", command("runsc", "runsc")}, // runtimes of the engine beside its own
	{"crun", command("crun", "crun")},
	{"podman", command("podman", "podman")}, // why it is refused has a test
	{"docker engine", ensureEngine},
	{"docker images", ensureImages},
}

// prepare runs every step. Outside of CI what is missing is reported and the tests that need it are
// skipped.
func prepare(ctx context.Context, o options) error {
	headline("prepare")
	for _, s := range steps {
		start := time.Now()
		did, err := s.ensure(ctx)
		switch {
		case err == nil:
			fmt.Printf("ok       %-16s %s%s\n", s.name, did, took(start))
		case ctx.Err() != nil:
			return ctx.Err()
		case o.ci:
			return fmt.Errorf("prepare: %s: %w", s.name, err)
		default:
			fmt.Printf("missing  %-16s %v\n", s.name, err)
		}
	}
	return nil
}

// release ends what prepare has started for this run. What "ci prepare" starts by itself is there
// to stay.
func release(ctx context.Context) error {
	did, err := stopEngine(ctx)
	if err != nil {
		return fmt.Errorf("docker engine: %w", err)
	}
	if did != "" {
		fmt.Printf("\ndocker engine: %s\n", did)
	}
	return nil
}

// took is a remark on steps that a person waited for.
func took(start time.Time) string {
	if d := time.Since(start); d >= time.Second {
		return fmt.Sprintf(" (%.0f s)", d.Seconds())
	}
	return ""
}

// command returns a step that wants a program and otherwise installs the Debian packages that have
// it.
func command(name string, debian ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if _, err := exec.LookPath(name); err == nil {
			return version(ctx, name)
		}
		if err := install(ctx, debian...); err != nil {
			return "", fmt.Errorf("%s is not in PATH: %w", name, err)
		}
		v, err := version(ctx, name)
		return "installed " + v, err
	}
}

// version returns the first line of what a program says about itself, which also shows that it
// runs.
func version(ctx context.Context, name string) (string, error) {
	out, err := output(ctx, name, "--version")
	first, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(first), err
}

func compiler(ctx context.Context) (string, error) {
	cc, err := output(ctx, "go", "env", "CC")
	if err != nil {
		return "", err
	}
	return command(strings.Fields(cc)[0], "gcc", "libc6-dev")(ctx)
}

// modules returns a step for modules of Debian's own Python, which need not be the first in PATH.
func modules(names string, debian ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		versions := fmt.Sprintf("import %[1]s\nprint(*(m.__name__ + ' ' + m.__version__ for m in (%[1]s,)))", names)
		out, err := output(ctx, "/usr/bin/python3", "-c", versions)
		if err == nil {
			return strings.TrimSpace(out), nil
		}
		if err := install(ctx, debian...); err != nil {
			return "", err
		}
		out, err = output(ctx, "/usr/bin/python3", "-c", versions)
		return "installed " + strings.TrimSpace(out), err
	}
}

// servicePolicy is what Debian's packages ask before they start a service of theirs.
const servicePolicy = "/usr/sbin/policy-rc.d"

// database returns a step like that of command for a server that only tests start: installing it
// starts none.
func database(program string, debian ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if path := dbtest.Find(program); path != "" {
			return version(ctx, path)
		}
		f, err := os.OpenFile(servicePolicy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err == nil { // else there is one already, or this is not Debian, or not root
			defer os.Remove(servicePolicy)
			_, err = f.WriteString("#!/bin/sh\nexit 101\n") // do not start it
			err = errors.Join(err, f.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("install %s without starting it: %w", strings.Join(debian, ", "), err)
		}
		if err := install(ctx, debian...); err != nil {
			return "", fmt.Errorf("%s is not installed: %w", program, err)
		}
		v, err := version(ctx, dbtest.Find(program))
		return "installed " + v, err
	}
}

// uidmap has newuidmap, which says nothing of its version.
func uidmap(ctx context.Context) (string, error) {
	const program = "newuidmap"
	if runtime.GOOS != "linux" {
		return "not needed on " + runtime.GOOS, nil
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	if err := install(ctx, "uidmap"); err != nil {
		return "", fmt.Errorf("%s is not in PATH: %w", program, err)
	}
	return "installed " + program, nil
}

func bubblewrap(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" {
		return "not needed on " + runtime.GOOS, nil
	}
	return command("bwrap", "bubblewrap")(ctx)
}

// pyodideRuntime does ahead what the first session would otherwise wait for in the middle of a
// test.
func pyodideRuntime(ctx context.Context) (string, error) {
	out, err := output(ctx, "go", "run", "./cmd/execbroker", "setup", "--backend", "pyodide")
	return strings.TrimSpace(out), err
}

// updated says that the package lists were fetched by this process. Steps run one after the other.
var updated bool

// install installs Debian packages. It refuses where that is not this program's to do: elsewhere,
// or without being root.
func install(ctx context.Context, packages ...string) error {
	missing := "install " + strings.Join(packages, ", ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New(missing + " (only done by itself as root on Debian)")
	}
	if !updated {
		if _, err := output(ctx, "apt-get", "update", "-q"); err != nil {
			return err
		}
		updated = true
	}
	_, err := output(ctx, "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)...)
	return err
}

// output runs a program without input and returns what it wrote to stdout; the error has the end of
// its stderr.
func output(ctx context.Context, name string, args ...string) (string, error) {
	return outputIn(ctx, "", name, args...)
}

// outputIn is output in a directory.
func outputIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), cmp.Or(ctx.Err(), err), tail(stderr.String(), 500))
	}
	return stdout.String(), nil
}

func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = "..." + s[len(s)-n:]
	}
	return s
}
