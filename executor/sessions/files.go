package sessions

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/execbroker/execbroker/executor"
)

// Files implements executor.Session.
func (le *Lease) Files() executor.Files { return files{le} }

// files is the Files of a lease. It ends with the lease.
type files struct{ le *Lease }

func (f files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	uctx, end, err := f.le.use(ctx, "files.read")
	if err != nil {
		return nil, err
	}
	r, err := f.le.session().Files().Read(uctx, name)
	if err != nil {
		return nil, end(err)
	}
	return &reader{r, end}, nil
}

// reader ends the context of the call when the file is closed.
type reader struct {
	io.ReadCloser
	end func(error) error
}

func (r *reader) Close() error { return r.end(r.ReadCloser.Close()) }

func (f files) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	return f.do(ctx, "files.write", func(ctx context.Context, fs executor.Files) error { return fs.Write(ctx, name, r, mode) })
}

func (f files) Stat(ctx context.Context, name string) (i executor.FileInfo, err error) {
	err = f.do(ctx, "files.stat", func(ctx context.Context, fs executor.Files) error {
		i, err = fs.Stat(ctx, name)
		return err
	})
	return i, err
}

func (f files) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		ctx, end, err := f.le.use(ctx, "files.list")
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		defer end(nil)
		for i, err := range f.le.session().Files().List(ctx, dir) {
			if !yield(i, err) {
				return
			}
		}
	}
}

func (f files) Mkdir(ctx context.Context, name string) error {
	return f.do(ctx, "files.mkdir", func(ctx context.Context, fs executor.Files) error { return fs.Mkdir(ctx, name) })
}

func (f files) Rename(ctx context.Context, from, to string) error {
	return f.do(ctx, "files.rename", func(ctx context.Context, fs executor.Files) error { return fs.Rename(ctx, from, to) })
}

func (f files) Remove(ctx context.Context, name string) error {
	return f.do(ctx, "files.remove", func(ctx context.Context, fs executor.Files) error { return fs.Remove(ctx, name) })
}

func (f files) do(ctx context.Context, op string, call func(context.Context, executor.Files) error) error {
	ctx, end, err := f.le.use(ctx, op)
	if err != nil {
		return err
	}
	err = end(call(ctx, f.le.session().Files()))
	if err == nil && op != "files.stat" {
		f.le.mu.Lock()
		f.le.wrote = true
		f.le.mu.Unlock()
	}
	return err
}
