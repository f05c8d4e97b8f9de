package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// Window is how much of a stream may be in flight: what each receiver grants in Open or with the
// first Credit.
const Window = 1 << 20

// maxCredit is what a sender lets a peer grant ahead. More is an error and not a reason to buffer
// more.
const maxCredit = 64 << 20

// ErrCredit says that a peer sent more than it was granted, or grants what nobody would.
var ErrCredit = errors.New("the flow control of the runner protocol was violated")

// Credits is what the sender of a stream may still send. The zero value has none. All methods are
// safe for concurrent use.
type Credits struct {
	mu     sync.Mutex
	left   int
	closed error
	more   chan struct{} // closed when something changes; nil if nobody waits
}

// Grant adds n.
func (c *Credits) Grant(n uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(c.left)+int64(n) > maxCredit {
		return fmt.Errorf("%w: %d more granted", ErrCredit, n)
	}
	c.left += int(n)
	c.wake()
	return nil
}

// Close makes Take fail with err.
func (c *Credits) Close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = err
	}
	c.wake()
}

func (c *Credits) wake() {
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// Take waits until something may be sent and takes at most n of it.
func (c *Credits) Take(ctx context.Context, n int) (int, error) {
	for {
		c.mu.Lock()
		if c.closed != nil {
			c.mu.Unlock()
			return 0, c.closed
		}
		if got := min(n, c.left); got > 0 || n == 0 {
			c.left -= got
			c.mu.Unlock()
			return got, nil
		}
		if c.more == nil {
			c.more = make(chan struct{})
		}
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Granted counts for the receiver of a stream. It is for one goroutine at a time.
type Granted struct {
	left, used int
}

// NewGranted begins with Window granted.
func NewGranted() Granted { return Granted{left: Window} }

// Receive takes note of n bytes that have arrived.
func (g *Granted) Receive(n int) error {
	if g.left -= n; g.left < 0 {
		return fmt.Errorf("%w: %d bytes more than granted", ErrCredit, -g.left)
	}
	return nil
}

// Consume takes note of n bytes that were used, and returns how much to grant now: often nothing,
// so that there are few such frames.
func (g *Granted) Consume(n int) uint32 {
	if g.used += n; g.used < Window/2 {
		return 0
	}
	grant := g.used
	g.left, g.used = g.left+grant, 0
	return uint32(grant)
}

// CreditFrame returns the frame that grants n on a stream.
func CreditFrame(stream, n uint32) Frame {
	return Frame{Type: Credit, Stream: stream, Payload: binary.BigEndian.AppendUint32(nil, n)}
}

// ParseCredit returns what a Credit frame grants.
func ParseCredit(f Frame) (uint32, error) {
	if len(f.Payload) != 4 {
		return 0, fmt.Errorf("%w: credit of %d bytes", ErrFrame, len(f.Payload))
	}
	return binary.BigEndian.Uint32(f.Payload), nil
}
