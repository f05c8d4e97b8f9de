package modaltest

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Bounds of what a process has written. A client asks again, after a cut, for what it has not seen:
// at most what was on its way, which is what the windows of a connection of the SDK hold.
const (
	keep    = 72 << 20 // behind the furthest reader
	ahead   = 1 << 20  // before it: then the process waits
	message = 64 << 10
)

// errForgotten says that a part of an output is not kept any more.
var errForgotten = errors.New("not kept")

// output is what a process has written to one of its streams. It is written once and read by any
// number of readers, each from an offset.
type output struct {
	mu      sync.Mutex
	change  chan struct{} // closed and replaced at each change
	data    []byte
	start   uint64 // offset of data
	seen    uint64 // offset of the furthest reader
	over    bool
	ignored bool // nothing is kept
	gone    bool // nothing more is taken
	last    bool // little more can come: Write does not wait for readers
}

func newOutput() *output { return &output{change: make(chan struct{})} }

// changed wakes everybody. The caller holds mu.
func (o *output) changed() {
	close(o.change)
	o.change = make(chan struct{})
}

// discard keeps nothing of what is written.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ignored = true
}

// drop lets Write fail instead of waiting.
func (o *output) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	o.changed()
}

// hurry lets Write go on without readers: what wrote has ended.
func (o *output) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.changed()
}

// finish says that nothing more is written.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.changed()
}

// Write implements io.Writer. It waits for readers.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ignored {
		return len(p), nil
	}
	for !o.last && o.start+uint64(len(o.data)) > o.seen+ahead {
		if o.gone {
			return 0, io.ErrClosedPipe
		}
		wait := o.change
		o.mu.Unlock()
		<-wait
		o.mu.Lock()
	}
	o.data = append(o.data, p...)
	if old := int64(o.seen) - keep - int64(o.start); old > int64(len(o.data))/2 {
		o.data = append([]byte(nil), o.data[old:]...)
		o.start += uint64(old)
	}
	o.changed()
	return len(p), nil
}

// read returns what was written at an offset, at least a byte of it, as soon as it is there. It
// fails with io.EOF at the end.
func (o *output) read(ctx context.Context, at uint64) ([]byte, error) {
	for {
		data, wait, err := o.look(at)
		if err != nil || data != nil {
			return data, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look is read without waiting: wait is closed when there may be more.
func (o *output) look(at uint64) (data []byte, wait chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.start + uint64(len(o.data))
	switch {
	case at < o.start:
		return nil, nil, errForgotten
	case at < end:
		data = o.data[at-o.start:]
		data = append([]byte(nil), data[:min(len(data), message)]...)
		if o.seen < at+uint64(len(data)) {
			o.seen = at + uint64(len(data))
			o.changed()
		}
		return data, nil, nil
	case o.over:
		return nil, nil, io.EOF
	}
	return nil, o.change, nil
}
