package modaltest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// router is the command router of every task: what starts processes in Sandboxes and carries their
// streams. Methods that it does not have answer Unimplemented.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	*Server
}

// process is a process that was started in a Sandbox.
type process struct {
	conn     client.HijackedResponse
	out, err *output
	ready    chan struct{} // closed when conn is there, or failed is set
	failed   error
	over     chan struct{} // closed when code is known
	code     int

	writing chan struct{} // holds one token for whom writes standard input
	written uint64        // bytes of it, by the token
	closed  bool          // by the token
}

// maxProcesses bounds how many processes of a Sandbox are remembered.
const maxProcesses = 1000

// TaskExecStart implements pb.TaskCommandRouterServer. The ID of a process makes it idempotent, as
// the messages of Modal say.
func (r *router) TaskExecStart(ctx context.Context, q *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	if err := only(q, "task_id", "exec_id", "command_args", "stdout_config", "stderr_config", "timeout_secs", "workdir", "env", "secret_sources"); err != nil {
		return nil, err
	}
	x, err := r.mine(ctx, q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if q.GetExecId() == "" || len(q.GetExecId()) > 64 || len(q.GetCommandArgs()) == 0 {
		return nil, fail(codes.InvalidArgument, "want an exec ID and a command")
	}
	env, err := environment(q.GetSecretSources())
	if err != nil {
		return nil, err
	}
	for k, v := range q.GetEnv() {
		env = append(env, k+"="+v)
	}
	p := &process{out: newOutput(), err: newOutput(), ready: make(chan struct{}), over: make(chan struct{}), writing: make(chan struct{}, 1)}
	x.mu.Lock()
	switch {
	case x.procs[q.GetExecId()] != nil:
		first := x.procs[q.GetExecId()]
		x.mu.Unlock()
		r.count("repeated")
		if err := first.wait(ctx); err != nil {
			return nil, err
		}
		return &pb.TaskExecStartResponse{}, nil
	case x.result != nil || x.why != pb.GenericResult_GENERIC_STATUS_UNSPECIFIED:
		x.mu.Unlock()
		return nil, fail(codes.FailedPrecondition, "the Sandbox has ended")
	case len(x.procs) >= maxProcesses:
		x.mu.Unlock()
		return nil, fail(codes.ResourceExhausted, "the Sandbox has had %d processes", maxProcesses)
	}
	x.procs[q.GetExecId()] = p
	x.busy++
	if x.idle != nil {
		x.idle.Stop()
	}
	x.mu.Unlock()
	id, err := r.begin(x, p, q, env)
	if err != nil {
		x.mu.Lock()
		delete(x.procs, q.GetExecId())
		x.mu.Unlock()
		x.released()
		if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
			err = fail(codes.FailedPrecondition, "the Sandbox has ended")
		}
		p.failed = err
		close(p.ready)
		return nil, err
	}
	close(p.ready)
	r.count("processes")
	r.work.Go(func() { r.follow(x, p, id, time.Duration(q.GetTimeoutSecs())*time.Second) })
	return &pb.TaskExecStartResponse{}, nil
}

// mine returns the Sandbox of a task, of which the client has a token.
func (r *router) mine(ctx context.Context, task string) (*sandbox, error) {
	if r.taskOf(ctx) != task {
		return nil, fail(codes.PermissionDenied, "the token is for another task")
	}
	return r.byTask(task)
}

// process returns a process.
func (r *router) process(ctx context.Context, task, id string) (*process, error) {
	x, err := r.mine(ctx, task)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	p := x.procs[id]
	x.mu.Unlock()
	if p == nil {
		return nil, fail(codes.NotFound, "exec '%s' not found", id)
	}
	return p, p.wait(ctx)
}

// wait waits until a process that is being started has its streams, or was not started.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.ready:
		return p.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin starts a process with its streams connected.
func (r *router) begin(x *sandbox, p *process, q *pb.TaskExecStartRequest, env []string) (id string, err error) {
	made, err := r.engine.ExecCreate(r.life, x.container, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: q.GetCommandArgs(), Env: env, WorkingDir: q.GetWorkdir(),
	})
	if err != nil {
		return "", err
	}
	at, err := r.engine.ExecAttach(r.life, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return "", err
	}
	p.conn = at.HijackedResponse
	if q.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL {
		p.out.discard()
	}
	if q.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_DEVNULL {
		p.err.discard()
	}
	return made.ID, nil
}

