package e2b

import (
	"context"
	"errors"
	"io"
	"sync"
)

// input is the standard input of a process, as clients send it piece by piece.
type input struct {
	pieces chan []byte
	closed chan struct{}
	once   sync.Once
	rest   []byte // of the last piece; only Read has it
}

func newInput() *input {
	return &input{pieces: make(chan []byte, 16), closed: make(chan struct{})}
}

// close ends the input, after what was sent before.
func (i *input) close() { i.once.Do(func() { close(i.closed) }) }

// send waits until there is room for a piece.
func (i *input) send(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	select {
	case <-i.closed:
		return errors.New("stdin is closed")
	default:
	}
	select {
	case i.pieces <- data:
		return nil
	case <-i.closed:
		return errors.New("stdin is closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read implements io.Reader. One goroutine reads at a time.
func (i *input) Read(p []byte) (int, error) {
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
