//go:build unix && !linux

package pyodide

import (
	"os/exec"
	"syscall"
)

// detach puts the process into a group of its own, so that a signal to ours does not reach it.
func detach(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
