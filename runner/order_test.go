package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// sketch writes the events of a run in order: text as it is, outputs as their text in brackets.
func (r result) sketch() string {
	var b strings.Builder
	for _, ev := range r.events {
		switch ev.Kind {
		case executor.EventStdout:
			b.Write(ev.Data)
		case executor.EventOutput:
			fmt.Fprintf(&b, "[%s]", ev.Output.Data["text/plain"])
		}
	}
	return b.String()
}

// Text and values travel on different ways, and arrive in the order in which the code made them.
func TestOrderOfTextAndValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, c := range []struct {
			name     string
			language executor.Language
			code     string
			want     string
		}{
			{"python", executor.Python, "print('a'); display(1); print('b'); display(2); print('c')\n3", "a\n[1]b\n[2]c\n[3]"},
			{"python-without-line-end", executor.Python, "print('a', end=''); display(1); print('b', end=''); display(2)", "a[1]b[2]"},
			{"python-child", executor.Python, "import os; os.system('echo a'); display(1); os.system('echo b')\n2", "a\n[1]b\n[2]"},
			{"python-thread", executor.Python, "import threading\ndef f():\n    print('a'); display(1); print('b')\nt = threading.Thread(target=f); t.start(); t.join(); display(2)\nprint('c')", "a\n[1]b\n[2]c\n"},
			{"javascript", executor.JavaScript, "console.log('a'); display(1); console.log('b'); display(2); console.log('c')\n3", "a\n[1]b\n[2]c\n[3]"},
			{"javascript-await", executor.JavaScript, "console.log('a'); await null; display(1); console.log('b'); await new Promise((r) => setTimeout(r, 1)); display(2); console.log('c')", "a\n[1]b\n[2]c\n"},
		} {
			if c.language == executor.JavaScript && !hasNode(root) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				for range 10 { // the right order may be chance
					if got := s.do(t.Context(), executor.Request{Language: c.language, Code: c.code}); got.err != nil || got.sketch() != c.want {
						t.Fatalf("got %q, want %q: %+v", got.sketch(), c.want, got.Exception)
					}
				}
			})
		}
	})
}

// Values that are larger than every buffer on the way, from several threads at once, all arrive
// whole.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	s := start(t, host, withNode)
	r := s.code(t, `
import threading
def show():
    for _ in range(5): display({"text/plain": "x" * 1000000, "a/b": b"y" * 3000000}, raw=True)
threads = [threading.Thread(target=show) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()`)
	if r.err != nil || len(r.outputs) != 15 {
		t.Fatalf("python: got %d values, %v, %+v", len(r.outputs), r.err, r.Exception)
	}
	r = s.js(t, "for (let i = 0; i < 15; i++) display({'text/plain': 'x'.repeat(1000000), 'a/b': Buffer.alloc(3000000)}, {raw: true})")
	if r.err != nil || len(r.outputs) != 15 {
		t.Fatalf("javascript: got %d values, %v, %+v", len(r.outputs), r.err, r.Exception)
	}
	for _, o := range r.outputs {
		if len(o.Data["text/plain"]) != 1000000 || len(o.Data["a/b"]) != 3000000 {
			t.Errorf("got %d and %d bytes", len(o.Data["text/plain"]), len(o.Data["a/b"]))
		}
	}
}

