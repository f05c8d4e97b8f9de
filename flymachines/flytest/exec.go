package flytest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

const (
	defaultExec = 30 * time.Second
	maxExecTime = 60 * time.Second
	maxOutput   = 4 << 20 // of each stream; Fly's bound is not publicly known
)

// tooLarge is what the init of a guest says of a request that is larger than it accepts. Fly passes
// it on as if the command had printed it, with exit code 0.
const tooLarge = `Unhandled rejection: Rejection([PayloadTooLarge, MethodNotAllowed])`

type execAnswer struct {
	ExitCode   int    `json:"exit_code"`
	ExitSignal int    `json:"exit_signal,omitempty"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
}

// execute runs a command in a Machine. Its standard input is dropped, as users of Fly report; what
// it prints is text.
func execute(ctx context.Context, c *call) (answer, error) {
	if len(c.body) > maxExec {
		return ok(execAnswer{Stdout: tooLarge})
	}
	var in struct {
		Command   []string `json:"command"`
		Cmd       string   `json:"cmd"` // deprecated
		Stdin     string   `json:"stdin"`
		Timeout   int      `json:"timeout"` // seconds
		Container string   `json:"container"`
	}
	if err := c.decode(&in); err != nil {
		return answer{}, err
	}
	if in.Cmd != "" && len(in.Command) == 0 {
		words, err := split(in.Cmd)
		if err != nil {
			return answer{}, fail(http.StatusBadRequest, "invalid_argument: cmd: %v", err)
		}
		in.Command = words
	}
	timeout := time.Duration(in.Timeout) * time.Second
	switch {
	case len(in.Command) == 0:
		return answer{}, fail(http.StatusBadRequest, "invalid_argument: command is required")
	case in.Container != "":
		return answer{}, ours("container: Machines with several containers are not supported")
	case timeout > maxExecTime:
		return answer{}, errExecRange()
	case timeout <= 0:
		timeout = defaultExec
	}
	id, err := c.container()
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errExecExpired())
	defer cancel()
	a, err := c.s.exec(ctx, id, in.Command)
	switch {
	case ctx.Err() != nil: // the process may go on, as with Fly
		return answer{}, context.Cause(ctx)
	case errdefs.IsNotFound(err), errdefs.IsConflict(err):
		return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: machine not running")
	case err != nil:
		return answer{}, err
	}
	return ok(a)
}

// container returns the container of a Machine that runs.
func (c *call) container() (string, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.m.dead {
		return "", fail(http.StatusRequestTimeout, "deadline_exceeded: host is unreachable")
	}
	if c.m.state != stateStarted || c.m.container == "" {
		return "", fail(http.StatusPreconditionFailed, "failed_precondition: machine not running")
	}
	return c.m.container, nil
}

func (s *Server) exec(ctx context.Context, id string, command []string) (*execAnswer, error) {
	made, err := s.engine.ExecCreate(ctx, id, client.ExecCreateOptions{AttachStdout: true, AttachStderr: true, Cmd: command})
	if err != nil {
		return nil, err
	}
	conn, err := s.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)() // the engine goes on sending, whatever the context
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&atMost{&stdout}, &atMost{&stderr}, conn.Reader); err != nil {
		return nil, err
	}
	i, err := s.engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err != nil {
		return nil, err
	}
	return &execAnswer{ExitCode: i.ExitCode, Stdout: stdout.String(), Stderr: stderr.String()}, nil
}

// atMost keeps the beginning of what is written.
type atMost struct{ b *bytes.Buffer }

func (w *atMost) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), maxOutput-w.b.Len())])
	return len(p), nil
}

// split cuts a command line into words, as a shell would without expanding anything.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	open, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, open = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quote != 0 || escaped {
		return nil, io.ErrUnexpectedEOF
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// signalInput is the body of signal.
type signalInput struct {
	Signal any `json:"signal"`
}

// signal sends a signal to the main process. Clients send its name or, as Fly's own do, its number.
func signal(ctx context.Context, c *call, in *signalInput) (answer, error) {
	number := 0
	switch v := in.Signal.(type) {
	case float64:
		number = int(v)
	case string:
		n, err := parseSignal(v)
		if err != nil {
			return answer{}, fail(http.StatusBadRequest, "invalid_argument: %v", err)
		}
		number = n
	}
	if number < 1 || number > 31 {
		return answer{}, fail(http.StatusBadRequest, "invalid_argument: signal: want a name or a number from 1 to 31")
	}
	c.s.mu.Lock()
	err := c.m.mayChange(c)
	c.s.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	id, err := c.container()
	if err != nil {
		return answer{}, err
	}
	if _, err := c.s.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: strconv.Itoa(number)}); err != nil {
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
			return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: machine not running")
		}
		return answer{}, fmt.Errorf("engine: %w", err)
	}
	return okay()
}

type processJSON struct {
	PID           int      `json:"pid"`
	STime         uint64   `json:"stime"`
	RTime         uint64   `json:"rtime"`
	Command       string   `json:"command"`
	Directory     string   `json:"directory"`
	CPU           uint64   `json:"cpu"`
	RSS           uint64   `json:"rss"` // bytes
	ListenSockets []string `json:"listen_sockets"`
}

// processes lists what runs in a Machine, with the numbers that the engine's machine knows it by.
func processes(ctx context.Context, c *call) (answer, error) {
	id, err := c.container()
	if err != nil {
		return answer{}, err
	}
	top, err := c.s.engine.ContainerTop(ctx, id, client.ContainerTopOptions{Arguments: []string{"-o", "pid,rss,args"}})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: machine not running")
	}
	if err != nil {
		return answer{}, fmt.Errorf("engine: %w", err)
	}
	found := []processJSON{}
	for _, p := range top.Processes {
		if len(p) != 3 {
			continue
		}
		pid, perr := strconv.Atoi(p[0])
		rss, rerr := strconv.ParseUint(p[1], 10, 40)
		if perr == nil && rerr == nil {
			found = append(found, processJSON{PID: pid, RSS: rss << 10, Command: p[2], ListenSockets: []string{}})
		}
	}
	return ok(found)
}
