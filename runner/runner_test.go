package runner

import (
	"bytes"
	"context"
	"fmt"

	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// sandbox is a runner as a process on this machine.
type sandbox struct {
	*client
	cmd     *exec.Cmd
	workdir string
	stderr  *lockedBuffer
	root    string
	python  string // in root
	socket  string
	uid     int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pipes joins the two pipes of a process.
type pipes struct {
	io.Reader
	io.WriteCloser
	close func()
}

func (p pipes) Close() error {
	err := p.WriteCloser.Close()
	p.close()
	return err
}

// uids counts those of user code in tests: one for each sandbox, which nothing else on a machine
// should have, other test runs included.
var uids atomic.Int32

func init() { uids.Store(int32(100_000 + os.Getpid()%1_000_000*1000)) }

// launch starts a process and returns its connection.
func launch(t testing.TB, stderr io.Writer, argv ...string) (*exec.Cmd, io.ReadWriteCloser) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: these tests need Python 3.9 or later", err)
	}
	w.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, pipes{r, in, func() { r.Close() }}
}

// idleTTL ends the sandboxes of a test run that was killed.
const idleTTL = 10 * time.Minute

// prepare makes the directories of a sandbox, and the configuration for it.
func prepare(t testing.TB, root string) (*sandbox, Config) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the runner gives user code another uid")
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	uid := int(uids.Add(1))
	for _, name := range []string{"work", "tmp", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if name != "root" {
			if err := os.Chown(filepath.Join(dir, name), uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &sandbox{workdir: filepath.Join(dir, "work"), stderr: &lockedBuffer{}, root: root, python: pythonOf(root), uid: uid, socket: filepath.Join(dir, "root", "socket")}
	cfg := Config{
		UID: uid, GID: uid, Workdir: s.workdir, Home: filepath.Join(dir, "tmp", "home"), Temp: filepath.Join(dir, "tmp"),
		Languages: []executor.Language{executor.Python}, IdleTTL: idleTTL, socket: s.socket,
		Grace: 15 * time.Second, Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"},
	}
	return s, cfg
}

// impatient is for code that heeds no interrupt. What does has more time by default: a machine may
// be busy.
func impatient(c *Config) { c.Grace = time.Second }

// start starts a runner in a root.
func start(t testing.TB, root string, edit ...func(*Config)) *sandbox {
	t.Helper()
	s, cfg := prepare(t, root)
	for _, f := range edit {
		f(&cfg)
	}
	cmd, conn := launch(t, s.stderr, inRoot(root, command(s.python)...)...)
	c, err := setUp(t.Context(), conn, cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.stderr)
	}
	s.client, s.cmd = c, cmd
	t.Cleanup(func() {
		c.Detach()
		if cmd.ProcessState != nil {
			return // the test has waited for it
		}
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != -1 {
			t.Errorf("the runner ended with %v\n%s", err, s.stderr)
		}
		if s.stderr.String() != "" {
			t.Errorf("the runner said:\n%s", s.stderr)
		}
	})
	return s
}

// result is what a run was.
type result struct {
	driver.Exit
	err            error
	stdout, stderr string
	outputs        []executor.Output
	cell           int
	started        bool
	events         []executor.Event
}

func (r result) value() string {
	for _, o := range r.outputs {
		if o.Main {
			return o.Data["text/plain"].String()
		}
	}
	return ""
}

// do runs a request.
func (s *sandbox) do(ctx context.Context, req executor.Request) result {
	return doWith(ctx, s.client, req)
}

// doWith runs a request, and calls see with each event.
func doWith(ctx context.Context, c *client, req executor.Request, see ...func(executor.Event)) result {
	if req.Limits.WallTime == 0 {
		req.Limits.WallTime = 2 * time.Minute
	}
	if req.Limits.OutputBytes == 0 {
		req.Limits.OutputBytes = 64 << 20
	}
	var r result
	var out, errs strings.Builder
	r.Exit, r.err = c.Run(ctx, &req, func(ev executor.Event) error {
		switch ev.Kind {
		case executor.EventStarted:
			r.started, r.cell = true, ev.Cell
		case executor.EventStdout:
			out.Write(ev.Data)
		case executor.EventStderr:
			errs.Write(ev.Data)
		case executor.EventOutput:
			r.outputs = append(r.outputs, *ev.Output)
		}
		r.events = append(r.events, ev)
		for _, f := range see {
			f(ev)
		}
		return nil
	})
	r.stdout, r.stderr = out.String(), errs.String()
	return r
}

// timesOut runs a request to the end of its wall time, and once more with twice as much if it has
// printed nothing by then: the machine is busy.
func (s *sandbox) timesOut(t testing.TB, req executor.Request) result {
	t.Helper()
	for {
		r := s.do(t.Context(), req)
		if r.Reason != executor.ReasonWallTime || r.stdout != "" || req.Limits.WallTime > time.Minute {
			return r
		}
		req.Limits.WallTime *= 2
	}
}

// python runs a cell.
func (s *sandbox) code(t testing.TB, code string) result {
	t.Helper()
	return s.do(t.Context(), executor.Request{Language: executor.Python, Code: code})
}

// sh runs a shell command.
func (s *sandbox) sh(t testing.TB, script string) result {
	t.Helper()
	return s.do(t.Context(), executor.Request{Command: []string{"/bin/sh", "-c", script}})
}

func TestRun(t *testing.T) {
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		r := s.code(t, "print('hello')\nx = 41\nx + 1")
		if r.err != nil || r.stdout != "hello\n" || r.value() != "42" || r.cell != 1 || !r.StateFresh || r.Code != 0 {
			t.Errorf("got %+v", r)
		}
		r = s.code(t, "x")
		if r.err != nil || r.value() != "41" || r.cell != 2 || r.StateFresh {
			t.Errorf("got %+v", r)
		}
		r = s.sh(t, "echo out; echo err >&2; id -u; exit 3")
		if r.err != nil || r.stdout != fmt.Sprintf("out\n%d\n", s.uid) || r.stderr != "err\n" || r.Code != 3 {
			t.Errorf("got %+v", r)
		}
	})
}
