package pyodide

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Code that is stopped by the wall time keeps its state, whatever it does, if Python handles
// interrupts there.
func TestInterruptKeepsState(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	output(t, s, "state = 42")
	for _, c := range []struct{ name, code string }{
		{"loop", "while True: pass"},
		{"power", "10**10**8"},
		{"regex", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')"},
		{"sleep", "import time\ntime.sleep(100)"},
		{"many-sleeps", "import time\nwhile True: time.sleep(0.001)"},
		{"await", "import asyncio\nawait asyncio.sleep(100)"},
		{"await-in-a-loop", "import asyncio\nwhile True: await asyncio.sleep(0)"},
		{"gather", "import asyncio\nasync def f():\n  while True: await asyncio.sleep(0.01)\nawait asyncio.gather(f(), f())"},
		{"loop-in-a-coroutine", "async def f():\n  while True: pass\nawait f()"},
		{"asyncio-run", "import asyncio\nasyncio.run(asyncio.sleep(100))"},
		{"loop-in-asyncio-run", "import asyncio\nasync def f():\n  while True: pass\nasyncio.run(f())"},
		{"print", "while True: print('x' * 100)"},
		{"files", "while True:\n  with open('f', 'w') as f: f.write('x' * 1000)"},
		{"finally", "import time\ntry: time.sleep(100)\nfinally: cleaned = True"},
		{"exceptions", "while True:\n  try: 1/0\n  except ZeroDivisionError: pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runCode(t, s, c.code, within(200*time.Millisecond), func(r *executor.Request) { r.Limits.OutputBytes = executor.DefaultOutputBytes; r.Keep = -1 })
			if r.StateLost || r.Status != executor.StatusTimedOut && r.Reason != executor.ReasonOutput {
				t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
			}
			if got := output(t, s, "print(state)"); got != "42\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	if got := output(t, s, "print(cleaned)"); got != "True\n" {
		t.Errorf("the finally clause: got %q", got)
	}
}

// Code that ignores interrupts loses its state. The result says so, and the files are those of the
// previous run.
func TestStubbornCodeLosesState(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	for _, c := range []struct{ name, code string }{
		{"swallows", stubborn},
		{"ignores-the-signal", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"},
		{"loops-in-the-library", "sum(range(10**12))"},
	} {
		t.Run(c.name, func(t *testing.T) {
			output(t, s, "state = 1\nopen('kept', 'w').write('before')")
			r := runCode(t, s, "open('kept', 'w').write('after')\n"+c.code, within(500*time.Millisecond))
			if r.Status != executor.StatusTimedOut || !r.StateLost || r.FilesLost || r.ExitCode != -1 {
				t.Errorf("got %s, lost %v %v", describeResult(r), r.StateLost, r.FilesLost)
			}
			next := runCode(t, s, "print(open('kept').read(), 'state' in globals())")
			if got := string(next.Stdout); got != "before False\n" || !next.StateFresh {
				t.Errorf("got %q, fresh %v", got, next.StateFresh)
			}
		})
	}
}

// An interrupt may arrive at any moment, also in the code around the user's code.
func TestInterruptAtRandomMoments(t *testing.T) {
	s := one(t, executor.Spec{})
	output(t, s, "state = 42")
	codes := []string{
		"import asyncio\nwhile True: await asyncio.sleep(0.001)",
		"import asyncio\nwhile True: await asyncio.sleep(0)",
		"import asyncio, time\nasync def w():\n  while True:\n    await asyncio.sleep(0.001)\n    time.sleep(0.002)\n    sum(range(20000))\nawait asyncio.gather(w(), w())",
		"import asyncio\nasync def w():\n  while True:\n    await asyncio.sleep(0.001)\n    sum(range(5000))\nasyncio.run(w())",
		"while True: pass",
		"import time\nwhile True: time.sleep(0.001)",
		"while True: print('x' * 50)",
	}
	const rounds = 70
	lost := 0
	for i := range rounds {
		wall := time.Millisecond + rand.N(60*time.Millisecond)
		r := runCode(t, s, codes[i%len(codes)], within(wall))
		if r.StateLost {
			lost++
			t.Logf("lost after %v:\n%s", wall, codes[i%len(codes)])
			output(t, s, "state = 42")
		} else if got := output(t, s, "print(state)"); got != "42\n" {
			t.Fatalf("got %q", got)
		}
	}
	if lost > rounds/20 {
		t.Errorf("%d of %d lost their state", lost, rounds)
	}
}
