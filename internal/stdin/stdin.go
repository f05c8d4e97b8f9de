// Package stdin has the standard input of a run whose clients send it piece by piece.
package stdin

import (
	"context"
	"errors"
	"io"
	"sync"
)

// queued is how many pieces may wait for the run to read them.
const queued = 16

// ErrClosed says that the input has ended.
var ErrClosed = errors.New("stdin is closed")

// Input is an io.Reader of what others send. One goroutine reads at a time; the other methods are
// safe for concurrent use.
type Input struct {
	pieces chan []byte
	closed chan struct{}
	once   sync.Once
	rest   []byte // of the last piece; only Read has it
}

// New makes an input to which nothing was sent yet.
func New() *Input {
	return &Input{pieces: make(chan []byte, queued), closed: make(chan struct{})}
}

// Close ends the input, after what was sent before.
func (i *Input) Close() { i.once.Do(func() { close(i.closed) }) }

// Send waits until there is room for a piece, which must not be changed afterwards. It fails with
// ErrClosed or the error of ctx; then nothing of the piece is read.
func (i *Input) Send(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	select {
	case <-i.closed:
		return ErrClosed
	default:
	}
	select {
	case i.pieces <- data:
		return nil
	case <-i.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read implements io.Reader.
func (i *Input) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		select {
		case i.rest = <-i.pieces:
			continue
		default:
		}
		select {
		case i.rest = <-i.pieces:
		case <-i.closed:
			select {
			case i.rest = <-i.pieces: // sent before
			default:
				return 0, io.EOF
			}
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}
