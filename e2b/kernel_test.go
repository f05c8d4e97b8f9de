package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// What the processes of E2B's kernels do, and the service in front of them. In each language code
// does the same.
var kernelLanguages = map[executor.Language]struct{ set, show, pid, spin, die string }{
	executor.Python: {
		"import os; n = 1", "import os; print(globals().get('n', 'none'), os.environ['WHOSE'], os.getcwd())", "import os; print(os.getpid())",
		"while True: pass", "os.kill(os.getpid(), 9)",
	},
	executor.JavaScript: {
		"var n = 1", "console.log(typeof n == 'undefined' ? 'none' : n, process.env.WHOSE, process.cwd())", "console.log(process.pid)",
		"for (;;) {}", "process.kill(process.pid, 'SIGKILL')",
	},
}

// kernelTest is a session with variables in both languages.
func kernelTest(t *testing.T, w *world) executor.Session {
	t.Helper()
	s, err := w.x.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}, Env: map[string]string{"WHOSE": "ours"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the world sees what is left
	return s
}

// do runs code that has to end by itself.
func do(t *testing.T, s executor.Session, req executor.Request) *executor.Result {
	t.Helper()
	res, err := s.Run(t.Context(), req, nil)
	if err != nil || res.Status != executor.StatusOK {
		t.Fatalf("%s: got %+v, %v", req.Code, res, err)
	}
	return res
}

// kill ends the process of a context that is idle. One that nobody has waited for has ended as
// well.
func kill(t *testing.T, s executor.Session, l executor.Language) {
	t.Helper()
	pid := strings.TrimSpace(string(do(t, s, executor.Request{Language: l, Code: kernelLanguages[l].pid}).Stdout))
	const code = `kill -9 $1; while grep -qs '^State:[[:space:]]*[^[:space:]ZX]' /proc/$1/status; do :; done`
	do(t, s, executor.Request{Command: []string{"sh", "-c", code, "sh", pid}})
}

// began says that a context began anew with a run, and has what its session was given.
func began(t *testing.T, s executor.Session, l executor.Language) {
	t.Helper()
	res := do(t, s, executor.Request{Language: l, Code: kernelLanguages[l].show})
	if string(res.Stdout) != "none ours /workspace\n" || !res.StateFresh || res.Cell != 1 {
		t.Errorf("the next run: got %q, cell %d, fresh %t", res.Stdout, res.Cell, res.StateFresh)
	}
}

