//go:build unix

package main

import (
	"os"
	"syscall"
)

// endSignals end the program, unless it was started with them ignored.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
