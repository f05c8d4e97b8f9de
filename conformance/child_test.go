package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func init() {
	testChildren = map[string]childFunc{
		"echo": func(t *T, in []byte) []byte {
			return fmt.Appendf(nil, "%s from %s of %s in %s, owner %q", in, t.c.ID, t.s.run, t.Language(), t.s.params[ParamOwner])
		},
		"noise": func(t *T, in []byte) []byte {
			fmt.Println("this is not a message")
			fmt.Print(strings.Repeat("x", 1<<20))
			fmt.Println()
			return in
		},
		"talk": func(t *T, _ []byte) []byte {
			t.Send([]byte("ready"))
			for {
				data := t.Receive()
				if len(data) == 0 {
					return []byte("bye")
				}
				t.Send(bytes.ToUpper(data))
			}
		},
		"find":  func(t *T, _ []byte) []byte { t.Logf("looking"); t.Errorf("broken"); return nil },
		"fatal": func(t *T, _ []byte) []byte { t.Fatalf("broken"); return nil },
		"abort": func(t *T, _ []byte) []byte { t.Abort("no engine"); return nil },
		"panic": func(*T, []byte) []byte { strings.Repeat("x", -1); return nil },
		"exit":  func(*T, []byte) []byte { fmt.Fprintln(os.Stderr, "last words"); os.Exit(3); return nil },
		"hang":  func(t *T, _ []byte) []byte { t.Send([]byte("ready")); <-t.Context().Done(); return nil },
		"sessions": func(t *T, _ []byte) []byte {
			t.Session()
			t.Session()
			return nil
		},
		"forever": func(*T, []byte) []byte { select {} },
	}
}

func TestChildren(t *testing.T) {
	for name, c := range map[string]struct {
		def     func(t *T)
		argv    []string
		outcome Outcome
		reason  string
	}{
		"echo": {def: func(t *T) {
			got, want := string(t.Child("echo", []byte("hello"))), "hello from python/a of "+t.s.run+` in python, owner "me"`
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}, outcome: Passed},
		"noise": {def: func(t *T) {
			if got := string(t.Child("noise", []byte("hello"))); got != "hello" {
				t.Errorf("got %q", got)
			}
		}, outcome: Passed},
		"big": {def: func(t *T) {
			in := bytes.Repeat([]byte("x"), 3<<20)
			if got := t.Child("noise", in); !bytes.Equal(got, in) {
				t.Errorf("got %d bytes", len(got))
			}
		}, outcome: Passed},
		"talk": {def: func(t *T) {
			c := t.StartChild("talk", nil)
			for _, say := range []string{"", "one", "two"} {
				want := "ready"
				if say != "" {
					c.Send([]byte(say))
					want = strings.ToUpper(say)
				}
				if got := string(c.Receive()); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			c.Send(nil)
			if got := string(c.Wait()); got != "bye" {
				t.Errorf("got %q", got)
			}
		}, outcome: Passed},
		"find":  {def: func(t *T) { t.Child("find", nil) }, outcome: Failed, reason: "child find: broken"},
		"fatal": {def: func(t *T) { t.Child("fatal", nil) }, outcome: Failed, reason: "child fatal: broken"},
		"abort": {def: func(t *T) { t.Child("abort", nil) }, outcome: Errored, reason: "child abort: no engine"},
		"panic": {def: func(t *T) { t.Child("panic", nil) }, outcome: Failed, reason: "child panic: panic: strings: negative Repeat count"},
		"exit":  {def: func(t *T) { t.Child("exit", nil) }, outcome: Errored, reason: "child exit ended without a result: exit status 3; its last words: last words"},
		"killed": {def: func(t *T) {
			c := t.StartChild("hang", nil)
			c.Receive()
			c.Kill()
			if _, ok := c.next(); ok || c.exited == nil {
				t.Errorf("the child goes on: %v", c.exited)
			}
		}, outcome: Passed},
		"left-behind": {def: func(t *T) { t.StartChild("hang", nil).Receive() }, outcome: Passed},
		"silent":      {def: func(t *T) { t.StartChild("forever", nil).Receive() }, outcome: Errored, reason: "child forever sent nothing: the case ran out of time"},
		"sessions": {def: func(t *T) {
			t.Child("sessions", nil)
			if got := t.s.created.Load(); got != 2 {
				t.Errorf("got %d sessions counted, want 2", got)
			}
		}, outcome: Passed},
		"unknown":      {def: func(t *T) { t.Child("none", nil) }, outcome: Errored, reason: `"none" is not a child function of the suite`},
		"no-children":  {def: func(t *T) { t.Child("echo", nil) }, argv: []string{}, outcome: Errored, reason: "the target has no second process, which this case needs"},
		"no-program":   {def: func(t *T) { t.Child("echo", nil) }, argv: []string{"/nowhere/none"}, outcome: Errored, reason: "child: fork/exec /nowhere/none: no such file or directory"},
		"not-a-child":  {def: func(t *T) { t.Child("echo", nil) }, argv: []string{"sh", "-c", "echo no >&2"}, outcome: Errored, reason: `the program "sh" does not call RunChild: <nil>; its last words: no`},
		"only-in-them": {def: func(t *T) { t.Send(nil) }, outcome: Errored, reason: "Send outside of a child"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := stub{}.target()
			target.Child = c.argv
			target.Setup = func(context.Context) (map[string]string, func() error, error) {
				return map[string]string{ParamOwner: "me"}, nil, nil
			}
			def := caseDef{ID: "a", PerLanguage: true, Positive: c.def}
			if name == "silent" {
				def.Bound = time.Second
			}
			r, err := runDefs(t.Context(), target, def,
				caseDef{ID: "left", last: true, Positive: left("process", processes, func(s *suite) map[string]string { return s.before.processes })},
				caseDef{ID: "open", last: true, Positive: left("descriptor", descriptors, func(s *suite) map[string]string { return s.before.descriptors })})
			if err != nil {
				t.Fatal(err)
			}
			if l := lineOf(t, r, "python/a"); l.Outcome != c.outcome || l.Reason != c.reason {
				t.Errorf("got %s, %q, want %s, %q", l.Outcome, l.Reason, c.outcome, c.reason)
			}
			for _, id := range []string{"left", "open"} {
				if l := lineOf(t, r, id); l.Outcome != Passed {
					t.Errorf("%s: got %s, %q", id, l.Outcome, l.Reason)
				}
			}
		})
	}
}

