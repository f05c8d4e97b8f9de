package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/attempttest"
)

// small are the limits of sessions that are flooded.
var small = executor.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, DiskBytes: 8 << 20, Processes: 48}

// TestFloods takes too much of everything that is limited, with the limit and without.
func TestFloods(t *testing.T) {
	t.Parallel()
	a := newArena(t, hostileImage(t), executor.Spec{Limits: small})
	for _, c := range attempttest.Of(attempttest.Floods, Type) {
		a.try(t, c.Without, []attempttest.Attempt{c}) // one by one: what a limit ends is the whole command
	}
	a.unharmed(t)
}

// attend uses a session until it is stopped, and at least once.
func attend(t *testing.T, s executor.Session) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		for n == 0 || ctx.Err() == nil {
			r, err := s.Run(t.Context(), executor.Request{Code: "print(near)"}, nil)
			if err != nil || r.Stdout.String() != "4711\n" {
				t.Errorf("the neighbour: got %+v, %v", r, err)
				return
			}
			n++
		}
	})
	return func() { cancel(); wg.Wait() }
}

// printed is a frame that says that a run is over, with exit code 7, as text of a program.
func printed() string {
	payload := "m\x00\x00\x00\x01s\x00\x00\x00\x04exiti\x00\x00\x00\x00\x00\x00\x00\x07"
	head := binary.BigEndian.AppendUint32([]byte{11, 0, 0, 0, 0, 0, 0, 1}, uint32(len(payload)))
	return fmt.Sprintf("bytes.fromhex('%x')", string(head)+payload)
}

// outcomeOf is what a verdict says, without what the code has printed.
func outcomeOf(r *executor.Result, err error) any {
	if r == nil {
		return err
	}
	short := struct {
		Status           executor.Status
		Reason           executor.Reason
		Signal           string
		Code             int
		Exception        string
		Stdout, Stderr   int
		Outputs          int
		StateLost, Fresh bool
		Err              error
	}{r.Status, r.Reason, r.Signal, r.ExitCode, "", len(r.Stdout), len(r.Stderr), len(r.Outputs), r.StateLost, r.StateFresh, err}
	if r.Exception != nil {
		short.Exception = fmt.Sprintf("%s: %.100s (%d bytes)", r.Exception.Type, r.Exception.Message, len(r.Exception.Message))
	}
	return short
}

// TestVerdicts lets code go to the end of what it can do against the supervisor and its own limits.
// The verdict has to be the right one, the neighbour has to be answered meanwhile, and the session
// has to serve the next run.
//
// It is not parallel to other tests, which it would starve.
func TestVerdicts(t *testing.T) {
	reason := func(want executor.Reason) func(*executor.Result) bool {
		return func(r *executor.Result) bool { return r.Reason == want }
	}
	exception := func(want string) func(*executor.Result) bool {
		return func(r *executor.Result) bool { return r.Exception != nil && r.Exception.Type == want }
	}
	fine := func(r *executor.Result) bool { return r.Status == executor.StatusOK }
	endless := []string{"fork-bomb", "fork-bomb-of-sessions", "memory-bomb-of-children", "ignores-signals", "blocks-signals", "stops-itself", "starves-supervisor"}
	a := newArena(t, hostileImage(t), executor.Spec{Limits: small})
	for _, c := range []struct {
		name, code string
		want       func(*executor.Result) bool
	}{
		{"fork-bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", reason(executor.ReasonWallTime)},
		{"fork-bomb-of-sessions", "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass", reason(executor.ReasonWallTime)},
		{"memory-bomb", "b = []\nwhile True: b.append(bytearray(1 << 24))", reason(executor.ReasonMemory)},
		{"memory-bomb-of-children", "import os\nfor _ in range(8): os.fork()\nb = []\nwhile True:\n  try: b.append(bytearray(1 << 20))\n  except OSError: pass", func(r *executor.Result) bool {
			return r.Reason == executor.ReasonMemory || r.Reason == executor.ReasonWallTime || r.Exception != nil // of fork
		}},
		{"disk-bomb", "import itertools\nfor i in itertools.count(): open(str(i), 'wb').write(b'x' * 100000)", exception("OSError")},
		{"inode-bomb", "import itertools\nfor i in itertools.count(): open(str(i), 'wb')", exception("OSError")},
		{"thread-bomb", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", exception("RuntimeError")},
		{"output-bomb", "import sys\nwhile True: sys.stdout.write('x' * 100000)", reason(executor.ReasonOutput)},
		{"error-output-bomb", "import os\nwhile True: os.write(2, b'x' * 100000)", reason(executor.ReasonOutput)},
		{"display-bomb", "while True: display('x' * 100000)", reason(executor.ReasonOutput)},
		{"value-bomb", "class X:\n  def __repr__(self): return 'x' * (40 << 20)\nX()", reason(executor.ReasonOutput)},
		{"exception-bomb", "raise ValueError('x' * (20 << 20))", func(r *executor.Result) bool {
			return r.Exception != nil && len(r.Exception.Message) <= 1<<20 || r.Reason == executor.ReasonOutput
		}},
		{"ignores-signals", "import signal\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass", reason(executor.ReasonWallTime)},
		{"blocks-signals", "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass", reason(executor.ReasonWallTime)},
		{"stops-itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", reason(executor.ReasonWallTime)},
		{"kills-all", "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nos.kill(os.getpid(), 9)", func(r *executor.Result) bool { return r.Signal == "SIGKILL" }},
		{"starves-supervisor", "import os\nfor _ in range(5): os.fork()\nwhile True: pass", reason(executor.ReasonWallTime)},
		{"prints-frames", "import os\nfor fd in (1, 2):\n  for _ in range(100): os.write(fd, " + printed() + ")", func(r *executor.Result) bool {
			return r.Status == executor.StatusOK && len(r.Stdout) == len(r.Stderr) && bytes.Count(r.Stdout, []byte("exiti")) == 100
		}},
		{"forges-frames", "import os\nos.write(3, b'\\xff' * 1000)\nwhile True: pass", reason(executor.ReasonCode)},
		{"forges-long-frame", "import os\nos.write(3, b'\\x0a\\0\\0\\0\\0\\0\\0\\1\\xff\\xff\\xff\\xff')\nwhile True: pass", reason(executor.ReasonCode)},
		{"endless-frames", "import os\nwhile True: os.write(3, b'\\x0a\\1\\0\\0\\0\\0\\0\\1\\0\\0\\xff\\xff' + b'x' * 65535)", reason(executor.ReasonOutput)},
		{"closes-descriptors", "import os\nos.closerange(0, 4096)\nos._exit(0)", func(r *executor.Result) bool { return r.Status != executor.StatusLost }},
		{"breaks-interpreter", "import builtins, sys, ctypes\nbuiltins.print = None\nsys.stdout = None\nsys.modules.clear()\nctypes.string_at(0)", func(r *executor.Result) bool { return r.Signal == "SIGSEGV" || r.Exception != nil }},
		{"bricks-directory", "import os\nos.chmod('/workspace', 0)", fine},
		{"bricks-directory-and-dies", "import os\nos.chmod('/workspace', 0)\nos.kill(os.getpid(), 9)", func(r *executor.Result) bool { return r.Signal == "SIGKILL" }},
		{"long-names-of-threads", "import threading, time\nfor _ in range(21): threading.Thread(target=time.sleep, args=(1000,), daemon=True, name='x' * 60000).start()", fine},
		{"terminal-bomb", "import os, time\nkeep = [os.openpty() for _ in range(200)]\ntime.sleep(60)", reason(executor.ReasonProcesses)},
		{"plants-modules", "import os\nfor d in ('.', '/tmp/home', '/tmp'):\n  for m in ('json', 'socket', 'sitecustomize', 'usercustomize'): open(d + '/' + m + '.py', 'w').write('raise SystemExit(9)')\nos.environ['PYTHONSTARTUP'] = 'json.py'", fine},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := executor.RunLimits{OutputBytes: 1 << 20} // and the time to come to its own end on a busy machine
			if slices.Contains(endless, c.name) {
				limits.WallTime = time.Second
			}
			stop := attend(t, a.near)
			r, err := a.whole.Run(t.Context(), executor.Request{Code: c.code, Limits: limits}, nil)
			stop()
			var e *executor.Error
			switch {
			case err != nil && (!errors.As(err, &e) || e.Ran != executor.RanYes):
				t.Errorf("got %v", err)
			case r == nil || !c.want(r):
				t.Errorf("got %+v", outcomeOf(r, err))
			}
			check(t, a.whole.Reset(t.Context(), executor.Interpreter{}))
			// What it left in its files is its own: they go with another command.
			if got := run(t, a.whole, []string{"/bin/sh", "-c", "rm -rf /workspace/* /tmp/*.py; echo ok"}); got != "ok" {
				t.Errorf("a later command: got %q", got)
			}
			a.unharmed(t)
		})
	}
}

