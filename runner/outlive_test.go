package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// alive returns the processes of user code that have a thread that lives. Their state says nothing:
// it is that of the first thread.
func (s *sandbox) alive(t *testing.T) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, task := range tasks {
		status, _ := os.ReadFile(task + "/status")
		if strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", s.uid)) && !strings.Contains(string(status), "State:\tZ") && !strings.Contains(string(status), "State:\tX") {
			if pid, _ := strconv.Atoi(strings.Split(task, "/")[2]); !seen[pid] {
				seen[pid] = true
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestOutlive leaves processes running in every way that is known, and looks whether they are there
// after the run, however it ends.
func TestOutlive(t *testing.T) {
	t.Parallel()
	patient := executor.RunLimits{WallTime: 2 * time.Minute}
	for _, way := range []struct {
		name string
		do   func(t *testing.T, s *sandbox, code string) (but int)
	}{
		{"command", func(t *testing.T, s *sandbox, code string) int {
			r := s.do(t.Context(), executor.Request{Command: []string{s.python, "-c", code + "\nos.write(1, b'ok\\n'); os._exit(0)"}, Limits: patient})
			if r.err != nil || !strings.HasPrefix(r.stdout, "ok") || r.FilesLost {
				t.Errorf("got %+v", r)
			}
			return 0
		}},
		{"reset", func(t *testing.T, s *sandbox, code string) int {
			r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: code + "\nprint('ok')", Limits: patient})
			if r.err != nil || !strings.HasPrefix(r.stdout, "ok") || r.FilesLost {
				t.Errorf("got %+v %+v", r, r.Exception)
			}
			return 0
		}},
		{"stopped", func(t *testing.T, s *sandbox, code string) (interpreter int) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req := executor.Request{Language: executor.Python, Code: code + "\nprint('ok', os.getpid(), flush=True)\nrest()", Limits: patient}
			req.Limits.OutputBytes = 1 << 20
			said := ""
			exit, err := s.Run(ctx, &req, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					said += string(ev.Data)
				}
				if strings.Contains(said, "\n") {
					cancel()
				}
				return nil
			})
			if !strings.HasPrefix(said, "ok") || exit.FilesLost {
				t.Errorf("got %q, %+v, %v", said, exit, err)
			}
			fmt.Sscanf(said, "ok %d", &interpreter)
			return interpreter
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, host, impatient, func(c *Config) {
				c.Languages = nil
				c.Rlimits = map[string]int64{"nproc": 60}
			})
			for _, a := range attempttest.Of(attempttest.Outliving, "") {
				t.Run(a.Name, func(t *testing.T) {
					but := way.do(t, s, attempttest.Prelude()+a.Code)
					if way.name == "reset" {
						if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
							t.Fatal(err)
						}
					}
					for _, pid := range s.alive(t) {
						if pid != but {
							status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
							t.Errorf("%d is left: %.200q", pid, status)
						}
					}
				})
			}
			s.usable(t)
		})
	}
}

// TestIdleWithLeftovers leaves processes that live and write. They are no use of the sandbox, and
// end with it.
func TestIdleWithLeftovers(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	code := ""
	for _, a := range attempttest.Of(attempttest.Outliving, "") {
		switch a.Name {
		case "double-fork", "dead-first-thread", "blocked-in-write":
			code += a.Code
		}
	}
	code += "\ndef f(ready):\n  ready()\n  while True: os.write(1, b'x'); time.sleep(0.01)\nchild(f)"
	if r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: attempttest.Prelude() + code}); r.err != nil || r.Code != 0 {
		t.Fatalf("got %+v %+v", r, r.Exception)
	}
	if _, err := s.KeepAlive(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the runner: %v", err)
	}
	if left := s.alive(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