func TestKernels(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return interpreting(t) })
	for l, code := range kernelLanguages {
		// in runs a test of a session with a variable.
		in := func(name string, f e2btest.Faults, then func(t *testing.T, w *world, s executor.Session)) {
			t.Run(name+"/"+string(l), func(t *testing.T) {
				t.Parallel()
				w := worlds.Take(t).in(t)
				w.SetFaults(f)
				defer w.SetFaults(e2btest.Faults{})
				s := kernelTest(t, w)
				res := do(t, s, executor.Request{Language: l, Code: code.set})
				if !res.StateFresh || res.Cell != 1 {
					t.Errorf("the first run: got cell %d, fresh %t", res.Cell, res.StateFresh)
				}
				then(t, w, s)
			})
		}
		timedOut := func(t *testing.T, s executor.Session) (res *executor.Result) {
			t.Helper()
			started := 0
			res, err := s.Run(t.Context(), executor.Request{Language: l, Code: code.spin, Limits: executor.RunLimits{WallTime: time.Second}}, func(e executor.Event) error {
				if e.Kind == executor.EventStarted {
					started++
				}
				return nil
			})
			if err != nil || res.Status != executor.StatusTimedOut || started != 1 {
				t.Fatalf("got %+v, %v, started %d times", res, err, started)
			}
			return res
		}
		// The number of an execution that the service has made itself is none of the user's.
		in("silent-execution", e2btest.Faults{SilentExecution: true}, func(t *testing.T, w *world, s executor.Session) {
			again, err := w.x.Attach(t.Context(), s.Info().Handle)
			if err != nil {
				t.Fatal(err)
			}
			for i, of := range []executor.Session{s, again} {
				if res := do(t, of, executor.Request{Language: l, Code: code.show}); res.StateFresh || res.Cell != 2+i || !strings.HasPrefix(string(res.Stdout), "1 ") {
					t.Errorf("holder %d: got %q, cell %d, fresh %t", i, res.Stdout, res.Cell, res.StateFresh)
				}
			}
			if err := again.Detach(); err != nil {
				t.Error(err)
			}
		})
		// Stopping JavaScript ends its process, and its numbers go on as if it had not. Its state
		// and what it was set up with are lost.
		in("replaced-processes", e2btest.Faults{ReplacedProcesses: true, SilentExecution: true}, func(t *testing.T, _ *world, s executor.Session) {
			res := timedOut(t, s)
			if res.StateLost != (l != executor.Python) {
				t.Errorf("StateLost %t", res.StateLost)
			}
			if res.StateLost {
				began(t, s, l)
			}
		})
		// Code that ends its process ends, though the service never says so of JavaScript.
		in("endless-exit", e2btest.Faults{EndlessExit: true}, func(t *testing.T, _ *world, s executor.Session) {
			res, err := s.Run(t.Context(), executor.Request{Language: l, Code: code.die}, nil)
			if err != nil || res.Status == executor.StatusOK || res.Status == executor.StatusTimedOut || !res.StateLost {
				t.Errorf("got %+v, %v", res, err)
			}
			began(t, s, l)
			res, err = s.Run(t.Context(), executor.Request{Language: l, Code: code.set + "; " + code.die, Context: "new"}, nil) // that the run makes
			if err != nil || res.Status == executor.StatusOK || res.Status == executor.StatusTimedOut || !res.StateLost {
				t.Errorf("in a new context: got %+v, %v", res, err)
			}
		})
		// Of a process that has ended with an exit code the state is lost, whatever the service
		// says.
		in("exit-code", e2btest.Faults{}, func(t *testing.T, _ *world, s executor.Session) {
			if l != executor.Python { // process.exit is the stand-in's own
				return
			}
			res, err := s.Run(t.Context(), executor.Request{Language: l, Code: "os._exit(3)"}, nil)
			if err != nil || res.Status == executor.StatusOK || !res.StateLost {
				t.Errorf("got %+v, %v", res, err)
			}
			began(t, s, l)
		})
		// A kernel that has ended while nobody used it has lost what it was set up with: the next
		// run begins anew.
		in("ended-while-idle", e2btest.Faults{}, func(t *testing.T, _ *world, s executor.Session) {
			kill(t, s, l)
			began(t, s, l)
		})
		// If all of Jupyter was killed, contexts are there when it has started again.
		in("killed-while-idle", e2btest.Faults{}, func(t *testing.T, w *world, s executor.Session) {
			kill(t, s, l)
			var failures atomic.Int32
			w.between(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if r.URL.Path != "/contexts" || failures.Add(1) > 2 {
					return false
				}
				http.Error(rw, "Internal Server Error", http.StatusInternalServerError)
				return true
			})
			defer w.hook.Store(nil)
			began(t, s, l)
			if n := failures.Load(); n != 3 {
				t.Errorf("a context was asked for %d times", n)
			}
		})
		// Code that holds the lock of its interpreter from the beginning keeps its number back. Its
		// wall time is over all the same.
		in("late-numbers", e2btest.Faults{LateNumbers: true}, func(t *testing.T, _ *world, s executor.Session) {
			timedOut(t, s)
			do(t, s, executor.Request{Language: l, Code: code.show})
		})
		// Code that does not heed is ended with its context, for which the service takes some
		// seconds.
		in("slow-deletes", e2btest.Faults{UnseenDisconnects: true, SlowDeletes: 2500 * time.Millisecond}, func(t *testing.T, _ *world, s executor.Session) {
			if res := timedOut(t, s); !res.StateLost {
				t.Error("the state is not said to be lost")
			}
			began(t, s, l)
		})
	}
}

// An exception may have any size. It is what the code has done, and no failure of the service.
func TestLargeException(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	s, err := w.x.Create(t.Context(), executor.Spec{Run: executor.RunLimits{WallTime: 5 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const mark = "raise Exception"
	for name, c := range map[string]struct {
		event string
		want  func(r *executor.Result) bool
	}{
		"exception": {
			`{"type":"error","name":"Exception","value":"%[1]s","traceback":"Exception: %[1]s"}`,
			func(r *executor.Result) bool {
				return r.Status == executor.StatusFailed && r.Exception != nil && r.Exception.Type == "Exception" && strings.HasPrefix(r.Exception.Message, "xxx")
			},
		},
		"value":  {`{"type":"result","text":"%[1]s%[1]s","is_main_result":true}`, func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput }},
		"output": {`{"type":"stdout","text":"%[1]s"}`, func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput && len(r.Stdout) > 0 }},
	} {
		w.between(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.URL.Path != executePath {
				return false
			}
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if !strings.Contains(string(body), mark) {
				return false
			}
			_, _ = io.WriteString(rw, `{"type":"number_of_executions","execution_count":2}`+"\n"+fmt.Sprintf(c.event, strings.Repeat("x", 32<<20))+"\n"+`{"type":"end_of_execution"}`+"\n") // who has left misses nothing
			return true
		})
		res, err := s.Run(t.Context(), executor.Request{Code: mark}, nil)
		w.hook.Store(nil)
		if err != nil || !c.want(res) {
			t.Errorf("%s: got %+v, %v", name, res, err)
		}
	}
	w.life(s)
}

