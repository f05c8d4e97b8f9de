package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// outcome is what a test expects of a run. Zero fields are checked as well.
type outcome struct {
	stdout, stderr, value string
	code                  int
	exception             string
	reason                executor.Reason
	signal                string
	lost                  bool
}

func (r result) outcome() outcome {
	o := outcome{r.stdout, r.stderr, r.value(), r.Code, "", r.Reason, r.Signal, r.StateLost}
	if r.Exception != nil {
		o.exception = r.Exception.Type
	}
	return o
}

func (r result) want(t *testing.T, want outcome) {
	t.Helper()
	if r.err != nil {
		t.Errorf("error: %v", r.err)
	}
	if got := r.outcome(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		sh := func(script string) executor.Request {
			return executor.Request{Command: []string{"/bin/sh", "-c", script}}
		}
		py := func(code string) executor.Request {
			return executor.Request{Language: executor.Python, Code: code}
		}
		for _, c := range []struct {
			name string
			req  executor.Request
			want outcome
		}{
			{"exit", py("import sys; sys.exit(3)"), outcome{code: 3}},
			{"exit-now", py("import os; print('x', flush=True); os._exit(5)"), outcome{stdout: "x\n", code: 5, lost: true}},
			{"segfault", py("import os; os.kill(os.getpid(), 11)"), outcome{code: -1, reason: "signal", signal: "SIGSEGV", lost: true}},
			{"kill-self", py("import os; os.kill(os.getpid(), 9)"), outcome{code: -1, reason: "signal", signal: "SIGKILL", lost: true}},
			{"exception", py("1/0"), outcome{code: 1, exception: "ZeroDivisionError"}},
			{"fork", py("import os\np = os.fork()\nif p: os.waitpid(p, 0)\nelse: raise SystemExit(4)\nprint('parent')"), outcome{stdout: "parent\n"}},
			{"multiprocessing", py("import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: r = p.map(abs, [-1, 2])\nr"), outcome{value: "[1, 2]"}},
			{"threads", py("import threading\nt = threading.Thread(target=print, args=('in',)); t.start(); t.join()"), outcome{stdout: "in\n"}},
			{"order", py("import os\nprint('a'); os.system('echo b'); print('c'); os.write(1, b'd\\n'); display('e')"), outcome{stdout: "a\nb\nc\nd\n"}},
			{"await", py("import asyncio\nawait asyncio.sleep(0.01, 7)"), outcome{value: "7"}},
			{"asyncio-run", py("import asyncio\nasyncio.run(asyncio.sleep(0.01, 7))"), outcome{value: "7"}},
			{"task-exit", py("import asyncio\nasync def f(): raise SystemExit(3)\nt = asyncio.ensure_future(f())\nawait asyncio.sleep(9)"), outcome{code: 130, exception: "CancelledError"}},
			{"no-stdin", py("input()"), outcome{code: 1, exception: "EOFError"}},
			{"close-everything", py("import os; os.closerange(0, 3); 1"), outcome{value: "1"}},
			{"after-close", py("print('still')"), outcome{stdout: "still\n"}},
			{"environment", py("import os\nsorted(k for k in os.environ if k != 'MPLBACKEND')"), outcome{value: "['HOME', 'LANG', 'LOGNAME', 'PATH', 'TMPDIR', 'TZ', 'USER']"}},
			{"home", py("import os, tempfile\nopen(os.path.expanduser('~/x'), 'w'); tempfile.TemporaryFile(); os.getcwd() == os.path.dirname(os.path.abspath('y'))"), outcome{value: "True"}},
			{"command-exit", sh("exit 3"), outcome{code: 3}},
			{"command-signal", sh("kill -TERM $$"), outcome{code: -1, reason: "signal", signal: "SIGTERM"}},
			{"command-137", sh("exit 137"), outcome{code: 137}},
			{"command-missing", executor.Request{Command: []string{"/no/such"}}, outcome{stderr: "/no/such: No such file or directory\n", code: 127}},
			{"command-in-path", executor.Request{Command: []string{"no-such-command"}}, outcome{stderr: "/bin/no-such-command: No such file or directory\n", code: 127}},
			{"command-directory", executor.Request{Command: []string{"/tmp"}}, outcome{stderr: "/tmp: Permission denied\n", code: 126}},
			{"command-dir", executor.Request{Command: []string{"pwd"}, Dir: "/usr"}, outcome{stdout: "/usr\n"}},
			{"command-no-dir", executor.Request{Command: []string{"pwd"}, Dir: "nowhere"}, outcome{stderr: s.workdir + "/nowhere: No such file or directory\n", code: 127}},
			{"command-env", executor.Request{Command: []string{"/bin/sh", "-c", "echo $A$HOME"}, Env: map[string]string{"A": "é", "HOME": "/x"}}, outcome{stdout: "é/x\n"}},
			{"command-pipe", sh("yes | head -1"), outcome{stdout: "y\n"}},
			{"command-orphan", sh("sleep 1000 & echo done"), outcome{stdout: "done\n"}},
			{"code-dir", executor.Request{Language: executor.Python, Code: "import os; os.getcwd()", Dir: "/usr"}, outcome{value: "'/usr'"}},
			{"code-env", executor.Request{Language: executor.Python, Code: "import os; os.environ['A']", Env: map[string]string{"A": "b"}}, outcome{value: "'b'"}},
			{"stdin", executor.Request{Language: executor.Python, Code: "input(), input()", Stdin: strings.NewReader("a\nb")}, outcome{value: "('a', 'b')"}},
			{"stdin-of-child", executor.Request{Language: executor.Python, Code: "import os; os.system('cat')", Stdin: strings.NewReader("abc")}, outcome{stdout: "abc", value: "0"}},
			{"stdin-unread", executor.Request{Language: executor.Python, Code: "1", Stdin: strings.NewReader(strings.Repeat("x", 5<<20))}, outcome{value: "1"}},
			{"stdin-large", executor.Request{Language: executor.Python, Code: "import sys; len(sys.stdin.read())", Stdin: strings.NewReader(strings.Repeat("x", 5<<20))}, outcome{value: "5242880"}},
			{"stdin-command", executor.Request{Command: []string{"cat"}, Stdin: iotest.OneByteReader(strings.NewReader("slowly"))}, outcome{stdout: "slowly"}},
			{"stdin-fails", executor.Request{Command: []string{"cat"}, Stdin: iotest.ErrReader(io.ErrNoProgress)}, outcome{}},
			{"large-code", py("x = '" + strings.Repeat("é", 2<<20) + "'; len(x)"), outcome{value: "2097152"}},
		} {
			t.Run(c.name, func(t *testing.T) { s.do(t.Context(), c.req).want(t, c.want) })
		}
	})
}

