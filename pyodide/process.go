package pyodide

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// program is a host program to start: Deno with everything taken away from it that can be.
type program struct {
	deno    string // path of the binary
	assets  string // directory that it may read until its interpreter is up
	denoDir string // for Deno's own caches; empty: none
	memory  int64  // of WebAssembly, in bytes
	limits  confine.Limits
	layer   confine.Method // of the operating system
	script  bool           // for JavaScript: the code is evaluated, and its memory is the engine's own
}

const wasmPage = 64 << 10

// tieringBudget is about how many bytes of a function of the interpreter are executed before the
// engine compiles it again, optimized. Its own number, 13 MB, is reached by the first few runs of
// any session, however small, and costs each process up to a second of processor time for the
// evaluation loop alone. Code that computes reaches this one in a fraction of a second, and loses
// nothing by it.
const tieringBudget = 200_000_000

// command returns the command line. Every permission is denied although none is granted but one: a
// flag that is there twice is better than one that a new version of Deno grants by default. done is
// to be called when it is started or will not be.
func (p program) command() (c *exec.Cmd, done func(), err error) {
	v8 := []string{
		// Memory beyond this is a MemoryError of Python.
		fmt.Sprintf("--wasm-max-mem-pages=%d", (p.memory+wasmPage-1)/wasmPage),
	}
	if p.script {
		v8 = append(v8, fmt.Sprintf("--max-old-space-size=%d", p.memory/mib))
	} else {
		v8 = append(v8,
			// The engine's own heap: nodes of the file system, not their contents.
			"--max-old-space-size=256",
			// What is there may be called; nothing new can be made, neither by eval nor by a
			// constructor of functions.
			"--disallow-code-generation-from-strings",
			fmt.Sprintf("--wasm-tiering-budget=%d", tieringBudget),
		)
	}
	args := []string{
		"run",
		"--no-prompt", "--no-config", "--no-lock", "--no-npm", "--no-remote", "--cached-only", "--deny-import",
		"--unstable-worker-options",
		"--deny-net", "--deny-env", "--deny-run", "--deny-ffi", "--deny-sys", "--deny-write",
		"--allow-read=" + p.assets,
		"--import-map=" + filepath.Join(p.assets, "importmap.json"),
		"--v8-flags=" + strings.Join(v8, ","),
		filepath.Join(p.assets, "main.mjs"),
	}
	read := []string{p.assets}
	if p.denoDir != "" {
		read = append(read, p.denoDir)
	}
	c, done, err = confine.Command(p.layer, confine.Program{
		Path: p.deno, Args: args, Read: read, Limits: p.limits,
		// Nothing of our environment. The zone is the host's, because Python asks JavaScript for
		// the local time.
		Env: []string{"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1", "TZ=UTC", "DENO_DIR=" + p.denoDir},
	})
	if err != nil {
		return nil, nil, err
	}
	c.Dir = filepath.VolumeName(p.assets) + string(filepath.Separator)
	detach(c)
	return c, done, nil
}

// start starts c on a thread that no goroutine is locked to and that therefore lives on: see
// detach.
func start(c *exec.Cmd) error {
	done := make(chan error)
	go func() { done <- c.Start() }()
	return <-done
}
