package runner

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// TestLateKill holds up the process that kills everything of the user, until what it was to kill is
// dead. The next run waits for it: otherwise it would be killed in the place of the last one.
func TestLateKill(t *testing.T) {
	t.Parallel()
	s := start(t, host, impatient, func(c *Config) { c.Languages = nil })
	helper := s.helper(t)
	h := (&backend{}).session(executor.SessionInfo{}, &buried{}, s.client, 0)
	if err := syscall.Kill(helper, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { syscall.Kill(helper, syscall.SIGCONT) })
	defer goOn()
	pids, done := make(chan int, 4), make(chan struct{})
	go func() {
		defer close(done)
		out := &starter{then: func(pid int) { pids <- pid }}
		req := executor.Request{Language: executor.Python, Limits: executor.RunLimits{WallTime: 4 * time.Second, OutputBytes: 1 << 20},
			Code: "import os, time\nfor i in range(4):\n  pid = os.fork()\n  if pid == 0:\n    while True: pass\n  print(pid, flush=True)\ntime.sleep(1000)"}
		if exit, err := h.Run(t.Context(), &req, out.emit); err != nil || exit.Reason != executor.ReasonWallTime || exit.FilesLost {
			t.Errorf("got %+v, %v", exit, err)
		}
		req.Code, req.Limits.WallTime = "import time\nprint('begun', flush=True)\ntime.sleep(3)", 2*time.Minute
		if exit, err := h.Run(t.Context(), &req, func(executor.Event) error { goOn(); return nil }); err != nil || exit.Reason != "" {
			t.Errorf("the next run: got %+v, %v", exit, err)
		}
	}()
	var ends []func()
	var all []int
	for range 4 {
		pid := <-pids
		all, ends = append(all, pid), append(ends, starve(t, pid, 1000))
	}
	time.Sleep(8 * time.Second) // the time of the run is over, and the helper is told to kill
	for _, end := range ends {
		end()
	}
	eventually(t, "all are dead", func() bool {
		return !slices.ContainsFunc(all, func(pid int) bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && !strings.Contains(string(stat), ") Z ")
		})
	})
	time.Sleep(time.Second) // a run that does not wait for the helper has begun
	goOn()
	<-done
}
