package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/typescript"
	"github.com/execbroker/execbroker/internal/wire"
)

// Run executes a request by the rules of driver.Session.Run. That the connection has ended is a
// *LostError in an ErrUnavailable.
func (c *client) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if ctx.Err() != nil {
		return driver.Exit{}, context.Cause(ctx)
	}
	var size executor.TerminalSize
	if req.Terminal != nil {
		size = req.Terminal.Size()
	}
	s, err := c.open(ctx, request(req, size))
	if err != nil {
		return driver.Exit{}, err
	}
	r := &run{c: c, s: s, ctx: ctx, emit: emit, stdin: req.Stdin, size: size, value: wire.Parts{Max: wire.MaxOutput}}
	defer r.close()
	if req.Stdin != nil {
		go r.feed(req.Stdin) // cannot be waited for: a Read may last longer than the run
	}
	if req.Terminal != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var resizing sync.WaitGroup
		resizing.Go(func() { r.resize(ctx, req.Terminal) })
		defer resizing.Wait()
		defer cancel()
	}
	exit, err := r.wait()
	if err != nil || len(r.entries) == 0 {
		return exit, err
	}
	changed, err := wire.ParseChanged(r.entries, wire.MaxValues)
	if err != nil {
		return exit, driver.Fail(executor.ErrInternal, executor.RanYes, err)
	}
	files := c.Files()
	exit.Artifacts, exit.ArtifactsOmitted, err = driver.Collect(ctx, req.Artifacts, changed,
		func(ctx context.Context, name string) (io.ReadCloser, error) {
			rc, err := files.Read(ctx, path.Join(c.info.Workdir, name))
			if errors.Is(err, errWithheld) {
				r.refused = executor.ReasonCode
			}
			return rc, err
		})
	return r.verdict(exit), err
}

// verdict returns how a run ended, if the code has not forged or withheld what is collected of it.
func (r *run) verdict(exit driver.Exit) driver.Exit {
	if r.refused != "" && (exit.Reason == "" || exit.Reason == "canceled") {
		exit.Code, exit.Exception, exit.Reason = -1, nil, r.refused
	}
	return exit
}

// request encodes a run. size is that of its terminal, if it has one.
func request(req *executor.Request, size executor.TerminalSize) wire.Map {
	m := wire.RunRequest(req)
	m["output"] = req.Limits.OutputBytes
	if len(req.Command) > 0 {
		m["argv"] = wire.List(req.Command)
		if req.Terminal != nil {
			m["rows"], m["columns"] = int64(size.Rows), int64(size.Columns)
		}
	} else {
		m["language"], m["context"], m["code"] = string(req.Language), req.Context, req.Code
		if req.Language == executor.TypeScript {
			m["language"], m["typescript"] = string(executor.JavaScript), typescript.Packed()
		}
	}
	return m
}

// run is a run in progress. All of it but feed and resize is on the goroutine that called Run.
type run struct {
	c       *client
	s       *stream
	ctx     context.Context // of the caller
	emit    func(executor.Event) error
	started bool
	emitErr error
	refused executor.Reason // not empty: what the code has said, or what is collected of it, is not taken
	value   wire.Parts      // a value of which more follows
	entries []byte          // of changed files
	stdin   io.Reader
	size    executor.TerminalSize // of its terminal, as the runner knows it; for resize
}

// close ends the run if nothing else has, and waits for that: emit may have panicked.
func (r *run) close() {
	if !r.s.ended {
		stop, cancel := driver.StopContext(r.ctx)
		defer cancel()
		if r.s.stop(stop) == nil {
			for !r.s.ended {
				f, err := r.s.frame(stop)
				if err != nil {
					break
				}
				if f.Costs() && r.s.consumed(stop, len(f.Payload)) != nil {
					break
				}
			}
		}
	}
	r.s.forget()
}

// wait handles what comes until the run has ended.
func (r *run) wait() (driver.Exit, error) {
	ctx := r.ctx
	for {
		f, err := r.s.frame(ctx)
		if err != nil && ctx == r.ctx && ctx.Err() != nil {
			// The code is to be stopped; what it has produced until then is passed on.
			stop, cancel := driver.StopContext(r.ctx)
			defer cancel()
			if err = r.s.stop(stop); err == nil {
				ctx = stop
				continue
			}
		}
		if err != nil {
			return driver.Exit{Code: -1}, r.lost(err)
		}
		exit, over, err := r.frame(ctx, f)
		if over || err != nil {
			return exit, err
		}
		if (r.emitErr != nil || r.refused != "") && ctx == r.ctx {
			stop, cancel := driver.StopContext(r.ctx)
			defer cancel()
			if err := r.s.stop(stop); err != nil {
				return driver.Exit{Code: -1}, r.lost(err)
			}
			ctx = stop
		}
	}
}

// lost returns the error of a run whose end is not known, or whose request the runner has not seen.
func (r *run) lost(err error) error {
	ran := r.c.ran(r.s.id)
	if r.started {
		ran = executor.RanYes
	}
	var e *executor.Error
	if errors.As(err, &e) {
		return driver.Fail(e.Kind, ran, e.Err)
	}
	return driver.Fail(executor.ErrUnavailable, ran, errors.New("the run did not end when it was stopped"))
}

