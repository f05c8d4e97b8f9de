package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/e2b/internal/api"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
)

// daemonPort is where E2B's daemon, envd, listens in every sandbox.
const daemonPort = 49983

// daemon is envd in one sandbox. A stream that is silent for longer than silence has lost its
// connection.
type daemon struct {
	id       string
	template string // that the sandbox was made from, as the service calls it
	timeout  time.Duration
	silence  time.Duration
	procs    pb.ProcessClient
}

// sandboxTransport sends requests to a port of a sandbox.
type sandboxTransport struct {
	base   http.RoundTripper
	id     string
	port   int
	header http.Header
}

// RoundTrip implements http.RoundTripper. An answer that is not the daemon's becomes a
// *ServiceError. The Connect client would discard its body, which says what has happened to the
// sandbox.
func (t *sandboxTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range t.header {
		r.Header[k] = v
	}
	// Both are sent also where the host name says the same: some services look at them only.
	r.Header.Set("E2b-Sandbox-Id", t.id)
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(t.port))
	r.Header.Set("User-Agent", userAgent)
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	body, rerr := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var said struct {
		Code string `json:"code"`
	}
	if rerr == nil && json.Unmarshal(body, &said) == nil && said.Code != "" {
		return resp, nil // the daemon's own: its codes are words
	}
	return nil, readError(resp, t.id)
}

// base returns the address of a port of a sandbox.
func (s *service) base(sandbox *api.Sandbox, port int) string {
	if s.cfg.SandboxURL != "" {
		return strings.TrimRight(s.cfg.SandboxURL, "/")
	}
	domain := s.cfg.domain()
	if sandbox.Domain != nil && domainForm.MatchString(*sandbox.Domain) {
		domain = *sandbox.Domain
	}
	return fmt.Sprintf("https://%d-%s.%s", port, sandbox.SandboxID, domain)
}

// daemon returns envd of a sandbox that the service has described.
func (s *service) daemon(sandbox *api.Sandbox) *daemon {
	base := s.base(sandbox, daemonPort)
	h := http.Header{}
	h.Set("Keepalive-Ping-Interval", strconv.FormatInt(wholeSeconds(s.ping), 10))
	if sandbox.EnvdAccessToken != nil {
		h.Set("X-Access-Token", *sandbox.EnvdAccessToken)
	}
	// Without it the template says who the user is.
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(s.cfg.user()+":")))
	c := &http.Client{Transport: &sandboxTransport{base: s.http.Transport, id: sandbox.SandboxID, port: daemonPort, header: h}}
	return &daemon{
		id: sandbox.SandboxID, template: sandbox.TemplateID, timeout: s.cfg.timeout(), silence: 3*s.ping + 5*time.Second,
		procs: pb.NewProcessClient(c, base, connect.WithReadMaxBytes(maxEvent), connect.WithAcceptCompression("gzip", nil, nil)),
	}
}

const (
	// pingInterval is how often the daemon says that a stream lives. One of 0 would kill daemons up
	// to version 0.6.13.
	pingInterval = 15 * time.Second
	maxEvent     = 4 << 20
	maxInput     = 1 << 20
	keepStderr   = 4 << 10
)

var (
	errSilent = errors.New("nothing was heard for too long, so the connection is taken for dead")
	errCut    = errors.New("the output of the process broke off")
)

// process is a process in a sandbox, with its standard input and output. Its stderr is for
// diagnosis; the end of it is kept.
type process struct {
	d       *daemon
	pid     uint32
	stream  *connect.ServerStreamForClient[pb.StartResponse]
	life    context.Context // of the connection
	cancel  context.CancelCauseFunc
	closing func(*process) // after Close
	once    sync.Once
	watch   *time.Timer
	rest    []byte // of the last piece of output
	err     error  // of the stream; only Read has it

	ended  atomic.Pointer[pb.ProcessEvent_EndEvent]
	mu     sync.Mutex
	stderr []byte
}

// start starts a process. ctx bounds the start only. The process outlives it, and its connection.
func (d *daemon) start(ctx context.Context, command []string, closing func(*process)) (*process, error) {
	p := &process{d: d, closing: closing}
	// A deadline of this context would be one of the process.
	p.life, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { p.cancel(context.Cause(ctx)) })
	p.watch = time.AfterFunc(d.silence, func() { p.cancel(errSilent) })
	root, stdin := "/", true
	stream, err := d.procs.Start(p.life, connect.NewRequest(&pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: command[0], Args: command[1:], Cwd: &root}, Stdin: &stdin,
	}))
	if err == nil {
		p.stream = stream
		var e *pb.ProcessEvent
		if e, err = p.receive(); err == nil && e.GetStart() == nil {
			err = fmt.Errorf("the daemon began with %T", e.GetEvent())
		}
		p.pid = e.GetStart().GetPid()
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(p.life); cause != nil {
			err = cause
		}
		p.closing = nil
		p.Close()
		return nil, err
	}
	return p, nil
}

// receive waits for the next event.
func (p *process) receive() (*pb.ProcessEvent, error) {
	p.watch.Reset(p.d.silence)
	if !p.stream.Receive() {
		if cause := context.Cause(p.life); cause != nil {
			return nil, cause
		}
		if err := p.stream.Err(); err != nil {
			return nil, err
		}
		return nil, errCut // the stream is whole, but the process has not ended
	}
	return p.stream.Msg().GetEvent(), nil
}

// Read reads what the process writes to stdout. One goroutine reads at a time.
func (p *process) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		e, err := p.receive()
		if err != nil {
			p.err = err
			continue
		}
		switch e := e.GetEvent().(type) {
		case *pb.ProcessEvent_Data:
			p.rest = e.Data.GetStdout()
			p.keep(e.Data.GetStderr())
		case *pb.ProcessEvent_End:
			p.ended.Store(e.End)
			p.err = io.EOF
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *process) keep(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stderr = append(p.stderr, b...)
	p.stderr = p.stderr[max(0, len(p.stderr)-keepStderr):]
}

// said returns the end of what the process wrote to stderr.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return printable(string(p.stderr), maxMessage)
}

// Write writes to the standard input of the process. Input that was sent and not acknowledged may
// have arrived. It is never sent twice, so the connection cannot be used any more.
func (p *process) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), maxInput)]
		if err := p.send(piece); err != nil {
			return n, err
		}
		n += len(piece)
		b = b[len(piece):]
	}
	return n, nil
}

func (p *process) send(piece []byte) error {
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeoutCause(p.life, p.d.timeout, errNoAnswer)
		_, err := p.d.procs.SendInput(ctx, connect.NewRequest(&pb.SendInputRequest{
			Process: p.selector(), Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: piece}},
		}))
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel()
		// What was refused on the way, and what found nobody at the other end, was not delivered.
		if err == nil || !undelivered(err) || try+1 == attempts || !pause(p.life, try, err) {
			return err
		}
	}
}

// selector names the process by its ID: some daemons do not find all processes by tag.
func (p *process) selector() *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: p.pid}}
}

// Close ends the connection. The process goes on.
func (p *process) Close() error {
	p.once.Do(func() {
		p.watch.Stop()
		p.cancel(io.ErrClosedPipe)
		if p.closing != nil {
			p.closing(p)
		}
	})
	return nil
}

// kill ends the process.
func (p *process) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.d.timeout, errNoAnswer)
	defer cancel()
	_, err := p.d.procs.SendSignal(ctx, connect.NewRequest(&pb.SendSignalRequest{Process: p.selector(), Signal: pb.Signal_SIGNAL_SIGKILL}))
	return err
}
