package e2b

import (
	"context"
	"sync"

	pb "github.com/execbroker/execbroker/internal/envd/processpb"
)

// backlog is how many bytes of output are kept for readers. When it is full, the command waits for
// the slowest reader; without readers the oldest output is dropped.
const backlog = 1 << 20

// feed carries the output of a command to all connected clients. Output that nobody has read is
// kept for the next client, as far as it fits.
type feed struct {
	mu      sync.Mutex
	changed chan struct{} // closed when anything below changes
	chunks  []*pb.ProcessEvent_DataEvent
	first   int // number of chunks[0]
	bytes   int
	unread  int // the first chunk that nobody has read
	readers map[*reader]bool
	done    bool
	end     *pb.ProcessEvent_EndEvent // if done; nil: err says why not
	err     error
}

// reader is one connection to a feed.
type reader struct {
	f    *feed
	next int
}

func newFeed() *feed { return &feed{changed: make(chan struct{}), readers: map[*reader]bool{}} }

// notify wakes all who wait. The caller holds f.mu.
func (f *feed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// trim forgets what all readers have read. The caller holds f.mu.
func (f *feed) trim() {
	keep := f.unread
	for r := range f.readers {
		keep = min(keep, r.next)
	}
	for f.first < keep {
		f.drop()
	}
}

// drop forgets the oldest chunk. The caller holds f.mu.
func (f *feed) drop() {
	f.bytes -= size(f.chunks[0])
	f.chunks[0] = nil
	f.chunks = f.chunks[1:]
	f.first++
	f.unread = max(f.unread, f.first)
}

func size(c *pb.ProcessEvent_DataEvent) int {
	return len(c.GetStdout()) + len(c.GetStderr()) + len(c.GetPty())
}

// push adds output. It waits for readers that are behind.
func (f *feed) push(ctx context.Context, c *pb.ProcessEvent_DataEvent) error {
	for {
		f.mu.Lock()
		f.trim()
		for len(f.readers) == 0 && f.bytes > backlog {
			f.drop()
		}
		if f.bytes <= backlog {
			f.chunks = append(f.chunks, c)
			f.bytes += size(c)
			f.notify()
			f.mu.Unlock()
			return nil
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// finish ends the feed. It has effect once.
func (f *feed) finish(end *pb.ProcessEvent_EndEvent, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		f.done, f.end, f.err = true, end, err
		f.notify()
	}
}

// connect adds a reader. The caller closes it.
func (f *feed) connect() *reader {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &reader{f: f, next: f.unread}
	f.readers[r] = true
	return r
}

func (r *reader) close() {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	delete(r.f.readers, r)
	r.f.notify()
}

// read returns the next chunk or, at the end, done. Without either, wait says when to look again.
func (r *reader) read() (c *pb.ProcessEvent_DataEvent, done bool, wait <-chan struct{}) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.next < f.first+len(f.chunks) {
		c = f.chunks[r.next-f.first]
		r.next++
		f.unread = max(f.unread, r.next)
		f.notify()
		return c, false, nil
	}
	return nil, f.done, f.changed
}
