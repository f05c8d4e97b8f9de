package pyodide

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// open opens the backend with the user's cache, so that all tests share what is prepared there. It
// has no spares, unless cfg says so.
func open(t testing.TB, cfg Config) executor.Executor {
	t.Helper()
	return openFor(t, cfg, stopGrace)
}

// openFor is open with another time than stopGrace.
func openFor(t testing.TB, cfg Config, grace time.Duration) executor.Executor {
	t.Helper()
	if cfg.Spares == nil {
		cfg.Spares = new(0)
	}
	x, err := openWith(t.Context(), driver.Env{Owner: "test", Wrap: record}, cfg, grace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// create makes a session that the test ends.
func create(t testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	t.Helper()
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// one creates a separate session.
func one(t testing.TB, spec executor.Spec) executor.Session {
	t.Helper()
	return create(t, open(t, Config{}), spec)
}

// runCode runs code and fails the test on an error.
func runCode(t testing.TB, s executor.Session, code string, edit ...func(*executor.Request)) *executor.Result {
	t.Helper()
	req := executor.Request{Language: executor.Python, Code: code}
	for _, e := range edit {
		e(&req)
	}
	r, err := s.Run(t.Context(), req, nil)
	if err != nil {
		t.Fatalf("%s\n%v\n%+v", code, err, r)
	}
	return r
}

func within(d time.Duration) func(*executor.Request) {
	return func(r *executor.Request) { r.Limits.WallTime = d }
}

// stubborn is code that no interrupt ends. One that hits between two rounds of a loop is caught by
// the loop of the caller, and there are more callers than interrupts that could hit there in a row.
const stubborn = `
def hold(depth):
    while True:
        try:
            if depth: hold(depth - 1)
            while True: pass
        except BaseException: pass
hold(50)
`

// output runs code that must succeed and returns what it prints.
func output(t testing.TB, s executor.Session, code string, edit ...func(*executor.Request)) string {
	t.Helper()
	r := runCode(t, s, code, edit...)
	if r.Status != executor.StatusOK {
		t.Fatalf("%s\ngot %s", code, describeResult(r))
	}
	return string(r.Stdout)
}

func describeResult(r *executor.Result) string {
	s := fmt.Sprintf("%s %s, exit code %d, stdout %q, stderr %q", r.Status, r.Reason, r.ExitCode, r.Stdout, r.Stderr)
	if r.Exception != nil {
		s += "\n" + r.Exception.Traceback
	}
	return s
}

// recorder is a driver that records its sessions for tests.
type recorder struct {
	driver.Driver
	sessions *sync.Map // Handle.Session -> *session
}

func (r recorder) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	s, err := r.Driver.Create(ctx, c)
	if err == nil {
		r.sessions.Store(c.ID, s)
	}
	return s, err
}

var created sync.Map

func record(d driver.Driver) driver.Driver { return recorder{d, &created} }

// driverSession returns the driver's session of s, whose Executor must be opened with record.
func driverSession(s executor.Session) *session {
	d, _ := created.Load(s.Info().Handle.Session)
	return d.(*session)
}

// process returns the PID of the session's host.
func process(t testing.TB, s executor.Session) int {
	t.Helper()
	d := driverSession(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h == nil {
		t.Fatal("no process")
	}
	return d.h.cmd.Process.Pid
}

// writeProgram writes a program that tests start. No process may be started meanwhile: until it
// executes another program, it would have the file open for writing, and such a file cannot be
// executed.
func writeProgram(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok. Only a test that fails waits for long.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if runtime.GOOS != "linux" {
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(nil) == nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z")
}
