package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
)

// busyLoops is the number of busy loops for each processor. With them a test has a third of the
// processors that it has on a quiet machine.
const busyLoops = 2

// beBusy starts the busy loops. The function that is returned ends them.
func beBusy(ctx context.Context) (quiet func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all []*exec.Cmd
	quiet = func() {
		cancel()
		for _, cmd := range all {
			_ = cmd.Wait() // it was killed
		}
	}
	for range busyLoops * runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			quiet()
			return nil, fmt.Errorf("busy loop: %w", err)
		}
		all = append(all, cmd)
	}
	fmt.Printf("\nbeside %d busy loops\n", len(all))
	return quiet, nil
}
