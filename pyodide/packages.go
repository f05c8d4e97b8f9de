package pyodide

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
	"github.com/execbroker/execbroker/internal/wire"
	"github.com/execbroker/execbroker/pyodide/internal/wheels"
)

// Packages sets the source of packages. The zero value means the distribution of the installed
// Pyodide. With any source, this program resolves, downloads and checks everything. The sandbox
// gets bytes and needs no network.
type Packages struct {
	// BaseURL is the address of the directory with the wheels of the distribution. Empty: the
	// address that the installed Pyodide itself uses. A wheel is downloaded once, into the cache
	// directory, and checked against the lock file each time it is used.
	BaseURL string `json:"base_url,omitempty"`
	// Dir is a directory with a distribution: pyodide-lock.json and wheels. Then nothing is
	// downloaded.
	Dir string `json:"dir,omitempty"`
	// Wheels is a directory with pure Python wheels (ending in -none-any.whl). They have precedence
	// over those of the distribution.
	Wheels string `json:"wheels,omitempty"`
	// FromImports loads the packages that the imports in submitted code need, before the code runs.
	// It takes some milliseconds of each run.
	FromImports bool `json:"from_imports,omitempty"`
}

// maxWheelBytes is the largest wheel that a sandbox accepts. The largest wheel of the distribution
// is half as large.
const maxWheelBytes = 60 * mib

// loadTimeout is how long the interpreter may take to load packages.
const loadTimeout = 2 * time.Minute

// catalog is the set of packages that can be installed.
type catalog struct {
	index *wheels.Index
	store *wheels.Store
}

// newCatalog reads the lock file and the directory of wheels.
func newCatalog(cfg Packages, pyodideDir, cache string) (*catalog, error) {
	c := &catalog{store: &wheels.Store{Dir: filepath.Join(cache, "wheels"), Base: cfg.BaseURL}}
	lock := filepath.Join(pyodideDir, wheels.LockName)
	var err error
	switch {
	case cfg.Dir != "":
		lock, c.store.Base = filepath.Join(cfg.Dir, wheels.LockName), ""
	case cfg.BaseURL == "":
		if c.store.Base, err = wheels.DistributionURL(pyodideDir); err != nil {
			return nil, driver.At("packages.base_url", err)
		}
	}
	if c.index, err = wheels.ReadLock(lock, cfg.Dir); err != nil {
		return nil, driver.At("packages.dir", err)
	}
	if cfg.Wheels != "" {
		more, err := wheels.ReadDir(cfg.Wheels)
		if err != nil {
			return nil, driver.At("packages.wheels", err)
		}
		c.index = c.index.With(more...)
	}
	return c, nil
}

// fetch makes sure that wheels are on this machine.
func (c *catalog) fetch(ctx context.Context, ws []wheels.Wheel) error {
	err := c.store.Fetch(ctx, ws, func(done, total int, name string) {
		executor.ReportProgress(ctx, executor.Progress{What: "fetching " + name, Done: int64(done), Total: int64(total)})
	})
	var sum *wheels.ChecksumError
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return err
	case errors.As(err, &sum), errors.Is(err, wheels.ErrOffline):
		return driver.Fail(executor.ErrUnavailable, executor.RanNo,
			fmt.Errorf("%w; packages.dir names the directory with the distribution, packages.base_url an address to fetch from", err))
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
}

// Install implements driver.Installer. An unknown package is a failure of the request. A package
// that cannot be downloaded is a failure of the infrastructure, and then nothing has been changed.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	defer s.use()()
	for _, name := range p.Names {
		if _, err := requirement.Parse(name); err != nil {
			return driver.Exit{}, driver.Fail(executor.ErrInvalid, executor.RanNo, err)
		}
	}
	release, err := s.lock(ctx)
	if err != nil {
		return driver.Exit{}, notRun(ctx, err)
	}
	defer release()
	h, err := s.up(ctx)
	if err != nil {
		return driver.Exit{}, notRun(ctx, err)
	}
	ws, unknown := s.p.catalog.index.Resolve(p.Names)
	if unknown == nil {
		if err := s.p.catalog.fetch(ctx, ws); err != nil {
			return driver.Exit{}, notRun(ctx, aboutPackages(p, err))
		}
	}
	if err := emit(executor.Event{Kind: executor.EventStarted}); err != nil {
		return driver.Exit{}, err
	}
	if unknown != nil {
		text := unknown.Error() + "\n" + advice + "\n"
		if err := emit(executor.Event{Kind: executor.EventStderr, Data: []byte(text)}); err != nil {
			return driver.Exit{}, err
		}
		return driver.Exit{Code: 1, Exception: &executor.Exception{Type: "PackageError", Message: unknown.Error()}}, nil
	}
	loaded, err := s.load(ctx, h, ws)
	if err != nil {
		return driver.Exit{StateLost: h.isDead()}, aboutPackages(p, err) // such as a wheel that cannot be unpacked
	}
	for _, w := range loaded {
		if err := emit(executor.Event{Kind: executor.EventStdout, Data: fmt.Appendf(nil, "%s %s\n", w.Name, w.Version)}); err != nil {
			return driver.Exit{}, err
		}
	}
	return driver.Exit{}, nil
}

