package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// files is the file system of the sandbox, as the worker sees it.
type files struct{ s *session }

var _ driver.Files = files{}

// Files implements driver.Filer.
func (s *session) Files() driver.Files { return files{s} }

// host returns the process, and starts it if necessary.
func (f files) host(ctx context.Context) (*host, error) {
	release, err := f.s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return f.s.up(ctx)
}

// ask makes a call that changes nothing.
func (f files) ask(ctx context.Context, req wire.Map) (wire.Map, *host, error) {
	defer f.s.use()()
	h, err := f.host(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := h.call(ctx, req, nil)
	return r, h, fileError(ctx, err)
}

// change makes a call that changes files. Once it has been sent it is not abandoned, because its
// result must be known.
func (f files) change(ctx context.Context, req wire.Map) error {
	defer f.s.use()()
	release, err := f.s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	h, err := f.s.up(ctx)
	if err != nil {
		return err
	}
	return f.changeIn(ctx, h, req)
}

// changeIn is change in a process that must still be the same. The caller has the lock.
func (f files) changeIn(ctx context.Context, h *host, req wire.Map) error {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.s.d.patience.change)
	defer cancel()
	_, err := f.s.change(cctx, h, req)
	return fileError(ctx, err)
}

// fileError converts the error of a call to one of the contract.
func fileError(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return err
	case errors.Is(err, errLost):
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	for _, kind := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, executor.ErrTooLarge} {
		if errors.Is(err, kind) {
			return driver.Fail(kind, executor.RanNo, err)
		}
	}
	return driver.Fail(executor.ErrInternal, executor.RanNo, err)
}

// Stat implements driver.Files.
func (f files) Stat(ctx context.Context, name string) (executor.FileInfo, error) {
	r, _, err := f.ask(ctx, wire.Map{"op": "stat", "path": name})
	return r.FileInfo(), err
}

// List implements driver.Files.
func (f files) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		defer f.s.use()()
		r, h, err := f.ask(ctx, wire.Map{"op": "list", "path": dir})
		last := ""
		for err == nil {
			for _, v := range r.List("entries") {
				m, _ := v.(wire.Map)
				e := m.FileInfo()
				if e.Name <= last || path.Base(e.Name) != e.Name {
					yield(executor.FileInfo{}, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("%w: listing", errFrame)))
					return
				}
				last = e.Name
				if !yield(e, nil) {
					return
				}
			}
			if r.Int("token") == 0 {
				return
			}
			r, err = h.call(ctx, wire.Map{"op": "next", "token": r.Int("token")}, nil)
			err = fileError(ctx, err)
		}
		yield(executor.FileInfo{}, err)
	}
}

// Mkdir implements driver.Files.
func (f files) Mkdir(ctx context.Context, name string) error {
	return f.change(ctx, wire.Map{"op": "mkdir", "path": name})
}

// Rename implements driver.Files.
func (f files) Rename(ctx context.Context, from, to string) error {
	return f.change(ctx, wire.Map{"op": "rename", "from": from, "to": to})
}

// Remove implements driver.Files.
func (f files) Remove(ctx context.Context, name string) error {
	return f.change(ctx, wire.Map{"op": "remove", "path": name})
}

// Read implements driver.Files.
func (f files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	r, h, err := f.ask(ctx, wire.Map{"op": "open", "path": name})
	if err != nil {
		return nil, err
	}
	return newReader(ctx, h, r.Int("token"), f.s.use()), nil
}

// reader reads a file in pieces. While it is open the session counts as in use. Close may be called
// during a Read, and ends it.
type reader struct {
	ctx    context.Context //nolint:containedctx // by the contract of Files.Read it governs the reading too
	cancel context.CancelFunc
	h      *host
	token  int64
	done   func()

	mu  sync.Mutex
	off int64
	buf []byte
	err error
}

func newReader(ctx context.Context, h *host, token int64, done func()) *reader {
	r := &reader{h: h, token: token, done: done}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.buf) == 0 && r.err == nil && len(p) > 0 {
		rep, err := r.h.call(r.ctx, wire.Map{"op": "read", "token": r.token, "offset": r.off, "max": chunkLen}, nil)
		r.buf, r.err = rep.Bytes("data"), fileError(r.ctx, err)
		r.off += int64(len(r.buf))
		if err == nil && len(r.buf) == 0 {
			r.err = io.EOF
		}
	}
	if len(r.buf) == 0 {
		return 0, r.err
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *reader) Close() error {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == fs.ErrClosed {
		return fs.ErrClosed
	}
	r.buf, r.err = nil, fs.ErrClosed
	r.h.release(r.token)
	r.done()
	return nil
}

// release returns a token. The host forgets old tokens by itself, so neither the answer nor a
// failure matters.
func (h *host) release(token int64) {
	b := h.open()
	h.abandon(b)
	h.send(wire.Frame{Type: wire.Open, Stream: b.id, Payload: wire.AppendValue(nil, wire.Map{"op": "close", "token": token})}) //nolint:errcheck // see above
}

// Write implements driver.Files.
func (f files) Write(ctx context.Context, name string, src io.Reader, mode fs.FileMode) (err error) {
	defer f.s.use()()
	r, h, err := f.ask(ctx, wire.Map{"op": "create", "path": name, "mode": int64(mode.Perm())})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			h.release(r.Int("token"))
		}
	}()
	buf := make([]byte, chunkLen)
	for {
		n, rerr := io.ReadFull(src, buf)
		if n > 0 {
			if _, err := h.call(ctx, wire.Map{"op": "write", "token": r.Int("token"), "data": buf[:n]}, nil); err != nil {
				return fileError(ctx, err)
			}
		}
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			break
		}
		if rerr != nil {
			return driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("reading what to write: %w", rerr))
		}
	}
	unlock, err := f.s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return f.changeIn(ctx, h, wire.Map{"op": "commit", "token": r.Int("token")})
}

// atHome reports whether HOME is the working directory, under any of its names.
func (s *session) atHome() bool {
	home := path.Clean(s.opts.env["HOME"])
	return home == executor.Workdir || slices.Contains(s.opts.alias, home)
}

// artifacts returns the artifacts of a run that has just ended.
func (s *session) artifacts(ctx context.Context, h *host, req *executor.ArtifactRequest, changed []driver.Changed) ([]executor.Artifact, int, error) {
	if s.atHome() { // files that programs keep in the home directory for themselves are not artifacts
		changed = slices.DeleteFunc(changed, func(c driver.Changed) bool { return strings.HasPrefix(c.Name, ".") })
	}
	return driver.Collect(ctx, req, changed, func(ctx context.Context, name string) (io.ReadCloser, error) {
		r, err := h.call(ctx, wire.Map{"op": "open", "path": path.Join(executor.Workdir, name)}, nil)
		if err != nil {
			return nil, fileError(ctx, err)
		}
		return newReader(ctx, h, r.Int("token"), func() {}), nil
	})
}