// swallow heeds no interrupt. The loop calls something because Python 3.11 lets one escape from a
// loop that does not.
const swallow = `
import time
begun = False
while True:
    try:
        if not begun:
            begun = True
            print("begin", flush=True)
        while True:
            time.sleep(0.001)
    except BaseException:
        pass
`

func TestWallTime(t *testing.T) {
	t.Parallel()
	const wall = 800 * time.Millisecond
	each(t, func(t *testing.T, root string) {
		s, hard := start(t, root), start(t, root, impatient)
		s.code(t, "x = 1")
		for name, c := range map[string]struct {
			req  executor.Request
			lost bool
		}{
			"loop":       {executor.Request{Code: "print('begin', flush=True)\nwhile True: pass"}, false},
			"sleep":      {executor.Request{Code: "import time; print('begin'); time.sleep(1000)"}, false},
			"await":      {executor.Request{Code: "import asyncio; print('begin'); await asyncio.sleep(1000)"}, false},
			"await-loop": {executor.Request{Code: "import asyncio; print('begin'); await asyncio.sleep(0)\nwhile True: pass"}, false},
			"child":      {executor.Request{Code: "import subprocess; print('begin'); subprocess.run(['sleep', '1000'])"}, false},
			"system":     {executor.Request{Code: "import os; print('begin'); os.system('sleep 1000')"}, false},
			"stdin":      {executor.Request{Code: "print('begin'); input()", Stdin: neverReader{t.Context()}}, false},
			"swallow":    {executor.Request{Code: swallow}, true},
			"ignore":     {executor.Request{Code: "import signal, time; print('begin'); signal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(9)"}, true},
			"command":    {executor.Request{Command: []string{"/bin/sh", "-c", "echo begin; sleep 1000"}}, false},
			"trap":       {executor.Request{Command: []string{"/bin/sh", "-c", "trap '' TERM INT HUP; echo begin; while :; do sleep 1000; done"}}, false},
		} {
			t.Run(name, func(t *testing.T) {
				s := s
				if c.lost || name == "trap" {
					s = hard
				}
				if c.req.Command == nil {
					c.req.Language, c.req.Context = executor.Python, name
					s.do(t.Context(), executor.Request{Language: executor.Python, Context: name, Code: "import asyncio, os, signal, subprocess, time\nx = 1"})
				}
				c.req.Limits.WallTime = wall
				begin := time.Now()
				r := s.timesOut(t, c.req)
				if r.err != nil || r.Reason != executor.ReasonWallTime || r.StateLost != c.lost || r.stdout != "begin\n" {
					t.Errorf("got %+v", r)
				}
				if d := time.Since(begin); d < wall {
					t.Errorf("took %v, less than its wall time", d)
				}
				if c.req.Command == nil {
					r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: name, Code: "globals().get('x')"})
					if want := map[bool]string{true: "", false: "1"}[c.lost]; r.value() != want || r.StateFresh != c.lost {
						t.Errorf("afterwards: got %+v", r)
					}
				}
			})
		}
		if r := s.code(t, "x"); r.value() != "1" {
			t.Errorf("another context was harmed: got %+v", r)
		}
		s.gone(t, "sleep", "1000")
		hard.gone(t, "sleep", "1000")
	})
}

