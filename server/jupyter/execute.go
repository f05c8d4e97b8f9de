package jupyter

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/internal/stdin"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/tool"
)

// executing is the content of an execute_request.
type executing struct {
	Code        string                     `json:"code"`
	Silent      bool                       `json:"silent"`
	Store       *bool                      `json:"store_history"`
	Expressions map[string]json.RawMessage `json:"user_expressions"`
	Stdin       *bool                      `json:"allow_stdin"`
	StopOnError *bool                      `json:"stop_on_error"`
}

// stream is output.
type stream struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// failure says how a request has failed, as an answer and, of a cell, as a message of its own.
type failure struct {
	Status    string   `json:"status"`
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
	Count     int      `json:"execution_count,omitempty"`
}

func failed(name, value string) *failure {
	return &failure{Status: "error", Name: name, Value: value, Traceback: []string{name + ": " + value}}
}

// executed is the answer to a cell that has ended well.
type executed struct {
	Status      string         `json:"status"`
	Count       int            `json:"execution_count"`
	Payload     []any          `json:"payload"`
	Expressions map[string]any `json:"user_expressions"`
}

// display is a value that a cell shows.
type display struct {
	Data      map[string]any `json:"data"`
	Metadata  struct{}       `json:"metadata"`
	Transient *struct{}      `json:"transient,omitempty"` // of one that is no result
	Count     int            `json:"execution_count,omitempty"`
}

// execute runs a cell. What clients see of it is published before the answer.
func (k *kernel) execute(ctx context.Context, t *task) any {
	var q executing
	if err := json.Unmarshal(t.q.content, &q); err != nil {
		return failed("ValueError", "the content is not that of an execute_request")
	}
	stored := !q.Silent && (q.Store == nil || *q.Store)
	if stored {
		k.count++
	}
	if !q.Silent {
		k.publish("execute_input", t.q.raw, map[string]any{"code": q.Code, "execution_count": k.count})
	}
	f, lost := k.run(ctx, t, q)
	if stored {
		k.past.add(k.count, q.Code)
	}
	t.lost = lost
	if f == nil {
		a := executed{Status: "ok", Count: k.count, Payload: []any{}, Expressions: map[string]any{}}
		for name := range q.Expressions {
			a.Expressions[name] = failed("NotImplementedError", "this kernel evaluates no user_expressions")
		}
		return a
	}
	k.publish("error", t.q.raw, map[string]any{"ename": f.Name, "evalue": f.Value, "traceback": f.Traceback})
	if q.StopOnError == nil || *q.StopOnError {
		k.abort()
	}
	f.Count = k.count
	return f
}

// run runs the code of a cell, and returns how it has failed, or nil. lost says that the variables
// are gone.
func (k *kernel) run(ctx context.Context, t *task, q executing) (f *failure, lost bool) {
	say := func(name, text string) { k.publish("stream", t.q.raw, stream{name, text}) }
	end, ok := k.s.runs.Enter()
	if !ok {
		return failed("Refused", errShutdown.Message), false
	}
	defer end()
	err := k.with(ctx, func(l *sessions.Lease) error {
		req := executor.Request{Language: k.about.language, Code: q.Code, Keep: -1, Limits: executor.RunLimits{WallTime: k.s.cfg.MaxTimeout}}
		if k.lost != "" {
			say("stderr", k.lost)
			k.lost = ""
		}
		var in *stdin.Input
		if (q.Stdin == nil || *q.Stdin) && k.canAsk(ctx, l) {
			in = stdin.New()
			defer in.Close()
			req.Stdin = in
		}
		res, err := l.Run(ctx, req, func(e executor.Event) error {
			switch e.Kind {
			case executor.EventStarted:
				k.cells[e.Cell] = k.count
				delete(k.cells, e.Cell-maxPast)
			case executor.EventStdout, executor.EventStderr:
				say(string(e.Kind), strings.ToValidUTF8(e.Data.String(), "\ufffd"))
			case executor.EventOutput:
				if question, ok := e.Output.Data[mimeInput]; ok {
					k.ask(t, in, question)
				} else if !q.Silent {
					k.show(t.q.raw, e.Output)
				}
			case executor.EventDone: // only from Stream
			}
			return nil
		})
		k.asked()
		if res == nil {
			return err
		}
		for _, notice := range res.Notices {
			say("stderr", notice+"\n")
		}
		if lost = res.StateLost; lost {
			k.ready = false
			say("stderr", "The interpreter was restarted: variables are gone.\n")
		}
		if err == nil || errors.Is(context.Cause(ctx), errInterrupted) {
			f, err = k.failure(res, err != nil), nil
		}
		return err
	})
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errInterrupted):
		return failed("KeyboardInterrupt", ""), lost
	case err != nil:
		k.s.cfg.Log.WarnContext(ctx, "a cell did not run", "kernel", k.id, "id", front.RequestID(ctx), "kind", executor.KindName(err), "err", err)
		return failed("SandboxError", tool.Explain(err)), lost
	}
	return f, lost
}

// show publishes a value.
func (k *kernel) show(parent json.RawMessage, o *executor.Output) {
	d := display{Data: bundle(o.Data)}
	if o.Main {
		d.Count = k.count
		k.publish("execute_result", parent, d)
		return
	}
	d.Transient = new(struct{})
	k.publish("display_data", parent, d)
}

// failure returns how the code of a cell has failed, or nil.
func (k *kernel) failure(res *executor.Result, interrupted bool) *failure {
	f := &failure{Status: "error"}
	switch e := res.Exception; {
	case interrupted:
		f.Name = "KeyboardInterrupt"
	case res.Status == executor.StatusOK:
		return nil
	case e != nil:
		f.Name, f.Value = cmp.Or(e.Type, "Error"), e.Message
	case res.Status == executor.StatusFailed:
		f.Name, f.Value = "SystemExit", strconv.Itoa(res.ExitCode)
	case res.Status == executor.StatusTimedOut:
		f.Name, f.Value = "TimeoutError", "the cell ran for longer than "+k.s.cfg.MaxTimeout.String()
	default:
		f.Name, f.Value = "SandboxError", server.Failure(res)
	}
	trace := strings.TrimSuffix(f.Name+": "+f.Value, ": ")
	if e := res.Exception; e != nil && e.Traceback != "" {
		trace = k.renumber(strings.TrimRight(e.Traceback, "\n"))
	}
	f.Traceback = strings.Split(trace, "\n")
	return f
}

// bundle returns a value in the form of the protocol: JSON as it is, text as text, and everything
// else in base64.
func bundle(b executor.MIMEBundle) map[string]any {
	data := map[string]any{}
	for mime, v := range b {
		isJSON := mime == "application/json" || strings.HasSuffix(mime, "+json")
		media, _, _ := strings.Cut(mime, "/")
		binary := media == "image" || media == "audio" || media == "video" || mime == "application/pdf" || mime == "application/octet-stream"
		switch {
		case isJSON && json.Valid(v):
			data[mime] = json.RawMessage(v)
		case utf8.Valid(v) && (!binary || mime == "image/svg+xml"):
			data[mime] = string(v)
		default:
			data[mime] = base64.StdEncoding.EncodeToString(v)
		}
	}
	return data
}
