//go:build !unix

package main

import (
	"errors"
	"io"

	"github.com/execbroker/execbroker/executor"
)

// keyboard is not there: nothing would end a reader but a key, which the next prompt would then
// miss.
func keyboard() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// askTerminal asks nothing, since nothing would end the wait for an answer.
func askTerminal(io.Writer, string, func([]byte) bool) []byte { return nil }

// followSize takes the size once: nothing tells of changes.
func followSize(fd int, t *executor.Terminal) (end func()) {
	takeSize(fd, t)
	return func() {}
}
