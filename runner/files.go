package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// Files returns the file system of the sandbox, with the rights of its user.
func (c *client) Files() driver.Files { return files{c} }

type files struct{ c *client }

var _ driver.Files = files{}

// Read implements driver.Files.
func (f files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	s, err := f.c.open(ctx, wire.Map{"op": "read", "name": name})
	if err != nil {
		return nil, err
	}
	first, err := s.frame(ctx)
	if err == nil && first.Type != wire.Started {
		_, err = answer(first)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return &reader{ctx: ctx, s: s}, nil
}

// reader reads a file as it arrives.
type reader struct {
	ctx  context.Context
	s    *stream
	data []byte
	err  error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.data) == 0 && r.err == nil {
		r.s.reuse()
		f, err := r.s.frame(r.ctx)
		switch {
		case err != nil:
			r.err = err
		case f.Type == wire.Data:
			r.data = f.Payload
		default:
			if _, r.err = answer(f); r.err == nil {
				r.err = io.EOF
			}
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	if err := r.s.consumed(r.ctx, n); err != nil && !r.s.ended {
		r.err = err
	}
	return n, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.s.close()
	r.data, r.err = nil, fs.ErrClosed
	return nil
}

// Write implements driver.Files.
func (f files) Write(ctx context.Context, name string, from io.Reader, mode fs.FileMode) error {
	s, err := f.c.open(ctx, wire.Map{"op": "write", "name": name, "mode": int64(mode.Perm())})
	if err != nil {
		return err
	}
	defer s.close()
	// The runner says at once if it cannot write there, and later if there is no room: nobody has
	// to send the rest then.
	failed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan error, 1)
	go func() { // ends with the last frame, or when ctx or the connection does
		for {
			last, err := s.frame(failed)
			if err == nil && (last.Type == wire.Done || last.Type == wire.Fail) {
				_, err = answer(last)
			} else if err == nil {
				continue
			}
			if err != nil {
				cancel(err)
			}
			over <- err
			return
		}
	}()
	sent := s.sendAll(failed, from)
	if sent != nil {
		cancel(sent)
	}
	if err := <-over; err != nil {
		return err
	}
	return sent
}

// Stat implements driver.Files.
func (f files) Stat(ctx context.Context, name string) (executor.FileInfo, error) {
	m, err := f.c.ask(ctx, wire.Map{"op": "stat", "name": name})
	if err != nil {
		return executor.FileInfo{}, err
	}
	return m.FileInfo(), nil
}

// List implements driver.Files.
func (f files) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		s, err := f.c.open(ctx, wire.Map{"op": "list", "name": dir})
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		defer s.close()
		var buf []byte // entries may be cut anywhere
		for {
			fr, err := s.frame(ctx)
			if err == nil && fr.Type != wire.Data {
				if _, err = answer(fr); err == nil && len(buf) > 0 {
					err = driver.Fail(executor.ErrInternal, executor.RanNo, errors.New("an entry was cut short"))
				}
				if err == nil {
					return
				}
			}
			if err == nil {
				buf = append(buf, fr.Payload...)
				for len(buf) > 0 {
					v, rest, perr := wire.ParseValue(buf)
					if perr != nil {
						break
					}
					m, _ := v.(wire.Map)
					if !yield(m.FileInfo(), nil) {
						return
					}
					buf = rest
				}
				if len(buf) > 1<<16 {
					err = driver.Fail(executor.ErrInternal, executor.RanNo, wire.ErrValue)
				} else {
					err = s.consumed(ctx, len(fr.Payload))
				}
			}
			if err != nil {
				yield(executor.FileInfo{}, err)
				return
			}
		}
	}
}

// Mkdir implements driver.Files.
func (f files) Mkdir(ctx context.Context, name string) error {
	_, err := f.c.ask(ctx, wire.Map{"op": "mkdir", "name": name})
	return err
}

// Rename implements driver.Files.
func (f files) Rename(ctx context.Context, from, to string) error {
	_, err := f.c.ask(ctx, wire.Map{"op": "rename", "from": from, "to": to})
	return err
}

// Remove implements driver.Files.
func (f files) Remove(ctx context.Context, name string) error {
	_, err := f.c.ask(ctx, wire.Map{"op": "remove", "name": name})
	return err
}
