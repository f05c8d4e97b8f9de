package e2b

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// interpreting makes a world whose kernel is E2B's code interpreter.
func interpreting(t *testing.T) *world {
	return newWorld(t, withKernel(KernelCodeInterpreter))
}

// withKernel gives a configuration a kernel, and takes from it what only the other one has.
func withKernel(kernel string) func(*Config) {
	return func(c *Config) { c.Kernel, c.Ports = kernel, c.Ports && kernel == KernelRunner }
}

func TestNotebook(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	s, err := w.x.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}, Env: map[string]string{"WHOSE": "the session's"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		req  executor.Request
		want string
	}{
		{"state", executor.Request{Code: "n = 20\nprint(n)"}, "20\n"},
		{"value", executor.Request{Code: "n + 1"}, "21"},
		{"env", executor.Request{Code: "import os; print(os.environ['A'], os.environ['WHOSE'])", Env: map[string]string{"A": "it's \"odd\"\n\\"}}, "it's \"odd\"\n\\ the session's\n"},
		{"env-is-gone", executor.Request{Code: "print(os.environ.get('A'), os.getcwd())"}, "None /workspace\n"},
		{"dir", executor.Request{Code: "print(os.getcwd())", Dir: "/tmp"}, "/tmp\n"},
		{"dir-is-left", executor.Request{Code: "print(os.getcwd())"}, "/workspace\n"},
		{"javascript", executor.Request{Language: executor.JavaScript, Code: "var n = 1; console.log(n, process.env.WHOSE, process.env.A)", Env: map[string]string{"A": "a"}}, "1 the session's a\n"},
		{"javascript-env-is-gone", executor.Request{Language: executor.JavaScript, Code: "console.log(++n, process.env.WHOSE, process.env.A, process.cwd())"}, "2 the session's undefined /workspace\n"},
		{"command", executor.Request{Command: []string{"sh", "-c", "echo $WHOSE; pwd"}}, "the session's\n/workspace\n"},
	} {
		res, err := s.Run(t.Context(), c.req, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got := string(res.Stdout)
		if len(res.Outputs) > 0 {
			got += string(res.Outputs[0].Data["text/plain"])
		}
		if got != c.want || res.Status != executor.StatusOK {
			t.Errorf("%s: got %q, %+v", c.name, got, res)
		}
	}
}

const executePath = "/execute"

// A connection to the code interpreter may break anywhere in the stream of a run, or end there in
// good order, which the official SDK takes for success. The error says truly whether the code has
// run, it never runs twice, and the next call goes on where it was.
func TestCodeInterpreterCutAnywhere(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	c, s := w.cutter(executePath), w.session()
	size := c.size(s)
	errs := 0
	const cuts = 12
	for i := range int64(cuts) {
		c.orderly.Store(i%2 == 1)
		if c.after(s, i*(size-1)/(cuts-1)) {
			errs++
		}
	}
	if errs < cuts-1 {
		t.Errorf("only %d of %d runs broke off", errs, cuts)
	}
}

