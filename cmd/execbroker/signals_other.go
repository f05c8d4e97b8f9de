//go:build !unix

package main

import (
	"os"
	"syscall"
)

// endSignals end the program. Windows has an event for each of Ctrl-C and the closing of the window
// or the session.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
