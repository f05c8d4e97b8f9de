package conformancetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// above makes a fault of a function that changes runs as their callers see them.
func above(run func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error)) func(OpenFunc) OpenFunc {
	return func(open OpenFunc) OpenFunc {
		return func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			x, err := open(ctx, params)
			if err != nil {
				return nil, err
			}
			return &changedExecutor{x, run}, nil
		}
	}
}

type changedExecutor struct {
	executor.Executor
	run func(*changedSession, context.Context, executor.Request, emitFunc) (*executor.Result, error)
}

func (x *changedExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return x.wrap(x.Executor.Create(ctx, spec))
}

func (x *changedExecutor) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	return x.wrap(x.Executor.Attach(ctx, h))
}

func (x *changedExecutor) wrap(s executor.Session, err error) (executor.Session, error) {
	if err != nil {
		return nil, err
	}
	return &changedSession{Session: s, x: x}, nil
}

type changedSession struct {
	executor.Session
	x    *changedExecutor
	late atomic.Pointer[emitFunc] // of the run before
}

func (s *changedSession) As(target any) bool { return executor.As(s.Session, target) }

func (s *changedSession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	return s.x.run(s, ctx, req, emit)
}

// aboveFaults are those that driver.New would undo.
func aboveFaults() []Fault {
	return []Fault{
		{
			Name: "events-out-of-order", Doc: "Events are not numbered in the order in which they come.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				if emit == nil {
					return s.Session.Run(ctx, req, nil)
				}
				return s.Session.Run(ctx, req, func(ev executor.Event) error {
					if ev.Seq > 0 {
						ev.Seq = (ev.Seq - 1) ^ 1 + 1
					}
					return emit(ev)
				})
			}),
		},
		{
			Name: "event-after-the-end", Doc: "An event of a run comes when Run has returned: when the next one begins.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				if late := s.late.Swap(nil); late != nil {
					func() {
						defer func() { recover() }() // the loop of a Stream has ended and says so
						(*late)(executor.Event{Kind: executor.EventStdout, Data: executor.Bytes("late")})
					}()
				}
				res, err := s.Session.Run(ctx, req, emit)
				if emit != nil {
					s.late.Store(&emit)
				}
				return res, err
			}),
		},
		{
			Name: "events-on-another-goroutine", Doc: "Events come on a goroutine of their own.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				if emit == nil {
					return s.Session.Run(ctx, req, nil)
				}
				return s.Session.Run(ctx, req, func(ev executor.Event) (err error) {
					var panicked any
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { panicked = recover() }()
						err = emit(ev)
					}()
					if <-done; panicked != nil {
						panic(panicked)
					}
					return err
				})
			}),
		},
		{
			Name: "characters-split", Doc: "Events end in the middle of characters.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				if emit == nil {
					return s.Session.Run(ctx, req, nil)
				}
				seq := 0
				return s.Session.Run(ctx, req, func(ev executor.Event) error {
					halves := []executor.Bytes{ev.Data}
					for i, b := range ev.Data {
						if b >= 0xC0 {
							halves = []executor.Bytes{ev.Data[:i+1], ev.Data[i+1:]}
							break
						}
					}
					for _, h := range halves {
						ev.Seq, ev.Data = seq, h
						seq++
						if err := emit(ev); err != nil {
							return err
						}
					}
					return nil
				})
			}),
		},
		{
			Name: "started-as-not-run", Doc: "An error of a run that had started says that nothing ran.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				res, err := s.Session.Run(ctx, req, emit)
				var e *executor.Error
				if errors.As(err, &e) {
					changed := *e
					changed.Ran = executor.RanNo
					err = &changed
				}
				return res, err
			}),
		},
		{
			Name: "secret-in-an-error", Doc: "Errors of runs tell the environment of the code.",
			Needs: []executor.Feature{executor.FeatureEnv},
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				res, err := s.Session.Run(ctx, req, emit)
				var e *executor.Error
				if errors.As(err, &e) && len(req.Env) > 0 {
					changed := *e
					changed.Err = fmt.Errorf("running with %v: %w", req.Env, e.Kind)
					err = &changed
				}
				return res, err
			}),
		},
		{
			Name: "busy-waits", Doc: "A second run in an interpreter waits for the first.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				for {
					res, err := s.Session.Run(ctx, req, emit)
					if !errors.Is(err, executor.ErrBusy) {
						return res, err
					}
					time.Sleep(10 * time.Millisecond)
				}
			}),
		},
		{
			Name: "failure-as-error", Doc: "Code that fails makes an error.",
			Above: above(func(s *changedSession, ctx context.Context, req executor.Request, emit emitFunc) (*executor.Result, error) {
				res, err := s.Session.Run(ctx, req, emit)
				if err == nil && res.Status == executor.StatusFailed {
					err = &executor.Error{Op: "run", Backend: res.Origin.Backend, Session: res.Origin.Session, Kind: executor.ErrUnavailable, Ran: executor.RanYes, Err: res.Err()}
				}
				return res, err
			}),
		},
		{
			Name: "other-owner-accepted", Doc: "The sandboxes of another owner can be attached to, listed and destroyed.",
			Needs: []executor.Feature{executor.FeatureAttach},
			Above: func(open OpenFunc) OpenFunc {
				return func(ctx context.Context, params map[string]string) (executor.Executor, error) {
					same := maps.Clone(params)
					delete(same, conformance.ParamOwner)
					return open(ctx, same)
				}
			},
		},
	}
}
