package pyodide

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/execbroker/execbroker/internal/missing"
)

// The versions that the adapter uses, as in runtime/package.json. Deno 2.9.6 is not complete for
// all platforms.
const (
	DenoVersion    = "2.9.5"
	PyodideVersion = "314.0.7"
	acornVersion   = "8.19.0"
	pythonVersion  = "3.14"
)

// npmPackages are the arguments of npm to install everything.
const npmPackages = "deno@" + DenoVersion + " pyodide@" + PyodideVersion + " acorn@" + acornVersion

// runtimeFiles are package.json and package-lock.json, which pin what is installed on every
// platform.
//
//go:embed runtime/package.json runtime/package-lock.json
var runtimeFiles embed.FS

// denoPackages are the npm packages that contain Deno's binary, by GOOS/GOARCH.
var denoPackages = map[string]string{
	"darwin/amd64":  "@deno/darwin-x64",
	"darwin/arm64":  "@deno/darwin-arm64",
	"linux/amd64":   "@deno/linux-x64-glibc",
	"linux/arm64":   "@deno/linux-arm64-glibc",
	"windows/amd64": "@deno/win32-x64",
	"windows/arm64": "@deno/win32-arm64",
}

// noDeno says that this package cannot work on this platform.
func noDeno() error {
	return missing.New("platform", fmt.Errorf("there is no Deno for %s/%s", runtime.GOOS, runtime.GOARCH), "use another backend on this machine")
}

// pyodideFiles are the files of the Pyodide package that a sandbox needs.
var pyodideFiles = []string{"pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"}

// installation is a directory with Deno and Pyodide.
type installation struct {
	deno    string // the binary
	pyodide string // the directory of the package
	acorn   string // the file of the JavaScript parser
}

// find looks for the right versions of Deno and Pyodide below dir.
func find(dir string) (installation, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	pkg, ok := denoPackages[platform]
	if !ok {
		return installation{}, noDeno()
	}
	modules := filepath.Join(dir, "node_modules")
	in := installation{
		deno:    filepath.Join(modules, filepath.FromSlash(pkg), "deno"+exe()),
		pyodide: filepath.Join(modules, "pyodide"),
		acorn:   filepath.Join(modules, "acorn", "dist", "acorn.mjs"),
	}
	var errs []error
	for _, p := range []struct{ name, want string }{{"deno", DenoVersion}, {"pyodide", PyodideVersion}, {"acorn", acornVersion}} {
		got, err := packageVersion(filepath.Join(modules, p.name))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		case got != p.want:
			errs = append(errs, fmt.Errorf("%s: found version %s, want %s", p.name, got, p.want))
		}
	}
	for _, f := range pyodideFiles {
		if _, err := os.Stat(filepath.Join(in.pyodide, f)); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := os.Stat(in.acorn); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return installation{}, errors.Join(errs...)
	}
	if _, err := os.Stat(in.deno); err != nil {
		return installation{}, fmt.Errorf("Deno's binary for %s is not there; it exists for the C library glibc only: %w", platform, err)
	}
	return in, nil
}

// try starts Deno once to check that it runs on this machine and has the right version.
func (in installation) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, in.deno, "--version")
	c.Env = []string{"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"}
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", in.deno, withStderr(err))
	}
	if first, _, _ := strings.Cut(string(out), "\n"); !strings.HasPrefix(first+" ", "deno "+DenoVersion+" ") {
		return fmt.Errorf("%s: found %q, want version %s", in.deno, first, DenoVersion)
	}
	return nil
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// packageVersion reads the version of the npm package in dir.
func packageVersion(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", err
	}
	var p struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return "", fmt.Errorf("package.json: %w", err)
	}
	return p.Version, nil
}

// withStderr adds the error output of a command to its error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, lastLines(string(exit.Stderr), 3))
	}
	return err
}

// lastLines returns the last n non-empty lines of s, joined to one line.
func lastLines(s string, n int) string {
	var lines []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