// neverReader blocks until ctx ends.
type neverReader struct{ ctx context.Context }

func (n neverReader) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, io.EOF
}

// processes lists the command lines of what runs as the user of the sandbox.
func (s *sandbox) processes(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range dirs {
		status, _ := os.ReadFile(d + "/status")
		if strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", s.uid)) && !(strings.Contains(string(status), "State:\tZ") && strings.Contains(string(status), "Threads:\t1\n")) {
			cmd, _ := os.ReadFile(d + "/cmdline")
			found = append(found, strings.ReplaceAll(strings.TrimRight(string(cmd), "\x00"), "\x00", " "))
		}
	}
	return found
}

func (s *sandbox) gone(t *testing.T, argv ...string) {
	t.Helper()
	for _, p := range s.processes(t) {
		if p == strings.Join(argv, " ") {
			t.Errorf("%s is left", p)
		}
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	waittest.Until(t, what, func() error {
		if !ok() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	s.code(t, "x = 1")
	cause := errors.New("stop button")
	for name, c := range map[string]struct {
		code string
		lost bool
	}{
		"heeds":    {"print('begin', flush=True)\nimport time; time.sleep(1000)", false},
		"swallows": {swallow, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			if c.lost {
				s = start(t, host, impatient)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			req := executor.Request{Language: executor.Python, Context: name, Code: c.code, Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1000}}
			exit, err := s.Run(ctx, &req, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					cancel(cause)
				}
				return nil
			})
			if err != cause || exit.StateLost != c.lost {
				t.Errorf("got %+v, %v", exit, err)
			}
		})
	}
	t.Run("emit-fails", func(t *testing.T) {
		req := executor.Request{Language: executor.Python, Code: "while True: print('x' * 1000)", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 40}}
		n := 0
		exit, err := s.Run(t.Context(), &req, func(ev executor.Event) error {
			if n++; n > 3 {
				t.Error("emit was called after it had failed")
			}
			if n == 3 {
				return cause
			}
			return nil
		})
		if err != cause || exit.StateLost {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
	t.Run("emit-panics", func(t *testing.T) {
		req := executor.Request{Language: executor.Python, Code: "import time\ntime.sleep(1000)", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1000}}
		func() {
			defer func() {
				if recover() != "emit" {
					t.Error("the panic is gone")
				}
			}()
			s.Run(t.Context(), &req, func(executor.Event) error { panic("emit") })
		}()
	})
	if r := s.code(t, "x"); r.value() != "1" {
		t.Errorf("afterwards: got %+v", r)
	}
	if st, err := s.Status(t.Context()); err != nil || st.Runs != 0 {
		t.Errorf("got %+v, %v", st, err)
	}
}

// An interrupt at any moment neither loses state nor tears or doubles output.
func TestInterruptAnywhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		s.code(t, "x = 1")
		for _, code := range []string{
			"for i in range(10**9): print(i)",
			"import sys\nfor i in range(10**9): sys.stdout.write('%d\\n' % i)",
			"import sys\nfor i in range(10**9): sys.stdout.buffer.write(b'%d\\n' % i)",
			"import os, json\nfor i in range(10**9): display({'text/plain': '%d' % i}, raw=True)",
			"import asyncio\nfor i in range(10**9): print(i); await asyncio.sleep(0)",
		} {
			for i := range 12 {
				r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: code, Limits: executor.RunLimits{WallTime: time.Duration(i*1700+50) * time.Microsecond}})
				if r.err != nil || r.Reason != executor.ReasonWallTime || r.StateLost {
					t.Fatalf("%s: got %v, %q, lost %v", code, r.err, r.Reason, r.StateLost)
				}
				lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
				for _, o := range r.outputs {
					lines = append(lines, o.Data["text/plain"].String())
				}
				if len(r.outputs) > 0 {
					lines = lines[1:]
				}
				for n, line := range lines {
					if line != strconv.Itoa(n) && !(n == len(lines)-1 && strings.HasPrefix(strconv.Itoa(n), line)) {
						t.Fatalf("%s: line %d is %q", code, n, line)
					}
				}
			}
		}
		if r := s.code(t, "x"); r.value() != "1" {
			t.Errorf("got %+v", r)
		}
	})
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	for name, code := range map[string]string{
		"print":   "x = 1\nwhile True: print('x' * 1000)",
		"large":   "x = 1\nprint('x' * 100000000)",
		"display": "x = 1\nwhile True: display('x' * 1000)",
		"child":   "x = 1\nimport os; os.system('yes')",
		"exact":   "x = 1\nprint('x' * 10000, end=''); import time; time.sleep(1000) if False else None",
	} {
		t.Run(name, func(t *testing.T) {
			r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: name, Code: code, Limits: executor.RunLimits{OutputBytes: 10000}})
			size := len(r.stdout) + len(r.stderr)
			for _, o := range r.outputs {
				for _, d := range o.Data {
					size += len(d)
				}
			}
			want := executor.ReasonOutput
			if name == "exact" {
				want = ""
			}
			if r.err != nil || r.Reason != want || r.StateLost || size > 10000 || size < 8000 {
				t.Errorf("got %q lost=%v, %d bytes, %v", r.Reason, r.StateLost, size, r.err)
			}
			if r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: name, Code: "x"}); r.value() != "1" || r.stdout != "" {
				t.Errorf("afterwards: got %+v", r)
			}
		})
	}
}

func TestLimitsBeyondTheCeilingAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) { c.MaxRun = executor.RunLimits{WallTime: time.Minute, OutputBytes: 1000} })
	for _, l := range []executor.RunLimits{{WallTime: 2 * time.Minute, OutputBytes: 1}, {WallTime: executor.NoLimit, OutputBytes: 1}, {WallTime: 1, OutputBytes: 1001}, {WallTime: 1, OutputBytes: -1}} {
		r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: "1", Limits: l})
		var e *executor.Error
		if !errors.As(r.err, &e) || e.Kind != executor.ErrInvalid || e.Ran != executor.RanNo || r.started {
			t.Errorf("%+v: got %v", l, r.err)
		}
	}
}

func TestSideBySide(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	var wg sync.WaitGroup
	started := make(chan bool, 3)
	release := make(chan struct{})
	for _, req := range []executor.Request{
		{Language: executor.Python, Code: "input()", Stdin: &gate{release: release}},
		{Language: executor.Python, Context: "other", Code: "input()", Stdin: &gate{release: release}},
		{Command: []string{"cat"}, Stdin: &gate{release: release}},
	} {
		req.Limits = executor.RunLimits{WallTime: time.Minute, OutputBytes: 1000}
		wg.Go(func() {
			exit, err := s.Run(t.Context(), &req, func(ev executor.Event) error {
				if ev.Kind == executor.EventStarted {
					started <- true
				}
				return nil
			})
			if err != nil || exit.Code != 0 {
				t.Errorf("got %+v, %v", exit, err)
			}
		})
	}
	for range 3 {
		<-started
	}
	if st, err := s.Status(t.Context()); err != nil || st.Runs != 3 {
		t.Errorf("got %+v, %v", st, err)
	}
	r := s.code(t, "1")
	var e *executor.Error
	if !errors.As(r.err, &e) || e.Kind != executor.ErrBusy || e.Ran != executor.RanNo || r.started {
		t.Errorf("a second run in one interpreter: got %v", r.err)
	}
	close(release)
	wg.Wait()
}

