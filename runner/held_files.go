package runner

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// heldFiles are the files of the runner, over whatever connection there is.
type heldFiles struct{ h *Holder }

var _ driver.Files = heldFiles{}

// Files implements driver.Filer.
func (h *Holder) Files() driver.Files { return heldFiles{h} }

// with calls f with the files of the runner.
func (f heldFiles) with(ctx context.Context, call func(driver.Files) error) error {
	r, err := f.h.Client(ctx)
	if err != nil {
		return err
	}
	return f.h.Explain(ctx, call(r.Files()))
}

// Read implements driver.Files.
func (f heldFiles) Read(ctx context.Context, name string) (rc io.ReadCloser, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { rc, err = r.Read(ctx, name); return err })
	return rc, err
}

// Write implements driver.Files.
func (f heldFiles) Write(ctx context.Context, name string, from io.Reader, mode fs.FileMode) error {
	return f.with(ctx, func(r driver.Files) error { return r.Write(ctx, name, from, mode) })
}

// Stat implements driver.Files.
func (f heldFiles) Stat(ctx context.Context, name string) (info executor.FileInfo, err error) {
	err = f.with(ctx, func(r driver.Files) (err error) { info, err = r.Stat(ctx, name); return err })
	return info, err
}

// List implements driver.Files.
func (f heldFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		r, err := f.h.Client(ctx)
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		for info, err := range r.Files().List(ctx, dir) {
			if !yield(info, f.h.Explain(ctx, err)) {
				return
			}
		}
	}
}

// Mkdir implements driver.Files.
func (f heldFiles) Mkdir(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Mkdir(ctx, name) })
}

// Rename implements driver.Files.
func (f heldFiles) Rename(ctx context.Context, from, to string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Rename(ctx, from, to) })
}

// Remove implements driver.Files.
func (f heldFiles) Remove(ctx context.Context, name string) error {
	return f.with(ctx, func(r driver.Files) error { return r.Remove(ctx, name) })
}
