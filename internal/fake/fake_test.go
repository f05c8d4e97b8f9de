package fake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func open(t *testing.T, b *fake.Backend) executor.Executor {
	t.Helper()
	x, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestScripts(t *testing.T) {
	x := open(t, fake.New(fake.Options{}))
	for name, c := range map[string]struct {
		code, out, value string
		exit             int
		exception        string
		line             int
	}{
		"print":          {code: `print("a", 1 + 2 * 3, [1, "x"], None, True, {"k": 1.5}, print)`, out: "a 7 [1,\"x\"] null true {\"k\":1.5} builtin_function_or_method\n"},
		"value":          {code: "x = 6\nx * 7", value: "42"},
		"no-value":       {code: "6\nx = 6"},
		"bytes":          {code: `b"\xff"`, value: "\xff"},
		"branch":         {code: "if 1 > 2: print(\"a\")\nelse: print(\"b\")", out: "b\n"},
		"for":            {code: "for i in [7, 8]: out(i)", out: "78"},
		"while":          {code: "i = 0\nwhile i < 3:\n\ti += 1\ni", value: "3"},
		"function":       {code: "def f(x):\n\treturn 2 * x\nf(21)", value: "42"},
		"attempt":        {code: "print(attempt(throw, \"E\", \"m\"), attempt(print, 1), attempt(lambda: 1 // 0))", out: "1\nE: m null EvalError: floored division by zero\n"},
		"attempt-exit":   {code: "attempt(exit, 3)\nprint(1)", exit: 3},
		"comment":        {code: "# nothing\nprint(1) # one\n", out: "1\n"},
		"exit":           {code: "exit(3)\nprint(1)", exit: 3},
		"exception":      {code: "\n\nthrow(\"E\", \"m\")", exit: 1, exception: "E: m", line: 3},
		"in-function":    {code: "def f():\n\tthrow(\"E\", \"m\")\n\nf()", exit: 1, exception: "E: m", line: 4},
		"zero":           {code: "1 // 0", exit: 1, exception: "EvalError: floored division by zero", line: 1},
		"undefined":      {code: "print(1)\nprint(nothing)", out: "1\n", exit: 1, exception: "NameError: name \"nothing\" is not defined", line: 2},
		"syntax":         {code: "print(1)\nx = = 1", exit: 1, exception: "SyntaxError: got '=', want primary expression", line: 2},
		"resolve":        {code: "print(1)\nreturn", exit: 1, exception: "SyntaxError: return statement not within a function", line: 2},
		"open-block":     {code: "while True:", exit: 1, exception: "SyntaxError: got end of file, want primary expression", line: 1},
		"too-large":      {code: "1" + strings.Repeat("+1", 10_000), exit: 1, exception: "SyntaxError: the program is too large", line: 1},
		"too-long":       {code: `"x" * 2000000000`, exit: 1, exception: "EvalError: excessive repeat (1 * 2000000000 elements)", line: 1},
		"recursion":      {code: "def f(): f()\nf()", exit: 1, exception: "EvalError: function f called recursively", line: 2},
		"deep-attempt":   {code: "attempt(*([attempt] * 1000000 + [throw, \"E\", \"m\"]))"},
		"deeper-attempt": {code: "print(attempt(*([attempt] * 3 + [throw, \"E\", \"m\"])), attempt(attempt))", out: "null TypeError: attempt wants an argument 1\n"},
		"missing-files":  {code: "read(\"no\")", exit: 1, exception: "FileNotFoundError: open /workspace/no: file does not exist", line: 1},
		"missing-values": {code: "exit()", exit: 1, exception: "TypeError: exit wants an argument 1", line: 1},
		"named-values":   {code: "print(end=1)", exit: 1, exception: "TypeError: print takes no arguments with names", line: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := executor.Run(t.Context(), x, executor.Spec{}, executor.Request{Language: executor.Python, Code: c.code})
			if err != nil {
				t.Fatal(err)
			}
			value, exception, line := "", "", 0
			for _, o := range r.Outputs {
				value += o.Data["text/plain"].String()
			}
			if r.Exception != nil {
				exception, line = r.Exception.Type+": "+r.Exception.Message, r.Exception.Line
			}
			if r.Stdout.String() != c.out || value != c.value || r.ExitCode != c.exit || exception != c.exception || line != c.line {
				t.Errorf("got %q, value %q, exit %d, %q in line %d, want %q, %q, %d, %q, %d",
					r.Stdout, value, r.ExitCode, exception, line, c.out, c.value, c.exit, c.exception, c.line)
			}
		})
	}
}

