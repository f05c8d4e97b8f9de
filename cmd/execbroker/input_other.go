//go:build !unix

package main

import (
	"errors"
	"io"
)

// keyboard is not there: nothing would end a reader but a key, which the next prompt would then miss.
func keyboard() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// askTerminal asks nothing, since nothing would end the wait for an answer.
func askTerminal(io.Writer, string, func([]byte) bool) []byte { return nil }
