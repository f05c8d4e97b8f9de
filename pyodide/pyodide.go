package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/store"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// Type is the name of the adapter in configuration.
const Type = "pyodide"

// Factory is for registries.
func Factory() driver.Factory { return driver.NewFactory(Type, Open, Doctor) }

// Open opens the backend. What is missing is installed and prepared by the first Create, or ahead
// by Prepare. Only the layer of the operating system is tried at once, because what is declared
// depends on it.
func Open(ctx context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	layer, skipped, err := chooseLayer(ctx, cfg.OSLayer)
	if err != nil {
		return nil, err
	}
	if layer == confine.None && len(skipped) > 0 && env.Log != nil {
		env.Log.Warn("pyodide: no layer of the operating system around the sandboxes", "error", errors.Join(skipped...))
	}
	if err := confine.Adjustable(layer); err != nil && env.Log != nil {
		env.Log.Warn("pyodide: no limit on the processor time of sandboxes besides the clocks", "error", err)
	}
	d := &Driver{env: env, cfg: cfg, layer: layer, patience: patience{start: 10 * time.Second, change: 30 * time.Second}, turn: make(chan struct{}, 1), starts: make(chan struct{}, startsAtOnce())}
	return driver.New(d, env, driver.Options{
		Type:          Type,
		CreateTimeout: 15 * time.Minute, // the first one may download 45 MB
		Grace:         3 * time.Second,
	})
}

// patience is how long a sandbox may take for what takes it a millisecond, unless what earlier code
// left running holds its interpreter.
type patience struct {
	start  time.Duration // code that it has
	change time.Duration // a change of files that it has been sent
}

// handOver is how long a sandbox may take after the end of code until it has handed over what that
// has changed of so many bytes: what it may take for a change of files, and half a minute more for
// each gigabyte.
func (p patience) handOver(disk int64) time.Duration {
	return p.change + time.Duration(float64(disk)/(1<<30)*float64(30*time.Second))
}

// startsAtOnce is how many processes may be starting at a time. Each keeps almost two processors
// busy until its interpreter is up. More at once would not be up any sooner, all of them would be
// late instead of the last, and runs in sessions that are there would wait for them.
func startsAtOnce() int { return max(2, runtime.GOMAXPROCS(0)/2) }

// Driver starts sandboxes on this machine.
type Driver struct {
	env   driver.Env
	cfg   Config
	layer confine.Method

	patience patience
	starts   chan struct{} // holds an element for each process that is starting

	turn   chan struct{} // holds an element while somebody prepares, or uses the rest
	ready  *prepared
	runDir string // for files of running sandboxes; empty: not made yet
	unlock func() // of runDir
}

var _ driver.Driver = (*Driver)(nil)

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() executor.Capabilities {
	return capabilities(runtime.GOOS, d.cfg, d.layer)
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	if c.Spec.Template != "" && c.Spec.Languages[0] == executor.JavaScript {
		err := fmt.Errorf("template %q: it has packages of Python, and the session has JavaScript", c.Spec.Template)
		return nil, driver.Fail(executor.ErrInvalid, executor.RanNo, err)
	}
	p, dir, err := d.prepared(ctx)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	s := newSession(d, p, filepath.Join(dir, c.ID), c)
	defer s.use()()
	_, err = s.up(ctx)
	if err == nil {
		err = s.ahead(ctx, d.cfg.Templates[c.Spec.Template])
	}
	if err != nil {
		s.Destroy(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left that could fail
		return nil, err
	}
	return s, nil
}

// starting waits until another process may start. Whoever gets an error has given up waiting.
func (d *Driver) starting(ctx context.Context) (done func(), err error) {
	select {
	case d.starts <- struct{}{}:
		return func() { <-d.starts }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// prepared returns what sandboxes are started from and a directory for their files. Of several
// callers one does the work; when it gives up, the next one goes on.
func (d *Driver) prepared(ctx context.Context) (*prepared, string, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	if d.ready != nil {
		return d.ready, d.runDir, nil
	}
	p, err := prepare(ctx, d.env, d.cfg)
	if err != nil {
		return nil, "", err
	}
	cache, err := cacheDir(d.env)
	if err != nil {
		return nil, "", err
	}
	dir, unlock, err := newRunDir(ctx, cache)
	if err != nil {
		return nil, "", err
	}
	p.layer = d.layer
	d.ready, d.runDir, d.unlock = p, dir, unlock
	return p, dir, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.unlock == nil {
		return nil
	}
	err := os.RemoveAll(d.runDir)
	d.unlock()
	os.Remove(d.runDir + ".lock") // a lock that is left is removed by the next program
	d.ready, d.runDir, d.unlock = nil, "", nil
	return err
}

// newRunDir makes a directory for the files of this program's sandboxes. Its lock says that the
// program lives: what programs that were killed have left is removed. One program does that at a
// time, so that none finds a lock that is about to be taken.
func newRunDir(ctx context.Context, cache string) (dir string, unlock func(), err error) {
	done, err := store.WaitLock(ctx, filepath.Join(cache, "run.lock"))
	if err != nil {
		return "", nil, err
	}
	defer done()
	old, _ := filepath.Glob(filepath.Join(cache, "run-*.lock")) // the pattern is good
	for _, lock := range old {
		if unlock, err := store.TryLock(lock); err == nil {
			os.RemoveAll(strings.TrimSuffix(lock, ".lock")) // what cannot be removed is tried again by the next program
			unlock()                                        // some systems do not remove what is open
			os.Remove(lock)
		}
	}
	f, err := os.CreateTemp(cache, "run-*.lock")
	if err != nil {
		return "", nil, err
	}
	f.Close()
	if unlock, err = store.TryLock(f.Name()); err != nil {
		return "", nil, err
	}
	dir = strings.TrimSuffix(f.Name(), ".lock")
	if err := os.Mkdir(dir, 0o700); err != nil {
		unlock()
		return "", nil, err
	}
	return dir, unlock, nil
}

// unavailable classifies a failure to start: nothing has run.
func unavailable(ctx context.Context, err error) error {
	var e *executor.Error
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.As(err, &e) {
		return err
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
}
