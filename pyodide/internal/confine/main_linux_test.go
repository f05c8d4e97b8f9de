//go:build linux && (amd64 || arm64)

package confine_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// attemptEnv makes this test program the program that is confined: it tries the named thing, and
// says how it went.
const attemptEnv = "CONFINE_ATTEMPT"

// testEnv makes this program the attempt.
func testEnv(name string) []string {
	return []string{attemptEnv + "=" + name, "GOCOVERDIR=/nowhere"}
}

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(attemptEnv); ok {
		attemptTo(name)
		// At once: with the race detector a program would otherwise rest for a second before it
		// ends.
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
