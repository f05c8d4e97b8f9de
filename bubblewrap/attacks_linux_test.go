package bubblewrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// TestAttacks makes the attempts that Docker's sandboxes withstand.
func TestAttacks(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	attempttest.Try(t, create(t, x, executor.Spec{}), Type, attempttest.Kernel, attempttest.Network, attempttest.Supervisor)
}

// TestAttacksOnFiles makes those that leave the directories of the code, in a root that has what an
// image may have: programs that give rights to whoever runs them, and a file of passwords.
func TestAttacksOnFiles(t *testing.T) {
	t.Parallel()
	root := tree(t)
	check(t, os.Mkdir(filepath.Join(root, "opt"), 0o755))
	check(t, os.WriteFile(filepath.Join(root, "etc/shadow"), []byte("root:secret:1::::::\n"), 0o600))
	image := strings.ReplaceAll(attempttest.Image, `"/opt/`, `"`+root+`/opt/`)
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x, _ := open(t, func(c *Config) { c.Root = root })
	attempttest.Try(t, create(t, x, executor.Spec{}), Type, attempttest.Files)
}

// TestFloods takes more than a session may have, one thing after another. The session and another
// one live on.
func TestFloods(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(c *Config) { c.Limits = Limits{CPUs: 0.5, Memory: 128 << 20, Disk: 16 << 20, Processes: 64} })
	s, near := create(t, x, executor.Spec{Run: executor.RunLimits{WallTime: time.Minute}}), create(t, x, executor.Spec{})
	says(t, near, "near = 4711")
	for _, a := range attempttest.Of(attempttest.Floods, Type) {
		t.Run(a.Name, func(t *testing.T) {
			r, err := s.Run(t.Context(), executor.Request{Command: attempttest.Command(python, []attempttest.Attempt{a}, nil)}, nil)
			check(t, err)
			word := string(r.Reason)
			if word == "" {
				word = lastLine(r.Stdout.String() + r.Stderr.String())
			}
			if !a.IsStopped(word) {
				t.Errorf("got %q, want %q", word, a.Stopped)
			}
		})
	}
	if got := says(t, s, "print(6 * 7)"); got != "42" {
		t.Errorf("the session: got %q", got)
	}
	if got := says(t, near, "print(near)"); got != "4711" {
		t.Errorf("its neighbour: got %q", got)
	}
}

// TestOthersAreMade: what one sandbox takes of the kernel stops no other from being made.
func TestOthersAreMade(t *testing.T) {
	t.Parallel()
	x, _ := open(t, func(*Config) {})
	attempttest.Beside(t, x)
}

// TestBounds: nor does what it takes of tables that are one for the whole machine, up to a quarter.
func TestBounds(t *testing.T) {
	x, _ := open(t, func(*Config) {})
	attempttest.Bounds(t, x, os.TempDir())
}
