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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/pyodide"
)

// A step makes available one thing that tests need.
type step struct {
	name string
	// debian are the packages that have it, and find reports what is there, or an error if it is
	// missing. All missing packages are installed at once.
	debian []string
	find   func(ctx context.Context) (string, error)
	// ensure makes it available after the packages are there, and returns what was found, made or
	// started. A step has either this or find.
	ensure func(ctx context.Context) (did string, err error)
	// only are the tests that need it, as in the rules of the exhaustive tier, each behind its
	// directory. Without any, make test needs it.
	only []string
}

// programs are steps that Debian's packages fulfil.
var programs = []step{
	{name: "git", debian: []string{"git"}, find: command("git")},                                        // the test of the README clones the repository
	{name: "c compiler", debian: []string{"gcc", "libc6-dev"}, find: compiler},                          // the race detector is linked by one
	{name: "npm", debian: []string{"npm"}, find: command("npm")},                                        // the Pyodide runtime comes from the npm registry
	{name: "python3", debian: []string{"python3"}, find: command("python3")},                            // cells, the runner and examples/stateless are Python
	{name: "protoc", debian: []string{"protobuf-compiler", "libprotobuf-dev"}, find: command("protoc")}, // makes code from the messages of E2B's daemon
	{name: "nbformat", debian: []string{"python3-nbformat"}, find: modules("nbformat")},                 // reads the notebooks that package tool writes
	{name: "jupyter", debian: []string{"python3-nbclient", "python3-jupyter-server", "python3-jupyter-kernel-test"},
		find: modules("nbclient, jupyter_server, jupyter_kernel_test")}, // clients of kernels
	{name: "chromium", debian: []string{"chromium"}, find: command("chromium")},           // shows pages
	{name: "bubblewrap", debian: []string{"bubblewrap"}, find: onLinux(command("bwrap"))}, // confines the Pyodide process, and is a backend
	{name: "postgresql", debian: []string{"postgresql"}, find: database("initdb")},        // stores that replicas share
	{name: "redis", debian: []string{"redis-server"}, find: database("redis-server")},     // likewise
	{name: "uidmap", debian: []string{"uidmap"}, find: onLinux(uidmap)},                   // bubblewrap for users who are not root
	{name: "dockerd", debian: enginePackages, find: enginePrograms},
	{name: "mmdebstrap", debian: []string{"mmdebstrap"}, find: command("mmdebstrap")}, // makes images and roots

	{name: "gvisor", debian: []string{"runsc"}, find: command("runsc"), only: []string{"docker TestConformanceOf", "docker TestAttemptsOfGVisor"}}, // runtimes of the engine beside its own
	{name: "crun", debian: []string{"crun"}, find: command("crun"), only: []string{"docker TestConformanceOf"}},
	{name: "podman", debian: []string{"podman"}, find: command("podman"), only: []string{"docker TestPodman"}},
	{name: "firefox", debian: []string{"firefox-esr"}, find: command("firefox-esr"), only: []string{"server/page TestNestingsInFirefox"}},
}

// made are the steps that need those programs. Each group is in the order in which its steps need
// each other, and the groups run at the same time. Their results reach the tests by the environment
// of this process.
var made = [][]step{
	{
		{name: "pyodide runtime", ensure: pyodideRuntime},
	}, {
		{name: "docker engine", ensure: ensureEngine},
		{name: "docker images", ensure: ensureImages},
		{name: "old images", ensure: imagesStep(oldRecipes), only: []string{"docker TestOldImages"}},
		{name: "jupyter image", ensure: imagesStep(jupyterRecipes), only: []string{"e2b TestJupyter", "e2b TestConformanceOfJupyter"}},
		{name: "bare image", ensure: imagesStep(bareRecipes), only: []string{". TestReadmeOnBareDebian", ". TestInstallFromProxy"}},
		{name: "systemd image", ensure: imagesStep(systemdRecipes), only: []string{"internal/ci/release TestRelease"}},
		{name: "npm image", ensure: imagesStep(npmRecipes), only: []string{"cmd/execbroker TestFirstHourOf"}},
		{name: "debian roots", ensure: ensureRoots, only: []string{"runner Test.*/(bookworm|bullseye|trixie)"}}, // other versions of Python and Node for the runner
	},
}

// prepare runs the steps that make test needs.
func prepare(ctx context.Context, o options) error { return prepareFor(ctx, o, nil) }

