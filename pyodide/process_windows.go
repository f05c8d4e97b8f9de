package pyodide

import (
	"os/exec"
	"syscall"
)

// detach puts the process into a new process group, so that an interrupt of this program does not
// reach it.
func detach(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalName returns nothing: there are no signals.
func signalName(syscall.Signal) string { return "" }
