package backends

import (
	"cmp"
	"context"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
)

// files audits what users upload to a session and download from it.
type files struct {
	executor.Files
	s *session
}

// Write implements executor.Files.
func (f *files) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	a := Audit{Op: "upload", File: name}
	f.s.opening(&a)
	n := &counter{r: r}
	err := f.Files.Write(ctx, name, n, mode)
	f.s.finish(a, n.n, err)
	return err
}

// Read implements executor.Files. The audit is written when the file is closed.
func (f *files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	a := Audit{Op: "download", File: name}
	f.s.opening(&a)
	r, err := f.Files.Read(ctx, name)
	if err != nil {
		f.s.finish(a, 0, err)
		return nil, err
	}
	return &download{counter: counter{r: r}, c: r, f: f, a: a}, nil
}

func (s *session) finish(a Audit, n int64, err error) {
	a.FileBytes, a.Cost = n, s.meter.prices.Bytes(n)
	if a.Cost > 0 {
		s.charge(s.held, false, ledger.Amount{Cost: a.Cost}, a.Cost)
	}
	a.closing(nil, err)
	s.b.audit(a)
}

// counter counts the bytes that are read through it.
type counter struct {
	r   io.Reader
	n   int64
	err error // the last error other than io.EOF
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// download is a file that a user reads.
type download struct {
	counter
	c    io.Closer
	f    *files
	a    Audit
	done bool
}

func (d *download) Close() error {
	err := d.c.Close()
	if !d.done {
		d.done = true
		d.f.s.finish(d.a, d.n, cmp.Or(d.err, err))
	}
	return err
}
