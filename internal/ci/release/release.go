// Package release makes everything that a version is published as, in one directory:
//
//	go run ./internal/ci release
//	go run ./internal/ci release -out /tmp/r -targets linux/amd64
//
//	execbroker_VERSION_OS_ARCH.tar.gz, .zip   the program, completions and manual pages
//	execbroker_VERSION_OS_ARCH.cdx.json       what is linked into it, in CycloneDX
//	execbroker_VERSION_linux_ARCH.deb, .rpm   the same with the Pyodide runtime and a service
//	execbroker_VERSION_linux_ARCH.oci.tar     an image, which engines load
//	runtime_VERSION_linux_ARCH.cdx.json       what the Pyodide runtime consists of
//	execbroker-VERSION.tgz                    the chart for Helm, which installs that image
//	provenance.intoto.json                    what all of it was made from, in the form of SLSA
//	SHA256SUMS                                of all files
//
// The version is what the Go command finds: that of a tag, or one that names the commit. The same
// commit makes the same bytes: times are those of the commit, and programs have no paths. What does
// not come from the commit is pinned by go.sum and by the lock file of the runtime, except for the
// C library of the image, which is that of Debian on the day.
package release

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// targets are the systems for which programs are made, as GOOS/GOARCH.
var targets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// The tools that are built from their source when they are needed, as the linters are. Later
// versions of nfpm need a module that the module proxy refuses.
const (
	nfpm      = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"
	cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
)

// Extract unpacks packages of Debian of an architecture into a directory, without running anything
// of them.
type Extract func(ctx context.Context, arch, dir string, packages ...string) error

// A maker makes the files of one version.
type maker struct {
	root    string // the repository
	out     string
	work    string // for what is only needed on the way
	targets []string
	source  source
	version string // without the v
	extract Extract
	log     io.Writer
	from    []material
}

// Run makes a release as args say.
func Run(ctx context.Context, args []string, extract Extract) (err error) {
	m := maker{root: ".", extract: extract, log: os.Stdout}
	set := flag.NewFlagSet("release", flag.ContinueOnError)
	set.StringVar(&m.out, "out", "dist", "the `directory` for the files; those of an earlier release in it are removed")
	dirty := set.Bool("dirty", false, "accept changes that are not committed; the version then says so")
	list := set.String("targets", strings.Join(targets, ","), "the systems, as `GOOS/GOARCH` separated by commas")
	if err := set.Parse(args); err != nil {
		return err
	}
	m.targets = strings.Split(*list, ",")
	for _, t := range m.targets {
		if !slices.Contains(targets, t) {
			return fmt.Errorf("-targets: %s: want some of %s", t, strings.Join(targets, ", "))
		}
	}
	if m.source, err = readSource(ctx, m.root); err != nil {
		return err
	}
	if len(m.source.changed) > 0 && !*dirty {
		return fmt.Errorf("%s: changed and not committed; commit or remove the changes, or say -dirty", strings.Join(m.source.changed, ", "))
	}
	to, err := filepath.Abs(m.out)
	if err != nil {
		return err
	}
	if err := replaceable(to); err != nil {
		return err
	}
	// The directory gets its name when it is complete.
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if m.work, err = os.MkdirTemp(filepath.Dir(to), ".execbroker-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.work)) }()
	m.out = filepath.Join(m.work, "out")
	if err := os.Mkdir(m.out, 0o755); err != nil {
		return err
	}
	if err := m.make(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(m.out, to)
}

// replaceable returns an error if a directory has anything but an earlier release.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("-out: %s has other files than those of a release; remove them, or choose another directory", dir)
	}
	return nil
}

func (m *maker) make(ctx context.Context) error {
	for _, t := range m.targets {
		if err := m.step("program for "+t, func() error { return m.build(ctx, t) }); err != nil {
			return err
		}
	}
	if err := m.step("completions and manual pages", func() error { return m.documents(ctx) }); err != nil {
		return err
	}
	for _, t := range m.targets {
		steps := []struct {
			name string
			do   func() error
		}{
			{"archive", func() error { return m.archive(t) }},
			{"list of modules", func() error { return m.modules(ctx, t) }},
		}
		if arch, ok := strings.CutPrefix(t, "linux/"); ok {
			steps = append(steps, []struct {
				name string
				do   func() error
			}{
				{"Pyodide runtime", func() error { return m.runtime(ctx, arch) }},
				{"Debian package", func() error { return m.pack(ctx, "deb", arch) }},
				{"RPM package", func() error { return m.pack(ctx, "rpm", arch) }},
				{"image", func() error { return m.image(ctx, arch) }},
			}...)
		}
		for _, s := range steps {
			if err := m.step(s.name+" for "+t, s.do); err != nil {
				return err
			}
		}
	}
	if err := m.step("chart", m.chart); err != nil {
		return err
	}
	if err := m.step("provenance", m.provenance); err != nil {
		return err
	}
	return m.step("checksums", m.sums)
}

// step does one thing and says how long it took.
func (m *maker) step(name string, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := fmt.Fprintf(m.log, "made  %-40s %4.0f s\n", name, time.Since(start).Seconds())
	return err
}

// program is the path of the program for a target.
func (m *maker) program(target string) string {
	name := "execbroker"
	if strings.HasPrefix(target, "windows/") {
		name += ".exe"
	}
	return filepath.Join(m.work, "programs", strings.ReplaceAll(target, "/", "_"), name)
}

// build makes the program for a target and, if it is the first, finds out the version.
func (m *maker) build(ctx context.Context, target string) error {
	goos, goarch, _ := strings.Cut(target, "/")
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=", "GOWORK=off"}
	if _, err := m.run(ctx, env, "go", "build", "-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w", "-o", m.program(target), "./cmd/execbroker"); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(m.program(target))
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(info.Main.Version, "v")
	if version == "" || version == "(devel)" {
		return errors.New("the Go command finds no version: want a clone of the repository, not one of its further working trees")
	}
	if m.version == "" {
		m.version = version
	}
	if version != m.version {
		return fmt.Errorf("it has the version %s, and the first program %s: the repository changed meanwhile", version, m.version)
	}
	return nil
}

// file returns the path of a file of the release.
func (m *maker) file(target, suffix string) string {
	return filepath.Join(m.out, fmt.Sprintf("execbroker_%s_%s%s", m.version, strings.ReplaceAll(target, "/", "_"), suffix))
}

// documents makes the completions and manual pages, by the program for this machine.
func (m *maker) documents(ctx context.Context) error {
	here := runtime.GOOS + "/" + runtime.GOARCH
	if !slices.Contains(m.targets, here) {
		if err := m.build(ctx, here); err != nil {
			return err
		}
	}
	dir := filepath.Join(m.work, "completions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for shell, name := range completions {
		text, err := m.run(ctx, nil, m.program(here), "completion", shell)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	_, err := m.run(ctx, nil, m.program(here), "man", filepath.Join(m.work, "man"))
	return err
}

// completions are the names of the files in the archives by shell.
var completions = map[string]string{"bash": "execbroker.bash", "zsh": "_execbroker", "fish": "execbroker.fish", "powershell": "execbroker.ps1"}

// run runs a program in the repository and returns what it wrote to standard output. The error has
// the end of its standard error.
func (m *maker) run(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	return runIn(ctx, m.root, env, name, args...)
}

func runIn(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}
