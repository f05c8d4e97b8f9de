package pyodide

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/internal/wire"
)

// If this test program has the name of Deno, it is a host that breaks the protocol. A file beside
// it says how.
const (
	hostileMode = "mode" // the name of that file
	hostilePIDs = "pids" // the name of the file to which it adds its PID
)

func init() {
	self, err := os.Executable()
	if err != nil || !strings.HasPrefix(filepath.Base(self), "deno") || len(os.Args) < 2 || os.Args[1] != "run" {
		return
	}
	mode, err := os.ReadFile(filepath.Join(filepath.Dir(self), hostileMode))
	if err != nil {
		return
	}
	if strings.HasSuffix(os.Args[len(os.Args)-1], "builtins.mjs") {
		fmt.Println("{}")
		os.Exit(0)
	}
	pids, err := os.OpenFile(filepath.Join(filepath.Dir(self), hostilePIDs), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		os.Exit(99)
	}
	fmt.Fprintln(pids, os.Getpid())
	pids.Close()
	hostileHost{mode: string(mode), in: wire.NewReader(os.Stdin)}.serve()
	os.Exit(0)
}

// hostileHost follows the protocol until it does what its mode says.
type hostileHost struct {
	mode  string
	nonce []byte
	in    *wire.Reader
}

// frame reads a message from the Go program.
func (h hostileHost) frame() wire.Frame {
	for message := (wire.Parts{Max: 1 << 30}); ; {
		f, err := h.in.Next()
		if err != nil {
			os.Exit(0)
		}
		if payload, _ := message.Add(f); payload != nil {
			f.Payload = payload
			return f
		}
	}
}

func (h hostileHost) send(f wire.Frame) {
	if _, err := os.Stdout.Write(hostFrame(h.nonce, f)); err != nil {
		os.Exit(0)
	}
}

// value sends a frame with a value.
func (h hostileHost) value(t wire.Type, id uint32, m wire.Map) {
	h.send(wire.Frame{Type: t, Stream: id, Payload: value(m)})
}

func (h hostileHost) stdout(id uint32, text string) {
	h.send(wire.Frame{Type: wire.Data, Channel: wire.Stdout, Stream: id, Payload: []byte(text)})
}

func (h hostileHost) serve() {
	hello, _ := wire.ParseMap(h.frame().Payload)
	h.nonce = bytes.Clone(hello.Bytes("data"))
	if hello.Text("mode") != "session" { // nothing is prepared for it
		h.value(wire.Bye, 0, wire.Map{"message": "no"})
		return
	}
	if when, what, _ := strings.Cut(h.mode, ":"); when == "start" {
		h.misbehave(what, 0)
	}
	h.value(wire.Hello, 0, wire.Map{"version": "0"})
	for runs := 0; ; {
		f := h.frame()
		id := f.Stream
		when, what, _ := strings.Cut(h.mode, ":")
		if f.Type != wire.Open {
			continue
		}
		request, _ := wire.ParseMap(f.Payload)
		switch request.Text("op") {
		case "begin":
			if when == "begin" {
				h.misbehave(what, id)
			}
			h.value(wire.Done, id, wire.Map{})
			if h.mode == "run:deaf" {
				select {} // reads nothing
			}
		case "run":
			if runs++; when == "run" || when == "again" && runs > 1 {
				h.misbehave(what, id)
			}
			h.send(wire.Frame{Type: wire.Open, Stream: id})
			if when == "given" || when == "given-again" && runs > 1 {
				h.misbehave(what, id)
			}
			h.value(wire.Started, id, wire.Map{"cell": 1})
			if when == "started" {
				h.misbehave(what, id)
			}
			h.stdout(id, "hello\n")
			h.send(wire.Frame{Type: wire.Data, Channel: wire.Entries, Flags: wire.End, Stream: id})
			if when == "ended" {
				h.misbehave(what, id)
			}
			h.value(wire.Done, id, wire.Map{"exit": 0})
		default:
			if when == "call" {
				h.misbehave(what, id)
			}
			h.value(wire.Done, id, wire.Map{})
		}
	}
}

