package backends

import (
	"cmp"
	"context"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/executor"
)

// files counts and audits what users upload to a session and download from it.
type files struct {
	executor.Files
	s     *session
	quiet bool // no audit
}

// Write implements executor.Files.
func (f *files) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	a := Audit{Op: "upload", File: name}
	f.s.opening(&a)
	t := f.s.transfer(ctx, "files.write")
	err := f.Files.Write(ctx, name, &input{r: r, t: t}, mode)
	err = t.refusal(err)
	f.finish(a, t, err)
	return err
}

// Read implements executor.Files. The audit is written when the file is closed.
func (f *files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	a := Audit{Op: "download", File: name}
	f.s.opening(&a)
	t := f.s.transfer(ctx, "files.read")
	_, err := t.reserve(1) // before the backend reads ahead
	var r io.ReadCloser
	if err == nil {
		r, err = f.Files.Read(ctx, name)
	}
	if err != nil {
		f.finish(a, t, err)
		return nil, err
	}
	return &download{output: output{r: r, t: t}, c: r, f: f, a: a}, nil
}

// finish settles and audits a transfer.
func (f *files) finish(a Audit, t *transfer, err error) {
	a.FileBytes, a.Cost = t.settle()
	a.closing(nil, err)
	if !f.quiet {
		f.s.b.audit(a)
	}
}

// download is a file that a user reads.
type download struct {
	output
	c    io.Closer
	f    *files
	a    Audit
	err  error // the last error of Read other than io.EOF
	done bool
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	n, err := d.output.Read(p)
	if err != nil && err != io.EOF {
		d.err = err
	}
	return n, err
}

// Close implements io.Closer.
func (d *download) Close() error {
	err := d.c.Close()
	if !d.done {
		d.done = true
		d.f.finish(d.a, d.t, cmp.Or(d.err, err))
	}
	return err
}
