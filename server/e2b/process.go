package e2b

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/stdin"
)

const (
	maxProcesses = 256 // of a sandbox, at a time
	keepEnded    = 64  // processes that can still be connected to
	firstPID     = 1000
)

// processService is the service of commands. A process is a run of a command that outlives the
// connection that started it, as at E2B. Backends do not tell process IDs, so they are made here.
type processService struct {
	b *sandbox

	mu    sync.Mutex
	last  uint32
	procs map[uint32]*process
	ended []uint32 // oldest first
}

var _ pb.ProcessHandler = (*processService)(nil)

type process struct {
	pid      uint32
	terminal *executor.Terminal // nil: none
	tag      *string
	config   *pb.ProcessConfig
	stop     context.CancelCauseFunc
	input    *stdin.Input // nil: none
	out      *feed
	start    chan struct{} // closed when it has started, or will not
	failed   error         // it has not; set before start is closed
	run      func(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error)
}

// signalError says by which signal a client has ended a process.
type signalError struct{ name string }

func (e signalError) Error() string { return "signal: " + e.name }

var (
	killed     = signalError{"killed"}
	terminated = signalError{"terminated"}
)

func (s *processService) Start(ctx context.Context, r *connect.Request[pb.StartRequest], out *connect.ServerStream[pb.StartResponse]) error {
	m := r.Msg
	c := m.GetProcess()
	if c.GetCmd() == "" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("process.cmd: is required"))
	}
	req := executor.Request{Command: append([]string{c.Cmd}, c.Args...), Env: c.Envs, Dir: c.GetCwd(), Keep: -1, Limits: executor.RunLimits{WallTime: s.b.wallTime()}}
	terminal, err := terminalOf(m.Pty)
	if err != nil {
		return err
	}
	req.Terminal = terminal
	if missing := s.b.contexts.caps.MissingForRequest(req); len(missing) > 0 {
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("commands: the backend of this sandbox has no %s", strings.Join(missing, ", ")))
	}
	p := &process{terminal: terminal, tag: m.Tag, config: c, out: newFeed(), start: make(chan struct{}), run: s.b.session.Run}
	if userOf(r.Header()) == rootUser { // which was let through
		p.run = func(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
			return s.b.root(ctx, s.b.session, req, emit)
		}
	}
	if terminal != nil || m.Stdin == nil || *m.Stdin {
		p.input = stdin.New()
		req.Stdin = p.input
	}
	// The deadline of the request is that of the process. Its connection is not.
	life, cancel := s.b.life, context.CancelFunc(func() {})
	if d, ok := ctx.Deadline(); ok {
		life, cancel = context.WithDeadline(life, d)
	}
	life, p.stop = context.WithCancelCause(life)
	if err := s.add(p); err != nil {
		p.stop(nil)
		cancel()
		return err
	}
	reader := p.out.connect()
	defer reader.close()
	go func() { // the end of the sandbox waits for it
		defer s.b.jobs.Done()
		defer cancel()
		s.run(life, p, req)
	}()
	select {
	case <-p.start:
	case <-ctx.Done():
		return s.b.rpcError(ctx.Err())
	}
	if p.failed != nil {
		return s.b.rpcError(p.failed)
	}
	return s.follow(ctx, p, reader, ping(r.Header()), func(e *pb.ProcessEvent) error { return out.Send(&pb.StartResponse{Event: e}) })
}

// add gives p its number.
func (s *processService) add(p *process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.procs)-len(s.ended) >= maxProcesses:
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("a sandbox has at most %d processes; end one first", maxProcesses))
	case !s.b.begin():
		return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is gone"))
	}
	if s.procs == nil {
		s.procs, s.last = map[uint32]*process{}, firstPID
	}
	s.last++
	p.pid = s.last
	s.procs[p.pid] = p
	return nil
}