// misbehave does what its argument names, and does not return.
func (h hostileHost) misbehave(what string, id uint32) {
	switch what {
	case "exit":
		os.Exit(3)
	case "say-and-exit":
		fmt.Fprintln(os.Stderr, "error: the engine is of wood")
		os.Exit(1)
	case "signal":
		self, _ := os.FindProcess(os.Getpid())
		self.Signal(syscall.SIGTERM)
		select {}
	case "hang", "never":
		select {}
	case "close":
		os.Stdout.Close()
		select {}
	case "garbage":
		fmt.Println(strings.Repeat("Segmentation fault\n", 100))
	case "zeros":
		for {
			os.Stdout.Write(make([]byte, 1<<16))
		}
	case "huge":
		b := hostFrame(h.nonce, wire.Frame{Type: wire.Data, Stream: id})
		binary.BigEndian.PutUint32(b[nonceLen+8:], 1<<32-1)
		os.Stdout.Write(b)
	case "half":
		os.Stdout.Write(hostFrame(h.nonce, wire.Frame{Type: wire.Data, Stream: max(id, 1), Payload: make([]byte, 100)})[:50])
		os.Exit(0)
	case "nonce":
		h.nonce[0] ^= 1
		h.stdout(id, "forged")
	case "type":
		h.send(wire.Frame{Type: 77, Stream: id})
	case "id":
		h.stdout(id+1000, "for somebody else")
	case "ready":
		h.send(wire.Frame{Type: wire.Hello, Stream: id, Payload: []byte("no value")})
	case "stdout":
		h.stdout(max(id, 1), "before its time")
	case "fatal":
		h.value(wire.Bye, 0, wire.Map{"message": "the interpreter is made of cheese"})
	case "fatal-nonsense":
		h.send(wire.Frame{Type: wire.Bye, Payload: []byte("{")})
	case "started":
		h.value(wire.Started, id, wire.Map{"cell": 1})
	case "given":
		h.send(wire.Frame{Type: wire.Open, Stream: id})
	case "synced":
		h.value(wire.Done, id, wire.Map{"exit": 0})
	case "file":
		h.send(wire.Frame{Type: wire.Data, Channel: wire.Entries, Stream: id, Flags: wire.End, Payload: []byte("\xff\xff\xff\xff")})
	case "data":
		h.send(wire.Frame{Type: wire.Data, Stream: id, Payload: []byte("x")})
	case "path":
		for _, f := range []wire.Frame{spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 1}, true, 0, "/workspace/../../../../tmp/evil"), dataFrame("x")} {
			f.Stream = id
			h.send(f)
		}
	case "end":
		h.send(wire.Frame{Type: wire.Data, Channel: wire.Entries, Flags: wire.End, Stream: id})
		h.send(wire.Frame{Type: wire.Done, Stream: id, Payload: []byte("[")})
	case "endless-end":
		h.send(wire.Frame{Type: wire.Data, Channel: wire.Entries, Flags: wire.End, Stream: id})
		for {
			h.send(wire.Frame{Type: wire.Done, Flags: wire.More, Stream: id, Payload: make([]byte, 1<<19)})
		}
	case "endless-names":
		for {
			h.send(wire.Frame{Type: wire.Data, Channel: wire.Entries, Stream: id, Payload: make([]byte, 1<<19)})
		}
	case "value":
		h.send(wire.Frame{Type: wire.Output, Stream: id, Payload: []byte("m\xff\xff\xff\xff")})
	case "want":
		h.send(wire.CreditFrame(id, 1<<32-1))
	case "flood":
		for {
			h.stdout(id, strings.Repeat("x", 1<<16))
		}
	case "reply":
		h.send(wire.Frame{Type: wire.Done, Stream: id, Payload: []byte("\xff\xff\xff\xff")})
	}
	select {} // must be killed, so do not return
}

// hostileWorld is a backend with such a host instead of Deno.
type hostileWorld struct {
	executor.Executor
	behave func(mode string)
	pids   func() []int
}

