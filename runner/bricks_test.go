package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestDirectoryWithoutRights takes all rights to the working directory away. The next run has them
// again, in the same interpreter, in a new one and in a command.
func TestDirectoryWithoutRights(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		for _, after := range []string{"nothing", "end", "reset"} {
			code := "import os\nos.chmod('.', 0)"
			if after == "end" {
				code += "\nos._exit(0)"
			}
			s.code(t, code)
			if after == "reset" {
				if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
					t.Fatal(err)
				}
			}
			if r := s.code(t, "open('x', 'w').write('1')"); r.err != nil || r.value() != "1" {
				t.Errorf("after %s: got %+v", after, r)
			}
			s.code(t, "import os\nos.chmod('.', 0)")
			if r := s.sh(t, "cat x"); r.err != nil || r.stdout != "1" {
				t.Errorf("a command after %s: got %+v", after, r)
			}
		}
	})
}

// TestInterpreterDoesNotStartAgain: an interpreter that has started once and does not after code
// has run is the code's doing. One that never starts is a failure of the backend.
func TestInterpreterDoesNotStartAgain(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) {
		c.Languages = []executor.Language{executor.JavaScript}
		c.Node = filepath.Join(filepath.Dir(c.Workdir), "node")
		program := fmt.Sprintf("#!/bin/sh\ntest -e %s/broken && { echo broken here >&2; exit 3; }\nexec node \"$@\"\n", c.Workdir)
		if err := os.WriteFile(c.Node, []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	in := func(code string) result {
		return s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: code})
	}
	again := func() {
		t.Helper()
		if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
			t.Fatal(err)
		}
	}
	s.sh(t, "touch broken")
	again()
	if r := in("1"); kindOf(r.err) != executor.ErrUnavailable {
		t.Errorf("the first: got %+v", r)
	}
	s.sh(t, "rm broken")
	if r := in("require('fs').writeFileSync('broken', '')"); r.err != nil || r.Code != 0 {
		t.Errorf("one that starts: got %+v", r)
	}
	again()
	if r := in("1"); r.err != nil || r.Reason != executor.ReasonCode || !r.StateLost || !strings.Contains(r.stderr, "broken here") {
		t.Errorf("one that code has broken: got %+v", r)
	}
	s.sh(t, "rm broken")
	if r := in("1 + 1"); r.err != nil || r.value() != "2" {
		t.Errorf("one that works again: got %+v", r)
	}
}

// TestTerminalsOfCode: code has as many terminals as programs use, and ends when it takes more.
// Those of requests do not count.
func TestTerminalsOfCode(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	const take = "import os, time\nkeep = [os.openpty() for _ in range(%d)]\nlen(keep)"
	if r := s.code(t, fmt.Sprintf(take, 60)); r.err != nil || r.value() != "60" {
		t.Errorf("some: got %+v", r)
	}
	for range 3 {
		s.do(t.Context(), atTerminal("script -qc 'tty >/dev/null' /dev/null; echo there", "")).want(t, outcome{stdout: "there\r\n"})
	}
	if r := s.code(t, "len(keep)"); r.err != nil || r.value() != "60" {
		t.Errorf("after terminals of requests: got %+v", r)
	}
	if r := s.code(t, fmt.Sprintf(take, 200)+"\ntime.sleep(1000)"); r.err != nil || r.Reason != executor.ReasonProcesses || !r.StateLost {
		t.Errorf("too many: got %+v, %v", r, r.err)
	}
	s.usable(t)
	s.do(t.Context(), atTerminal("echo there", "")).want(t, outcome{stdout: "there\r\n"})
}
