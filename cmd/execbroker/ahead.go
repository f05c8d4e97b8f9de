package main

import (
	"io"
	"slices"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// maxAhead bounds the typed text that is kept during one run. The last part is kept.
const maxAhead = 64 << 10

// keyboardInput is the keyboard as standard input of a run. Text that was typed ahead and that a
// backend has read but the code has not used is returned at the end.
type keyboardInput struct {
	in io.ReadCloser

	mu    sync.Mutex
	given []byte // bytes that the backend has read
	gone  int64  // number of earlier bytes, which are no longer kept
	taken int64  // number of bytes that the code has read; negative: all of them
}

var _ executor.InputCounter = (*keyboardInput)(nil)

func newKeyboardInput(in io.ReadCloser) *keyboardInput { return &keyboardInput{in: in, taken: -1} }

// Read implements io.Reader.
func (k *keyboardInput) Read(p []byte) (int, error) {
	n, err := k.in.Read(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given = append(k.given, p[:n]...)
	if over := len(k.given) - maxAhead; over > 0 {
		k.given = slices.Clone(k.given[over:])
		k.gone += int64(over)
	}
	return n, err
}

// Taken implements executor.InputCounter.
func (k *keyboardInput) Taken(n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken = n
}

// close ends reading and returns what the code has not read.
func (k *keyboardInput) close() []byte {
	_ = k.in.Close() // it was only open for reading
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken < 0 {
		return nil
	}
	return k.given[min(max(0, k.taken-k.gone), int64(len(k.given))):]
}
