package pyodide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/sharetest"
)

// atOnce makes a run end after its last statement.
func atOnce(r *executor.Request) { r.Linger = new(time.Duration) }

// A run waits for the tasks and timers that it has started, and names what else still runs.
func TestLinger(t *testing.T) {
	t.Parallel()
	x := open(t, Config{})
	shared := map[executor.Language]sharetest.Pool[executor.Session]{}
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		if l == executor.Python || javascriptHere {
			shared[l] = sharetest.New(func() executor.Session { return create(t, x, executor.Spec{Languages: []executor.Language{l}}) })
		}
	}
	const tick = "import asyncio\nloop = asyncio.get_event_loop()\ndef tick(): loop.call_later(0.01, tick)\n"
	for _, c := range []struct {
		name     string
		language executor.Language
		code     string
		edit     func(*executor.Request)
		want     string // stdout, then the message of the exception
		left     []string
		late     bool // the run ends at its wall time
	}{
		{name: "task", code: "import asyncio\nasync def f():\n    await asyncio.sleep(0.05); print('late')\ntask = asyncio.ensure_future(f()); print('left')", want: "left\nlate\n"},
		{name: "task-of-a-cell-that-awaits", code: "import asyncio\nasync def f():\n    await asyncio.sleep(0.05); print('late')\ntask = asyncio.create_task(f()); await asyncio.sleep(0); print('left')", want: "left\nlate\n"},
		{name: "call-later", code: "import asyncio; asyncio.get_event_loop().call_later(0.05, print, 'late')", want: "late\n"},
		{name: "call-soon", code: "import asyncio; asyncio.get_event_loop().call_soon(print, 'late')", want: "late\n"},
		{name: "cancelled", code: "import asyncio; asyncio.get_event_loop().call_later(3600, print, 'late').cancel()"},
		{name: "run-forever", code: "import asyncio\nloop = asyncio.new_event_loop()\nloop.call_later(0.05, loop.stop); loop.run_forever(); print('stopped')", want: "stopped\n"},
		{name: "run-until-complete", code: "import asyncio\nprint(asyncio.run(asyncio.sleep(0.05, 'run')))", want: "run\n"},
		{name: "after-an-exception", code: "import asyncio; asyncio.get_event_loop().call_later(0.05, print, 'late'); 1 / 0", want: "late\ndivision by zero"},
		{name: "dir", code: "import asyncio, os; asyncio.get_event_loop().call_later(0.05, lambda: print(os.getcwd()))", edit: func(r *executor.Request) { r.Dir = "/tmp/home" }, want: "/tmp/home\n"},
		{name: "for-ever", code: tick + "tick()", edit: within(300 * time.Millisecond), late: true},
		{name: "run-forever-for-ever", code: tick + "tick(); loop.run_forever()", edit: within(300 * time.Millisecond), late: true},
		{name: "at-once", code: tick + "tick()", edit: atOnce, left: []string{"timer"}},
		{name: "bound", code: "import asyncio\nasync def f(): await asyncio.sleep(3600)\ntask = asyncio.ensure_future(f())", edit: func(r *executor.Request) { r.Linger = new(50 * time.Millisecond) }, left: []string{"task f"}},

		{name: "timer", language: executor.JavaScript, code: "setTimeout(() => console.log('late'), 50); console.log('left')", want: "left\nlate\n"},
		{name: "promise", language: executor.JavaScript, code: "(async () => { for (let i = 0; i < 100; i++) await null; await new Promise((r) => setTimeout(r, 50)); console.log('late') })(); 1", want: "late\n"},
		{name: "cleared", language: executor.JavaScript, code: "clearTimeout(setTimeout(() => console.log('late'), 3600000))"},
		{name: "interval", language: executor.JavaScript, code: "setInterval(() => {}, 10)", left: []string{"interval"}},
		{name: "error", language: executor.JavaScript, code: "setTimeout(() => { throw new Error('in a timer') }, 20)", want: "in a timer"},
		{name: "rejection", language: executor.JavaScript, code: "setTimeout(async () => { throw new Error('nobody') }, 20)", want: "nobody"},
		{name: "timers-for-ever", language: executor.JavaScript, code: "(function f() { setTimeout(f, 10) })()", edit: within(300 * time.Millisecond), late: true},
		{name: "script-at-once", language: executor.JavaScript, code: "setTimeout(() => console.log('late'), 3600000)", edit: atOnce, left: []string{"timer"}},
		{name: "script-bound", language: executor.JavaScript, code: "setTimeout(() => console.log('late'), 3600000)", edit: func(r *executor.Request) { r.Linger = new(50 * time.Millisecond) }, left: []string{"timer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.language == executor.JavaScript && !javascriptHere {
				return
			}
			l := executor.Python
			if c.language != "" {
				l = c.language
			}
			var s executor.Session
			if c.late || len(c.left) > 0 { // the next run would report it
				s = create(t, x, executor.Spec{Languages: []executor.Language{l}})
			} else {
				s = shared[l].Take(t)
			}
			edits := []func(*executor.Request){func(r *executor.Request) { r.Language = l }}
			if c.edit != nil {
				edits = append(edits, c.edit)
			}
			r := runCode(t, s, c.code, edits...)
			got := string(r.Stdout)
			if r.Exception != nil && !c.late {
				got += r.Exception.Message
			}
			if got != c.want || !slices.Equal(r.LeftRunning, c.left) || (r.Status == executor.StatusTimedOut) != c.late || r.StateLost || len(r.Stderr) > 0 {
				t.Errorf("got %q and %q, %s, want %q and %q", got, r.LeftRunning, describeResult(r), c.want, c.left)
			}
			// Nothing that was left running delays another run.
			next := map[executor.Language]string{executor.Python: "print('next')", executor.JavaScript: "console.log('next')"}[l]
			r = runCode(t, s, next, edits[0], within(30*time.Second))
			if string(r.Stdout) != "next\n" || r.Status != executor.StatusOK || len(r.LeftRunning) != len(c.left) {
				t.Errorf("the next run: got %q and %q, %s", r.Stdout, r.LeftRunning, strings.TrimSpace(describeResult(r)))
			}
		})
	}
}

// An interrupt may hit the code that starts a timer. Whatever it hits, the timer is known to the
// run or never fires: nothing of the code runs after its run unnoticed.
func TestInterruptedTimer(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	got := output(t, s, `
import asyncio, sys
loop, fired, struck = asyncio.get_event_loop(), [], 0
def interrupt(step):
    def trace(frame, event, arg):
        def line(frame, event, arg):
            nonlocal step
            if event == 'line' or frame.f_back.f_code.co_name == 'call_later': step -= 1
            if step == 0: raise KeyboardInterrupt
            return line
        return line if frame.f_code.co_name == 'call_later' else None
    return trace
for n in range(1, 100):
    sys.settrace(interrupt(n))
    try:
        loop.call_later(0.1, fired.append, n).cancel()
        break
    except KeyboardInterrupt:
        struck += 1
    finally:
        sys.settrace(None)
print(struck > 3, n < 99)`)
	if got != "True True\n" {
		t.Fatalf("the code was not interrupted at every step: got %q", got)
	}
	if got := output(t, s, "await asyncio.sleep(0.3)\nprint(fired)"); got != "[]\n" {
		t.Errorf("timers fired after their run: got %q", got)
	}
}
