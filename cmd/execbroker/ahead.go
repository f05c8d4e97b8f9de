package main

import (
	"io"
	"slices"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// maxAhead bounds what is kept of what is typed during one run: the last of it.
const maxAhead = 64 << 10

// keyboardInput is the keyboard as standard input of a run. What was typed ahead, and a backend has
// read without need, comes back.
type keyboardInput struct {
	in io.ReadCloser

	mu    sync.Mutex
	given []byte // to the backend
	gone  int64  // bytes that were given before these
	taken int64  // bytes, by the code; negative: all of them
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

// close ends reading and returns what the code has left.
func (k *keyboardInput) close() []byte {
	_ = k.in.Close() // it was only read
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken < 0 {
		return nil
	}
	return k.given[min(max(0, k.taken-k.gone), int64(len(k.given))):]
}