// frame handles a frame. over says that it was the last.
func (r *run) frame(ctx context.Context, f wire.Frame) (exit driver.Exit, over bool, err error) {
	broken := func(err error) (driver.Exit, bool, error) {
		return driver.Exit{Code: -1}, true, r.lost(driver.Fail(executor.ErrInternal, executor.RanMaybe, err))
	}
	if f.Costs() && !r.started {
		return broken(fmt.Errorf("%v before the code had started", f.Type))
	}
	switch f.Type {
	case wire.Started:
		m, err := wire.ParseMap(f.Payload)
		if err != nil || r.started {
			return broken(errors.Join(err, errors.New("unexpected start")))
		}
		r.started = true
		r.event(executor.Event{Kind: executor.EventStarted, Cell: int(m.Int("cell"))})
	case wire.Data:
		switch f.Channel {
		case wire.Stdout:
			r.event(executor.Event{Kind: executor.EventStdout, Data: f.Payload})
		case wire.Stderr:
			r.event(executor.Event{Kind: executor.EventStderr, Data: f.Payload})
		case wire.Entries:
			if r.entries = append(r.entries, f.Payload...); len(r.entries) > wire.Window {
				return broken(errors.New("too many files have changed"))
			}
		}
	case wire.Output:
		if r.refused != "" {
			break
		}
		payload, err := r.value.Add(f)
		if err != nil {
			r.refused = executor.ReasonOutput
		} else if payload != nil {
			out, err := wire.ParseOutput(payload)
			if err != nil {
				r.refused = executor.ReasonCode
			} else {
				r.event(executor.Event{Kind: executor.EventOutput, Output: out})
			}
		}
	case wire.Done:
		m, err := answer(f)
		if err != nil {
			return broken(err)
		}
		if !reasons[executor.Reason(m.Text("reason"))] {
			return broken(fmt.Errorf("an end for the reason %.40q", m.Text("reason")))
		}
		if counter, ok := r.stdin.(executor.InputCounter); ok && m["taken"] != nil {
			counter.Taken(max(0, m.Int("taken")))
		}
		exit, err = r.exit(m)
		return exit, true, err
	case wire.Fail:
		_, err := answer(f)
		if r.started {
			return broken(err)
		}
		if r.ctx.Err() != nil {
			err = driver.Fail(executor.ErrUnavailable, executor.RanNo, context.Cause(r.ctx))
		}
		return driver.Exit{Code: -1}, true, err
	}
	if f.Costs() {
		if err := r.s.consumed(ctx, len(f.Payload)); err != nil && ctx.Err() == nil {
			return driver.Exit{Code: -1}, true, r.lost(err)
		}
	}
	return driver.Exit{}, false, nil
}

// event passes an event on, unless an earlier one was refused.
func (r *run) event(ev executor.Event) {
	if r.emitErr == nil {
		r.emitErr = r.emit(ev)
	}
}

// reasons are those that a runner gives. It knows of no full disk: code hears of that itself.
var reasons = map[executor.Reason]bool{
	"": true, "canceled": true, executor.ReasonWallTime: true, executor.ReasonMemory: true, executor.ReasonOutput: true,
	executor.ReasonSignal: true, executor.ReasonReset: true, executor.ReasonLifetime: true, executor.ReasonSandbox: true,
	executor.ReasonCode: true, executor.ReasonProcesses: true,
}

// exit returns how a run ended.
func (r *run) exit(m wire.Map) (driver.Exit, error) {
	exit := m.Exit()
	exit.Reason, exit.Signal = executor.Reason(m.Text("reason")), m.Text("signal")
	exit.StateFresh, exit.FilesLost = m.Bool("fresh"), m.Bool("gone")
	exit.Usage = executor.Usage{CPU: time.Duration(max(0, m.Int("cpu"))), PeakMemory: max(0, m.Int("memory"))}
	if complete, told := m["artifacts"].(bool); told && !complete {
		r.refused = executor.ReasonCode // nobody can say which files the code has changed
	}
	if r.emitErr == nil {
		exit = r.verdict(exit)
	}
	switch {
	case exit.Reason != "canceled":
		return exit, r.emitErr
	case r.emitErr != nil:
		exit.Reason = ""
		return exit, r.emitErr
	}
	exit.Reason = ""
	return exit, context.Cause(r.ctx)
}

// feed sends standard input until it or the run ends.
func (r *run) feed(stdin io.Reader) {
	ctx := context.WithoutCancel(r.ctx) // ends with the stream
	buf := make([]byte, 64<<10)
	for {
		n, err := stdin.Read(buf)
		if r.s.send(ctx, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = r.s.finish(ctx) // as above
			return
		}
	}
}

// resize tells the runner of every size that a terminal gets, until ctx ends.
func (r *run) resize(ctx context.Context, t *executor.Terminal) {
	for {
		size, err := t.Changed(ctx, r.size)
		if err != nil {
			return
		}
		r.size = size
		if _, err := r.c.ask(ctx, wire.Map{"op": "resize", "run": int64(r.s.id), "rows": int64(size.Rows), "columns": int64(size.Columns)}); err != nil {
			return // the connection or the run is at its end
		}
	}
}