// A sandbox whose connections break while it is set up is given up for another one, but not for
// ever.
func TestCreateGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cuts int // of the connections of the first sandboxes
		made int32
	}{
		"once":     {1, 2},
		"twice":    {2, 3},
		"for-ever": {1000, sandboxes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var made, started atomic.Int32
			keys := make(chan string, 10)
			w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool {
				switch {
				case r.Method == http.MethodPost && r.URL.Path == "/v2/sandboxes":
					made.Add(1)
					keys <- r.Header.Get("Idempotency-Key")
				case r.URL.Path == startPath && int(started.Add(1)) <= c.cuts:
					next.ServeHTTP(&cutAfter{ResponseWriter: rw, left: 60}, r)
					return true
				}
				return false
			})
			s, err := w.x.Create(t.Context(), executor.Spec{})
			if made.Load() != c.made || (err == nil) != (c.cuts < sandboxes) || err != nil && !errors.Is(err, executor.ErrUnavailable) {
				t.Errorf("%d sandboxes were made, %v", made.Load(), err)
			}
			seen := map[string]bool{}
			for range made.Load() {
				seen[<-keys] = true
			}
			if len(seen) != int(made.Load()) {
				t.Errorf("the keys of %d sandboxes are %v", made.Load(), seen)
			}
			if err == nil {
				w.life(s)
			}
		})
	}
}

// cutAfter breaks an answer off.
type cutAfter struct {
	http.ResponseWriter
	left int
}

func (c *cutAfter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutAfter) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

func (c *cutAfter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left]) // whoever is gone misses nothing
	c.Flush()
	panic(http.ErrAbortHandler)
}

// A sandbox that another client has paused is there: who uses it resumes it.
func TestPausedByAnotherClient(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{KernelRunner, KernelCodeInterpreter} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withKernel(kernel))
			s := w.session()
			do(t, s, executor.Request{Code: "n = 1"})
			var b Sandbox
			executor.As(s, &b)
			pause := func() {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/sandboxes/"+b.ID+"/pause", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-API-KEY", e2btest.Key)
				resp, err := (&http.Client{Timeout: time.Minute}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if resp.Body.Close(); resp.StatusCode != http.StatusNoContent {
					t.Fatal(resp.Status)
				}
			}
			pause()
			if info, err := s.Refresh(t.Context()); err != nil || info.State != executor.SessionRunning {
				t.Errorf("got %+v, %v", info, err)
			}
			// A connection that the pause has cut is known to be by the first call over it.
			if o := w.run(s, "n"); o.err != nil && !errors.Is(o.err, executor.ErrUnavailable) {
				t.Errorf("got %v", o.err)
			}
			if got := w.count(s); got != "1" {
				t.Errorf("got %s", got)
			}
			pause()
			again, err := w.x.Attach(t.Context(), s.Info().Handle)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.count(again); got != "1" {
				t.Errorf("attached: got %s", got)
			}
			if err := again.Detach(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Files that kernels of root make are root's, and nobody else may read those of mode 0600: who
// reads them is root as well.
func TestRightsBesideKernels(t *testing.T) {
	for _, c := range []struct {
		uid  int
		user string
		same bool
	}{{0, DefaultUser, true}, {1000, DefaultUser, false}, {0, "user", true}, {1000, "user", true}} {
		if uid, gid, same := rights(c.uid, c.uid, c.user); uid != c.uid || gid != c.uid || same != c.same {
			t.Errorf("kernels of %d beside %s: got %d, %d, %t", c.uid, c.user, uid, gid, same)
		}
	}
}

// What the adapter adds to E2B's kernel of JavaScript, which runs cells by the module vm and has $$
// instead of display. Without its process it would never end an execution.
func TestSetupOfJavaScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, sessionFile)
	if err := os.WriteFile(file, []byte(`{"keep": true, "env": {"WHOSE": "ours"}, "dir": "/"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	setup, _ := hiddenCell(executor.JavaScript, "mark", file)
	cells, err := json.Marshal([]string{
		setup, "console.log(process.env.WHOSE, process.cwd())", "display({a: 1})", "display({'image/png': Buffer.from('PNG')}, {raw: true})",
		"process.exit(3)", "process.exit()", "process.exit(-1)", "console.log('on')",
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e", `
		globalThis.require = require;
		globalThis.$$ = {display: () => ({mime: (b) => console.log(JSON.stringify(b))})};
		for (const cell of `+string(cells)+`) {
			try { require("vm").runInThisContext(cell); } catch (e) { console.log(JSON.stringify([e.name, e.message, e.stack])); }
		}`)
	out, err := cmd.CombinedOutput()
	_, said, found := strings.Cut(string(out), "mark")
	var a answered
	line, rest, _ := strings.Cut(said, "\n")
	if err != nil || !found || json.Unmarshal([]byte(line), &a) != nil || a.Hidden != 1 || a.Error != "" || !(identity{a.PID, a.Born}).known() {
		t.Fatalf("got %s, %v", out, err)
	}
	want := `ours /
{"text/plain":"{ a: 1 }"}
{"image/png":"UE5H"}
["SystemExit","3",""]
["SystemExit","0",""]
["SystemExit","255",""]
on
`
	if rest != want {
		t.Errorf("got %s, want %s", rest, want)
	}
}