// run runs the command of p to its end.
func (s *processService) run(ctx context.Context, p *process, req executor.Request) {
	defer p.stop(nil)
	var started sync.Once
	result, err := func() (*executor.Result, error) {
		give, err := take(ctx, s.b.contexts.one)
		if err != nil {
			return nil, context.Cause(ctx)
		}
		defer give()
		result, err := p.run(ctx, req, func(ev executor.Event) error {
			switch ev.Kind {
			case executor.EventStarted:
				started.Do(func() { close(p.start) })
			case executor.EventStdout:
				if p.terminal != nil {
					return p.out.push(ctx, &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: ev.Data}})
				}
				return p.out.push(ctx, &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: ev.Data}})
			case executor.EventStderr:
				return p.out.push(ctx, &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: ev.Data}})
			case executor.EventOutput, executor.EventDone: // commands have none
			}
			return nil
		})
		if err == nil && p.terminal == nil {
			if text := s.b.sudoRefusal(p.config, result); text != nil {
				err = p.out.push(ctx, &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: text}})
			}
		}
		return result, err
	}()
	if p.input != nil {
		p.input.Close()
	}
	cause := context.Cause(ctx)
	started.Do(func() {
		p.failed = err
		close(p.start)
	})
	s.over(p) // before anybody hears of its end
	switch {
	case err != nil && errors.As(cause, new(signalError)):
		text := cause.Error()
		p.out.finish(&pb.ProcessEvent_EndEvent{ExitCode: -1, Status: text, Error: &text}, nil)
	case err != nil || s.b.life.Err() != nil: // then what came of it is the end of the sandbox
		s.b.seen(err)
		p.out.finish(nil, err)
	default:
		p.out.finish(ending(result), nil)
	}
}

// over moves p to the ended processes. Clients can connect to the last keepEnded of them.
func (s *processService) over(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = append(s.ended, p.pid); len(s.ended) > keepEnded {
		delete(s.procs, s.ended[0])
		s.ended = s.ended[1:]
	}
}

// ending says how a command has ended.
func ending(r *executor.Result) *pb.ProcessEvent_EndEvent {
	e := &pb.ProcessEvent_EndEvent{ExitCode: int32(r.ExitCode), Exited: true, Status: fmt.Sprintf("exit status %d", r.ExitCode)}
	if r.Status != executor.StatusOK && r.Status != executor.StatusFailed {
		e.Exited, e.Status = false, fmt.Sprint(r.Err())
	}
	if r.Status != executor.StatusOK {
		e.Error = &e.Status
	}
	return e
}

// follow sends what p does until its end.
func (s *processService) follow(ctx context.Context, p *process, r *reader, every time.Duration, send func(*pb.ProcessEvent) error) error {
	if err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: p.pid}}}); err != nil {
		return err
	}
	keepalive := time.NewTicker(every)
	defer keepalive.Stop()
	for {
		c, done, wait := r.read()
		var e *pb.ProcessEvent
		switch {
		case c != nil:
			e = &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: c}}
		case done && p.out.end == nil:
			return s.b.rpcError(p.out.err)
		case done:
			return send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: p.out.end}})
		default:
			select {
			case <-wait:
				continue
			case <-keepalive.C:
				e = &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}
			case <-ctx.Done():
				return s.b.rpcError(ctx.Err())
			}
		}
		if err := send(e); err != nil {
			return err
		}
	}
}

func (s *processService) Connect(ctx context.Context, r *connect.Request[pb.ConnectRequest], out *connect.ServerStream[pb.ConnectResponse]) error {
	p, err := s.find(r.Msg.Process)
	if err != nil {
		return err
	}
	reader := p.out.connect()
	defer reader.close()
	return s.follow(ctx, p, reader, ping(r.Header()), func(e *pb.ProcessEvent) error { return out.Send(&pb.ConnectResponse{Event: e}) })
}

// find returns the process that a selector names.
func (s *processService) find(sel *pb.ProcessSelector) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		switch by := sel.GetSelector().(type) {
		case *pb.ProcessSelector_Pid:
			if p.pid == by.Pid {
				return p, nil
			}
		case *pb.ProcessSelector_Tag:
			if p.tag != nil && *p.tag == by.Tag {
				return p, nil
			}
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %v not found", sel))
}

