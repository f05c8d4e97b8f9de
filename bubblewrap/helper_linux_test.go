package bubblewrap

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// open opens a backend of an owner of its own. At the end of the test nothing of it may be left.
func open(tb testing.TB, edit func(*Config)) (x executor.Executor, owner string) {
	tb.Helper()
	version(tb)
	owner = "test-" + strings.ToLower(rand.Text())
	var cfg Config
	edit(&cfg)
	x, err := Open(tb.Context(), driver.Env{Owner: owner}, cfg)
	check(tb, err)
	tb.Cleanup(func() {
		check(tb, x.Close())
		left, err := leftOf(owner)
		check(tb, err)
		if len(left) > 0 {
			tb.Errorf("left: %q", left)
		}
	})
	return x, owner
}

func create(tb testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	tb.Helper()
	s, err := x.Create(tb.Context(), spec)
	check(tb, err)
	return s
}

// says runs Python and returns what it prints.
func says(tb testing.TB, s executor.Session, code string) string {
	tb.Helper()
	r, err := s.Run(tb.Context(), executor.Request{Language: executor.Python, Code: code}, nil)
	check(tb, err)
	if err := r.Err(); err != nil {
		tb.Fatalf("%v\n%s", err, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout.String())
}

func pid(tb testing.TB, s executor.Session) int {
	tb.Helper()
	var p Process
	if !executor.As(s, &p) {
		tb.Fatal("the session has no process")
	}
	return p.PID
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	waittest.Until(tb, what, func() error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// tree returns a root with the programs of this machine and nothing else.
func tree(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts /usr in a tree of its own")
	}
	dir, err := os.MkdirTemp("/var/tmp", "execbroker-root-") // not below a directory that only this user can enter
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	for _, d := range []string{"usr", "etc"} {
		check(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	for _, link := range rootLinks {
		if target, err := os.Readlink("/" + link); err == nil {
			check(t, os.Symlink(target, filepath.Join(dir, link)))
		}
	}
	usr := filepath.Join(dir, "usr")
	check(t, unix.Mount("/usr", usr, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		check(t, unix.Unmount(usr, unix.MNT_DETACH))
		check(t, os.RemoveAll(dir))
	})
	// Before anything is removed below it: what cannot be written to is not removed by mistake
	// either.
	check(t, unix.Mount("", usr, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	return dir
}
