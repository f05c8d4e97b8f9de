//go:build !unix

package main

import (
	"errors"
	"io"
)

// keyboard is not there: nothing would end a reader but a key, which the next prompt would then miss.
func keyboard() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
