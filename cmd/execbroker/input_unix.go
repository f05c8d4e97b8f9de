//go:build unix

package main

import (
	"io"
	"os"
	"time"
)

// keyboard opens the terminal once more, for code that asks the user something. Unlike standard input it can be closed while somebody
// reads from it, so that no reader is left who takes what is typed at the next prompt.
func keyboard() (io.ReadCloser, error) {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return nil, err
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil { // this system cannot interrupt a read
		f.Close()
		return nil, err
	}
	return f, nil
}
