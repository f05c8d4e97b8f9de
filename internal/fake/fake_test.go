package fake_test

import (
	"context"
	"errors"
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
		"print":          {code: `print("a", 1 + 2 * 3, [1, "x"], null)`, out: "a 7 [1,\"x\"] null\n"},
		"value":          {code: "x = 6\nx * 7", value: "42"},
		"no-value":       {code: "x = 6"},
		"branch":         {code: `if 1 > 2 { print("a") } else { print("b") }`, out: "b\n"},
		"while":          {code: "i = 0\nwhile i < 3 {\n i = i + 1\n}\ni", value: "3"},
		"for":            {code: "for i in [7, 8] { out(i) }", out: "78"},
		"catch":          {code: "try { raise(\"E\", \"m\") } catch { print(error) }", out: "E: m\n"},
		"comment":        {code: "# nothing\nprint(1) # one\n", out: "1\n"},
		"exit":           {code: "exit(3)\nprint(1)", exit: 3},
		"exception":      {code: "\n\nraise(\"E\", \"m\")", exit: 1, exception: "E: m", line: 3},
		"zero":           {code: "1 / 0", exit: 1, exception: "ZeroDivisionError: division by zero", line: 1},
		"undefined":      {code: "nothing", exit: 1, exception: "NameError: name \"nothing\" is not defined", line: 1},
		"syntax":         {code: "print(1)\nx = = 1", exit: 1, exception: "SyntaxError: \"=\" does not belong here", line: 2},
		"open-block":     {code: "while true {", exit: 1, exception: "SyntaxError: want \"}\"", line: 1},
		"missing-files":  {code: "read(\"no\")", exit: 1, exception: "FileNotFoundError: open /workspace/no: file does not exist", line: 1},
		"missing-values": {code: "exit()", exit: 1, exception: "TypeError: exit wants an argument 1", line: 1},
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
		if _, err := s.Run(t.Context(), executor.Request{Code: "sleep(300_000)"}, nil); err != nil {
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
