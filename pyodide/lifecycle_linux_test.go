package pyodide

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
)

// If another program kills the process, while it is idle or during a run, only the state is lost.
func TestProcessDies(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	output(t, s, "x = 1\nopen('kept', 'w').write('kept')")
	kill := func() {
		for _, p := range descendants(t, process(t, s)) {
			syscall.Kill(p, syscall.SIGTERM)
			syscall.Kill(p, syscall.SIGSEGV)
		}
	}
	kill()
	eventually(t, "it has ended", func() bool { return driverSession(s).h.isDead() })
	r := runCode(t, s, "print(open('kept').read())")
	if string(r.Stdout) != "kept\n" || !r.StateFresh {
		t.Errorf("got %q, fresh %v", r.Stdout, r.StateFresh)
	}
	res, err := s.Run(t.Context(), executor.Request{Code: "print(1, flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			kill()
		}
		return nil
	})
	if err != nil || res.Status != executor.StatusKilled || res.Reason != executor.ReasonSandbox || !res.StateLost || res.FilesLost {
		t.Errorf("got %v, %s", err, describeResult(res))
	}
	// The run does not wait for a host that hangs.
	res, err = s.Run(t.Context(), executor.Request{Code: "print(1, flush=True)\nwhile True: pass", Limits: executor.RunLimits{WallTime: time.Second}}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			for _, p := range descendants(t, process(t, s)) {
				syscall.Kill(p, syscall.SIGSTOP)
			}
		}
		return nil
	})
	if err != nil || res.Status != executor.StatusTimedOut || !res.StateLost {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := output(t, s, "print(open('kept').read())"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}

// A session does not get a spare that is dead or does not answer.
func TestSpareDies(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(unix.SignalName(signal), func(t *testing.T) {
			x, d := openSpared(t, Config{})
			d.patience.spare = time.Second
			create(t, x, executor.Spec{})
			sp := spareOf(t, d)
			family := descendants(t, sp.pid())
			for _, p := range family {
				if err := syscall.Kill(p, signal); err != nil {
					t.Error(err)
				}
			}
			s := create(t, x, executor.Spec{})
			if got := output(t, s, "print(1)"); got != "1\n" || process(t, s) == sp.pid() {
				t.Errorf("got %q", got)
			}
			for _, p := range family {
				eventually(t, fmt.Sprintf("process %d of %v has ended", p, family), func() bool { return !alive(p) })
			}
		})
	}
}

// If the program is the init process of a container, no other process reaps its orphans. Here the
// test adopts orphans as init would.
func TestEndedProcessesAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		end  func(s executor.Session) error
	}{
		{"idle", executor.Session.Close},
		{"running", func(s executor.Session) error {
			_, err := s.Run(t.Context(), executor.Request{Code: "print(1, flush=True)\nwhile True: pass"}, func(executor.Event) error { return s.Close() })
			if errors.Is(err, executor.ErrClosed) {
				err = nil
			}
			return err
		}},
		{"crashed", func(s executor.Session) error {
			_, err := s.Run(t.Context(), executor.Request{Code: "import ctypes; ctypes.string_at(0xfffffff0)"}, nil)
			return errors.Join(err, s.Close())
		}},
		{"stubborn", func(s executor.Session) error {
			_, err := s.Run(t.Context(), executor.Request{Code: stubborn, Limits: executor.RunLimits{WallTime: time.Second}}, nil)
			return errors.Join(err, s.Close())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := one(t, executor.Spec{})
			family := descendants(t, process(t, s))
			if err := c.end(s); err != nil {
				t.Error(err)
			}
			for _, p := range family {
				eventually(t, fmt.Sprintf("process %d of %d has gone", p, family), func() bool {
					return errors.Is(syscall.Kill(p, 0), syscall.ESRCH)
				})
			}
		})
	}
}