// prepareFor runs the steps that make test needs, and those that the given units of make exhaustive
// need besides. Outside of CI what is missing is reported and the tests that need it are skipped.
func prepareFor(ctx context.Context, o options, units []unit) error {
	headline("prepare")
	needed := func(s step) bool { return len(s.only) == 0 || slices.ContainsFunc(units, s.serves) }
	if err := installPrograms(ctx, o, slices.DeleteFunc(slices.Clone(programs), func(s step) bool { return !needed(s) })); err != nil {
		return err
	}
	errs := make([]error, len(made))
	var wg sync.WaitGroup
	for i, group := range made {
		wg.Go(func() {
			for _, s := range group {
				if needed(s) && errs[i] == nil {
					errs[i] = s.run(ctx, o, s.ensure)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serves reports whether a unit needs s.
func (s step) serves(u unit) bool {
	return slices.ContainsFunc(s.only, func(name string) bool { return u.run != "" && strings.HasPrefix(u.rule, name) })
}

// run makes s available by a function and prints what it did.
func (s step) run(ctx context.Context, o options, do func(context.Context) (string, error)) error {
	start := time.Now()
	did, err := do(ctx)
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
	return nil
}

// installPrograms installs the packages of the programs that are missing, in one go, and prints
// what there is.
func installPrograms(ctx context.Context, o options, all []step) error {
	var packages []string
	missing := map[string]bool{}
	for _, s := range all {
		if _, err := s.find(ctx); err != nil {
			packages, missing[s.name] = append(packages, s.debian...), true
		}
	}
	var installed error
	if len(packages) > 0 {
		start := time.Now()
		if installed = install(ctx, packages...); installed == nil {
			fmt.Printf("ok       %-16s %d%s\n", "debian packages", len(packages), took(start))
		}
	}
	for _, s := range all {
		if err := s.run(ctx, o, func(ctx context.Context) (string, error) {
			if missing[s.name] && installed != nil {
				return "", fmt.Errorf("%s: %w", strings.Join(s.debian, ", "), installed)
			}
			found, err := s.find(ctx)
			if missing[s.name] {
				found = "installed " + found
			}
			return found, err
		}); err != nil {
			return err
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

// command returns a function that finds a program in PATH.
func command(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%s is not in PATH", name)
		}
		return version(ctx, name)
	}
}

// version returns the first line that a program prints as its version. It shows that the program
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
	return command(strings.Fields(cc)[0])(ctx)
}

// modules returns a function that finds modules of Debian's own Python, which need not be the first
// in PATH.
func modules(names string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := output(ctx, "/usr/bin/python3", "-c", fmt.Sprintf("import %[1]s\nprint(*(m.__name__ + ' ' + m.__version__ for m in (%[1]s,)))", names))
		return strings.TrimSpace(out), err
	}
}

// database returns a function that finds a server that tests start.
func database(program string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		path := dbtest.Find(program)
		if path == "" {
			return "", fmt.Errorf("%s is not installed", program)
		}
		return version(ctx, path)
	}
}

// uidmap has newuidmap, which has no option for its version.
func uidmap(context.Context) (string, error) { return exec.LookPath("newuidmap") }

// onLinux returns a function that finds a program that only Linux needs.
func onLinux(find func(context.Context) (string, error)) func(context.Context) (string, error) {
	if runtime.GOOS == "linux" {
		return find
	}
	return func(context.Context) (string, error) { return "not needed on " + runtime.GOOS, nil }
}

// pyodideRuntime does ahead the work that the first session would otherwise wait for in the middle
// of a test.
func pyodideRuntime(ctx context.Context) (string, error) {
	return "prepared", pyodide.Prepare(ctx, driver.Env{Name: "execbroker", Owner: "ci"}, pyodide.Config{})
}

// servicePolicy is the program that Debian's packages ask before they start a service.
const servicePolicy = "/usr/sbin/policy-rc.d"

// install installs Debian packages, without starting a service of theirs. It refuses elsewhere, and
// users who are not root.
func install(ctx context.Context, packages ...string) (err error) {
	missing := "install " + strings.Join(packages, ", ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New(missing + " (only done by itself as root on Debian)")
	}
	f, err := os.OpenFile(servicePolicy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err == nil { // otherwise the machine has a policy
		defer os.Remove(servicePolicy)
		_, err = f.WriteString("#!/bin/sh\nexit 101\n") // do not start it
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s without starting services: %w", missing, err)
	}
	if _, err := output(ctx, "apt-get", "update", "-q"); err != nil {
		return err
	}
	_, err = output(ctx, "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)...)
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
