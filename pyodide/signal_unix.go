//go:build unix

package pyodide

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns the name of a signal, or "" for zero.
func signalName(s syscall.Signal) string { return unix.SignalName(s) }
