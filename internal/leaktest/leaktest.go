// Package leaktest fails a test program that leaves goroutines behind. Every package that starts
// one calls [Main] from its TestMain.
package leaktest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Main runs the tests and then waits until only the calling goroutine is left. It returns the exit
// code: that of the tests, or 1 if other goroutines are left after a while, whose stacks it prints
// on standard error.
func Main(m *testing.M) int {
	if code := m.Run(); code != 0 {
		return code
	}
	const patience = time.Minute
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if left = Others(); len(left) == 0 {
			return 0
		}
		time.Sleep(5 * time.Millisecond) // between checks of a condition, not instead of one
	}
	fmt.Fprintf(os.Stderr, "leaktest: %d goroutines left after %v:\n\n%s\n", len(left), patience, strings.Join(left, "\n\n"))
	return 1
}

// Others returns the stacks of all goroutines except the calling one and those that the runtime
// keeps forever.
func Others() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var out []string
	for i, stack := range strings.Split(string(buf), "\n\n") {
		// The first is the caller. The goroutine that receives signals never ends once it was
		// started.
		if i == 0 || strings.Contains(stack, "os/signal.signal_recv") || strings.Contains(stack, "os/signal.loop") {
			continue
		}
		out = append(out, stack)
	}
	return out
}