// What answers the request that carries a run decides what is known of the run. Nothing is sent
// twice, but for what was certainly not delivered.
func TestAnswersToExecute(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	s := w.session()
	w.run(s, "n = 0")
	const ok = "the run is done all the same"
	for _, c := range []struct {
		name    string
		deliver bool // before the answer
		status  int
		body    string
		header  string // Retry-After
		ran     executor.Ran
		kind    error // nil: ok
	}{
		{"429-retry-after", false, 429, `{"sandboxId":"i","message":"slow down","code":429}`, "1", executor.RanNo, nil},
		{"409-between-states", false, 409, `{"sandboxId":"i","message":"sandbox is still transitioning","code":409}`, "", executor.RanNo, nil},
		{"502-port", false, 502, `{"sandboxId":"i","message":"The sandbox is running but port is not open","port":49999,"code":502}`, "", executor.RanNo, nil},
		{"404-context", false, 404, "Context x not found", "", executor.RanNo, nil},
		{"500", false, 500, "kernel is not available", "", executor.RanMaybe, executor.ErrUnavailable},
		{"500-delivered", true, 500, "kernel is not available", "", executor.RanMaybe, executor.ErrUnavailable},
		{"502-text", true, 502, "Failed to route request to sandbox", "", executor.RanMaybe, executor.ErrUnavailable},
		{"503", false, 503, "", "", executor.RanMaybe, executor.ErrUnavailable},
		{"504", true, 504, "upstream request timeout", "", executor.RanMaybe, executor.ErrUnavailable},
		{"200-html", true, 200, "<html></html>", "", executor.RanMaybe, executor.ErrUnavailable},
		{"200-empty", false, 200, "", "", executor.RanMaybe, executor.ErrUnavailable},
		{"no-line", false, 200, strings.Repeat("x", 1<<20), "", executor.RanMaybe, executor.ErrUnavailable},
	} {
		was := w.count(s)
		var once atomic.Bool
		w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if r.URL.Path != executePath || !once.CompareAndSwap(false, true) {
				return false
			}
			if c.deliver {
				next.ServeHTTP(nowhere{http.Header{}}, r)
			} else {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			if c.header != "" {
				rw.Header().Set("Retry-After", c.header)
			}
			rw.WriteHeader(c.status)
			_, _ = io.WriteString(rw, c.body) // who has left misses nothing
			return true
		})
		o := w.run(s, "n = globals().get('n', 0) + 1")
		w.hook.Store(nil)
		if !once.Load() {
			t.Fatalf("%s: the fault did not happen", c.name)
		}
		if c.kind == nil && (o.err != nil || o.res.Status != executor.StatusOK) {
			t.Errorf("%s: got %+v, %v, want that %s", c.name, o.res, o.err, ok)
		}
		var e *executor.Error
		if c.kind != nil && (!errors.As(o.err, &e) || e.Kind != c.kind || e.Ran != c.ran) {
			t.Errorf("%s: got %+v, %v", c.name, o.res, o.err)
		}
		if c.name == "404-context" { // its context was given up, with the state
			was = "0"
		}
		judge(t, c.name, o, was, w.count(s))
	}
}

// TestVerdict says how code ended by what the code interpreter says of its failure.
func TestVerdict(t *testing.T) {
	t.Parallel()
	b := &backend{cfg: Config{Kernel: KernelCodeInterpreter}}
	trace := func(name string) string { return "Traceback (most recent call last)\n" + name }
	for name, c := range map[string]struct {
		language executor.Language
		failure  *codeError
		code     int
		stderr   string
		raised   bool
	}{
		"ok":          {executor.Python, nil, 0, "", false},
		"exception":   {executor.Python, &codeError{"ValueError", "bad", trace("ValueError: bad")}, 1, "", true},
		"no-trace":    {executor.Python, &codeError{"ValueError", "bad", ""}, 1, "", true},
		"own-name":    {executor.Python, &codeError{"WebSocketError", "bad", trace("WebSocketError: bad")}, 1, "", true}, // which the service uses, too
		"exit":        {executor.Python, &codeError{"SystemExit", "", trace("SystemExit")}, 0, "", false},
		"exit-none":   {executor.Python, &codeError{"SystemExit", "None", ""}, 0, "", false},
		"exit-3":      {executor.Python, &codeError{"SystemExit", "3", trace("SystemExit: 3")}, 3, "", false},
		"exit-300":    {executor.Python, &codeError{"SystemExit", "300", ""}, 44, "", false},
		"exit-text":   {executor.Python, &codeError{"SystemExit", "no", ""}, 1, "no\n", false},
		"node":        {executor.JavaScript, &codeError{"TypeError", "bad", trace("TypeError: bad")}, 1, "", true},
		"node-ended":  {executor.JavaScript, &codeError{"SystemExit", "3", ""}, 3, "", false}, // process.exit
		"node-throws": {executor.JavaScript, &codeError{"SystemExit", "1", trace("SystemExit: 1")}, 1, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			cell := &cell{
				n: &notebook{b: b}, k: &kernel{seen: 2}, failure: c.failure, req: &executor.Request{Language: c.language},
				emit: func(e executor.Event) error { said += string(e.Data); return nil },
			}
			exit, err := cell.verdict()
			if err != nil || exit.Code != c.code || said != c.stderr || exit.StateFresh || (exit.Exception != nil) != c.raised {
				t.Errorf("got %+v, %q, %v", exit, said, err)
			}
			if c.raised && (exit.Exception.Type != c.failure.name || exit.Exception.Message != c.failure.value || exit.Exception.Traceback != c.failure.traceback) {
				t.Errorf("got %+v", exit.Exception)
			}
		})
	}
}

