package runner

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// sessionFiles are the files of the runner, over whatever connection there is.
type sessionFiles struct{ s *session }

var _ driver.Files = sessionFiles{}

// Files implements driver.Filer.
func (s *session) Files() driver.Files { return sessionFiles{s} }

// with calls f with the files of the runner.
func (f sessionFiles) with(ctx context.Context, call func(driver.Files) error) error {
	r, err := f.s.client(ctx)
	if err != nil {
		return err
	}
	return f.s.explain(ctx, call(r.Files()))
}

// Read implements driver.Files.
func (f sessionFiles) Read(ctx context.Context, name string) (rc io.ReadCloser, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { rc, err = r.Read(ctx, name); return err })
	return rc, err
}

// Write implements driver.Files.
func (f sessionFiles) Write(ctx context.Context, name string, from io.Reader, mode fs.FileMode) error {
	return f.with(ctx, func(r driver.Files) error { return r.Write(ctx, name, from, mode) })
}

// Stat implements driver.Files.
func (f sessionFiles) Stat(ctx context.Context, name string) (info executor.FileInfo, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { info, err = r.Stat(ctx, name); return err })
	return info, err
}

// List implements driver.Files.
func (f sessionFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		r, err := f.s.client(ctx)
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		for info, err := range r.Files().List(ctx, dir) {
			if !yield(info, f.s.explain(ctx, err)) {
				return
			}
		}
	}
}

// Mkdir implements driver.Files.
func (f sessionFiles) Mkdir(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Mkdir(ctx, name) })
}

// Rename implements driver.Files.
func (f sessionFiles) Rename(ctx context.Context, from, to string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Rename(ctx, from, to) })
}

// Remove implements driver.Files.
func (f sessionFiles) Remove(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Remove(ctx, name) })
}
