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

// Open opens the backend. The first Create, or an earlier Prepare, installs and prepares what is
// missing. Only the layer of the operating system is tried immediately, because the declared
// capabilities depend on it.
func Open(ctx context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	return openWith(ctx, env, cfg, stopGrace)
}

// stopGrace is how long after its wall time code may take to heed the interrupt. Then its process
// is killed.
const stopGrace = 3 * time.Second

// openWith is Open with another time than stopGrace.
func openWith(ctx context.Context, env driver.Env, cfg Config, grace time.Duration) (executor.Executor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	layer, skipped, err := chooseLayer(ctx, cfg.OSLayer, env.Elsewhere)
	if err != nil {
		return nil, err
	}
	if layer == confine.None && len(skipped) > 0 && env.Log != nil {
		env.Log.Warn("pyodide: no layer of the operating system around the sandboxes", "error", errors.Join(skipped...))
	}
	if err := confine.Adjustable(layer); err != nil && env.Log != nil && !env.Elsewhere {
		env.Log.Warn("pyodide: no limit on the processor time of sandboxes besides the clocks", "error", err)
	}
	d := &Driver{env: env, cfg: cfg, layer: layer, patience: patience{start: 10 * time.Second, change: 30 * time.Second, spare: 3 * time.Second}, locked: make(chan struct{}, 1), starts: make(chan struct{}, startsAtOnce())}
	d.spares = &spares{d: d, ctx: context.WithoutCancel(ctx), want: *cfg.Spares, life: spareLife}
	if env.OneShot {
		d.spares.want = 0
	}
	return driver.New(d, env, driver.Options{
		Type:          Type,
		CreateTimeout: 15 * time.Minute, // the first one may download 45 MB
		Grace:         grace,
	})
}

// patience is how long a sandbox may take for an operation that normally takes a millisecond,
// unless code that was left running blocks its interpreter.
type patience struct {
	start  time.Duration // to start code that it has received
	change time.Duration // to make a change of files
	spare  time.Duration // to begin a session in a spare; then another process is started
}

// handOver is how long a sandbox may take after the end of code to send the changed files, if they
// may have disk bytes: the time for a change of files, and half a minute more for each gigabyte.
func (p patience) handOver(disk int64) time.Duration {
	return p.change + time.Duration(float64(disk)/(1<<30)*float64(30*time.Second))
}

// startsAtOnce is how many processes may be starting at the same time. Each keeps almost two
// processors busy until its interpreter is ready. With more of them none would be ready sooner.
// Instead of the last one all would be late, and runs in existing sessions would be slowed down.
func startsAtOnce() int { return max(2, runtime.GOMAXPROCS(0)/2) }

// Driver starts sandboxes on this machine.
type Driver struct {
	env   driver.Env
	cfg   Config
	layer confine.Method

	patience patience
	starts   chan struct{} // contains an element for each process that is starting
	spares   *spares

	locked chan struct{} // a lock for preparing and for the fields below: contains an element while it is held
	ready  *prepared
	runDir string // for files of running sandboxes; empty: not created yet
	unlock func() // releases the lock of runDir
}

var _ driver.Driver = (*Driver)(nil)

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() executor.Capabilities {
	return capabilities(runtime.GOOS, d.cfg, d.layer)
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, c *driver.Create) (_ driver.Session, err error) {
	if c.Spec.Template != "" && c.Spec.Languages[0] == executor.JavaScript {
		err := fmt.Errorf("template %q: it has packages of Python, and the session has JavaScript", c.Spec.Template)
		return nil, driver.Fail(executor.ErrInvalid, executor.RanNo, err)
	}
	p, dir, err := d.prepared(ctx)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	usual := d.spares.fit(c.Spec)
	done := d.spares.create()
	defer func() { done(usual && err == nil) }()
	dir = filepath.Join(dir, c.ID)
	var spare *host
	if usual {
		spare, dir = d.spares.take(ctx, dir)
	}
	s := newSession(d, p, dir, c)
	s.spare = spare
	defer s.use()()
	_, err = s.up(ctx)
	if err == nil {
		err = s.ahead(ctx, d.cfg.Templates[c.Spec.Template])
	}
	if err != nil {
		s.Destroy(context.WithoutCancel(ctx)) //nolint:errcheck // nothing in it can fail here
		return nil, err
	}
	return s, nil
}

// starting waits until another process may start. It fails if ctx ends during the wait.
func (d *Driver) starting(ctx context.Context) (done func(), err error) {
	select {
	case d.starts <- struct{}{}:
		return func() { <-d.starts }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// prepared returns what is needed to start sandboxes and a directory for their files. One of
// several callers does the work. If it gives up, the next one continues.
func (d *Driver) prepared(ctx context.Context) (*prepared, string, error) {
	select {
	case d.locked <- struct{}{}:
		defer func() { <-d.locked }()
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
		return nil, "", explain(cache, err)
	}
	p.layer = d.layer
	d.ready, d.runDir, d.unlock = p, dir, unlock
	return p, dir, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.spares.close()
	d.locked <- struct{}{}
	defer func() { <-d.locked }()
	if d.unlock == nil {
		return nil
	}
	err := os.RemoveAll(d.runDir)
	d.unlock()
	os.Remove(d.runDir + ".lock") // the next program removes a lock that is left
	d.ready, d.runDir, d.unlock = nil, "", nil
	return err
}

// newRunDir creates a directory for the files of this program's sandboxes. Its lock says that the
// program is alive. The directories of killed programs are removed, by one program at a time, so
// that no program sees a lock file that is about to be locked.
func newRunDir(ctx context.Context, cache string) (dir string, unlock func(), err error) {
	done, err := store.WaitLock(ctx, filepath.Join(cache, "run.lock"))
	if err != nil {
		return "", nil, err
	}
	defer done()
	old, _ := filepath.Glob(filepath.Join(cache, "run-*.lock")) // the pattern is valid
	for _, lock := range old {
		if unlock, err := store.TryLock(lock); err == nil {
			os.RemoveAll(strings.TrimSuffix(lock, ".lock")) // the next program tries again to remove the rest
			unlock()                                        // before the removal, because some systems cannot remove open files
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

// unavailable returns the error for a failure to start: no code has run.
func unavailable(ctx context.Context, err error) error {
	var e *executor.Error
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.As(err, &e) {
		return err
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
}