// interpreterSwitches are those of the code interpreter.
var interpreterSwitches = []struct {
	name string
	f    e2btest.Faults
}{
	{"stuck-after-abandon", e2btest.Faults{StuckAfterAbandon: 50 * time.Millisecond}},
	{"stuck-for-longer", e2btest.Faults{StuckAfterAbandon: 500 * time.Millisecond}},
	{"unseen-disconnects", e2btest.Faults{UnseenDisconnects: true}},
	{"pasted-environment", e2btest.Faults{PastedEnvironment: true}},
	{"lost-directory", e2btest.Faults{LostDirectory: true}},
	{"blank-lines", e2btest.Faults{BlankLines: true}},
	{"silent-execution", e2btest.Faults{SilentExecution: true}},
	{"replaced-processes", e2btest.Faults{ReplacedProcesses: true}},
	{"endless-exit", e2btest.Faults{EndlessExit: true}},
	{"late-numbers", e2btest.Faults{LateNumbers: true}},
	{"slow-deletes", e2btest.Faults{SlowDeletes: time.Second}},
	{"slow-contexts", e2btest.Faults{SlowContexts: time.Second}}, // also TestSlowContexts
}

// What E2B's code interpreter does that its clients trip over. Each fault is on while code is
// stopped at its wall time, and for a life afterwards.
func TestCodeInterpreterSwitches(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return interpreting(t) })
	for _, c := range interpreterSwitches {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t).in(t)
			w.SetFaults(e2btest.Faults{})
			s := w.session()
			w.run(s, "n = 0")
			w.SetFaults(c.f)
			res, err := s.Run(t.Context(), executor.Request{Code: "print('begun', flush=True)\nwhile True: pass", Limits: executor.RunLimits{WallTime: 2 * time.Second}}, nil)
			if err != nil || res.Status != executor.StatusTimedOut || string(res.Stdout) != "begun\n" {
				t.Fatalf("got %+v, %v", res, err)
			}
			want := "0 it's"
			if res.StateLost {
				want = "none it's"
			}
			if res.StateLost != c.f.UnseenDisconnects {
				t.Errorf("StateLost %t", res.StateLost)
			}
			after, err := s.Run(t.Context(), executor.Request{Code: "import os; print(globals().get('n', 'none'), os.environ['A']); os.getcwd()", Env: map[string]string{"A": "it's"}}, nil)
			if err != nil || string(after.Stdout) != want+"\n" || after.StateFresh != res.StateLost {
				t.Errorf("got %+v, %v, want %q", after, err, want)
			} else if dir := string(after.Outputs[0].Data["text/plain"]); dir != executor.Workdir {
				t.Errorf("it goes on in %s", dir)
			}
			w.life(s)
		})
	}
}

