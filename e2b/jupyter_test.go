package e2b

import (
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// What only a real kernel does: the stand-in's Python is that of Jupyter here.
func TestJupyter(t *testing.T) {
	t.Parallel()
	needsJupyter(t)
	w := newWorldOver(t, containersWithJupyter(), withKernel(KernelCodeInterpreter), func(c *Config) { c.Languages = []executor.Language{executor.Python} })
	in := func(name string, f func(t *testing.T, s executor.Session)) {
		t.Run(name, func(t *testing.T) {
			s, err := w.x.Create(t.Context(), executor.Spec{Env: map[string]string{"WHOSE": "ours"}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			f(t, s)
		})
	}
	run := func(t *testing.T, s executor.Session, req executor.Request) *executor.Result {
		t.Helper()
		res, err := s.Run(t.Context(), req, nil)
		if err != nil {
			t.Fatalf("%.80s: %v", req.Code, err)
		}
		return res
	}
	// IPython's own exit and quit end well, and the kernel with whatever runs seconds later. Its
	// warning about sys.exit is not the user's.
	in("exit", func(t *testing.T, s executor.Session) {
		do(t, s, executor.Request{Code: "n = 1"})
		for code, want := range map[string]int{"exit(3)": 3, "quit()": 0, "exit()": 0, "import sys; sys.exit(3)": 3, "raise SystemExit": 0} {
			if res := run(t, s, executor.Request{Code: code}); res.ExitCode != want || res.Exception != nil || len(res.Stderr) > 0 || res.StateLost {
				t.Errorf("%s: got %+v", code, res)
			}
		}
		if res := do(t, s, executor.Request{Code: "import time; time.sleep(5); print(n)"}); string(res.Stdout) != "1\n" {
			t.Errorf("got %+v", res)
		}
	})
	// The kernel says that code has begun by another thread, which needs the lock of the
	// interpreter.
	in("held-lock", func(t *testing.T, s executor.Session) {
		for _, code := range []string{"import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", "sum(range(10**11))"} {
			res := run(t, s, executor.Request{Code: code, Limits: executor.RunLimits{WallTime: time.Second}})
			if res.Status != executor.StatusTimedOut {
				t.Errorf("%s: got %+v", code, res)
			}
			if res.StateLost {
				began(t, s, executor.Python)
			}
		}
	})
	// The state is kept when code heeds, at the first time as well, for which the kernel loads what
	// tracebacks need.
	in("interrupt", func(t *testing.T, s executor.Session) {
		do(t, s, executor.Request{Code: "n = 1"})
		for range 2 {
			res := run(t, s, executor.Request{Code: "while True: pass", Limits: executor.RunLimits{WallTime: 500 * time.Millisecond}})
			if res.Status != executor.StatusTimedOut || res.StateLost {
				t.Errorf("got %+v", res)
			}
		}
		do(t, s, executor.Request{Code: "n"})
	})
	in("ended-while-idle", func(t *testing.T, s executor.Session) {
		kill(t, s, executor.Python)
		began(t, s, executor.Python)
	})
	in("ended", func(t *testing.T, s executor.Session) {
		do(t, s, executor.Request{Code: "n = 1"})
		if res := run(t, s, executor.Request{Code: "import os; os._exit(3)"}); res.Reason != executor.ReasonSandbox || !res.StateLost {
			t.Errorf("got %+v", res)
		}
		began(t, s, executor.Python)
	})
	in("traceback", func(t *testing.T, s executor.Session) {
		res := run(t, s, executor.Request{Code: "def f():\n    return 1 / 0\n\nf()"})
		e := res.Exception
		if e == nil || e.Line != 2 || e.Type != "ZeroDivisionError" {
			t.Fatalf("got %+v", e)
		}
		for line := range strings.Lines(e.Traceback) {
			if strings.Count(line, "Cell In") > 1 || strings.Contains(line, ")Cell In") || strings.Contains(line, "-ZeroDivisionError") {
				t.Errorf("got the line %q", line)
			}
		}
	})
	in("large-exception", func(t *testing.T, s executor.Session) {
		res := run(t, s, executor.Request{Code: "raise Exception('x' * (8 << 20))"})
		if e := res.Exception; res.Status != executor.StatusFailed || e == nil || e.Type != "Exception" || !strings.HasPrefix(e.Message, "xxx") {
			t.Errorf("got status %v, %t", res.Status, e == nil)
		}
	})
}
