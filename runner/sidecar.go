package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
)

// maxSaid bounds what a Sidecar is heard to say to stderr: its end is kept.
const maxSaid = 4 << 10

// Sidecar is a program that runs beside user code: its standard input and output. One goroutine may
// read and one may write at a time; the other methods are safe for concurrent use.
type Sidecar struct {
	s    *stream
	out  *io.PipeReader
	life context.Context
	end  context.CancelFunc
	done chan struct{} // closed when nothing of it is heard any more

	mu   sync.Mutex
	said []byte
}

var _ io.ReadWriteCloser = (*Sidecar)(nil)

// StartSidecar starts a program of the holder itself, as the user of the supervisor, in the root
// directory. User code can neither signal nor trace it, and nothing of Config applies to it:
// neither its environment nor its limits. It counts as use of the sandbox. When the holder is gone
// its standard input ends.
func (c *client) StartSidecar(ctx context.Context, argv []string) (*Sidecar, error) {
	s, err := c.open(ctx, wire.Map{"op": "run", "own": true, "argv": wire.List(argv), "wall": int64(-1), "output": int64(math.MaxInt64), "stdin": true})
	if err != nil {
		return nil, err
	}
	f, err := s.frame(ctx)
	if err == nil && f.Type != wire.Started {
		if _, err = answer(f); err == nil {
			err = driver.Fail(executor.ErrInternal, executor.RanMaybe, fmt.Errorf("%v before the program had started", f.Type))
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	out, in := io.Pipe()
	p := &Sidecar{s: s, out: out, done: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	go func() { // Close waits for it
		defer close(p.done)
		defer s.close()
		in.CloseWithError(p.pump(in))
	}()
	return p, nil
}

// pump passes on what the program writes, and returns how that ended.
func (p *Sidecar) pump(stdout io.Writer) error {
	for {
		f, err := p.s.frame(p.life)
		switch {
		case err != nil:
			return err
		case f.Type == wire.Data && f.Channel == wire.Stdout:
			if _, err := stdout.Write(f.Payload); err != nil {
				return err
			}
		case f.Type == wire.Data && f.Channel == wire.Stderr:
			p.hear(f.Payload)
		case f.Type == wire.Done:
			if m, err := answer(f); err != nil || m.Int("exit") != 0 {
				return errors.Join(err, fmt.Errorf("the program ended with exit code %d", m.Int("exit")))
			}
			return io.EOF
		default:
			return driver.Fail(executor.ErrInternal, executor.RanMaybe, fmt.Errorf("unexpected %v of a program", f.Type))
		}
		if err := p.s.consumed(p.life, len(f.Payload)); err != nil {
			return err
		}
	}
}

func (p *Sidecar) hear(text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, text...)
	p.said = p.said[max(0, len(p.said)-maxSaid):]
}

// Said returns the end of what it has written to stderr.
func (p *Sidecar) Said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(p.said), "\uFFFD"))
}

// Read reads its standard output. It returns io.EOF when the program has ended well.
func (p *Sidecar) Read(b []byte) (int, error) { return p.out.Read(b) }

// Write writes to its standard input. What a program that has ended does not read is an error.
func (p *Sidecar) Write(b []byte) (int, error) {
	if err := p.s.send(p.life, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the program, if it has not ended. What it has started itself is not ended with it.
func (p *Sidecar) Close() error {
	p.end()
	p.out.Close()
	<-p.done
	return nil
}
