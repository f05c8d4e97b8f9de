package pyodide

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// detach puts the process into a new process group, so that it can be killed with all its children,
// and makes the kernel kill it when this process dies. That is in addition to the end of its
// standard input. The kernel sends the signal when the thread that started the process ends, so
// start uses a thread that does not end.
func detach(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid, c.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

// allowCPU sets the processor time after which the kernel kills the process. Zero seconds mean only
// the inherited limit. If the process is gone, that is not an error.
func allowCPU(pid int, seconds uint64) error {
	var l unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &l)
	if err == nil {
		if l.Cur = l.Max; seconds > 0 {
			l.Cur = min(seconds, l.Max)
		}
		err = unix.Prlimit(pid, unix.RLIMIT_CPU, &l, nil)
	}
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("limit on processor time: %w", err)
	}
	return nil
}

// dataOf returns how much private writable memory a process has, used or not.
func dataOf(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nVmData:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseUint(kib, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/status: VmData: %w", pid, err)
	}
	return n << 10, nil
}

// reap waits for the end of the process. It calls ended when the process has ended but its PID is
// still reserved, so that killing its group cannot hit another process.
func reap(c *exec.Cmd, ended func()) error {
	for unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	ended()
	return c.Wait()
}

// killGroup kills every process of the group that pid leads.
func killGroup(pid int) {
	unix.Kill(-pid, unix.SIGKILL) //nolint:errcheck // an error means that it has no group yet
}

// cpuTime returns the processor time that the threads of a process have used, or zero if it is not
// known.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name of the program is in parentheses and may contain anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 for programs
	return time.Duration(user+system) * tick
}