// living returns the process that a selector names, unless it has ended.
func (s *processService) living(sel *pb.ProcessSelector) (*process, error) {
	p, err := s.find(sel)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.Contains(s.ended, p.pid) {
			return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process %d has ended", p.pid))
		}
	}
	return p, err
}

func (s *processService) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &pb.ListResponse{}
	for _, pid := range slices.Sorted(maps.Keys(s.procs)) {
		if p := s.procs[pid]; !slices.Contains(s.ended, pid) {
			a.Processes = append(a.Processes, &pb.ProcessInfo{Config: p.config, Pid: pid, Tag: p.tag})
		}
	}
	return connect.NewResponse(a), nil
}

// SendSignal ends a process and all that it has started. The contract has no signals, and no
// gentler way to end a run.
func (s *processService) SendSignal(_ context.Context, r *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	p, err := s.living(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	switch r.Msg.Signal {
	case pb.Signal_SIGNAL_SIGKILL:
		p.stop(killed)
	case pb.Signal_SIGNAL_SIGTERM:
		p.stop(terminated)
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("signal %v: not supported by this server", r.Msg.Signal))
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}

// Update resizes the terminal of a process.
func (s *processService) Update(_ context.Context, r *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	p, err := s.living(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	if size := r.Msg.GetPty().GetSize(); size != nil {
		if p.terminal == nil {
			return nil, connect.NewError(connect.CodeInternal, errors.New("error resizing tty: tty not assigned to process"))
		}
		err = resize(p.terminal, size)
	}
	return answerOr(&pb.UpdateResponse{}, err)
}

// terminalOf returns the terminal that a client asks for, or nil.
func terminalOf(asked *pb.PTY) (*executor.Terminal, error) {
	if asked == nil {
		return nil, nil
	}
	t := new(executor.Terminal)
	if asked.Size == nil {
		return t, nil
	}
	return t, resize(t, asked.Size)
}

func resize(t *executor.Terminal, size *pb.PTY_Size) error {
	if err := t.Resize(executor.TerminalSize{Rows: int(size.Rows), Columns: int(size.Cols)}); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return nil
}

// send gives input to a process. It waits until there is room.
func (s *processService) send(ctx context.Context, p *process, in *pb.ProcessInput) error {
	var data []byte
	switch in := in.GetInput().(type) {
	case *pb.ProcessInput_Pty:
		if p.terminal == nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to tty: tty not assigned to process; send input to its stdin"))
		}
		data = in.Pty
	case *pb.ProcessInput_Stdin:
		if p.terminal != nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to stdin: tty assigned to process; send input to its pty"))
		}
		if p.input == nil {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("process %d was started without stdin", p.pid))
		}
		data = in.Stdin
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("input: neither stdin nor pty"))
	}
	if err := p.input.Send(ctx, data); err != nil {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return nil
}

func (s *processService) SendInput(ctx context.Context, r *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	p, err := s.living(r.Msg.Process)
	if err == nil {
		err = s.send(ctx, p, r.Msg.Input)
	}
	return answerOr(&pb.SendInputResponse{}, err)
}

func (s *processService) StreamInput(ctx context.Context, in *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var p *process
	for in.Receive() {
		var err error
		switch e := in.Msg().Event.(type) {
		case *pb.StreamInputRequest_Start:
			p, err = s.living(e.Start.Process)
		case *pb.StreamInputRequest_Data:
			if p == nil {
				err = connect.NewError(connect.CodeInvalidArgument, errors.New("the stream does not begin with a start"))
				break
			}
			err = s.send(ctx, p, e.Data.Input)
		}
		if err != nil {
			return nil, err
		}
	}
	return answerOr(&pb.StreamInputResponse{}, in.Err())
}

func (s *processService) CloseStdin(_ context.Context, r *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	p, err := s.living(r.Msg.Process)
	if err != nil {
		return nil, err
	}
	switch {
	case p.terminal != nil:
		return nil, connect.NewError(connect.CodeUnknown, errors.New("error closing stdin: a PTY process has none; send Ctrl+D (0x04) instead"))
	case p.input == nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("process %d was started without stdin", p.pid))
	}
	p.input.Close()
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}
