package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/wire"
)

// bridgeTo starts a bridge and returns its connection.
func bridgeTo(t testing.TB, s *sandbox) (*exec.Cmd, io.ReadWriteCloser) {
	t.Helper()
	return launch(t, s.stderr, inRoot(s.root, bridgeCommand(s.python, s.socket)...)...)
}

// attach opens a further holder.
func attach(t testing.TB, s *sandbox, fence int64) *client {
	t.Helper()
	_, conn := bridgeTo(t, s)
	c, err := join(t.Context(), conn, fence)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.stderr)
	}
	t.Cleanup(func() { c.Detach() })
	return c
}

func TestAttach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		s.code(t, "x = 42")
		cmd, conn := bridgeTo(t, s)
		c, err := join(t.Context(), conn, 0)
		if err != nil {
			t.Fatalf("%v\n%s", err, s.stderr)
		}
		if r := doWith(t.Context(), c, executor.Request{Language: executor.Python, Code: "print('hello'); x"}); r.value() != "42" || r.stdout != "hello\n" {
			t.Errorf("got %+v", r)
		}
		// Both at once.
		if r := s.code(t, "x"); r.value() != "42" {
			t.Errorf("the first holder: got %+v", r)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		c.Detach()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the bridge: %v", err)
		}
		// The creator goes; the sandbox stays.
		s.Detach()
		c = attach(t, s, 0)
		if r := doWith(t.Context(), c, executor.Request{Language: executor.Python, Code: "x"}); r.value() != "42" {
			t.Errorf("after the creator has gone: got %+v", r)
		}
	})
}

func TestAbstractSocket(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) { c.socket = "@execbroker-" + strings.ReplaceAll(c.Workdir, "/", "-") })
	s.socket = "@execbroker-" + strings.ReplaceAll(s.workdir, "/", "-")
	attach(t, s, 0).Detach()
	// User code finds it, and nobody there who listens to it.
	r := s.code(t, `
import socket
for _ in range(200):
    s = socket.socket(socket.AF_UNIX); s.connect("\0`+s.socket[1:]+`")
    s.settimeout(5)
    try:
        s.send(b"x" * 100)
        got = s.recv(1)
    except OSError as e:
        got = b""
    assert got == b"", got
"refused"`)
	if r.value() != "'refused'" {
		t.Errorf("got %+v", r)
	}
	attach(t, s, 0).Detach()
}

func TestFencing(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	closed := func(c *client) bool {
		// Before it has heard of it, too: what it asks for then is not begun, and it knows that.
		for range 2 {
			_, err := c.Run(t.Context(), &executor.Request{Language: executor.Python, Code: "1"}, func(executor.Event) error { return nil })
			werr := c.Files().Write(t.Context(), filepath.Join(s.workdir, "x"), strings.NewReader("x"), 0o644)
			for _, err := range []error{err, werr} {
				var e *executor.Error
				if !errors.As(err, &e) || e.Kind != executor.ErrClosed || e.Ran != executor.RanNo {
					t.Errorf("got %v, want ErrClosed and that nothing has run", err)
					return false
				}
			}
			<-c.Done()
		}
		return kindOf(c.Err()) == executor.ErrClosed
	}
	a, b := attach(t, s, 5), attach(t, s, 5)
	if !closed(s.client) {
		t.Error("the creator was not shut out")
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Errorf("holders with the same fence shut out each other: %v", err)
	}
	_, conn := bridgeTo(t, s)
	if _, err := join(t.Context(), conn, 4); kindOf(err) != executor.ErrClosed {
		t.Errorf("a lower fence: got %v, want ErrClosed", err)
	}
	// The holder that is shut out has a run in progress, which cannot be lost to it silently.
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		req := executor.Request{Language: executor.Python, Code: "import time; time.sleep(1000)", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 10}}
		_, err := a.Run(t.Context(), &req, func(executor.Event) error { close(started); return nil })
		ended <- err
	}()
	<-started
	c := attach(t, s, 6)
	err := <-ended
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrClosed || e.Ran != executor.RanYes {
		t.Errorf("the run of a holder that was shut out: got %v", err)
	}
	if !closed(a) || !closed(b) {
		t.Error("not all were shut out")
	}
	r := doWith(t.Context(), c, executor.Request{Language: executor.Python, Code: "1"})
	if kindOf(r.err) != executor.ErrBusy {
		t.Errorf("the interpreter with the old run: got %v, want ErrBusy", r.err)
	}
	if err := c.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	if r := doWith(t.Context(), c, executor.Request{Language: executor.Python, Code: "1"}); r.value() != "1" {
		t.Errorf("after Reset: got %+v", r)
	}
}

