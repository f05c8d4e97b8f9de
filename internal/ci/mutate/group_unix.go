//go:build unix

package mutate

import (
	"os/exec"
	"syscall"
)

// group makes the command the first of a process group, so that ungroup gets all that it leaves.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// ungroup kills what a command has left that has ended: a changed program may outlive its test.
func ungroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody
}
