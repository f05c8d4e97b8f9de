package pyodide

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// program is a host program to start: Deno with as few rights as possible.
type program struct {
	deno    string // path of the binary
	assets  string // directory that it may read until its interpreter is ready
	denoDir string // for Deno's own caches; empty: none
	memory  int64  // memory of WebAssembly in bytes
	limits  confine.Limits
	layer   confine.Method // layer of the operating system
	script  bool           // for JavaScript: the engine evaluates the code, and its memory belongs to the engine
}

const wasmPage = 64 << 10

// tieringBudget is about how many bytes of a function of the interpreter are executed before the
// engine compiles the function again with optimizations. The engine's default, 13 MB, is reached in
// the first few runs of any session, and then costs each process up to a second of processor time
// for the evaluation loop alone. Code that computes a lot reaches this budget in a fraction of a
// second, so it loses nothing.
const tieringBudget = 200_000_000

// largeBlock is from how many bytes on glibc gives a block back to the system when it is freed.
// Without a number it raises its own with each such block, and would keep 30 MiB of what the start
// needs. Frames are smaller than this, because it takes time.
const largeBlock = 2 << 20

// command returns the command line. Every permission is denied explicitly, although only one is
// granted, because a new version of Deno could grant a permission by default. The caller calls done
// once the command is started or will not be started.
func (p program) command() (c *exec.Cmd, done func(), err error) {
	v8 := []string{
		// Python raises MemoryError beyond this.
		fmt.Sprintf("--wasm-max-mem-pages=%d", (p.memory+wasmPage-1)/wasmPage),
	}
	if p.script {
		v8 = append(v8, fmt.Sprintf("--max-old-space-size=%d", p.memory/mib))
	} else {
		v8 = append(v8,
			// The engine's own heap contains the nodes of the file system, but not the contents.
			"--max-old-space-size=256",
			// Existing functions can be called, but no new ones can be made from strings, by eval
			// or by function constructors.
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
		// Nothing of this program's environment is passed on. The time zone is set here, because
		// Python asks JavaScript for the local time.
		Env: []string{"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1", "TZ=UTC", fmt.Sprintf("MALLOC_MMAP_THRESHOLD_=%d", largeBlock), "DENO_DIR=" + p.denoDir},
	})
	if err != nil {
		return nil, nil, err
	}
	c.Dir = filepath.VolumeName(p.assets) + string(filepath.Separator)
	detach(c)
	return c, done, nil
}

// start starts c on a thread to which no goroutine is locked and which therefore does not end: see
// detach.
func start(c *exec.Cmd) error {
	done := make(chan error)
	go func() { done <- c.Start() }()
	return <-done
}
