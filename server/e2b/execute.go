package e2b

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

const (
	silence  = 5 * time.Second // after which a stream says that it is alive
	buffered = 64              // events between code and client
)

// execute runs code and streams what it does. The code is stopped when the client is gone; its
// state survives that where the backend can.
func (b *sandbox) execute(w http.ResponseWriter, r *http.Request) {
	var ask codeRequest
	if !readFields(w, r, &ask) {
		return
	}
	req, x, err := b.codeRequest(ask)
	if err != nil {
		textError(w, err)
		return
	}
	// E2B sends the header before the code begins, and without a content type.
	w.Header()["Content-Type"] = nil
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	lines := make(chan []byte, buffered)
	var run sync.WaitGroup
	run.Go(func() {
		defer close(lines)
		b.runCode(ctx, x, req, func(line []byte) error {
			select {
			case lines <- line:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	defer run.Wait()
	if err := pump(w, lines); err != nil {
		cancel(err)
		for range lines { // until the code has stopped
		}
	}
	if b.life.Err() != nil {
		// E2B breaks the connections of a sandbox that is killed. A regular end of the stream would
		// look like success.
		run.Wait()
		panic(http.ErrAbortHandler)
	}
}

// pump writes lines to a client as they come, and something else when none comes.
func pump(w http.ResponseWriter, lines <-chan []byte) error {
	rc := http.NewResponseController(w)
	write := func(line []byte) error {
		if _, err := w.Write(line); err != nil {
			return err
		}
		return rc.Flush()
	}
	if err := write(nil); err != nil {
		return err
	}
	t := time.NewTimer(silence)
	defer t.Stop()
	for {
		line := codeEvent{Type: "keepalive"}.line()
		select {
		case l, ok := <-lines:
			if !ok {
				return nil
			}
			line = l
		case <-t.C:
		}
		if err := write(line); err != nil {
			return err
		}
		t.Reset(silence)
	}
}

// codeRequest says in the words of the contract what a client wants to run, and where.
func (b *sandbox) codeRequest(ask codeRequest) (req executor.Request, x *codeContext, err error) {
	switch {
	case ask.Code == nil:
		return req, nil, refuse(http.StatusUnprocessableEntity, "%v", errNoCode)
	case ask.ContextID != "" && ask.Language != "":
		return req, nil, refuse(http.StatusBadRequest, "Only one of context_id or language can be provided")
	}
	if x, err = b.contexts.find(ask.ContextID, ask.Language); err != nil {
		return req, nil, err
	}
	// E2B's kernel returns at the last statement.
	req = executor.Request{Language: x.Language, Context: x.name, Code: *ask.Code, Env: ask.EnvVars, Keep: -1, Linger: new(time.Duration), Limits: executor.RunLimits{WallTime: b.wallTime()}}
	if x.shell {
		return req, x, checkShell(req.Code)
	}
	if missing := b.contexts.caps.MissingForRequest(req); len(missing) > 0 {
		return req, nil, unsupported(strings.Join(missing, ", "))
	}
	return req, x, nil
}

// runCode runs req when it is its turn and gives the lines of its stream to send.
func (b *sandbox) runCode(ctx context.Context, x *codeContext, req executor.Request, send func([]byte) error) {
	give, err := take(ctx, x.turn)
	if err != nil {
		return // the client is gone
	}
	defer give()
	req.Dir = x.start()
	running := ctx
	if x.shell {
		var stop context.CancelCauseFunc
		running, stop, req = x.nextShell(ctx, req)
		defer stop(nil)
	}
	result, err := b.session.Run(running, req, func(ev executor.Event) error {
		switch ev.Kind {
		case executor.EventStarted:
			if x.shell {
				ev.Cell = x.cell()
			}
			return send(codeEvent{Type: "number_of_executions", ExecutionCount: ev.Cell}.line())
		case executor.EventStdout, executor.EventStderr:
			text := string(ev.Data)
			return send(codeEvent{Type: string(ev.Kind), Text: &text, Timestamp: ev.Time.UTC().Format("2006-01-02T15:04:05.000000Z")}.line())
		case executor.EventOutput:
			return send(resultLine(ev.Output))
		case executor.EventDone: // only from Stream
		}
		return nil
	})
	if b.seen(err); ctx.Err() != nil || b.life.Err() != nil { // nobody is there, or what came of it is the end of the sandbox
		return
	}
	if name, value, traceback := failure(result, err); name != "" {
		_ = send(codeEvent{Type: "error", Name: &name, Value: &value, Traceback: &traceback}.line())
	}
	if ctx.Err() == nil {
		_ = send(codeEvent{Type: "end_of_execution"}.line()) // who does not take it is gone
	}
}

// failure returns the error that E2B has for a result. An empty name: the code did not fail.
func failure(r *executor.Result, err error) (name, value, traceback string) {
	switch {
	case err != nil:
		return "UnexpectedEndOfExecution", err.Error(), ""
	case r.Exception != nil:
		e := r.Exception
		return cmp.Or(e.Type, "Error"), e.Message, cmp.Or(e.Traceback, e.Type+": "+e.Message)
	case r.Status == executor.StatusOK:
		return "", "", ""
	case r.Status == executor.StatusFailed:
		return "SystemExit", strconv.Itoa(r.ExitCode), ""
	}
	why := fmt.Sprintf("the code was stopped: %v", r.Err())
	if r.StateLost {
		return "ContextRestarting", why + "; the context has been restarted and its variables are lost", ""
	}
	return "ExecutionAborted", why, ""
}
