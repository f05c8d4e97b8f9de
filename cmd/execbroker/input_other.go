//go:build !unix

package main

import (
	"errors"
	"io"

	"github.com/execbroker/execbroker/executor"
)

// keyboard is not supported: only a key would end a reader, and the next prompt would then miss
// that key.
func keyboard() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// askTerminal asks nothing, because nothing could end the wait for an answer.
func askTerminal(io.Writer, string, func([]byte) bool) []byte { return nil }

// followSize sets the size once, because nothing reports changes.
func followSize(fd int, t *executor.Terminal) (end func()) {
	takeSize(fd, t)
	return func() {}
}
