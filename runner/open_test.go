package runner_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// local is a Transport to processes of this machine that have a file system of their own, as far as
// these tests need one.
type local struct {
	edit func(*runner.Start)
	argv func(command []string) []string             // nil: command
	wire func(io.ReadWriteCloser) io.ReadWriteCloser // nil: as it is
	base string                                      // of all sandboxes; empty: they have none

	mu    sync.Mutex
	boxes map[string]*process
	infos map[string]executor.SessionInfo
}

// mounts gives a process a working directory and a temporary directory that nobody else sees.
const mounts = `mkdir -p /workspace; mount -t tmpfs tmpfs /workspace; mount -t tmpfs tmpfs /tmp; exec "$@"`

func (l *local) Start(_ context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	if l.edit != nil {
		l.edit(s)
	}
	command := append([]string{"unshare", "--mount", "sh", "-ec", mounts, "sh"}, s.Command...)
	if l.argv != nil {
		command = l.argv(s.Command)
	}
	p, err := begin(command)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boxes[s.ID], l.infos[s.ID] = p, s.Info
	var box runner.Sandbox = p
	if l.base != "" {
		box = &based{p, l.base}
	}
	if l.wire != nil {
		return box, l.wire(p), nil
	}
	return box, p, nil
}

// based is a sandbox that is made from something.
type based struct {
	*process
	base string
}

func (b *based) Base() string { return b.base }

func (l *local) Find(_ context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.boxes[h.Session]; p != nil {
		return p, l.infos[h.Session], nil
	}
	return nil, executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
}

// process is a process and its standard input and output, and a sandbox.
type process struct {
	io.Reader
	io.WriteCloser
	cmd      *exec.Cmd
	stderr   bytes.Buffer
	done     chan struct{}
	removing func() error // instead of what Remove does
}

func begin(argv []string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stderr = "/", &p.stderr
	p.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	in, err := p.cmd.StdinPipe()
	r, w, perr := os.Pipe()
	if err = errors.Join(err, perr); err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.Reader, p.WriteCloser = w, r, in
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go func() { // ends with the process
		defer close(p.done)
		p.cmd.Wait()
	}()
	return p, nil
}

func (p *process) Close() error {
	return errors.Join(p.WriteCloser.Close(), p.Reader.(*os.File).Close())
}

func (p *process) Connect(_ context.Context, command []string) (io.ReadWriteCloser, error) {
	return begin(command)
}

func (p *process) Termination(context.Context) (runner.Termination, error) {
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		return runner.Termination{}, nil
	}
	end := runner.Termination{Ended: true, Reason: executor.ReasonSandbox, Stderr: strings.TrimSpace(p.stderr.String())}
	if st := p.cmd.ProcessState; st.Success() {
		end.Reason = executor.ReasonLifetime
	} else if st.ExitCode() > 0 {
		end.Code = st.ExitCode()
	}
	return end, nil
}

func (p *process) Remove(context.Context) error {
	if p.removing != nil {
		return p.removing()
	}
	p.cmd.Process.Kill()
	<-p.done
	return nil
}

var openOptions = runner.Options{
	Options: driver.Options{Type: "local"},
	Capabilities: executor.Capabilities{
		Isolation: executor.IsolationProcess, Features: []executor.Feature{executor.FeatureNetworkFull},
		Languages: []executor.Runtime{{Language: executor.Python}, {Language: executor.JavaScript}},
	},
}

// spec is what these sandboxes can be: they do not keep code from the network.
var spec = executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}

// open opens a backend on l. It has to be closed with nothing left.
func open(t *testing.T, l *local, edit ...func(*runner.Options)) executor.Executor {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the runner gives user code another uid")
	}
	l.boxes, l.infos = map[string]*process{}, map[string]executor.SessionInfo{}
	o := openOptions
	for _, f := range edit {
		f(&o)
	}
	x, err := runner.Open(driver.Env{Owner: "tests"}, l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		for id, p := range l.boxes {
			select {
			case <-p.done:
			case <-time.After(time.Minute):
				t.Errorf("sandbox %s was left", id)
			}
		}
	})
	return x
}

