//go:build unix

package pyodide

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Two clocks can end a session: that of this program and that of the process. Each works if the
// other one does not.
func TestIdleSessionEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		stop func(d *session) // disables one of the clocks
	}{
		{"both", func(*session) {}},
		{"the-process-alone", func(d *session) { d.idle.Reset(time.Hour) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := one(t, executor.Spec{IdleTTL: 3 * time.Second}) // enough to find the process
			pid := process(t, s)
			c.stop(driverSession(s))
			var ender executor.Ender
			heard := make(chan struct{})
			if !executor.As(s, &ender) {
				t.Fatal("it is no Ender")
			}
			ender.AfterEnd(func() { close(heard) })
			eventually(t, "the process has ended", func() bool { return !alive(pid) })
			eventually(t, "the session is gone", func() bool {
				_, err := s.Refresh(t.Context())
				return errors.Is(err, executor.ErrNotFound)
			})
			<-heard
			_, err := s.Run(t.Context(), executor.Request{Code: "1"}, nil)
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != executor.ErrNotFound || e.Ran != executor.RanNo {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("not-while-in-use", func(t *testing.T) {
		t.Parallel()
		s := one(t, executor.Spec{IdleTTL: 6 * time.Second})
		if got := output(t, s, "import time; time.sleep(7.5); print(1)"); got != "1\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestLifeEnds(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{MaxLife: time.Hour, Run: executor.RunLimits{WallTime: executor.NoLimit}})
	// The hour is shortened as soon as the code runs.
	req := executor.Request{Language: executor.Python, Code: "print(1, flush=True)\nwhile True: pass"}
	r, err := s.Run(t.Context(), req, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			driverSession(s).lifetime.Reset(0)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != executor.StatusKilled || r.Reason != executor.ReasonLifetime || !r.StateLost || !r.FilesLost {
		t.Errorf("got %s, lost %v %v", describeResult(r), r.StateLost, r.FilesLost)
	}
	if _, err := s.Refresh(t.Context()); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// A killed program leaves no process, whatever the code does, and no spare, and the next program
// removes its files.
func TestProgramIsKilled(t *testing.T) {
	realRuntime(t)
	for name, code := range map[string]string{
		"idle": "1", "computes": "while True: pass",
		"ignores-the-signal": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: print('x' * 1000)",
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); killed(t, code) })
	}
}

// killed kills a program that runs code, and checks what is left of it.
func killed(t *testing.T, code string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), envHold+"="+code)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid, spare int
	var dir string
	if _, err := fmt.Fscanln(out, &pid, &spare, &dir); err != nil || !alive(pid) || !alive(spare) {
		t.Fatalf("got processes %d and %d, %v", pid, spare, err)
	}
	family := append(descendants(t, pid), descendants(t, spare)...)
	c.Process.Kill()
	c.Wait()
	for _, p := range family {
		eventually(t, fmt.Sprintf("process %d of %v has ended", p, family), func() bool { return !alive(p) })
	}
	one(t, executor.Spec{})
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("%s: %v", filepath.Dir(dir), err)
	}
}

// descendants returns pid and its descendants.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return all
	}
	for f := range strings.FieldsSeq(string(b)) {
		var child int
		if _, err := fmt.Sscan(f, &child); err == nil {
			all = append(all, descendants(t, child)...)
		}
	}
	return all
}

// Nothing of a session is left after Close, also during a run.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	x, err := Open(t.Context(), driver.Env{Owner: "test", Wrap: record}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	output(t, s, "open('f', 'wb').write(bytes(1 << 20))")
	d := driverSession(s)
	family := descendants(t, process(t, s))
	_, err = s.Run(t.Context(), executor.Request{Code: "print(1, flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			return s.Close()
		}
		return nil
	})
	if !errors.Is(err, executor.ErrClosed) {
		t.Errorf("got %v", err)
	}
	for _, p := range family {
		if alive(p) {
			t.Errorf("process %d lives on", p)
		}
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(d.dir)); !os.IsNotExist(err) {
		t.Errorf("%s: %v", filepath.Dir(d.dir), err)
	}
}