// gate is input that comes when release is closed.
type gate struct {
	release chan struct{}
	done    bool
}

func (g *gate) Read(p []byte) (int, error) {
	<-g.release
	if g.done {
		return 0, io.EOF
	}
	g.done = true
	return copy(p, "go\n"), nil
}

func TestReset(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		// One that has left its session, group and parent, one that is a child.
		daemon := `
import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 200)
        os.execvp("sleep", ["sleep", "12345"])
    os._exit(0)
os.wait()
p = subprocess.Popen(["sleep", "12346"], start_new_session=True)
x = 1
`
		if r := s.code(t, daemon); r.err != nil || r.Code != 0 {
			t.Fatalf("got %+v", r)
		}
		s.do(t.Context(), executor.Request{Language: executor.Python, Context: "other", Code: "y = 1"})
		s.sh(t, "true") // the end of a command must not end what interpreters have started
		if ps := strings.Join(s.processes(t), "\n"); !strings.Contains(ps, "sleep 12345") || !strings.Contains(ps, "sleep 12346") {
			t.Fatalf("background processes are gone:\n%s", ps)
		}
		running := make(chan struct{})
		ended := make(chan result, 1)
		go func() {
			req := executor.Request{Language: executor.Python, Code: "import time; time.sleep(1000)", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 10}}
			var r result
			r.Exit, r.err = s.Run(t.Context(), &req, func(executor.Event) error { close(running); return nil })
			ended <- r
		}()
		<-running
		if err := s.Reset(t.Context(), executor.Interpreter{Language: executor.Python}); err != nil {
			t.Fatal(err)
		}
		if r := <-ended; r.err != nil || r.Reason != executor.ReasonReset || !r.StateLost {
			t.Errorf("the run: got %+v", r)
		}
		s.gone(t, "sleep", "12345")
		s.gone(t, "sleep", "12346")
		if r := s.code(t, "'x' in globals()"); r.value() != "False" || !r.StateFresh {
			t.Errorf("afterwards: got %+v", r)
		}
		s.code(t, "x = 2")
		s.do(t.Context(), executor.Request{Language: executor.Python, Context: "a", Code: "x = 3"})
		if err := s.Reset(t.Context(), executor.Interpreter{Context: "a"}); err != nil {
			t.Fatal(err)
		}
		if r := s.code(t, "x"); r.value() != "2" {
			t.Errorf("reset of another context: got %+v", r)
		}
		if r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: "a", Code: "1"}); !r.StateFresh {
			t.Errorf("reset of a context: got %+v", r)
		}
		if err := s.Reset(t.Context(), executor.Interpreter{Language: "fortran"}); err != nil {
			t.Errorf("reset of nothing: %v", err)
		}
	})
}