// What a run has left running goes on, and what it prints and shows belongs to no later run.
func TestOutputOfEarlierRuns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, c := range []struct {
			name         string
			language     executor.Language
			before, wait string
			want         string
		}{
			{
				"thread", executor.Python,
				"import threading, time, sys\ngo, done = threading.Event(), threading.Event()\n" +
					"def late():\n    go.wait()\n    print('late'); print('late', end='', flush=True); sys.stdout.buffer.write(b'late'); sys.stdout.flush()\n    display('late'); done.set()\n" +
					"threading.Thread(target=late, daemon=True).start()",
				"print('a', end=''); go.set(); done.wait(); print('b')", "ab\n",
			},
			{
				"task", executor.Python,
				"import asyncio\nasync def late():\n    await go.wait()\n    print('late'); display('late'); done.set()\n" +
					"go, done = asyncio.Event(), asyncio.Event()\ntask = asyncio.create_task(late())\nawait asyncio.sleep(0)",
				"print('a', end=''); go.set(); await done.wait(); print('b')", "ab\n",
			},
			{
				"executor", executor.Python, // whose threads do what later runs ask for
				"from concurrent.futures import ThreadPoolExecutor\nimport asyncio\npool = ThreadPoolExecutor(1)\npool.submit(print, 'early').result()",
				"pool.submit(print, 'a').result()\nawait asyncio.to_thread(print, 'b')\nawait asyncio.get_running_loop().run_in_executor(None, print, 'c')", "a\nb\nc\n",
			},
			{
				"between-python", executor.Python, // what is printed and shown while nothing runs
				"import threading, time\ndef late():\n    time.sleep(0.1)\n    print('late', end=''); display('late'); display('late'); open('between-python', 'w')\n" +
					"threading.Thread(target=late, daemon=True).start()",
				"print('a')", "a\n",
			},
			{
				"between-javascript", executor.JavaScript,
				"require('fs').readFile('/dev/null', () => { for (const end = Date.now() + 100; Date.now() < end; ); console.log('late'); display('late'); display('late'); require('fs').writeFileSync('between-javascript', '') }); 1",
				"console.log('a')", "a\n",
			},
			{
				"timer", executor.JavaScript,
				"let done; const late = new Promise((r) => { done = r }); setTimeout(() => { console.log('late'); display('late'); done() }, 100)",
				"console.log('a'); await late; console.log('b')", "a\nb\n",
			},
			{
				"promise", executor.JavaScript,
				"let go; const wait = new Promise((r) => { go = r });\nconst over = (async () => { await wait; console.log('late'); await new Promise((r) => setTimeout(r, 1)); process.nextTick(console.log, 'late'); await null; console.log('late') })(); 1",
				"console.log('a'); go(); await over; console.log('b')", "a\nb\n",
			},
			{
				"error", executor.JavaScript,
				"setTimeout(() => { throw new Error('late') }, 50); setTimeout(() => { Promise.reject(new Error('late')) }, 50); 1",
				"await new Promise((r) => setTimeout(r, 150)); console.log('a')", "a\n",
			},
		} {
			if c.language == executor.JavaScript && !hasNode(root) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				run := func(code string) result {
					return s.do(t.Context(), executor.Request{Language: c.language, Context: c.name, Code: code, Linger: new(time.Duration)})
				}
				if r := run(c.before); r.err != nil || r.Exception != nil {
					t.Fatalf("before: got %+v, %+v", r, r.Exception)
				}
				if strings.HasPrefix(c.name, "between") {
					eventually(t, "it has printed", func() bool { _, err := os.Stat(filepath.Join(s.workdir, c.name)); return err == nil })
				}
				if r := run(c.wait); r.sketch() != c.want || r.err != nil || r.Exception != nil || r.StateFresh {
					t.Errorf("got %q, want %q: %v, %+v", r.sketch(), c.want, r.err, r.Exception)
				}
			})
		}
	})
}

// An interrupt may hit code anywhere in what it prints and shows, and the next run prints and shows
// as ever.
func TestInterruptedOutput(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		next := map[executor.Language]string{executor.Python: "print('next'); display(1)", executor.JavaScript: "console.log('next'); display(1)"}
		for language, code := range map[executor.Language]string{
			executor.Python:     "i = 0\nwhile True:\n    i += 1; print('x' * i); display('y' * i * 100)",
			executor.JavaScript: "for (let i = 0; ; i++) { console.log('x'.repeat(i)); display('y'.repeat(i * 100)) }",
		} {
			if language == executor.JavaScript && !hasNode(root) {
				continue
			}
			t.Run(string(language), func(t *testing.T) {
				for i := range 10 {
					limits := executor.RunLimits{WallTime: time.Duration(100+7*i) * time.Millisecond, OutputBytes: 1 << 40}
					if i%2 == 1 {
						limits = executor.RunLimits{OutputBytes: 5000 * int64(i)}
					}
					r := s.do(t.Context(), executor.Request{Language: language, Code: code, Limits: limits})
					if r.err != nil || r.StateLost || r.Reason != executor.ReasonWallTime && r.Reason != executor.ReasonOutput {
						t.Fatalf("got %v, %q, lost %v\n%s", r.err, r.Reason, r.StateLost, r.stderr)
					}
					r = s.do(t.Context(), executor.Request{Language: language, Code: next[language]})
					if r.err != nil || r.sketch() != "next\n[1]" {
						t.Fatalf("afterwards: got %q, %v, %+v", r.sketch(), r.err, r.Exception)
					}
				}
			})
		}
	})
}

