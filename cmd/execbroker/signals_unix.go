//go:build unix

package main

import (
	"os"
	"syscall"
)

// endSignals end the program, if it has not been told to ignore them.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
