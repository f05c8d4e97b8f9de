package pyodide

import (
	"context"
	"io"
	"slices"

	"github.com/execbroker/execbroker/internal/wire"
)

// open begins an exchange.
func (h *host) open() *mailbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &mailbox{h: h, id: h.nextID, bell: make(chan struct{}, 1)}
	h.nextID++
	h.boxes[b.id] = b
	return b
}

// close ends an exchange. Later frames for it are a fault.
func (h *host) close(b *mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !b.abandoned {
		delete(h.boxes, b.id)
	}
	for _, f := range b.queue {
		h.queued -= cost(f)
	}
	b.queue = nil
}

// abandon makes the answer of an exchange be dropped when it arrives.
func (h *host) abandon(b *mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.abandoned = !slices.ContainsFunc(b.queue, last) // unless it has arrived already
}

// mailbox contains the frames of one exchange.
type mailbox struct {
	h    *host
	id   uint32
	bell chan struct{}

	queue     []wire.Frame // guarded by h.mu, like the other fields
	abandoned bool         // waits only for the answer, whose content does not matter
}

func (b *mailbox) put(f wire.Frame) {
	b.queue = append(b.queue, f)
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// take returns the next frame, if there is one, and confirms it to the host.
func (b *mailbox) take() (wire.Frame, bool) {
	h := b.h
	h.mu.Lock()
	if len(b.queue) == 0 {
		h.mu.Unlock()
		return wire.Frame{}, false
	}
	f := b.queue[0]
	b.queue = b.queue[1:]
	h.queued -= cost(f)
	give := uint32(0)
	if f.Costs() {
		give = h.granted.Consume(cost(f))
	}
	h.mu.Unlock()
	if give > 0 {
		h.send(wire.CreditFrame(f.Stream, give)) //nolint:errcheck // a dead host needs no credit
	}
	return f, true
}

// next waits for a frame. It fails when ctx ends, even if there are frames, and with io.EOF when
// the process has ended and no frame is left.
func (b *mailbox) next(ctx context.Context) (wire.Frame, error) {
	for {
		if ctx.Err() != nil {
			return wire.Frame{}, context.Cause(ctx)
		}
		if f, ok := b.take(); ok {
			return f, nil
		}
		select {
		case <-b.bell:
		case <-ctx.Done():
			return wire.Frame{}, context.Cause(ctx)
		case <-b.h.dead:
			if f, ok := b.take(); ok {
				return f, nil
			}
			return wire.Frame{}, io.EOF
		}
	}
}