// A run whose holder has died ends by itself; what it prints is dropped and does not stop it.
func TestRunOfADeadHolder(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	cmd, conn := bridgeTo(t, s)
	c, err := join(t.Context(), conn, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the connection
		req := executor.Request{Language: executor.Python, Code: "x = 1\nfor _ in range(50): print('x' * 1000000)\nx = 2", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 40}}
		c.Run(t.Context(), &req, func(ev executor.Event) error {
			if ev.Kind == executor.EventStarted {
				cmd.Process.Kill()
			}
			return nil
		})
	}()
	<-c.Done()
	eventually(t, "the run ends", func() bool { return s.code(t, "x").value() == "2" })
}

// Holders that stand still: one that says nothing, one that stops in the middle of a frame, one
// that does not read.
func TestStalledHolders(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	_, silent := bridgeTo(t, s)
	defer silent.Close()
	_, half := bridgeTo(t, s)
	defer half.Close()
	hello := wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, wire.Map{"version": wire.Version})}.Append(nil)
	run := wire.Frame{Type: wire.Open, Stream: 1, Payload: wire.AppendValue(nil, wire.Map{"op": "run", "argv": []any{"true"}, "wall": 1, "output": 1})}.Append(nil)
	half.Write(append(hello, run[:len(run)-3]...))
	_, deaf := bridgeTo(t, s)
	defer deaf.Close()
	flood := wire.Frame{Type: wire.Open, Stream: 1, Payload: wire.AppendValue(nil, wire.Map{
		"op": "run", "argv": []any{"yes"}, "wall": int64(time.Hour), "output": int64(1 << 40),
	})}.Append(hello)
	for i := range 1000 {
		flood = wire.CreditFrame(1, 1<<25).Append(flood)
		flood = wire.Frame{Type: wire.Open, Stream: uint32(i + 2), Payload: wire.AppendValue(nil, wire.Map{"op": "list", "name": "/usr/bin"})}.Append(flood)
	}
	deaf.Write(flood)
	eventually(t, "the flood has begun", func() bool { st, err := s.Status(t.Context()); return err == nil && st.Runs == 1 })
	for range 20 {
		begin := time.Now()
		if r := s.code(t, "print('x' * 100000)"); len(r.stdout) != 100001 {
			t.Fatalf("got %+v", r)
		}
		if d := time.Since(begin); d > time.Minute {
			t.Errorf("a run took %v", d)
		}
	}
	attach(t, s, 0).Detach()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok && len(strings.Fields(v)[0]) > 5 { // 100 MB or more
			t.Errorf("the supervisor uses%s", v)
		}
	}
}