func TestLateOutputIsDropped(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	r := s.code(t, `
import threading, time, sys
go, done = threading.Event(), threading.Event()
def late():
    go.wait()
    for _ in range(10000): print("late")
    done.set()
threading.Thread(target=late, daemon=True).start()
print("early")`)
	if r.stdout != "early\n" {
		t.Fatalf("got %+v", r)
	}
	// What it prints now fills every buffer on the way; the run that follows has none of it.
	s.code(t, "threading.Timer(0.05, go.set).start()") // after this run has ended
	eventually(t, "the thread ends", func() bool { return s.code(t, "done.wait(0.02)").value() == "True" })
	if r := s.code(t, "print('next')"); r.stdout != "next\n" {
		t.Errorf("got %q", r.stdout)
	}
}

// Whoever reads slowly gets everything, in order, and slows down the code and not the others.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	const lines = 200000
	req := executor.Request{Language: executor.Python, Code: fmt.Sprintf("for i in range(%d): print('%%0100d' %% i)", lines), Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 30}}
	var got strings.Builder
	others := 0
	exit, err := s.Run(t.Context(), &req, func(ev executor.Event) error {
		got.Write(ev.Data)
		if got.Len() > (others+1)*4<<20 {
			others++ // the run waits for this
			if r := s.sh(t, "echo x"); r.stdout != "x\n" {
				t.Errorf("another run: got %+v", r)
			}
		}
		return nil
	})
	if err != nil || exit.Code != 0 || others == 0 {
		t.Errorf("got %+v, %v, %d others", exit, err, others)
	}
	n := 0
	for line := range strings.Lines(got.String()) {
		if line != fmt.Sprintf("%0100d\n", n) {
			t.Fatalf("line %d is %q", n, line)
		}
		n++
	}
	if n != lines {
		t.Errorf("got %d lines, want %d", n, lines)
	}
}

// What loses its parent is reaped: its entry counts against the limit of processes.
func TestNoZombies(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	if r := s.code(t, "import os\nfor _ in range(50): os.system('(true &)')"); r.Code != 0 {
		t.Fatalf("got %+v", r)
	}
	eventually(t, "only the interpreter is left", func() bool {
		r := s.sh(t, "cat /proc/[0-9]*/status")
		return strings.Count(r.stdout, fmt.Sprintf("Uid:\t%d\t", s.uid)) == 2 // and the command itself
	})
}