// TestChildDiesWithItsParent closes what the death of a parent closes.
func TestChildDiesWithItsParent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"=x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, "{\"Name\":\"hang\",\"Bound\":%d}\n", time.Minute)
	in.Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got %v, want the exit code 1", err)
	}
	if !strings.HasPrefix(out.String(), `x{"Kind":"hello"}`) {
		t.Errorf("got %q", &out)
	}
}

func TestChildRefusesNonsense(t *testing.T) {
	for name, in := range map[string]string{"empty": "", "no-order": "nonsense\n", "no-function": "{\"Name\":\"none\"}\n"} {
		t.Run(name, func(t *testing.T) {
			if err := runChild(t.Context(), stub{}.target(), "x", strings.NewReader(in), io.Discard); err == nil {
				t.Error("got no error")
			}
		})
	}
}

// TestRunRefusesInAChild keeps a program that forgets RunChild from running the suite in every
// child of the suite.
func TestRunRefusesInAChild(t *testing.T) {
	t.Setenv(childEnv, "x")
	r, err := runDefs(t.Context(), stub{}.target(), caseDef{ID: "a", Positive: func(*T) {}})
	if err == nil || lineOf(t, r, "a").Outcome != Errored {
		t.Errorf("got %v", err)
	}
}

func TestReadLine(t *testing.T) {
	lines := bufio.NewReader(strings.NewReader(strings.Repeat("x", 100_000) + "\nshort\n" + strings.Repeat("y", 200_000) + "\n"))
	if line, err := readLine(lines, 150_000); len(line) != 100_000 || err != nil {
		t.Errorf("got %d bytes, %v", len(line), err)
	}
	if line, err := readLine(lines, 10); string(line) != "short" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	if _, err := readLine(lines, 150_000); !errors.Is(err, errLongLine) {
		t.Errorf("got %v, want that the line is too long", err)
	}
}

// TestWatchedSessionPassesOn checks that what a case gets is the session that it would get without
// the suite.
func TestWatchedSessionPassesOn(t *testing.T) {
	s := stub{create: func(context.Context, executor.Spec) (executor.Session, error) { return &askable{}, nil }}
	r, err := runDefs(t.Context(), s.target(), caseDef{ID: "a", Positive: func(t *T) {
		var found string
		s := t.Session()
		if !executor.As(s, &found) || found != "found" {
			t.Errorf("As is not passed on")
		}
	}})
	if l := lineOf(t, r, "a"); err != nil || l.Outcome != Passed {
		t.Errorf("got %s, %q, %v", l.Outcome, l.Reason, err)
	}
}

type askable struct{ stubSession }

func (*askable) As(target any) bool {
	s, ok := target.(*string)
	if ok {
		*s = "found"
	}
	return ok
}
