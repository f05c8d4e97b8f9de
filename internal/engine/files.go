package engine

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
	"sync/atomic"

	"github.com/execbroker/execbroker/executor"
)

// Files implements executor.Session.
func (s *session) Files() executor.Files { return sessionFiles{s} }

// sessionFiles implements executor.Files.
type sessionFiles struct{ s *session }

// maxEntries is how many entries a directory may have. They are kept for sorting, and code makes as
// many as it likes.
const maxEntries = 100_000

// begin starts a call on cleaned names. When it fails, the error is complete and the call has
// ended; otherwise finish must follow.
func (f sessionFiles) begin(ctx context.Context, op string, names ...*string) (*transfer, error) {
	t := &transfer{call: call{x: f.s.x, s: f.s}}
	err := t.begin(ctx, executor.Op{Name: op, Session: f.s.id})
	if err == nil {
		err = f.s.lacks(executor.FeatureFiles)
	}
	for _, n := range names {
		if err == nil {
			*n, err = f.s.names.clean(*n)
		}
	}
	if err == nil {
		err = f.s.acquireTransfer()
		t.held = err == nil
	}
	if err == nil {
		t.d = f.s.box.Files()
		return t, nil
	}
	err = t.end(err)
	t.finish()
	return nil, err
}

// transfer is a call of Files in progress.
type transfer struct {
	call
	d    executor.Files // of the driver
	held bool
	done func() // of outlive; may be nil
}

// outlive keeps the sandbox alive during the transfer, which takes as long as it takes.
func (t *transfer) outlive() (err error) {
	t.done, err = t.s.outlive(t.ctx, executor.NoLimit)
	return err
}

func (t *transfer) end(err error) error { return t.call.end(fileError(err)) }

func (t *transfer) finish() {
	if t.done != nil {
		t.done()
	}
	if t.held {
		t.s.releaseTransfer()
	}
	t.call.finish()
}

// do does a whole call on one or two names.
func (f sessionFiles) do(ctx context.Context, op string, do func(ctx context.Context, d executor.Files) error, names ...*string) error {
	t, err := f.begin(ctx, op, names...)
	if err != nil {
		return err
	}
	defer t.finish()
	return t.end(do(t.ctx, t.d))
}

// clean is absolute, with errors of Files.
func (n names) clean(name string) (string, error) {
	clean, err := n.absolute(name)
	if err != nil {
		return "", Fail(fs.ErrInvalid, executor.RanNo, fmt.Errorf("%q: %w", shortened(name), err))
	}
	return clean, nil
}

// shortened is name for an error text.
func shortened(name string) string {
	if len(name) > 100 {
		return name[:100] + "..."
	}
	return name
}

// Stat implements executor.Files.
func (f sessionFiles) Stat(ctx context.Context, name string) (info executor.FileInfo, err error) {
	err = f.do(ctx, "files.stat", func(ctx context.Context, d executor.Files) (err error) {
		if info, err = d.Stat(ctx, name); err != nil {
			return err
		}
		info.Name = path.Base(name)
		return checkInfo(&info)
	}, &name)
	if err != nil {
		return executor.FileInfo{}, err
	}
	return info, nil
}

// checkInfo bounds what a sandbox says about a file.
func checkInfo(i *executor.FileInfo) error {
	if i.Size < 0 {
		return Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("%q: a size of %d bytes", i.Name, i.Size))
	}
	if len(i.Target) > maxName || i.Mode&fs.ModeSymlink == 0 {
		i.Target = ""
	}
	return nil
}

// List implements executor.Files. The driver has finished before the loop begins, so that its body
// may use the session.
func (f sessionFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		entries, err := f.list(ctx, dir)
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(executor.FileInfo{}, err)
		}
	}
}

