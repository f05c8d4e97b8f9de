// Package stdin implements the standard input of a run whose clients send it in pieces.
package stdin

import (
	"context"
	"errors"
	"io"
	"sync"
)

// queued is how many pieces may wait until the run reads them.
const queued = 16

// ErrClosed says that the input has ended.
var ErrClosed = errors.New("stdin is closed")

// Input is an io.Reader of the pieces that clients send. One goroutine may read at a time; the
// other methods are safe for concurrent use.
type Input struct {
	pieces chan []byte
	closed chan struct{}
	once   sync.Once
	rest   []byte // rest of the last piece; used only by Read
}

// New returns an empty open input.
func New() *Input {
	return &Input{pieces: make(chan []byte, queued), closed: make(chan struct{})}
}

// Close ends the input after the pieces that were already sent.
func (i *Input) Close() { i.once.Do(func() { close(i.closed) }) }

// Send waits until there is room for a piece, which must not be changed afterwards. It fails with
// ErrClosed or the error of ctx, and then no part of the piece is read.
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
			case i.rest = <-i.pieces: // sent before Close
			default:
				return 0, io.EOF
			}
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}
