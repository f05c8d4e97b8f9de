package mutate

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// within runs a command and then kills all processes that it has left, wherever they have gone:
// into a session of their own, or to another user. A changed program forgets what it has started,
// and hundreds of such processes would slow the trials after it down until tests fail.
func within(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	// What loses its parent becomes a child of this process (prctl(2)).
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	return errors.Join(err, killChildren())
}

// killChildren kills the children of this process, and theirs, until there are none.
func killChildren() error {
	for {
		lists, err := filepath.Glob("/proc/self/task/*/children")
		if err != nil {
			return err
		}
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if errors.Is(err, os.ErrNotExist) { // a thread that has ended
				continue
			}
			if err != nil {
				return err
			}
			for pid := range strings.FieldsSeq(string(text)) {
				n, err := strconv.Atoi(pid)
				if err != nil {
					return err
				}
				if err := unix.Kill(n, unix.SIGKILL); err != nil && err != unix.ESRCH {
					return err
				}
			}
		}
		// The children of one that has ended are children of this process now, so there may be
		// more.
		switch _, err := unix.Wait4(-1, nil, 0, nil); err {
		case unix.ECHILD:
			return nil
		case nil, unix.EINTR:
		default:
			return err
		}
	}
}
