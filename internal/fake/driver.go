package fake

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Driver returns a driver of b. It implements the optional interfaces for the features that b
// declares, and no others.
func (b *Backend) Driver() driver.Driver {
	plain := plainDriver{b}
	return compose(plain, attacher{b}, lister{b}, b.caps)
}

// observer is an Attacher that can tell who is connected.
type observer interface {
	driver.Attacher
	driver.Observer
}

// compose adds to a driver the optional interfaces for its declared features.
func compose(d driver.Driver, a observer, l driver.Lister, c executor.Capabilities) driver.Driver {
	attach, list := c.Has(executor.FeatureAttach), c.Has(executor.FeatureList)
	switch {
	case attach && list:
		return struct {
			driver.Driver
			observer
			driver.Lister
		}{d, a, l}
	case attach:
		return struct {
			driver.Driver
			observer
		}{d, a}
	case list:
		return struct {
			driver.Driver
			driver.Lister
		}{d, l}
	}
	return d
}

type plainDriver struct{ b *Backend }

func (d plainDriver) Capabilities() executor.Capabilities { return d.b.caps }

func (d plainDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	s, err := d.b.create(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.hold(0), nil
}

func (d plainDriver) Close() error { return nil }

type attacher struct{ b *Backend }

func (d attacher) Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error) {
	if err := d.b.enter(ctx, OpLookup); err != nil {
		return executor.SessionInfo{}, err
	}
	s := d.b.find(h.Session)
	if s == nil {
		return executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	return s.info(), nil
}

func (d attacher) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	if err := d.b.enter(ctx, OpAttach); err != nil {
		return nil, err
	}
	s := d.b.find(h.Session)
	if s == nil || s.info().State == executor.SessionDead {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	if err := s.raise(h.Fence); err != nil {
		return nil, err
	}
	return s.hold(h.Fence), nil
}

func (d attacher) LastContact(ctx context.Context, h executor.Handle) (time.Time, error) {
	if err := d.b.enter(ctx, OpLastContact); err != nil {
		return time.Time{}, err
	}
	s := d.b.find(h.Session)
	if s == nil {
		return time.Time{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	return s.lastContact(), nil
}

func (d attacher) Destroy(ctx context.Context, h executor.Handle) error {
	if err := d.b.enter(ctx, OpDestroy); err != nil {
		return err
	}
	if s := d.b.find(h.Session); s != nil {
		d.b.remove(s)
	}
	return nil
}

type lister struct{ b *Backend }

func (d lister) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		if err := d.b.enter(ctx, OpSessions); err != nil {
			yield(executor.SessionInfo{}, err)
			return
		}
		for _, s := range d.b.list(labels) {
			if !yield(s.info(), nil) {
				return
			}
		}
	}
}

// holder is a sandbox that one process holds.
type holder struct {
	box   *sandbox
	fence int64
}

var (
	_ driver.Session    = (*holder)(nil)
	_ driver.Detacher   = (*holder)(nil)
	_ driver.Refresher  = (*holder)(nil)
	_ driver.Resetter   = (*holder)(nil)
	_ driver.KeepAliver = (*holder)(nil)
	_ driver.Installer  = (*holder)(nil)
	_ driver.Filer      = (*holder)(nil)
	_ driver.Dialer     = (*holder)(nil)
	_ driver.Aser       = (*holder)(nil)
)

// Info leaves out when the sandbox ends, because that changes with each use.
func (h *holder) Info() executor.SessionInfo {
	i := h.box.info()
	i.Expires = time.Time{}
	return i
}

// As lets executor.As find the Backend and, unless Options.Mute, the executor.Ender.
func (h *holder) As(target any) bool {
	switch t := target.(type) {
	case **Backend:
		*t = h.box.b
	case *executor.Ender:
		*t = h
		return !h.box.b.opts.Mute
	default:
		return false
	}
	return true
}

// AfterEnd implements executor.Ender.
func (h *holder) AfterEnd(f func()) (stop func() bool) { return context.AfterFunc(h.box.life, f) }

func (h *holder) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if err := h.box.b.enter(ctx, OpRun); err != nil {
		return driver.Exit{}, err
	}
	done, err := h.box.use(h.fence)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	return h.box.run(ctx, req, emit)
}

func (h *holder) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	done, err := h.box.use(h.fence)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	return h.box.install(ctx, p, emit)
}

func (h *holder) Reset(ctx context.Context, which executor.Interpreter) error {
	if err := h.box.b.enter(ctx, OpReset); err != nil {
		return err
	}
	done, err := h.box.use(h.fence)
	if err != nil {
		return err
	}
	defer done()
	h.box.reset(which)
	return nil
}

func (h *holder) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	if err := h.box.b.enter(ctx, OpRefresh); err != nil {
		return executor.SessionInfo{}, err
	}
	if h.box.b.find(h.box.id) == nil {
		return executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	return h.box.info(), nil
}

func (h *holder) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	if err := h.box.b.enter(ctx, OpKeepAlive); err != nil {
		return time.Time{}, err
	}
	done, err := h.box.use(h.fence)
	if err != nil {
		return time.Time{}, err
	}
	defer done()
	return h.box.keepAlive(idle), nil
}

func (h *holder) Detach() error {
	h.box.leave(h)
	return nil
}

func (h *holder) Destroy(ctx context.Context) error {
	if err := h.box.b.enter(ctx, OpDestroy); err != nil {
		return err
	}
	h.box.mu.Lock()
	out := h.fence < h.box.fence
	h.box.mu.Unlock()
	if out {
		return driver.Fail(executor.ErrClosed, executor.RanNo, nil)
	}
	h.box.b.remove(h.box)
	return nil
}

func (h *holder) Files() driver.Files { return files{h} }

// files is the file system of a sandbox for a holder.
type files struct{ h *holder }

// use begins an operation on files.
func (f files) use(ctx context.Context) (done func(), err error) {
	if err := f.h.box.b.enter(ctx, OpFiles); err != nil {
		return nil, err
	}
	return f.h.box.use(f.h.fence)
}

func (f files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	done, err := f.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	data, err := f.h.box.disk.read(name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(&contextReader{ctx, bytes.NewReader(data)}), nil
}

// contextReader ends with a context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

func (f files) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	done, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	data, err := io.ReadAll(&contextReader{ctx, r})
	if err != nil {
		return err
	}
	return f.h.box.disk.write(name, data, mode, true)
}

func (f files) Stat(ctx context.Context, name string) (executor.FileInfo, error) {
	done, err := f.use(ctx)
	if err != nil {
		return executor.FileInfo{}, err
	}
	defer done()
	return f.h.box.disk.stat(name)
}

func (f files) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		done, err := f.use(ctx)
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		defer done()
		infos, err := f.h.box.disk.list(dir)
		for _, i := range infos {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(executor.FileInfo{}, err)
		}
	}
}

func (f files) Mkdir(ctx context.Context, name string) error {
	return f.do(ctx, func(d *disk) error { return d.mkdir(name) })
}

func (f files) Rename(ctx context.Context, from, to string) error {
	return f.do(ctx, func(d *disk) error { return d.rename(from, to) })
}

func (f files) Remove(ctx context.Context, name string) error {
	return f.do(ctx, func(d *disk) error { return d.remove(name) })
}

func (f files) do(ctx context.Context, op func(*disk) error) error {
	done, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return op(f.h.box.disk)
}
