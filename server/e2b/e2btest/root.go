package e2btest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/executor"
)

// started makes a program say the number of its process before it becomes what was asked for.
var started = []string{"/bin/sh", "-c", `echo $$ && exec "$@"`, "sh"}

const stopTime = 30 * time.Second

// Root runs req.Command as root in the container of a session of the Docker backend: it is the Root
// of e2b.Config. Root has the capabilities SETUID, SETGID and KILL there and no others, and the
// files of the container are not its own. Limits of the run are not enforced.
func Root(ctx context.Context, s executor.Session, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	var c docker.Container
	if !executor.As(s, &c) {
		return nil, &executor.Error{Op: "run", Kind: executor.ErrUnsupported, Ran: executor.RanNo, Err: errors.New("not a session of the Docker backend")}
	}
	r := &rootRun{engine: c.Client, container: c.ID, emit: emit, known: make(chan struct{})}
	result, err := r.run(ctx, req)
	if e := (*executor.Error)(nil); err != nil && ctx.Err() == nil && !errors.As(err, &e) {
		err = &executor.Error{Op: "run", Kind: executor.ErrUnavailable, Ran: executor.RanMaybe, Err: err}
	}
	return result, err
}

type rootRun struct {
	engine    *client.Client
	container string
	emit      func(executor.Event) error
	seq       int
	head      []byte        // of stdout, until the number of the process is known
	known     chan struct{} // closed when it is
	pid       int           // set before
}

func (r *rootRun) run(ctx context.Context, req executor.Request) (*executor.Result, error) {
	if req.Terminal != nil {
		return nil, &executor.Error{Op: "run", Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{string(executor.FeaturePTY)}}
	}
	env := []string{"HOME=/root", "USER=root", "LOGNAME=root"}
	for k, v := range req.Env {
		env = append(env, k+"="+v)
	}
	dir := req.Dir
	if dir == "" {
		dir = "/"
	}
	made, err := r.engine.ExecCreate(ctx, r.container, client.ExecCreateOptions{
		User: "0:0", AttachStdin: req.Stdin != nil, AttachStdout: true, AttachStderr: true, WorkingDir: dir, Env: env,
		Cmd: append(append([]string{}, started...), req.Command...),
	})
	if err != nil {
		return nil, err
	}
	a, err := r.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if req.Stdin != nil {
		go func() { // cannot be waited for: a Read may last longer than the process
			if _, err := io.Copy(a.Conn, req.Stdin); err == nil {
				_ = a.CloseWrite() // the process that it was for may have ended
			}
		}()
	}
	kill := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		kill <- r.kill(context.WithoutCancel(ctx), made.ID)
		a.Close()
	})
	begin := time.Now()
	_, err = stdcopy.StdCopy(output{r, executor.EventStdout}, output{r, executor.EventStderr}, a.Reader)
	result := &executor.Result{Status: executor.StatusCanceled, ExitCode: -1, Started: begin, Duration: time.Since(begin)}
	if !stop() {
		return result, errors.Join(context.Cause(ctx), <-kill)
	}
	if err != nil { // emit's, or of the connection
		return result, errors.Join(err, r.kill(context.WithoutCancel(ctx), made.ID))
	}
	if result.ExitCode, err = r.exitCode(ctx, made.ID); err != nil {
		return result, err
	}
	if result.Status = executor.StatusOK; result.ExitCode != 0 {
		result.Status = executor.StatusFailed
	}
	return result, nil
}

// exitCode waits for the engine to notice the end of a process whose output has ended.
func (r *rootRun) exitCode(ctx context.Context, id string) (int, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		i, err := r.engine.ExecInspect(ctx, id, client.ExecInspectOptions{})
		if err != nil || !i.Running {
			return i.ExitCode, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return -1, context.Cause(ctx)
		}
	}
}

// ended is a shell program that kills a process group and waits for its end: a process that was
// killed and gets no processor is still there. What it prints says that it has not ended.
const ended = `kill -9 -%[1]d; i=0
while kill -0 -%[1]d; do i=$((i+1)); [ $i -gt 400 ] && echo left && exit; sleep 0.05; done 2>/dev/null`

// kill ends the process group of a process. The engine has no request for that; its number on the
// host is of no use to another process in the container, so the process has said the one that it
// has there.
func (r *rootRun) kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if i, err := r.engine.ExecInspect(ctx, id, client.ExecInspectOptions{}); err != nil || !i.Running {
		return nil //nolint:nilerr // with its container the process is gone too
	}
	select {
	case <-r.known:
	case <-ctx.Done():
		return errors.New("the process does not say its number")
	}
	made, err := r.engine.ExecCreate(ctx, r.container, client.ExecCreateOptions{
		User: "0:0", AttachStdout: true, Cmd: []string{"/bin/sh", "-c", fmt.Sprintf(ended, r.pid)},
	})
	if err != nil {
		return err
	}
	a, err := r.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer a.Close()
	said, err := io.ReadAll(io.LimitReader(a.Reader, 64))
	if err == nil && len(said) > 0 {
		err = errors.New("the processes were killed and have not ended")
	}
	return err
}

// output makes events of what the process writes.
type output struct {
	r    *rootRun
	kind executor.EventKind
}

func (o output) Write(p []byte) (int, error) {
	n, data := len(p), p
	if o.kind == executor.EventStdout && o.r.pid == 0 {
		var err error
		if data, err = o.r.begin(p); err != nil {
			return 0, err
		}
	}
	if len(data) == 0 {
		return n, nil
	}
	return n, o.r.event(executor.Event{Kind: o.kind, Data: append(executor.Bytes(nil), data...)})
}

// begin looks for the number of the process and returns what follows it.
func (r *rootRun) begin(p []byte) (rest []byte, err error) {
	for i, c := range p {
		if c != '\n' {
			if r.head = append(r.head, c); len(r.head) > 10 {
				break
			}
			continue
		}
		if r.pid, err = strconv.Atoi(string(r.head)); err != nil {
			break
		}
		close(r.known)
		return p[i+1:], r.event(executor.Event{Kind: executor.EventStarted})
	}
	if err != nil || len(r.head) > 10 {
		return nil, fmt.Errorf("the process began with %q", r.head)
	}
	return nil, nil
}

func (r *rootRun) event(e executor.Event) error {
	e.Seq, e.Time = r.seq, time.Now()
	r.seq++
	return r.emit(e)
}
