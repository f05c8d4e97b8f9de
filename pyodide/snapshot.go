package pyodide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/store"
	"github.com/execbroker/execbroker/internal/wire"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// maxMade bounds a file that a host makes: a snapshot has 30 MB.
const maxMade = 256 * mib

// make starts a host that makes a file for later hosts, with the worker that sessions use. It runs
// only code of this package, so it is trusted, but its output is still bounded.
func (p *prepared) make(ctx context.Context, mode, name string) (err error) {
	modules := maps.Clone(sessionModules)
	maps.Copy(modules, prepareModules)
	// Without a directory for its caches Deno looks for the home of its user, and does not start if
	// the user has none, as those of services and of images.
	caches, err := os.MkdirTemp("", "execbroker-deno-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(caches)) }()
	h, err := startHost(ctx, p.program(caches, 512*mib, 256*mib), hostOptions{Mode: mode, Stdlib: p.stdlib, Modules: modules})
	if err != nil {
		return err
	}
	defer h.end()
	f, err := os.Create(filepath.Join(p.assets, name))
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	var size int64
	r, err := h.call(ctx, wire.Map{"op": mode}, func(fr wire.Frame) error {
		if size += int64(len(fr.Payload)); size > maxMade {
			return fmt.Errorf("%w: more than %d bytes", errFrame, maxMade)
		}
		_, err := f.Write(fr.Payload)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", mode, err)
	}
	if r.Int("size") != size {
		return fmt.Errorf("%s: %d bytes of %d", mode, size, r.Int("size"))
	}
	return nil
}

// analyse starts a session's host of each language once and lets it end by itself, so that Deno
// stores its analysis of the program in dir.
func (p *prepared) analyse(ctx context.Context, dir string) error {
	for _, start := range []func(context.Context, string, sandboxOptions) (*host, error){
		p.javascript,
		p.python, // last, because files that both use are kept from the last one
	} {
		o := sandboxOptions{memory: defaultMemory, disk: defaultDisk, life: startTimeout, env: environment}
		h, err := start(ctx, dir, o)
		if err == nil {
			err = h.begin(ctx, o)
		}
		if err == nil {
			err = h.finish(ctx)
		}
		if err != nil {
			return err
		}
	}
	// An index that its users share while they run. It belongs to a process, so the template has an
	// empty one. Where the directory is read-only, SQLite could not make the file, and Deno would
	// then use none of what is stored here.
	shared, err := filepath.Glob(filepath.Join(dir, "*-shm"))
	for _, name := range shared {
		err = errors.Join(err, os.Truncate(name, 0))
	}
	return err
}

// finish lets a host end by itself.
func (h *host) finish(ctx context.Context) error {
	h.stdin.Close()
	select {
	case <-h.dead:
	case <-ctx.Done():
		h.end()
		return context.Cause(ctx)
	}
	if h.err != nil {
		return h.reason()
	}
	return nil
}

// newDenoDir creates a directory for the caches of one process. Processes do not share caches,
// because a process would then run what another one has written.
func (p *prepared) newDenoDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil { // removes that of the previous process
		return err
	}
	if p.denoDir == "" {
		return os.MkdirAll(dir, 0o755)
	}
	if err := os.CopyFS(dir, os.DirFS(p.denoDir)); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, store.ManifestName))
}

// program returns the program for a host. denoDir is for Deno's caches.
func (p *prepared) program(denoDir string, memory, disk int64) program {
	return program{
		deno: p.deno, assets: p.assets, denoDir: denoDir, memory: memory, layer: p.layer,
		limits: confine.Limits{
			// The engine reserves two ranges of 510 MB for code and some more. A growing file may
			// be in memory twice.
			DataBytes: uint64(1400*mib + memory + 2*disk),
			Files:     64,
			FileBytes: 64 * mib, // only caches
			Threads:   256,      // ten times as many as on a large machine
		},
	}
}

// start starts the host of a session, which begins when it is told so.
func (p *prepared) start(ctx context.Context, l executor.Language, denoDir string, o sandboxOptions) (*host, error) {
	if l == executor.JavaScript {
		return p.javascript(ctx, denoDir, o)
	}
	return p.python(ctx, denoDir, o)
}

// python starts the host of a session with Python. If a file that makes starts fast does not work,
// it is no longer used.
func (p *prepared) python(ctx context.Context, denoDir string, o sandboxOptions) (*host, error) {
	for {
		p.mu.Lock()
		opts := hostOptions{Mode: "session", Stdlib: p.stdlib, Snapshot: p.snapshot, Modules: sessionModules}
		p.mu.Unlock()
		h, err := startHost(ctx, p.program(denoDir, o.memory, o.disk), opts)
		var broken *startError
		if err == nil || ctx.Err() != nil || !errors.As(err, &broken) || !p.degrade(ctx, opts, err) {
			return h, err
		}
	}
}

// degrade stops using the prepared files in opts and reports whether there were any.
func (p *prepared) degrade(ctx context.Context, opts hostOptions, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := ""
	switch {
	case opts.Snapshot != "":
		what, p.snapshot = "starting without the memory snapshot", ""
	case opts.Stdlib != stockLibrary:
		what, p.stdlib = "starting without the compiled standard library", stockLibrary
	default:
		return false
	}
	executor.ReportProgress(ctx, executor.Progress{What: fmt.Sprintf("%s: %v", what, err)})
	if p.log != nil {
		p.log.Warn("pyodide: "+what, "error", err)
	}
	return true
}