// TestSlowContexts: a sandbox does not end while its contexts are made, however short its idle TTL
// is.
func TestSlowContexts(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	w.SetFaults(e2btest.Faults{SlowContexts: 4 * time.Second})
	s, err := w.x.Create(t.Context(), executor.Spec{IdleTTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeepAlive(t.Context(), time.Hour); err != nil { // what follows takes its time on a busy machine
		t.Fatal(err)
	}
	w.run(s, "print(1)")
	w.life(s)
}

// Nobody finds out what a session was given by asking the kernel for its history: environments come
// in files, which are gone.
func TestEnvironmentLeavesNoTrace(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	var bodies atomic.Int64
	w.between(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path != executePath {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), "s3cret") {
			t.Errorf("the value is in the code: %.300s, %v", body, err)
		}
		bodies.Add(1)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		return false
	})
	s := w.session()
	res, err := s.Run(t.Context(), executor.Request{Code: "import os, glob; print(len(os.environ['A']), glob.glob('/tmp/.execbroker/run-*'))", Env: map[string]string{"A": "s3cret"}}, nil)
	if err != nil || res.Status != executor.StatusOK || string(res.Stdout) != "6 []\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if bodies.Load() < 3 {
		t.Errorf("only %d requests were seen", bodies.Load())
	}
}

// A sandbox without the service is refused, and says what to do.
func TestNoCodeInterpreter(t *testing.T) {
	t.Parallel()
	w := interpreting(t)
	w.between(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Header.Get("E2b-Sandbox-Port") != "49999" {
			return false
		}
		http.NotFound(rw, r) // something else listens there
		return true
	})
	_, err := w.x.Create(t.Context(), executor.Spec{})
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !strings.Contains(err.Error(), InterpreterTemplate) {
		t.Errorf("got %v", err)
	}
}

// Lines of the user's code in what IPython and others say.
func TestLinesOfTracebacks(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"ipython":         {"ZeroDivisionError   Traceback (most recent call last)\nCell In[3], line 4\n      1 def f():\nCell In[3], line 2, in f()\nZeroDivisionError", 2},
		"ipython-before":  {"Cell In[1], line 9, in g()\nCell In[3], line 4\nCell In[1], line 7, in f()", 4},
		"ipython-library": {"Cell In[3], line 5\nFile /usr/lib/python3.13/json/decoder.py:355, in x", 5},
		"runner":          {"File \"<cell 3>\", line 1, in <module>\nFile \"<cell 3>\", line 6, in f", 6},
		"javascript":      {"at f (evalmachine.<anonymous>:2:3)\nat evalmachine.<anonymous>:9:1", 2},
		"none":            {"who knows", 0},
	} {
		x := cell{k: &kernel{seen: 3}}
		if got := x.line(c.text); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// IPython makes tracebacks of parts, and E2B joins them with nothing in between.
func TestPartsOfTracebacks(t *testing.T) {
	const line = "---------------------------------------------------------------------------"
	for name, c := range map[string]struct {
		fail codeError
		want string
	}{
		"joined": {
			codeError{"ValueError", "no", line + "ValueError                                Traceback (most recent call last)Cell In[3], line 4\n      2 f()\n----> 4 g()\n" +
				"File ~/lib.py:7, in g()\n----> 7 raise\nValueError: no"},
			line + "\nValueError                                Traceback (most recent call last)\nCell In[3], line 4\n      2 f()\n----> 4 g()\n" +
				"File ~/lib.py:7, in g()\n----> 7 raise\nValueError: no",
		},
		"frames": {
			codeError{"E", "no", "E   Traceback (most recent call last)Cell In[3], line 4\n----> 4 g()Cell In[2], line 1, in g()\n----> 1 raise EFile /usr/lib/x.py:7, in f()E: no"},
			"E   Traceback (most recent call last)\nCell In[3], line 4\n----> 4 g()\nCell In[2], line 1, in g()\n----> 1 raise E\nFile /usr/lib/x.py:7, in f()\nE: no",
		},
		"whole":  {codeError{"E", "no", "Traceback (most recent call last):\n  File \"<cell 3>\", line 4\nE: no\n"}, "Traceback (most recent call last):\n  File \"<cell 3>\", line 4\nE: no\n"},
		"module": {codeError{"E", "no", "Traceback (most recent call last):\nx.E: no"}, "Traceback (most recent call last):\nx.E: no"},
		"none":   {codeError{"E", "no", ""}, ""},
		"colour": {codeError{"E", "no", "\x1b[31mE\x1b[0m: no"}, "E: no"},
	} {
		if got := c.fail.trace(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