// What a holder sends that is not the protocol ends its connection and nothing else.
func TestHostileHolders(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	hello := wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, wire.Map{"version": wire.Version})}.Append(nil)
	open := func(m wire.Map) []byte {
		return wire.Frame{Type: wire.Open, Stream: 1, Payload: wire.AppendValue(nil, m)}.Append(nil)
	}
	data := wire.Frame{Type: wire.Data, Stream: 1, Payload: make([]byte, 1<<20)}.Append(nil)
	cat := open(wire.Map{"op": "run", "argv": []any{"sleep", "54321"}, "wall": int64(time.Minute), "output": 1000, "stdin": true})
	for name, in := range map[string][]byte{
		"nothing":        nil,
		"text":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"no-hello":       cat,
		"not-a-value":    append(hello, wire.Frame{Type: wire.Open, Stream: 1, Payload: []byte("zzz")}.Append(nil)...),
		"list":           append(hello, wire.Frame{Type: wire.Open, Stream: 1, Payload: wire.AppendValue(nil, []any{1})}.Append(nil)...),
		"runner-frame":   append(hello, wire.Frame{Type: wire.Started, Stream: 1}.Append(nil)...),
		"beyond-credit":  append(append(append(hello, cat...), data...), data...),
		"stream-twice":   append(append(hello, cat...), cat...),
		"endless-open":   append(hello, []byte(strings.Repeat(string(wire.Frame{Type: wire.Open, Flags: wire.More, Stream: 9, Payload: make([]byte, 1<<20)}.Append(nil)), 40))...),
		"other-version":  wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, wire.Map{"version": 99})}.Append(nil),
		"deep":           append(hello, wire.Frame{Type: wire.Open, Stream: 1, Payload: []byte(strings.Repeat("l\x00\x00\x00\x01", 100000))}.Append(nil)...),
		"many-of-little": append(hello, wire.Frame{Type: wire.Open, Stream: 1, Payload: []byte("l\xff\xff\xff\xff")}.Append(nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := bridgeTo(t, s)
			defer conn.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.Copy(io.Discard, conn)
			}()
			conn.Write(in)
			if name == "nothing" {
				conn.Close()
			}
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Error("the connection is still open")
			}
		})
	}
	// Fields of the wrong type are refused, one by one.
	for name, m := range map[string]wire.Map{
		"op":       {"op": 1},
		"none":     {},
		"code":     {"op": "run", "language": "python", "code": 7, "output": 1, "wall": 1},
		"argv":     {"op": "run", "argv": "x", "output": 1, "wall": 1},
		"argv-nul": {"op": "run", "argv": []any{"a\x00b"}, "output": 1, "wall": 1},
		"env":      {"op": "run", "argv": []any{"true"}, "output": 1, "wall": 1, "env": wire.Map{"A=B": "x"}},
		"language": {"op": "run", "language": "cobol", "code": "", "output": 1, "wall": 1},
		"read":     {"op": "read", "name": []any{}},
		"private":  {"op": "scan"},
		"kill":     {"op": "kill"},
	} {
		t.Run("field-"+name, func(t *testing.T) {
			_, err := s.ask(t.Context(), m)
			if kind := kindOf(err); kind != executor.ErrInvalid && kind != executor.ErrUnsupported {
				t.Errorf("got %v", err)
			}
		})
	}
	if r := s.code(t, "1"); r.value() != "1" {
		t.Errorf("afterwards: got %+v", r)
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	wait := func(t *testing.T, s *sandbox, kind error) {
		t.Helper()
		select {
		case <-s.Done():
		case <-time.After(2 * time.Minute):
			t.Fatal("the runner lives on")
		}
		if kindOf(s.Err()) != kind {
			t.Errorf("got %v, want %v", s.Err(), kind)
		}
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the runner ended with %v", err)
		}
		if ps := s.processes(t); len(ps) > 0 {
			t.Errorf("left: %q", ps)
		}
	}
	t.Run("idle", func(t *testing.T) {
		s := start(t, host)
		begin := time.Now()
		done := s.background(t, executor.Request{Language: executor.Python, Code: "import subprocess, time\nsubprocess.Popen(['sleep', '12347'], start_new_session=True)\nprint('begin', flush=True)\ntime.sleep(2)"})
		if _, err := s.KeepAlive(t.Context(), 1500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if r := done(); r.err != nil || r.Code != 0 || r.Reason != "" { // a run is use
			t.Errorf("got %+v", r)
		}
		wait(t, s, executor.ErrNotFound)
		if d := time.Since(begin); d < 3500*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
	})
	t.Run("idle-without-holder", func(t *testing.T) {
		s := start(t, host, func(c *Config) { c.IdleTTL = time.Second })
		if left := time.Until(s.Info().Expires); left > time.Second {
			t.Errorf("expires in %v", left)
		}
		s.Detach()
		if err := s.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("keep-alive", func(t *testing.T) {
		s := start(t, host, func(c *Config) { c.IdleTTL = time.Hour })
		expires, err := s.KeepAlive(t.Context(), 300*time.Millisecond)
		if left := time.Until(expires); err != nil || left > 300*time.Millisecond {
			t.Errorf("got %v, %v", left, err)
		}
		wait(t, s, executor.ErrNotFound)
	})
	t.Run("max-life", func(t *testing.T) {
		var s *sandbox
		var r result
		for life := 2 * time.Second; r.stdout == "" && life < 2*time.Minute; life *= 2 { // an interpreter starts in it, on a busy machine
			s = start(t, host, func(c *Config) { c.MaxLife = life })
			r = s.code(t, "print('begin')\nimport time; time.sleep(1000)")
		}
		if r.err != nil || r.Reason != executor.ReasonLifetime || r.stdout != "begin\n" || !r.StateLost {
			t.Errorf("got %+v", r)
		}
		wait(t, s, executor.ErrNotFound)
	})
	t.Run("max-life-before-the-start", func(t *testing.T) {
		slow := filepath.Join(t.TempDir(), "node")
		if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := start(t, host, func(c *Config) { c.Node, c.MaxLife = slow, time.Second })
		r := s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: "1", Limits: executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 20}})
		var e *executor.Error
		if !errors.As(r.err, &e) || e.Kind != executor.ErrNotFound || e.Ran != executor.RanNo || r.started {
			t.Errorf("got %+v", r)
		}
		wait(t, s, executor.ErrNotFound)
	})
	// The monotonic clock stands still while a machine is suspended, and the wall clock may be set
	// back.
	for name, jump := range map[string]int{"wall-clock-ahead": 7200, "wall-clock-back": -7200} {
		t.Run(name, func(t *testing.T) {
			flag := filepath.Join(t.TempDir(), "flag")
			clock := fmt.Sprintf("import os, time\nreal = time.time\ntime.time = lambda: real() + %d * os.path.exists(%q)", jump, flag)
			s, err := startAs(t, before(clock), func(c *Config) {
				if jump < 0 {
					c.IdleTTL = 500 * time.Millisecond
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(flag, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			_ = s.Ping(t.Context()) // it looks at the wall clock now and then, and whenever something happens
			wait(t, s, executor.ErrNotFound)
		})
	}
	t.Run("terminated", func(t *testing.T) {
		s := start(t, host)
		s.code(t, "import subprocess; subprocess.Popen(['sleep', '12348'], start_new_session=True)")
		s.cmd.Process.Signal(syscall.SIGTERM)
		wait(t, s, executor.ErrNotFound)
	})
	t.Run("killed", func(t *testing.T) {
		s := start(t, host)
		r := s.do(t.Context(), executor.Request{Command: []string{"sleep", "12349"}, Limits: executor.RunLimits{WallTime: executor.NoLimit}, Dir: "/", Stdin: readerFunc(func([]byte) (int, error) {
			s.cmd.Process.Kill()
			return 0, io.EOF
		})})
		var lost *LostError
		if !errors.As(r.err, &lost) || kindOf(r.err) != executor.ErrUnavailable {
			t.Errorf("got %v", r.err)
		}
		eventually(t, "its processes end with it", func() bool { return len(s.processes(t)) == 0 })
	})
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	for name, c := range map[string]struct {
		argv []string
		cfg  Config
		kind error
		said string
	}{
		"text-instead":  {sh("echo hello; cat >/dev/null"), Config{}, executor.ErrUnavailable, "hello"},
		"ends-at-once":  {sh("exit 1"), Config{}, executor.ErrUnavailable, "EOF"},
		"root-uid":      {command(pythonOf(host)), Config{UID: -1}, executor.ErrInvalid, "root"},
		"no-workdir":    {command(pythonOf(host)), Config{UID: 64000, GID: 64000, Workdir: "/proc/nowhere", Home: "/tmp"}, executor.ErrInvalid, "/proc/nowhere"},
		"not-writable":  {command(pythonOf(host)), Config{UID: 64000, GID: 64000, Workdir: "/usr", Home: "/tmp"}, executor.ErrInvalid, "/usr: not writable for uid 64000"},
		"no-socket-dir": {command(pythonOf(host)), Config{UID: 64000, GID: 64000, Workdir: "/tmp", Home: "/tmp", socket: "/no/such/socket"}, executor.ErrInvalid, "/no/such/socket"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("needs root")
			}
			_, conn := launch(t, io.Discard, c.argv...)
			_, err := setUp(t.Context(), conn, c.cfg)
			if kindOf(err) != c.kind || !strings.Contains(err.Error(), c.said) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.said)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, conn := launch(t, io.Discard, "sleep", "1000")
		if _, err := setUp(ctx, conn, Config{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
