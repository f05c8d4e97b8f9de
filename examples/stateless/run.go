//go:build unix

package stateless

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

//go:embed supervise.py
var supervise string

// maxFrame bounds a line of the supervisor. What comes out of a sandbox is never trusted to end.
const maxFrame = 4 << 20

// frame is a line of the supervisor.
type frame struct {
	Started bool               `json:"started"`
	Stream  executor.EventKind `json:"stream"`
	Data    []byte             `json:"data"`
	End     *struct {
		Code      int                 `json:"code"`
		Signal    string              `json:"signal"`
		TimedOut  bool                `json:"timed_out"`
		Exception *executor.Exception `json:"exception"`
	} `json:"end"`
}

// event returns what f means while the code runs. The first is that it has started, and nothing comes before that.
func (f frame) event() executor.Event {
	if f.Started {
		return executor.Event{Kind: executor.EventStarted, Cell: 1}
	}
	return executor.Event{Kind: f.Stream, Data: f.Data}
}

// valid reports whether f is one that the supervisor says. The code has its rights and may speak in its place.
func (f frame) valid(first bool) bool {
	stream := f.Stream == executor.EventStdout || f.Stream == executor.EventStderr
	return f.Started == first && (f.Started || f.End != nil || stream)
}

// Run runs the code in a process of its own, so that every run begins afresh.
func (s *session) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	exit := driver.Exit{Code: -1, StateFresh: true}
	if s.Info().State == executor.SessionDead {
		return exit, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	s.idle.Stop()
	defer s.idle.Reset(s.ttl)
	p, err := s.start(req)
	if err != nil {
		return exit, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	defer p.end() // also if emit panics

	var emitErr error
	started, done, over := false, ctx.Done(), s.over
	var patience <-chan struct{}
	for {
		select {
		case <-done:
			p.stop() // what it has written until then still comes
			late, cancel := driver.StopContext(ctx)
			defer cancel()
			done, patience = nil, late.Done()
		case <-patience: // the code has stopped its supervisor, which end does not mind
			return finish(ctx, exit, frame{}, started, emitErr)
		case <-over:
			over, exit.Reason = nil, executor.ReasonLifetime
			p.stop()
		case f, ok := <-p.frames:
			if !ok || f.End != nil {
				return finish(ctx, exit, f, started, emitErr)
			}
			if emitErr != nil {
				continue // nobody wants it any more
			}
			if emitErr = emit(f.event()); emitErr != nil {
				p.stop()
			}
			started = true
		}
	}
}

// finish says how a run ended whose last frame is f; without an End nobody knows.
func finish(ctx context.Context, exit driver.Exit, f frame, started bool, emitErr error) (driver.Exit, error) {
	switch {
	case emitErr != nil:
		return exit, emitErr
	case ctx.Err() != nil:
		return exit, context.Cause(ctx) // deferred by Run, the process group ends before anybody reads this
	case !started:
		return exit, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("python ended before it took the code"))
	case exit.Reason != "":
	case f.End == nil: // the code has the rights to kill its supervisor
		exit.Reason = executor.ReasonSandbox
	case f.End.TimedOut:
		exit.Reason = executor.ReasonWallTime
	case f.End.Signal != "":
		exit.Reason, exit.Signal = executor.ReasonSignal, f.End.Signal
	default:
		exit.Code, exit.Exception = f.End.Code, f.End.Exception
	}
	return exit, nil
}

// process is a supervisor and what it runs: a process group, and a directory.
type process struct {
	cmd    *exec.Cmd
	dir    string
	stdin  io.WriteCloser
	frames chan frame // closed at the end of its output
	ended  chan struct{}
	wait   sync.WaitGroup
}

func (s *session) start(req *executor.Request) (p *process, err error) {
	p = &process{cmd: exec.Command("python3", "-I", "-X", "utf8", "-c", supervise), frames: make(chan frame), ended: make(chan struct{})}
	if p.dir, err = os.MkdirTemp("", Type+"-"); err != nil {
		return nil, err
	}
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": p.dir, "TMPDIR": p.dir, "TZ": "UTC", "LANG": "C.UTF-8"}
	maps.Copy(env, s.env)
	maps.Copy(env, req.Env)
	request, err := json.Marshal(map[string]any{"code": req.Code, "dir": p.dir, "env": env, "seconds": req.Limits.WallTime.Seconds()})
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err1 := p.cmd.StdoutPipe()
	stdin, err2 := p.cmd.StdinPipe()
	if err = errors.Join(err, err1, err2); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	p.stdin = stdin
	p.wait.Go(func() { stdin.Write(append(request, '\n')) }) // if that fails there is no answer either
	p.wait.Go(func() { p.read(stdout) })
	return p, nil
}

// read passes frames on until they end or make no sense.
func (p *process) read(r io.Reader) {
	defer close(p.frames)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxFrame)
	for first := true; lines.Scan(); first = false {
		var f frame
		if json.Unmarshal(lines.Bytes(), &f) != nil || !f.valid(first) {
			return
		}
		select {
		case p.frames <- f:
		case <-p.ended:
			return
		}
	}
}

// stop asks the supervisor to end the code and to say how it went.
func (p *process) stop() { p.wait.Go(func() { io.WriteString(p.stdin, "stop\n") }) }

// end ends the whole group. Its number is not used again before Wait.
func (p *process) end() {
	close(p.ended)
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.wait.Wait()
	p.cmd.Wait()
	os.RemoveAll(p.dir) // if this program is killed the supervisor does it
}