// aboutPackages marks an error as one about packages that could not be downloaded or loaded, not
// about the backend.
func aboutPackages(p executor.Packages, err error) error {
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnavailable {
		return err
	}
	return driver.Fail(e.Kind, e.Ran, &executor.PackageError{Packages: p, Err: e.Err})
}

// advice says what to do about an unknown package.
const advice = "packages that are not in the distribution of Pyodide can be added as wheels in pure Python: see packages.wheels in the configuration"

// load loads wheels into the interpreter, except those that it has already. The caller has the
// lock. Once begun it is not cancelled, because half a package is worse than none.
func (s *session) load(ctx context.Context, h *host, ws []wheels.Wheel) ([]wheels.Wheel, error) {
	var missing []wheels.Wheel
	for _, w := range ws {
		if !slices.ContainsFunc(s.wheels, func(o wheels.Wheel) bool { return o.Name == w.Name }) {
			missing = append(missing, w)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := s.give(ctx, h, missing); err != nil {
		return nil, err
	}
	s.wheels = append(s.wheels, missing...)
	return missing, nil
}

// give loads wheels that are known to be missing.
func (s *session) give(ctx context.Context, h *host, ws []wheels.Wheel) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	room := 0
	for _, w := range ws {
		b, err := s.p.catalog.store.Open(ctx, w)
		if err != nil {
			return unavailable(ctx, err)
		}
		room += 2*len(b) + wheels.Unpacked(b) // the wheel itself also takes space for a moment
		if len(b) > maxWheelBytes {
			return driver.Fail(executor.ErrTooLarge, executor.RanNo, fmt.Errorf("%s: %d bytes, want at most %d", w.File, len(b), maxWheelBytes))
		}
		if _, err := h.call(ctx, wire.Map{"op": "wheel", "path": w.File, "data": b}, nil); err != nil {
			return driver.Fail(executor.ErrUnavailable, executor.RanMaybe, fmt.Errorf("%s: %w", w.File, err))
		}
	}
	lock, err := s.p.catalog.index.Lock(ws)
	if err != nil {
		return err
	}
	if _, err := h.call(ctx, wire.Map{"op": "load", "max": room, "data": lock}, nil); err != nil {
		if ctx.Err() != nil { // the interpreter may still be loading
			err = h.lost(err)
		}
		return driver.Fail(executor.ErrUnavailable, executor.RanMaybe, fmt.Errorf("loading packages: %w", err))
	}
	return nil
}

// imports loads the packages that the imports of code need and the index has. The caller has the
// lock. A package that is missing makes the import in the code fail, with Python's own message.
func (s *session) imports(ctx context.Context, h *host, code string) error {
	if !strings.Contains(code, "import") {
		return nil
	}
	r, err := h.call(ctx, wire.Map{"op": "imports", "data": code}, nil)
	if err != nil {
		return unavailable(ctx, err)
	}
	var modules []string
	for _, v := range r.List("modules") {
		name, _ := v.([]byte)
		modules = append(modules, string(name))
	}
	names := s.p.catalog.index.ForImports(modules)
	if len(names) == 0 {
		return nil
	}
	ws, err := s.p.catalog.index.Resolve(names)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if err := s.p.catalog.fetch(ctx, ws); err != nil {
		return err
	}
	_, err = s.load(ctx, h, ws)
	return err
}

// ahead loads the packages of a template.
func (s *session) ahead(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	ws, err := s.p.catalog.index.Resolve(names)
	if err != nil {
		return driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("%w; %s", err, advice))
	}
	if err := s.p.catalog.fetch(ctx, ws); err != nil {
		return err
	}
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	h, err := s.up(ctx)
	if err != nil {
		return err
	}
	_, err = s.load(ctx, h, ws)
	return err
}