func create(t *testing.T, x executor.Executor) executor.Session {
	t.Helper()
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value runs Python and returns the value of its last expression.
func value(t *testing.T, s executor.Session, code string) string {
	t.Helper()
	r, err := s.Run(t.Context(), executor.Request{Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("%v\n%s", err, r.Stderr)
	}
	for _, o := range r.Outputs {
		return o.Data["text/plain"].String()
	}
	return ""
}

// TestOpen finds a sandbox again, takes it over, and loses a connection and then the sandbox.
func TestOpen(t *testing.T) {
	l := &local{}
	x := open(t, l)
	s := create(t, x)
	if got := value(t, s, "x = 41; x + 1"); got != "42" {
		t.Errorf("got %q", got)
	}
	h := s.Info().Handle
	p := l.boxes[h.Session]
	p.Close()      // what the engine of a container does when it is restarted
	for range 10 { // the end may be noticed after a run has begun
		if _, err := s.Run(t.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrUnavailable) {
			break
		}
	}
	if got := value(t, s, "x"); got != "41" {
		t.Errorf("over another connection: got %q", got)
	}
	h.Fence = 1
	later, err := x.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if got := value(t, later, "x"); got != "41" {
		t.Errorf("attached: got %q", got)
	}
	if _, err := s.Run(t.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrClosed) {
		t.Errorf("shut out: got %v", err)
	}
	p.cmd.Process.Signal(syscall.SIGKILL)
	if _, err := later.Run(t.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("of a dead sandbox: got %v", err)
	}
	if _, err := x.Attach(t.Context(), h); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("attaching to a dead sandbox: got %v", err)
	}
}

// TestOpenDeclares derives the features from what the Transport can do.
func TestOpenDeclares(t *testing.T) {
	c := open(t, &local{}).Info().Capabilities
	for f, want := range map[executor.Feature]bool{
		executor.FeatureState: true, executor.FeaturePTY: true, executor.FeatureAttach: true, executor.FeatureFencing: true,
		executor.FeatureMixedLanguages: true, executor.FeatureNetworkFull: true,
		executor.FeatureList: false, executor.FeatureNetworkNone: false, executor.FeatureLimitMemory: false, executor.FeaturePackages: false,
	} {
		if c.Has(f) != want {
			t.Errorf("%s: got %t", f, !want)
		}
	}
	type startOnly struct{ runner.Transport }
	x, err := runner.Open(driver.Env{Owner: "tests"}, startOnly{&local{}}, runner.Options{
		Options: driver.Options{Type: "local"}, Without: []executor.Feature{executor.FeaturePTY},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := x.Info().Capabilities; c.Has(executor.FeatureAttach) || c.Has(executor.FeaturePTY) || !c.Has(executor.FeatureCommand) {
		t.Errorf("got %v", c.Features)
	}
	o := openOptions
	o.Capabilities.Languages = []executor.Runtime{{Language: "cobol"}}
	if _, err := runner.Open(driver.Env{Owner: "tests"}, &local{}, o); err == nil || !strings.Contains(err.Error(), "cobol") {
		t.Errorf("a language that nobody runs: got %v", err)
	}
}

// TestOpenRefuses makes sandboxes in which no runner comes up. Nothing is left of them.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		local *local
		kind  error
		text  string
	}{
		"no-python": {&local{argv: func([]string) []string { return []string{"sh", "-c", "echo not found >&2; exit 127"} }}, executor.ErrUnsupported, "not found"},
		"ends":      {&local{argv: func([]string) []string { return []string{"true"} }}, executor.ErrUnavailable, "ended while it was being set up"},
		"missing":   {&local{argv: func([]string) []string { return []string{"/no/such"} }}, executor.ErrUnavailable, "no such file"},
		"no-node": {&local{edit: func(s *runner.Start) {
			s.Config.Languages = []executor.Language{"javascript"}
			s.Config.Node = "/no/such"
		}}, executor.ErrUnsupported, "no interpreter of javascript"},
		"root": {&local{edit: func(s *runner.Start) { s.Config.UID = -1 }}, executor.ErrInvalid, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, c.local).Create(t.Context(), spec)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestOpenTriesAgain makes another sandbox where the connection to the first breaks, and removes
// the first as often as it takes.
func TestOpenTriesAgain(t *testing.T) {
	l, attempts := &local{}, []int(nil)
	l.edit = func(s *runner.Start) { attempts = append(attempts, s.Attempt) }
	l.argv = func(command []string) []string {
		if len(attempts) == 1 {
			return []string{"sh", "-c", "exec 1>&-; exec sleep 1000"}
		}
		return append([]string{"unshare", "--mount", "sh", "-ec", mounts, "sh"}, command...)
	}
	x := open(t, l, func(o *runner.Options) { o.Attempts = 2 })
	if got := value(t, create(t, x), "6 * 7"); got != "42" || len(attempts) != 2 || attempts[1] != 1 {
		t.Errorf("got %q after the attempts %v", got, attempts)
	}
}
