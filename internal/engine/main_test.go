package engine_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails if a goroutine of this module is left when all tests have ended: no call may leave
// one behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftGoroutines(5 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks of this module besides the caller's, once there are none or
// patience is over: a goroutine that has done its work takes a moment to end.
func leftGoroutines(patience time.Duration) string {
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var left []string
		for _, s := range stacks[1:] {
			if strings.Contains(s, "github.com/execbroker/") {
				left = append(left, s)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
