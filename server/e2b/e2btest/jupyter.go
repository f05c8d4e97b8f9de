package e2btest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// kernelProgram runs a kernel of Jupyter in a sandbox.
//
//go:embed kernel.py
var kernelProgram string

// Jupyter returns x with sessions whose Python is that of Jupyter kernels, as behind E2B's code
// interpreter: its tracebacks, interrupts, aborted executions and restarts are real. The image has
// Debian's python3-ipykernel and python3-jupyter-client. Environment, directory and limits of a
// request for code are not looked at.
func Jupyter(x executor.Executor) executor.Executor { return &jupyter{x} }

type jupyter struct{ executor.Executor }

// Create implements executor.Executor.
func (j *jupyter) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := j.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &kernels{Session: s, all: map[executor.Interpreter]*kernel{}}, nil
}

// kernels is a session, and its kernels by their contexts.
type kernels struct {
	executor.Session

	mu  sync.Mutex
	all map[executor.Interpreter]*kernel
}

// As implements executor.As.
func (k *kernels) As(target any) bool { return executor.As(k.Session, target) }

// Run implements executor.Session.
func (k *kernels) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if len(req.Command) > 0 || req.Language != executor.Python {
		return k.Session.Run(ctx, req, emit)
	}
	which := executor.Interpreter{Language: req.Language, Context: req.Context}
	k.mu.Lock()
	of := k.all[which]
	if of == nil {
		of = newKernel(context.WithoutCancel(ctx), k.Session)
		k.all[which] = of
	}
	k.mu.Unlock()
	return of.run(ctx, req.Code, emit)
}

// Reset implements executor.Session.
func (k *kernels) Reset(ctx context.Context, which executor.Interpreter) error {
	k.end(func(i executor.Interpreter) bool { return i == which })
	if which.Language == executor.Python {
		return nil
	}
	return k.Session.Reset(ctx, which)
}

// Close implements executor.Session.
func (k *kernels) Close() error {
	k.end(func(executor.Interpreter) bool { return true })
	return k.Session.Close()
}

func (k *kernels) end(which func(executor.Interpreter) bool) {
	var ending []*kernel
	k.mu.Lock()
	for i, of := range k.all {
		if which(i) {
			ending = append(ending, of)
			delete(k.all, i)
		}
	}
	k.mu.Unlock()
	for _, of := range ending {
		of.cancel()
		<-of.done
	}
}

// kernel is a process of kernelProgram. One execution at a time uses it.
type kernel struct {
	input  *io.PipeWriter
	lines  chan kernelLine
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set when done is closed
	number int
}

// kernelLine is what kernelProgram says.
type kernelLine struct {
	Kind      string                     `json:"kind"`
	Number    int                        `json:"number"`
	Count     int                        `json:"count"`
	Text      string                     `json:"text"`
	Main      bool                       `json:"main"`
	Data      map[string]json.RawMessage `json:"data"`
	Name      string                     `json:"name"`
	Value     string                     `json:"value"`
	Traceback string                     `json:"traceback"`
}

func newKernel(ctx context.Context, s executor.Session) *kernel {
	in, out := io.Pipe()
	k := &kernel{input: out, lines: make(chan kernelLine, 64), done: make(chan struct{})}
	ctx, k.cancel = context.WithCancel(ctx)
	go func() { // end waits for it
		defer close(k.done)
		defer in.Close()
		var rest []byte
		_, k.err = s.Run(ctx, executor.Request{
			Command: []string{"python3", "-c", kernelProgram}, Stdin: in, Keep: -1,
			Limits: executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 40},
		}, func(e executor.Event) error {
			if e.Kind != executor.EventStdout {
				return nil
			}
			rest = append(rest, e.Data...)
			for line, more, ok := bytes.Cut(rest, []byte("\n")); ok; line, more, ok = bytes.Cut(rest, []byte("\n")) {
				var l kernelLine
				if err := json.Unmarshal(line, &l); err != nil {
					return err
				}
				select {
				case k.lines <- l:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				rest = more
			}
			return nil
		})
	}()
	return k
}

func (k *kernel) ask(what string, code string) error {
	b, err := json.Marshal(map[string]any{"do": what, "code": code, "number": k.number})
	if err == nil {
		_, err = k.input.Write(append(b, '\n'))
	}
	return err
}

// run executes code, and interrupts it when ctx ends, without waiting for what comes of that.
func (k *kernel) run(ctx context.Context, code string, emit func(executor.Event) error) (*executor.Result, error) {
	k.number++
	result := &executor.Result{Status: executor.StatusOK, Started: time.Now()}
	failed := func(err error) (*executor.Result, error) {
		result.Status, result.ExitCode = executor.StatusLost, -1
		return result, &executor.Error{Op: "run", Kind: executor.ErrUnavailable, Ran: executor.RanMaybe, Err: err}
	}
	if err := k.ask("execute", code); err != nil {
		return failed(err)
	}
	for {
		select {
		case l := <-k.lines:
			if l.Number != k.number {
				continue
			}
			e := executor.Event{Time: time.Now()}
			switch l.Kind {
			case "end":
				return result, nil
			case "restarted":
				result.Status, result.Reason, result.ExitCode, result.StateLost = executor.StatusKilled, executor.ReasonSandbox, -1, true
				return result, nil
			case "error":
				result.Status, result.ExitCode = executor.StatusFailed, -1
				result.Exception = &executor.Exception{Type: l.Name, Message: l.Value, Traceback: l.Traceback}
				continue
			case "started":
				e.Kind, e.Cell = executor.EventStarted, l.Count
			case "stdout", "stderr":
				e.Kind, e.Data = executor.EventKind(l.Kind), []byte(l.Text)
			case "output":
				e.Kind, e.Output = executor.EventOutput, l.output()
			default:
				return failed(fmt.Errorf("the kernel says %q", l.Kind))
			}
			if err := emit(e); err != nil {
				return result, errors.Join(err, k.ask("interrupt", ""))
			}
		case <-k.done:
			return failed(fmt.Errorf("the kernel has ended: %w", k.err))
		case <-ctx.Done():
			result.Status, result.ExitCode = executor.StatusCanceled, -1
			return result, errors.Join(context.Cause(ctx), k.ask("interrupt", ""))
		}
	}
}

// output returns a value or display. Jupyter writes what is no text in base64.
func (l kernelLine) output() *executor.Output {
	o := &executor.Output{Main: l.Main, Data: executor.MIMEBundle{}}
	for mime, raw := range l.Data {
		var text string
		switch err := json.Unmarshal(raw, &text); {
		case err != nil || mime == "application/json":
			o.Data[mime] = executor.Bytes(raw)
		case strings.HasPrefix(mime, "image/") && mime != "image/svg+xml":
			data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, "\n", ""))
			if err == nil {
				o.Data[mime] = data
			}
		default:
			o.Data[mime] = executor.Bytes(text)
		}
	}
	return o
}