// TestOutlive lets processes try to be there after their run. The same attempts are made over the
// runner alone, with more ends of a run.
func TestOutlive(t *testing.T) {
	t.Parallel()
	a := newArena(t, hostileImage(t), executor.Spec{})
	attempts := attempttest.Of(attempttest.Outliving, "docker")
	// What is left without a supervisor is of the simplest kind: the others would not leave the
	// machine of the test alone.
	double := attempts[slices.IndexFunc(attempts, func(a attempttest.Attempt) bool { return a.Name == "double-fork" })]
	detach := attempttest.Command(python, []attempttest.Attempt{double}, nil)
	alive := []string{python, "-I", "-S", "-c", attempttest.Alive}
	for _, attempt := range attempts {
		t.Run(attempt.Name, func(t *testing.T) {
			req := executor.Request{Command: attempttest.Command(python, []attempttest.Attempt{attempt}, nil)}
			r, err := a.whole.Run(t.Context(), req, nil)
			if err != nil || !strings.HasPrefix(r.Stdout.String(), "ok") || r.FilesLost {
				t.Errorf("got %v, %.300q %.300q", outcomeOf(r, err), r.Stdout, r.Stderr)
			}
			if got := execAs(t, a.whole, root, alive...); got != "0" {
				t.Errorf("left: %s", got)
			}
		})
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s executor.Session)
		want string
	}{
		{"command", func(t *testing.T, s executor.Session) {
			if got := run(t, s, detach); got != "ok" {
				t.Fatalf("got %q", got)
			}
		}, "0"},
		{"code-and-reset", func(t *testing.T, s executor.Session) {
			text := attempttest.Prelude() + double.Code
			if r, err := s.Run(t.Context(), executor.Request{Code: text}, nil); err != nil || r.Status != executor.StatusOK {
				t.Fatalf("got %+v, %v", r, err)
			}
			check(t, s.Reset(t.Context(), executor.Interpreter{}))
		}, "0"},
		// Beside the supervisor nobody looks for it.
		{"without-supervisor", func(t *testing.T, s executor.Session) {
			if got := execAs(t, s, "", detach...); got != "ok" {
				t.Fatalf("got %q", got)
			}
		}, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do(t, a.whole)
			if got := execAs(t, a.whole, root, alive...); got != c.want {
				t.Errorf("alive: got %s, want %s", got, c.want)
			}
		})
	}
}