// follow passes on what a process writes, until it has ended.
func (r *router) follow(x *sandbox, p *process, id string, timeout time.Duration) {
	gone := sync.OnceFunc(func() { p.conn.Close(); p.out.drop(); p.err.drop() })
	var work sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() {
		var late <-chan time.Time
		if timeout > 0 {
			late = time.After(timeout)
		}
		ended := x.ended
		for {
			select {
			case <-done:
				return
			case <-ended: // what remains in the kernel is kept for readers
				p.out.hurry()
				p.err.hurry()
				ended = nil
				continue
			case <-r.life.Done():
			case <-late:
			}
			gone()
			return
		}
	})
	_, err := stdcopy.StdCopy(p.out, p.err, p.conn.Reader)
	if err != nil && !errors.Is(err, io.EOF) {
		r.cfg.Log.Debug("streams of a process", "sandbox", x.id, "error", err)
	}
	close(done)
	work.Wait()
	p.code = 137
	i, err := r.engine.ExecInspect(context.WithoutCancel(r.life), id, client.ExecInspectOptions{})
	if err == nil && !i.Running {
		p.code = i.ExitCode
	}
	p.conn.Close()
	p.out.finish()
	p.err.finish()
	close(p.over)
	x.released()
}

// released counts a process that has ended.
func (x *sandbox) released() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy--
	if x.result == nil {
		x.rest()
	}
}

// TaskExecStdioRead implements pb.TaskCommandRouterServer.
func (r *router) TaskExecStdioRead(q *pb.TaskExecStdioReadRequest, stream pb.TaskCommandRouter_TaskExecStdioReadServer) error {
	p, err := r.process(stream.Context(), q.GetTaskId(), q.GetExecId())
	if err != nil {
		return err
	}
	from := p.out
	if q.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		from = p.err
	}
	for at := q.GetOffset(); ; {
		data, err := from.read(stream.Context(), at)
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errForgotten):
			return fail(codes.OutOfRange, "what was written at offset %d is not kept any more", at)
		case err != nil:
			return err
		}
		if err := stream.Send(pb.TaskExecStdioReadResponse_builder{Data: data}.Build()); err != nil {
			return err
		}
		at += uint64(len(data))
	}
}

// TaskExecStdinWrite implements pb.TaskCommandRouterServer. What was written already is not written
// twice.
func (r *router) TaskExecStdinWrite(ctx context.Context, q *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	p, err := r.process(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case p.writing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// The engine takes what is written when the process reads, and a client that gives up meanwhile
	// asks again with the same offset.
	done := make(chan error, 1)
	r.work.Go(func() {
		defer func() { <-p.writing }()
		done <- r.write(p, q)
	})
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return &pb.TaskExecStdinWriteResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write writes to standard input what is new in a request. The caller has the token.
func (r *router) write(p *process, q *pb.TaskExecStdinWriteRequest) error {
	data, at := q.GetData(), q.GetOffset()
	if at > p.written {
		return fail(codes.OutOfRange, "offset %d is beyond %d bytes that were written", at, p.written)
	}
	if again := min(p.written-at, uint64(len(data))); again > 0 {
		r.mu.Lock()
		r.counts["twice"] += int(again)
		r.mu.Unlock()
		data = data[again:]
	}
	if p.closed {
		if len(data) == 0 {
			return nil
		}
		return fail(codes.FailedPrecondition, "standard input is closed")
	}
	n, err := p.conn.Conn.Write(data)
	p.written += uint64(n)
	if err != nil {
		return fail(codes.FailedPrecondition, "the process has ended: %v", err)
	}
	if q.GetEof() {
		p.closed = true
		return p.conn.CloseWrite()
	}
	return nil
}

// TaskExecStdinStatus implements pb.TaskCommandRouterServer.
func (r *router) TaskExecStdinStatus(ctx context.Context, q *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	p, err := r.process(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: p.written, Closed: p.closed}.Build(), nil
}

// TaskExecWait implements pb.TaskCommandRouterServer.
func (r *router) TaskExecWait(ctx context.Context, q *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	p, err := r.process(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	code := int32(p.code)
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}

// TaskExecPoll implements pb.TaskCommandRouterServer.
func (r *router) TaskExecPoll(ctx context.Context, q *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	p, err := r.process(ctx, q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-p.over:
		code := int32(p.code)
		return pb.TaskExecPollResponse_builder{Code: &code}.Build(), nil
	default:
		return &pb.TaskExecPollResponse{}, nil
	}
}