func (f sessionFiles) list(ctx context.Context, dir string) (entries []executor.FileInfo, err error) {
	err = f.do(ctx, "files.list", func(ctx context.Context, d executor.Files) error {
		for i, err := range d.List(ctx, dir) {
			if err == nil {
				err = checkInfo(&i)
			}
			if err != nil {
				return err
			}
			// Code can make names that no method would take. They cannot be asked for, so they are
			// not offered.
			if checkName(i.Name) != nil || strings.Contains(i.Name, "/") || i.Name == "." || i.Name == ".." {
				continue
			}
			if len(entries) == maxEntries {
				return Fail(executor.ErrTooLarge, executor.RanNo, fmt.Errorf("%q: more than %d entries", dir, maxEntries))
			}
			entries = append(entries, i)
		}
		return nil
	}, &dir)
	slices.SortFunc(entries, func(a, b executor.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return entries, err
}

// Mkdir implements executor.Files.
func (f sessionFiles) Mkdir(ctx context.Context, name string) error {
	return f.do(ctx, "files.mkdir", func(ctx context.Context, d executor.Files) error { return d.Mkdir(ctx, name) }, &name)
}

// Rename implements executor.Files.
func (f sessionFiles) Rename(ctx context.Context, from, to string) error {
	return f.do(ctx, "files.rename", func(ctx context.Context, d executor.Files) error {
		if f.s.names.protects(from) || f.s.names.protects(to) || strings.HasPrefix(to, from+"/") {
			return Fail(fs.ErrInvalid, executor.RanNo, fmt.Errorf("%q to %q: %s stays where it is, and no directory goes into itself", from, to, executor.Workdir))
		}
		return d.Rename(ctx, from, to)
	}, &from, &to)
}

// Remove implements executor.Files.
func (f sessionFiles) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "files.remove", func(ctx context.Context, d executor.Files) error {
		if f.s.names.protects(name) {
			return Fail(fs.ErrInvalid, executor.RanNo, fmt.Errorf("%q: the working directory stays; remove what is in it", name))
		}
		if err := d.Remove(ctx, name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, &name)
}

// Write implements executor.Files.
func (f sessionFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	t, err := f.begin(ctx, "files.write", &name)
	if err != nil {
		return err
	}
	defer t.finish()
	if err := t.outlive(); err != nil {
		return t.end(err)
	}
	if r == nil {
		r = strings.NewReader("")
	}
	if mode = mode.Perm(); mode == 0 {
		mode = 0o644
	}
	src := &source{ctx: t.ctx, r: r}
	err = t.d.Write(t.ctx, name, src, mode)
	switch {
	case src.err != nil && t.ctx.Err() == nil: // the caller's reader failed, and no backend
		err = Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("%q: reading what is to be written: %w", name, src.err))
	case err == nil && !src.ended:
		err = Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("%q: the driver has not read to the end", name))
	}
	return t.end(err)
}

// source is what is to be written. It ends with its context, and remembers how it ended.
type source struct {
	ctx   context.Context
	r     io.Reader
	ended bool
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.Read(p)
	switch {
	case err == io.EOF:
		s.ended = true
	case err != nil:
		s.err = err
	}
	return n, err
}

// Read implements executor.Files.
func (f sessionFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	t, err := f.begin(ctx, "files.read", &name)
	if err != nil {
		return nil, err
	}
	opened := false
	defer func() {
		if !opened {
			t.finish()
		}
	}()
	if err = t.outlive(); err != nil {
		return nil, t.end(err)
	}
	body, err := t.d.Read(t.ctx, name)
	if err == nil && body == nil {
		err = Fail(executor.ErrInternal, executor.RanNo, errors.New("the driver returned neither a file nor an error"))
	}
	if err != nil {
		return nil, t.end(err)
	}
	opened = true
	r := &reader{t: t, body: body}
	r.forget = context.AfterFunc(t.ctx, func() { r.close() })
	return r, nil
}

// reader is an open file. When its context ends, or the session is closed, it closes itself, so
// that nothing waits for a caller that has forgotten it.
type reader struct {
	t      *transfer
	body   io.ReadCloser
	forget func() bool

	closed atomic.Bool // by the caller
	once   sync.Once
	err    error // of Close
}

// Read implements io.Reader. Its errors are *executor.Error, but for io.EOF.
func (r *reader) Read(p []byte) (int, error) {
	if r.closed.Load() {
		return 0, r.fail(Fail(executor.ErrClosed, executor.RanNo, fs.ErrClosed))
	}
	if r.t.ctx.Err() != nil {
		return 0, r.fail(context.Cause(r.t.ctx))
	}
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = r.fail(err)
	}
	return n, err
}

func (r *reader) fail(err error) error {
	return r.t.x.fail(r.t.ctx, r.t.op.Name, r.t.s.id, true, fileError(err))
}

// Close implements io.Closer. Further calls return what the first did.
func (r *reader) Close() error {
	r.closed.Store(true)
	r.forget()
	r.close()
	return r.err
}

func (r *reader) close() {
	r.once.Do(func() {
		defer r.t.finish()
		r.err = r.t.end(r.body.Close())
	})
}
