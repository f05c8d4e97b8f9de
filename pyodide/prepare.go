package pyodide

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/cell"
	"github.com/execbroker/execbroker/internal/store"
	"github.com/execbroker/execbroker/internal/typescript"
	"github.com/execbroker/execbroker/internal/wire"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// hostFiles is the source of the host program.
//
//go:embed host
var hostFiles embed.FS

// The Python modules that the host loads: those of a session, and those for preparing.
var (
	sessionModules = map[string]string{"execbroker_cell": "cell.py", "execbroker_loop": "loop.py", "execbroker_session": "session.py"}
	prepareModules = map[string]string{"execbroker_prepare": "prepare.py", "execbroker_warm": "warm.py"}
)

const (
	stockLibrary    = "python_stdlib.zip" // only sources, as in Pyodide
	compiledLibrary = "library.zip"
	snapshotFile    = "snapshot.bin"
)

// prepared is everything that is needed to start sandboxes.
type prepared struct {
	deno    string
	assets  string // directory with the host program, Pyodide and files that were made from them
	denoDir string // template of a directory for Deno's caches; empty: none
	layer   confine.Method
	catalog *catalog
	log     *slog.Logger

	mu       sync.Mutex
	stdlib   string
	snapshot string // empty: none

}

// Prepare installs Deno and Pyodide, unless they are installed, and creates the files that make
// sandboxes start fast. The first use does the same; calling Prepare in advance avoids that wait.
// It reports its steps to executor.WithProgress. It may run in several processes at the same time
// and be killed at any moment: incomplete files are never used.
func Prepare(ctx context.Context, env driver.Env, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if _, err := prepare(ctx, env, cfg.withDefaults()); err != nil {
		return unavailable(ctx, err)
	}
	return nil
}

// cacheDir returns the directory for files that can be made again.
func cacheDir(env driver.Env) (string, error) {
	dir := env.CacheDir
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", noCache(err)
		}
		dir = filepath.Join(user, "execbroker")
	}
	dir, err := filepath.Abs(dir)
	return filepath.Join(dir, "pyodide"), err
}

// checkpoint is called at the points where tests kill the process.
var checkpoint = func(name string) {}

// storeIn returns the store of files that take long to make.
func storeIn(dir string) store.Store {
	return store.Store{Dir: dir, Checkpoint: func(name string) { checkpoint(name) }}
}

func prepare(ctx context.Context, env driver.Env, cfg Config) (*prepared, error) {
	dir, err := cacheDir(env)
	if err != nil {
		return nil, err
	}
	s := storeIn(dir)
	in, id, err := installed(ctx, s, cfg)
	if err != nil {
		return nil, explain(dir, err)
	}
	b := builder{in: in, log: env.Log}
	name := "host-" + key(id)
	assets, err := s.Get(ctx, name, store.CheckHashes, func(ctx context.Context, dir string) error { return b.build(ctx, dir, true) })
	if errors.Is(err, errFast) {
		b.warn(ctx, "sandboxes will start slowly", err)
		assets, err = s.Get(ctx, name+"-plain", store.CheckHashes, func(ctx context.Context, dir string) error { return b.build(ctx, dir, false) })
	}
	if err != nil {
		return nil, explain(dir, err)
	}
	p := &prepared{deno: in.deno, assets: assets, stdlib: stockLibrary, layer: confine.None, log: env.Log}
	if p.catalog, err = newCatalog(cfg.Packages, in.pyodide, dir); err != nil {
		return nil, err
	}
	if exists(filepath.Join(assets, compiledLibrary)) {
		p.stdlib = compiledLibrary
	}
	if exists(filepath.Join(assets, snapshotFile)) && !cfg.NoSnapshot {
		p.snapshot = snapshotFile
	}
	// Deno's analysis of the host program saves 50 ms of each start. Deno stores it by path, so the
	// directory must have its final name first.
	p.denoDir, err = s.Get(ctx, "deno-"+filepath.Base(assets), store.CheckHashes, func(ctx context.Context, dir string) error { return p.analyse(ctx, dir) })
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		b.warn(ctx, "sandboxes will start a little more slowly", err)
		p.denoDir = ""
	}
	return p, nil
}

// installed returns the installation to use, and installs it if necessary. id identifies its
// contents.
func installed(ctx context.Context, s store.Store, cfg Config) (in installation, id string, err error) {
	if cfg.RuntimeDir == "" {
		name, _, err := runtimeName()
		if err != nil {
			return in, "", err
		}
		if packaged(name) != "" {
			return installedIfThere(s, cfg)
		}
		_, err = s.Get(ctx, name, store.CheckSizes, func(ctx context.Context, dir string) error {
			if err := install(ctx, dir); err != nil {
				return err
			}
			in, err := find(dir)
			if err != nil {
				return err
			}
			return in.try(ctx)
		})
		if err != nil {
			return in, "", err
		}
	}
	return installedIfThere(s, cfg)
}

// installedIfThere is installed without installing.
func installedIfThere(s store.Store, cfg Config) (in installation, id string, err error) {
	if cfg.RuntimeDir == "" {
		name, id, err := runtimeName()
		if err != nil {
			return in, "", err
		}
		in, err := find(cmp.Or(packaged(name), filepath.Join(s.Dir, name)))
		return in, id, err
	}
	if in, err = find(cfg.RuntimeDir); err != nil {
		return in, "", fmt.Errorf("runtime_dir %s: %w: run `npm install %s` there", cfg.RuntimeDir, err, npmPackages)
	}
	h := sha256.New()
	paths := []string{in.acorn}
	for _, name := range pyodideFiles {
		paths = append(paths, filepath.Join(in.pyodide, name))
	}
	for _, path := range paths {
		f, err := store.Describe(path)
		if err != nil {
			return in, "", err
		}
		fmt.Fprintln(h, filepath.Base(path), f.SHA256)
	}
	return in, hex.EncodeToString(h.Sum(nil)), nil
}

