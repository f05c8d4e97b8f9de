package mutate

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes this program the one that a trial starts, when it is started as that.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "mutate" {
		os.Exit(m.Run())
	}
	if Run(context.Background(), os.Args[2:]) != nil {
		os.Exit(1)
	}
}

// What a command leaves in a session of its own, deaf to the signals that end others, ends with it.
func TestWithin(t *testing.T) {
	t.Parallel()
	const left = "setsid sh -c 'trap \"\" INT TERM HUP; sleep 1000; sleep 1001' & echo $!; "
	for name, c := range map[string]struct {
		script string
		want   int // exit code
	}{
		"ended":       {left, 0},
		"failed":      {left + "exit 3", 1},
		"interrupted": {left + "kill -INT $PPID; exec sleep 1002", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "mutate", "-within", "sh", "-c", c.script)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its exit code is looked at below
			if got := cmd.ProcessState.ExitCode(); got != c.want {
				t.Errorf("got exit code %d, want %d", got, c.want)
			}
			if err := unix.Kill(-pid, 0); err != unix.ESRCH {
				t.Errorf("the processes that the command left in a session of their own: %v, want %v", err, unix.ESRCH)
			}
		})
	}
}
