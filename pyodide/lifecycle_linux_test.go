package pyodide

import (
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// A process that somebody else kills, while nothing runs and while something runs, costs the state and nothing else.
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
	// A host that hangs is not waited for.
	res, err = s.Run(t.Context(), executor.Request{Code: "print(1, flush=True)\nwhile True: pass", Limits: executor.RunLimits{WallTime: time.Second}}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			for _, p := range descendants(t, process(t, s)) {
				syscall.Kill(p, syscall.SIGSTOP)
			}
		}
		return nil
	})
	if err != nil || res.Status != executor.StatusTimedOut || !res.StateLost || res.Duration > 30*time.Second {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := output(t, s, "print(open('kept').read())"); got != "kept\n" {
		t.Errorf("got %q", got)
	}
}