// newHostileWorld makes a world whose host behaves well until it is told otherwise.
func newHostileWorld(t *testing.T) hostileWorld {
	t.Helper()
	dir, behave, pids := hostileRuntime(t)
	x, err := Open(t.Context(), driver.Env{Owner: "test", CacheDir: t.TempDir(), Wrap: record}, Config{
		RuntimeDir: dir, OSLayer: "none", Spares: new(0), Packages: Packages{BaseURL: "http://127.0.0.1:9/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	s := create(t, x, executor.Spec{})
	if r := runCode(t, s, "x"); r.Status != executor.StatusOK || string(r.Stdout) != "hello\n" {
		t.Fatalf("a host that behaves: got %s", describeResult(r))
	}
	driverSession(s).d.patience = patience{start: 2 * time.Second, change: 3 * time.Second}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return hostileWorld{x, behave, pids}
}

// clean waits until no process of the host is left.
func (w hostileWorld) clean(t *testing.T) {
	t.Helper()
	for _, p := range w.pids() {
		eventually(t, fmt.Sprintf("process %d has ended", p), func() bool { return !alive(p) })
	}
}

// hostileRuntime makes a directory for Config.RuntimeDir, with that host as Deno.
func hostileRuntime(t *testing.T) (dir string, behave func(mode string), pids func() []int) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	deno := filepath.Join(modules, filepath.FromSlash(denoPackages[runtime.GOOS+"/"+runtime.GOARCH]), "deno"+exe())
	files := map[string]string{
		filepath.Join(modules, "deno", "package.json"):    `{"version":"` + DenoVersion + `"}`,
		filepath.Join(modules, "pyodide", "package.json"): `{"version":"` + PyodideVersion + `"}`,
		filepath.Join(modules, "acorn", "package.json"):   `{"version":"` + acornVersion + `"}`,
		filepath.Join(modules, "acorn/dist/acorn.mjs"):    "",
		filepath.Join(filepath.Dir(deno), hostileMode):    "good",
	}
	for _, name := range pyodideFiles {
		files[filepath.Join(modules, "pyodide", name)] = `{"packages":{}}`
	}
	files[filepath.Join(modules, "pyodide", stockLibrary)] = "PK\x05\x06" + strings.Repeat("\x00", 18) // an empty archive
	for name, text := range files {
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(self, deno); err != nil {
		program, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		writeProgram(t, deno, string(program))
	}
	behave = func(mode string) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(deno), hostileMode), []byte(mode), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pids = func() (all []int) {
		b, _ := os.ReadFile(filepath.Join(filepath.Dir(deno), hostilePIDs))
		for f := range bytes.FieldsSeq(b) {
			var pid int
			fmt.Sscan(string(f), &pid)
			all = append(all, pid)
		}
		return all
	}
	return dir, behave, pids
}

// TestHostileHost: if a host dies, hangs or sends garbage, the result is a clear error in bounded
// time, and no process is left.
func TestHostileHost(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() hostileWorld { return newHostileWorld(t) })
	creation := []string{
		"exit", "say-and-exit", "signal", "hang", "close", "garbage", "zeros", "huge", "half", "nonce", "type", "id", "ready", "stdout", "fatal", "fatal-nonsense",
	}
	for i := range 2 * len(creation) {
		when, what := []string{"start", "begin"}[i%2], creation[i/2]
		t.Run(when+"-"+what, func(t *testing.T) {
			t.Parallel()
			x := worlds.Take(t)
			x.behave(when + ":" + what)
			ctx := t.Context()
			if what == "hang" { // otherwise the limit is a minute
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			began := time.Now()
			_, err := x.Create(ctx, executor.Spec{})
			var e *executor.Error
			if !errors.As(err, &e) || e.Ran != executor.RanNo {
				t.Fatalf("got %v", err)
			}
			want := executor.ErrUnavailable
			if what == "hang" {
				want = context.DeadlineExceeded
			}
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if text := map[string]string{"say-and-exit": "of wood", "fatal": "made of cheese"}[what]; !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want what it said", err)
			}
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("it took %v", took)
			}
			x.clean(t)
		})
	}

	type expect struct {
		when, what string
		kind       error // kind of the error; nil: a result
		status     executor.Status
		reason     executor.Reason
		says       string // text in the error or result
	}
	for _, c := range []expect{
		{when: "run", what: "exit", kind: executor.ErrUnavailable},
		{when: "run", what: "nonce", kind: executor.ErrUnavailable},
		{when: "run", what: "synced", kind: executor.ErrUnavailable},
		{when: "run", what: "hang", kind: context.DeadlineExceeded},
		{when: "run", what: "ready", kind: executor.ErrUnavailable},
		{when: "run", what: "never", kind: executor.ErrUnavailable, says: "did not start the code in time"},
		{when: "run", what: "deaf", kind: context.DeadlineExceeded}, // with more code than the pipe holds
		{when: "given", what: "exit", kind: executor.ErrUnavailable},
		{when: "given", what: "given", kind: executor.ErrUnavailable}, // twice
		{when: "started", what: "given", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "exit", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "signal", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "close", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "hang", status: executor.StatusTimedOut},
		{when: "started", what: "garbage", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "zeros", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "huge", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "half", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "nonce", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "type", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "id", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "started", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "synced", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "file", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "end", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "endless-names", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "endless-end", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "value", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "want", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "fatal", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "started", what: "flood", status: executor.StatusKilled, reason: executor.ReasonOutput},
		{when: "ended", what: "exit", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "ended", what: "file", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "ended", what: "data", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "ended", what: "path", status: executor.StatusKilled, reason: executor.ReasonSandbox},
		{when: "ended", what: "stdout", status: executor.StatusKilled, reason: executor.ReasonSandbox},
	} {
		t.Run(c.when+"-"+c.what, func(t *testing.T) {
			t.Parallel()
			x := worlds.Take(t)
			x.behave(c.when + ":" + c.what)
			s := create(t, x, executor.Spec{})
			req := executor.Request{Code: "x", Limits: executor.RunLimits{WallTime: 10 * time.Second}}
			if c.what == "deaf" {
				req.Code = strings.Repeat("#", 8<<20)
			}
			if c.status == executor.StatusTimedOut {
				req.Limits.WallTime = 200 * time.Millisecond
			}
			began := time.Now()
			ctx := t.Context()
			if c.kind == context.DeadlineExceeded {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			r, err := s.Run(ctx, req, nil)
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("it took %v", took)
			}
			var e *executor.Error
			switch {
			case c.kind != nil:
				if !errors.Is(err, c.kind) || !errors.As(err, &e) || e.Ran == executor.RanYes || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %v", err, c.kind)
				}
			case err != nil || r.Status != c.status || c.reason != "" && r.Reason != c.reason || !r.StateLost:
				t.Errorf("got %v, %+v", err, r)
			}
			// The next run gets a process that behaves well.
			x.behave("good")
			if r := runCode(t, s, "x"); r.Status != executor.StatusOK || !r.StateFresh {
				t.Errorf("afterwards: got %s, fresh %v", describeResult(r), r.StateFresh)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			x.clean(t)
		})
	}

	for _, what := range []string{"exit", "hang", "nonce", "huge", "reply", "stdout", "fatal", "half"} {
		t.Run("call-"+what, func(t *testing.T) {
			t.Parallel()
			x := worlds.Take(t)
			x.behave("call:" + what)
			s := create(t, x, executor.Spec{})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := s.Files().Mkdir(ctx, "d")
			var e *executor.Error
			if err == nil || !errors.As(err, &e) {
				t.Errorf("got %v", err)
			}
			t.Log(err)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			x.clean(t)
		})
	}
}

// Code is run again in another process only if the first process had not passed it to its
// interpreter. Each process keeps the first run.
func TestRunsOnce(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() hostileWorld { return newHostileWorld(t) })
	for when, status := range map[string]executor.Status{"again": executor.StatusOK, "given-again": executor.StatusKilled} {
		for _, what := range []string{"exit", "signal", "close", "fatal", "never"} {
			t.Run(when+"-"+what, func(t *testing.T) {
				t.Parallel()
				x := worlds.Take(t)
				x.behave(when + ":" + what)
				s := create(t, x, executor.Spec{})
				if r := runCode(t, s, "x"); r.Status != executor.StatusOK {
					t.Fatalf("the first run: got %s", describeResult(r))
				}
				starts := len(x.pids())
				r := runCode(t, s, "x")
				again := status == executor.StatusOK
				if r.Status != status || r.StateFresh != again || r.StateLost == again || len(x.pids()) > starts != again {
					t.Errorf("got %s, fresh %v, lost %v, %d processes more", describeResult(r), r.StateFresh, r.StateLost, len(x.pids())-starts)
				}
				if r := runCode(t, s, "x"); r.Status != executor.StatusOK {
					t.Errorf("afterwards: got %s", describeResult(r))
				}
			})
		}
	}
}