// TestStopped checks that code is stopped where it calls nothing, that it cannot catch that, and
// that its variables stay.
func TestStopped(t *testing.T) {
	x := open(t, fake.New(fake.Options{}))
	defer x.Close()
	for name, loop := range map[string]string{
		"loop":          "while True: pass",
		"function":      "def f():\n\twhile True: pass\nf()",
		"comprehension": "[[None for _ in range(1000000000)] for _ in range(1000000000)]",
		"caught":        "while True: attempt(lambda: [attempt(forever) for _ in range(1000000000)])",
	} {
		t.Run(name, func(t *testing.T) {
			s, err := x.Create(t.Context(), executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			req := executor.Request{Code: "kept = 41\n" + loop, Limits: executor.RunLimits{WallTime: 20 * time.Millisecond}}
			if r, err := s.Run(t.Context(), req, nil); err != nil || r.Reason != executor.ReasonWallTime || r.StateLost {
				t.Fatalf("got %+v, %v", r, err)
			}
			if r, err := s.Run(t.Context(), executor.Request{Code: "kept += 1\nprint(kept)"}, nil); err != nil || r.Stdout.String() != "42\n" {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// TestLifetimes checks that a sandbox ends after its idle TTL without use, but not during a run,
// and that a run in progress ends with its sandbox.
func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{})
		x := open(t, b)
		defer x.Close()
		spec := executor.Spec{IdleTTL: time.Minute, MaxLife: time.Hour, Run: executor.RunLimits{WallTime: 10 * time.Minute}}
		s, err := x.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), executor.Request{Code: "sleep(300000)"}, nil); err != nil {
			t.Errorf("got %v from a run that is longer than the idle TTL", err)
		}
		time.Sleep(59 * time.Second)
		if got := len(b.Sandboxes()); got != 1 {
			t.Errorf("got %d sandboxes before the end of the TTL, want 1", got)
		}
		time.Sleep(2 * time.Second)
		if got := len(b.Sandboxes()); got != 0 {
			t.Errorf("got %d sandboxes after the end of the TTL, want 0", got)
		}
		if _, err := s.Run(t.Context(), executor.Request{Code: "1"}, nil); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("got %v from a run in a sandbox that is gone", err)
		}
	})
}

func TestBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{})
		x := open(t, b)
		defer x.Close()
		s, err := x.Create(t.Context(), executor.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { b.Break(b.Sandboxes()[0]) })
		r, err := s.Run(t.Context(), executor.Request{Code: "forever()"}, nil)
		if err != nil || r.Reason != executor.ReasonSandbox || !r.FilesLost {
			t.Errorf("got %+v %v, want the reason sandbox", r, err)
		}
		if got := len(b.Sandboxes()); got != 1 {
			t.Errorf("got %d sandboxes, want the dead one", got)
		}
		if err := s.Close(); err != nil || len(b.Sandboxes()) != 0 {
			t.Errorf("got %v and %v from closing a dead sandbox", err, b.Sandboxes())
		}
	})
}

func TestFailAndHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{CreateTime: time.Second})
		x := open(t, b)
		b.Fail(fake.OpCreate, 2, driver.Fail(executor.ErrExhausted, executor.RanNo, nil))
		for i, want := range []error{executor.ErrExhausted, executor.ErrExhausted, nil} {
			if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, want) {
				t.Errorf("create %d: got %v, want %v", i, err, want)
			}
		}
		release := b.Hold(fake.OpCreate)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := x.Create(ctx, executor.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v from a create that is held", err)
		}
		release()
		if _, err := x.Create(t.Context(), executor.Spec{}); err != nil {
			t.Errorf("got %v after the release", err)
		}
		if got, want := b.Calls(fake.OpCreate), 5; got != want {
			t.Errorf("got %d calls of create, want %d", got, want)
		}
		if err := x.Close(); err != nil || len(b.Sandboxes()) != 0 {
			t.Errorf("got %v and %v after Close", err, b.Sandboxes())
		}
	})
}
