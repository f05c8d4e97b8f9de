package pyodide

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// minNPM is the first npm version that reads lock files of this format. Node.js 16 contains it.
const minNPM = 7

// install installs Deno and Pyodide into dir with npm.
//
// The lock file pins every package by its hash and contains no address: npm uses the registry,
// mirror or proxy that the user has configured. No package scripts are run. The binary for the
// user's platform is an optional dependency, which some configurations leave out, so it is
// requested explicitly.
func install(ctx context.Context, dir string) error {
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
	c := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--include=optional", "--no-audit", "--no-fund", "--no-progress",
		"--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=2000")
	c.Dir = dir
	detach(c)
	c.Cancel = func() error {
		killGroup(c.Process.Pid)
		return c.Process.Kill()
	}
	c.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return npmError(err, said.String())
	}
	checkpoint("installed")
	return nil
}

// findNPM returns the path of npm if it is installed and new enough.
func findNPM(ctx context.Context) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("npm is not installed, which is needed once to install Deno and Pyodide: install Node.js (%s), "+
			"or set runtime_dir to a directory in which they are installed", installNode())
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, npm, "--version")
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("npm --version: %w: npm does not run; install Node.js again (%s)", withStderr(err), installNode())
	}
	v := strings.TrimSpace(string(out))
	major, err := strconv.Atoi(v[:max(0, strings.IndexByte(v, '.'))])
	if err != nil || major < minNPM {
		return "", fmt.Errorf("npm %s is too old, version %d or later is needed: run `npm install -g npm@%d`, or install a newer Node.js (%s)",
			v, minNPM, minNPM+3, installNode())
	}
	return npm, nil
}

// installNode says how to install Node.js on this system.
func installNode() string {
	switch runtime.GOOS {
	case "darwin":
		return "`brew install node`"
	case "windows":
		return "`winget install OpenJS.NodeJS.LTS`"
	}
	return "for example `apt-get install nodejs npm`"
}

// npmError adds advice to a failure of npm.
func npmError(err error, said string) error {
	said = strings.ReplaceAll(said, "npm error ", "")
	hint := "run `npm ping` to see whether npm works"
	for _, h := range []struct{ sign, hint string }{
		{"ENOTFOUND", "the registry was not found: check the network and `npm config get registry`"},
		{"EAI_AGAIN", "the registry was not found: check the network and `npm config get registry`"},
		{"ECONNREFUSED", "the registry does not answer: check `npm config get registry` and `npm config get proxy`"},
		{"ECONNRESET", "the registry does not answer: check the network and `npm ping`"},
		{"ETIMEDOUT", "the registry does not answer: check the network and `npm ping`"},
		{"ERR_SOCKET_TIMEOUT", "the registry does not answer: check the network and `npm ping`"},
		{"CERT", "the registry's certificate is not trusted: check `npm config get cafile`"},
		{"EINTEGRITY", "the download does not have the published checksum: run `npm cache verify`, and check who runs `npm config get registry`"},
		{"E401", "the registry requires a login: run `npm login`"},
		{"E403", "the registry refuses the packages: check `npm config get registry`"},
		{"E404", "the registry does not have the packages: check `npm config get registry`"},
		{"ENOSPC", "there is no space left in the cache directory"},
	} {
		if strings.Contains(said, h.sign) {
			hint = h.hint
			break
		}
	}
	return fmt.Errorf("npm ci: %w: %s: %s; without a network, set runtime_dir to a directory in which %s are installed",
		err, lastLines(said, 4), hint, npmPackages)
}
