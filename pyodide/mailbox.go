package pyodide

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
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
		h.queued -= f.cost()
	}
	b.queue = nil
}

// abandon makes the answer of an exchange be dropped when it arrives.
func (h *host) abandon(b *mailbox) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.abandoned = !slices.ContainsFunc(b.queue, func(f frame) bool { return f.typ == fromReply }) // unless it has arrived already
}

// mailbox contains the frames of one exchange.
type mailbox struct {
	h    *host
	id   uint32
	bell chan struct{}

	queue     []frame // guarded by h.mu, like the other fields
	abandoned bool    // waits only for the reply, whose content does not matter
}

func (b *mailbox) put(f frame) {
	b.queue = append(b.queue, f)
	b.ring()
}

func (b *mailbox) ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// take returns the next frame, if there is one, and confirms it to the host.
func (b *mailbox) take() (frame, bool) {
	h := b.h
	h.mu.Lock()
	if len(b.queue) == 0 {
		h.mu.Unlock()
		return frame{}, false
	}
	f := b.queue[0]
	b.queue = b.queue[1:]
	h.queued -= f.cost()
	give := 0
	if f.typ.counted() {
		if h.credit += f.cost(); h.credit >= window/4 {
			give, h.credit = h.credit, 0
		}
	}
	h.mu.Unlock()
	if give > 0 {
		h.send(toCredit, 0, binary.LittleEndian.AppendUint32(nil, uint32(give))) //nolint:errcheck // a dead host needs no credit
	}
	return f, true
}

// next waits for a frame. It fails when ctx ends, even if there are frames, and with io.EOF when
// the process has ended and no frame is left.
func (b *mailbox) next(ctx context.Context) (frame, error) {
	for {
		if ctx.Err() != nil {
			return frame{}, context.Cause(ctx)
		}
		if f, ok := b.take(); ok {
			return f, nil
		}
		select {
		case <-b.bell:
		case <-ctx.Done():
			return frame{}, context.Cause(ctx)
		case <-b.h.dead:
			if f, ok := b.take(); ok {
				return f, nil
			}
			return frame{}, io.EOF
		}
	}
}
