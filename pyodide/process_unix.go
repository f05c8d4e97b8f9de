//go:build unix && !linux

package pyodide

import (
	"os/exec"
	"syscall"
)

// detach puts the process into a new process group, so that a signal to this program's group does
// not reach it.
func detach(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