// A holder that takes nothing keeps neither the code from being stopped with its state, nor the
// sandbox alive.
func TestStopWhileNobodyReads(t *testing.T) {
	t.Parallel()
	s := start(t, host, withNode)
	for language, code := range map[executor.Language]string{
		executor.Python:     "x = 1\nwhile True: print('x' * 1000); display('y' * 100000)",
		executor.JavaScript: "globalThis.x = 1; for (;;) { console.log('x'.repeat(1000)); display('y'.repeat(100000)) }",
	} {
		t.Run(string(language), func(t *testing.T) {
			other := attach(t, s, 0)
			// run reports whether the code has written more than its holder takes unread.
			run := func(wall time.Duration) bool {
				begun, stalled := make(chan struct{}), make(chan struct{})
				ended := make(chan result, 1)
				go func() {
					var r result
					req := executor.Request{Language: language, Code: code, Limits: executor.RunLimits{WallTime: wall, OutputBytes: 1 << 40}}
					r.Exit, r.err = s.Run(t.Context(), &req, func(ev executor.Event) error {
						if ev.Kind == executor.EventStarted {
							close(begun)
							<-stalled
						}
						return nil
					})
					ended <- r
				}()
				<-begun
				var st status
				// Longer than the grace: it is not that which ends the code.
				eventually(t, "the code has ended", func() bool {
					var err error
					st, err = other.Status(t.Context())
					return err == nil && time.Until(st.Expires) < idleTTL-2*time.Second
				})
				close(stalled)
				if r := <-ended; r.err != nil || r.StateLost || r.Reason != executor.ReasonWallTime {
					t.Errorf("got %v, %q, lost %v", r.err, r.Reason, r.StateLost)
				}
				if r := s.do(t.Context(), executor.Request{Language: language, Code: "x"}); r.value() != "1" {
					t.Errorf("afterwards: got %+v", r)
				}
				return st.Runs == 1
			}
			for wall := time.Second; !run(wall); wall *= 2 { // the machine is busy
			}
		})
	}
}

// A run that goes beyond its output with its last words has ended when it is told to stop. The next
// one must not hear of that.
func TestInterruptOfTheRunBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		language    executor.Language
		over, quick string
	}{
		{executor.Python, "print('x' * 59)", "for i in range(20): print('y')"},
		{executor.JavaScript, "console.log('x'.repeat(59))", "for (let i = 0; i < 20; i++) console.log('y')"},
	} {
		t.Run(string(c.language), func(t *testing.T) {
			t.Parallel()
			s := start(t, host, func(cfg *Config) { cfg.Languages = []executor.Language{c.language} })
			for i := range 150 {
				r := s.do(t.Context(), executor.Request{Language: c.language, Code: c.over, Limits: executor.RunLimits{OutputBytes: 40}})
				if r.err != nil || r.Reason != executor.ReasonOutput {
					t.Fatalf("run %d: got %+v", i, r)
				}
				r = s.do(t.Context(), executor.Request{Language: c.language, Code: c.quick})
				if r.err != nil || r.Reason != "" || r.Code != 0 || r.stdout != strings.Repeat("y\n", 20) {
					t.Fatalf("run %d: the next one: got %+v", i, r)
				}
			}
		})
	}
}