func TestAddPaths(t *testing.T) {
	t.Parallel()
	s := start(t, host, withNode, func(c *Config) {
		c.Paths = map[executor.Language][]string{executor.Python: {c.Temp + "/later"}, executor.JavaScript: {c.Temp + "/js"}}
	})
	tmp := filepath.Join(filepath.Dir(s.workdir), "tmp")
	if r := s.code(t, "import first_of_all"); r.Exception == nil {
		t.Fatalf("got %+v", r)
	}
	s.js(t, "for (const n of ['one', 'two']) try { require(n) } catch {}") // which Node remembers
	for name, text := range map[string]string{
		"later/first_of_all.py": "x = 1", "more/sysconfig.py": "x = 6", "more/second.py": "x = 2", "more/it.pth": tmp + "/third", "third/third.py": "x = 3",
		"js/one/package.json": `{"main": "lib/it.js"}`, "js/one/lib/it.js": "module.exports = 4", "jsmore/two/index.js": "module.exports = 5",
	} {
		if err := s.Files().Write(t.Context(), filepath.Join(tmp, name), strings.NewReader(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddPaths(t.Context(), executor.Python, tmp+"/more"); err != nil {
		t.Fatal(err)
	}
	if err := s.AddPaths(t.Context(), executor.JavaScript, tmp+"/jsmore"); err != nil {
		t.Fatal(err)
	}
	for _, context := range []string{"", "new"} {
		r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: context, Code: "import first_of_all, second, third\nfirst_of_all.x, second.x, third.x"})
		if r.value() != "(1, 2, 3)" {
			t.Errorf("context %q: got %+v %+v", context, r, r.Exception)
		}
		// They come before the packages of the image, and after the standard library.
		r = s.do(t.Context(), executor.Request{Language: executor.Python, Context: context, Code: "import importlib.util as u, sys; at = sys.path.index\n" +
			"max(at(p) for p in sys.path if p.endswith('/more')) < min([at(p) for p in __import__('site').getsitepackages() if p in sys.path], default=99), u.find_spec('sysconfig').origin.endswith('more/sysconfig.py')"})
		if r.value() != "(True, False)" {
			t.Errorf("context %q: got %+v %+v", context, r, r.Exception)
		}
		r = s.do(t.Context(), executor.Request{Language: executor.JavaScript, Context: context, Code: "import two from 'two'; [require('one'), two]"})
		if r.value() != "[ 4, 5 ]" {
			t.Errorf("context %q: got %+v %+v", context, r, r.Exception)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	burn := "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.3: pass"
	s.code(t, "1") // an interpreter starts
	burnt := s.code(t, burn)
	if burnt.Usage.CPU < 250*time.Millisecond || burnt.Usage.CPU > 3*time.Second {
		t.Errorf("got %v", burnt.Usage)
	}
	if r := s.code(t, "1"); r.Usage.CPU > burnt.Usage.CPU/2 {
		t.Errorf("got %v for nothing, and %v for %s", r.Usage, burnt.Usage, burn)
	}
	r := s.do(t.Context(), executor.Request{Command: []string{"python3", "-c", burn + "\nx = b'x' * 50000000"}})
	if r.Usage.CPU < 250*time.Millisecond || r.Usage.PeakMemory < 50e6 || r.Usage.PeakMemory > 500e6 {
		t.Errorf("got %+v", r)
	}
}

// A context begins where its first run does, and stays there. The default one begins in the working
// directory.
func TestDir(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		if r := s.sh(t, "mkdir sub"); r.Code != 0 {
			t.Fatalf("got %+v", r)
		}
		sub := filepath.Join(s.workdir, "sub")
		for language, code := range map[executor.Language]string{
			executor.Python:     "import os; print(os.getcwd())",
			executor.JavaScript: "console.log(process.cwd())",
		} {
			if language == executor.JavaScript && !hasNode(root) {
				continue
			}
			t.Run(string(language), func(t *testing.T) {
				for i, c := range []struct{ context, dir, want string }{
					{"", "sub", sub}, {"", "", s.workdir}, {"a", "sub", sub}, {"a", "", sub}, {"a", s.workdir, s.workdir}, {"a", "sub", sub}, {"b", "", s.workdir},
				} {
					r := s.do(t.Context(), executor.Request{Language: language, Context: c.context, Dir: c.dir, Code: code})
					if r.err != nil || r.stdout != c.want+"\n" {
						t.Errorf("run %d, context %q in %q: got %q, want %q: %+v", i, c.context, c.dir, r.stdout, c.want, r.Exception)
					}
				}
				// One that is not there is a mistake of the code, for a context that is there and
				// for one that begins.
				for _, context := range []string{"a", "c"} {
					r := s.do(t.Context(), executor.Request{Language: language, Context: context, Dir: "nowhere", Code: code})
					if r.err != nil || r.Exception == nil || r.stdout != "" {
						t.Errorf("context %q in a directory that is not there: got %+v", context, r)
					}
				}
			})
		}
	})
}

// TestInterruptedImport: a package whose import was interrupted can be imported again, as one that
// has failed can.
func TestInterruptedImport(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		s.code(t, `import os
os.mkdir("pkg")
open("pkg/part.py", "w").write("x = 1\n")
open("pkg/__init__.py", "w").write("""from .part import *
import os, time
if not os.path.exists("go"): print("in", flush=True); time.sleep(1000)
y = part.x
""")`)
		r := s.timesOut(t, executor.Request{Language: executor.Python, Code: "import sys; sys.path.append('.'); import pkg", Limits: executor.RunLimits{WallTime: time.Second}})
		if r.err != nil || r.Reason != executor.ReasonWallTime || r.StateLost || r.stdout != "in\n" {
			t.Errorf("got %+v", r)
		}
		if r := s.code(t, "open('go', 'w'); import pkg; pkg.y"); r.err != nil || r.value() != "1" {
			t.Errorf("got %+v, %+v", r, r.Exception)
		}
	})
}
