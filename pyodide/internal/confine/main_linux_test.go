//go:build linux && (amd64 || arm64)

package confine_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// attemptEnv makes this test program the confined program: it makes the named attempt and prints
// the result.
const attemptEnv = "CONFINE_ATTEMPT"

// testEnv returns the environment that makes this program the attempt.
func testEnv(name string) []string {
	return []string{attemptEnv + "=" + name, "GOCOVERDIR=/nowhere"}
}

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(attemptEnv); ok {
		attemptTo(name)
		// Exit immediately: with the race detector a program would otherwise wait for a second at
		// its end.
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	os.Exit(m.Run())
}

func attemptTo(name string) {
	for _, a := range attempts {
		if a.name != name {
			continue
		}
		if err := a.try(); err != nil {
			fmt.Println("stopped:", err)
		} else {
			fmt.Println("open")
		}
		return
	}
	fmt.Println("no such attempt:", name)
}
