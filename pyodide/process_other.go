//go:build !linux

package pyodide

import (
	"os/exec"
	"time"
)

// allowCPU does nothing: the clocks of the host and of this process work without it.
func allowCPU(int, uint64) error { return nil }

// cpuTime returns zero: not known.
func cpuTime(int) time.Duration { return 0 }

// dataOf is not needed: there are no sessions with JavaScript.
func dataOf(int) (uint64, error) { return 0, nil }

// killGroup does nothing: the host cannot start processes, so there is only the host itself.
func killGroup(int) {}

// reap waits for the end of the process. ended is called when it has ended.
func reap(c *exec.Cmd, ended func()) error {
	defer ended()
	return c.Wait()
}