// packaged returns the directory of an installation that came with the program, or "" if none did.
// See Packaging.
var packaged = func(name string) string {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(program)), packagedDir, name)
	if err != nil || !exists(dir) {
		return ""
	}
	return dir
}

// packagedDir is where packages of the system put installations, from the directory above that of
// the program.
const packagedDir = "lib/execbroker/pyodide"

// Packaging says how a package of the system, or an image, brings the runtime for a platform with a
// program, which then needs neither npm nor a network: npm, which is the directory with
// package.json and package-lock.json, installs it into dir, slash-separated and from the directory
// above that of the program, such as lib/execbroker/pyodide/runtime-linux-amd64-2acd3ff23b8eb79f in
// /usr for the program /usr/bin/execbroker. The name has a hash of the versions, so that a program
// never takes those of another. It is an error if Pyodide does not run on the platform.
func Packaging(goos, goarch string) (dir string, npm fs.FS, err error) {
	if _, ok := denoPackages[goos+"/"+goarch]; !ok {
		return "", nil, fmt.Errorf("there is no Deno for %s/%s", goos, goarch)
	}
	name, _, err := runtimeFor(goos, goarch)
	if err != nil {
		return "", nil, err
	}
	npm, err = fs.Sub(runtimeFiles, "runtime")
	return packagedDir + "/" + name, npm, err
}

// runtimeName returns the name of the directory for Deno and Pyodide on this machine, and an ID of
// their contents.
func runtimeName() (name, id string, err error) { return runtimeFor(runtime.GOOS, runtime.GOARCH) }

func runtimeFor(goos, goarch string) (name, id string, err error) {
	lock, err := runtimeFiles.ReadFile("runtime/package-lock.json")
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(lock)
	id = hex.EncodeToString(sum[:])
	return fmt.Sprintf("runtime-%s-%s-%s", goos, goarch, id[:16]), id, nil
}

// key names the files that are made from an installation and this version of the host program.
func key(installation string) string {
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, installation, len(cell.Source), cell.Source, len(cell.JavaScript), cell.JavaScript, len(wire.JavaScript), wire.JavaScript, len(typescriptModule), typescriptModule)
	fs.WalkDir(hostFiles, ".", func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // impossible: the files are in memory
		if !d.IsDir() {
			b, _ := hostFiles.ReadFile(path)
			fmt.Fprintln(h, path, len(b))
			h.Write(b)
		}
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// builder builds the directory from which sandboxes are started.
type builder struct {
	in  installation
	log *slog.Logger
}

// errFast says that a file that makes starts fast could not be made. Sandboxes work without it.
var errFast = errors.New("not prepared")

func (b builder) warn(ctx context.Context, what string, err error) {
	executor.ReportProgress(ctx, executor.Progress{What: fmt.Sprintf("%s: %v", what, err)})
	if b.log != nil {
		b.log.Warn("pyodide: "+what, "error", err)
	}
}

// build fills dir. If fast is set, it fails if any part cannot be made. Otherwise it leaves out
// such parts.
func (b builder) build(ctx context.Context, dir string, fast bool) error {
	if err := b.copy(ctx, dir); err != nil {
		return err
	}
	p := &prepared{deno: b.in.deno, assets: dir, stdlib: stockLibrary, layer: confine.None}
	executor.ReportProgress(ctx, executor.Progress{What: "compiling Python's standard library (once)"})
	err := p.make(ctx, "compile", compiledLibrary)
	if err == nil {
		p.stdlib = compiledLibrary
		checkpoint("compiled")
		executor.ReportProgress(ctx, executor.Progress{What: "making a memory snapshot of Python (once)"})
		err = p.make(ctx, "snapshot", snapshotFile)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && fast {
		return fmt.Errorf("%w: %w", errFast, err)
	}
	return nil
}

// typescriptModule converts TypeScript to JavaScript.
var typescriptModule = typescript.Script + "export const { strip } = typescript;\n"

// copy copies the host program, the files of Pyodide, the lock file without packages and the import
// map into dir.
func (b builder) copy(ctx context.Context, dir string) error {
	files, err := fs.Sub(hostFiles, "host")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	for name, text := range map[string]string{"cell.py": cell.Source, "cell.mjs": cell.JavaScript, "values.mjs": wire.JavaScript, "typescript.mjs": typescriptModule} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range pyodideFiles {
		put := copyFile
		if name == stockLibrary {
			put = addZones
		}
		if err := put(filepath.Join(dir, name), filepath.Join(b.in.pyodide, name)); err != nil {
			return err
		}
	}
	if err := copyFile(filepath.Join(dir, "acorn.mjs"), b.in.acorn); err != nil {
		return err
	}
	if err := emptyLock(filepath.Join(dir, "pyodide-lock.json"), filepath.Join(dir, "lock.json")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, b.in.deno, "run", "--no-prompt", "--no-config", "--no-lock", "--no-npm", "--no-remote", "--cached-only",
		"--no-code-cache", filepath.Join(dir, "builtins.mjs"))
	c.Dir = dir
	c.Env = []string{"DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1", "DENO_DIR=" + filepath.Join(dir, "tmp")}
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("listing the modules of Deno: %w", withStderr(err))
	}
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "importmap.json"), out, 0o644)
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// emptyLock writes the lock file without packages: Pyodide requires a lock file and compares the
// versions in its header with its own.
func emptyLock(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var lock map[string]any
	if err := json.Unmarshal(b, &lock); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	lock["packages"] = map[string]any{}
	b, err = json.Marshal(lock)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
