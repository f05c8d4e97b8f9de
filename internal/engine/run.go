package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Run implements executor.Session.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if req.ID == "" {
		req.ID = NewID()
	}
	if len(req.Command) == 0 && req.Language == "" && req.Code != "" {
		req.Language = s.firstLanguage()
	}
	ctx, endProgress := executor.ScopeProgress(ctx)
	defer endProgress()
	r := &run{call: call{x: s.x, s: s}, caller: ctx, req: &req, emit: emit, grace: s.x.o.Grace}
	defer r.finish()
	err := r.begin(ctx, executor.Op{Name: "run", Session: s.id, Run: req.ID, Language: req.Language})
	if err == nil {
		err = s.prepare(&req)
	}
	if err == nil {
		slot := executor.Interpreter{Language: s.caps.Interpreter(req.Language), Context: req.Context}
		if len(req.Command) > 0 {
			slot.Context = commands
		}
		return r.in(slot, func(ctx context.Context) (Exit, error) { return s.box.Run(ctx, &req, r.event) })
	}
	return nil, r.refused(err)
}

// prepare validates req against the session and fills in its defaults.
func (s *session) prepare(req *executor.Request) error {
	if err := req.Validate(); err != nil {
		return err
	}
	if m := s.caps.MissingForRequest(*req); len(m) > 0 {
		return unsupported(m...)
	}
	info := s.Info()
	req.Limits = req.Limits.Or(info.Run)
	if m := req.Limits.Exceeds(info.MaxRun); len(m) > 0 {
		return Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("limits: the session allows %s", strings.Join(m, ", ")))
	}
	req.Limits.WallTime = min(req.Limits.WallTime, longest)
	if req.Dir != "" {
		dir, err := s.names.absolute(req.Dir)
		if err != nil {
			return Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("dir: %w", err))
		}
		req.Dir = dir
	}
	if req.Artifacts != nil {
		a := *req.Artifacts
		a.MaxFiles, a.MaxBytes = artifactLimits(&a)
		a.Globs = slices.Clone(a.Globs)
		var bad []error
		for i, g := range a.Globs {
			var err error
			a.Globs[i], err = s.names.relative(g)
			bad = append(bad, err)
		}
		if err := errors.Join(bad...); err != nil {
			return Fail(executor.ErrInvalid, executor.RanNo, err)
		}
		req.Artifacts = &a
	}
	req.Keep = cmp.Or(req.Keep, executor.DefaultKeep)
	return nil
}

// Install implements executor.Session.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	ctx, endProgress := executor.ScopeProgress(ctx)
	defer endProgress()
	return s.install(ctx, p, emit)
}

// install installs packages. To the clocks and the capture it is a run whose wall time is the
// backend's.
func (s *session) install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	p.Language = s.caps.Interpreter(cmp.Or(p.Language, s.firstLanguage()))
	req := executor.Request{
		ID: NewID(), Language: p.Language, Keep: executor.DefaultKeep,
		Limits: executor.RunLimits{WallTime: s.x.o.InstallTimeout, OutputBytes: executor.DefaultOutputBytes},
	}
	r := &run{call: call{x: s.x, s: s}, caller: ctx, req: &req, emit: emit}
	defer r.finish()
	err := r.begin(ctx, executor.Op{Name: "install", Session: s.id, Run: req.ID, Language: p.Language})
	if err == nil {
		err = (executor.Spec{Packages: []executor.Packages{p}}).Validate()
	}
	if err == nil {
		err = s.lacksFor(p.Language, executor.FeaturePackages)
	}
	if err == nil {
		slot := executor.Interpreter{Language: p.Language, Context: installing}
		return r.in(slot, func(ctx context.Context) (Exit, error) { return s.box.Install(ctx, p, r.event) })
	}
	return nil, r.refused(err)
}

// in does the run when it has the slot.
func (r *run) in(slot executor.Interpreter, f func(context.Context) (Exit, error)) (*executor.Result, error) {
	slot, err := r.s.acquire(slot)
	if err != nil {
		return nil, r.refused(err)
	}
	defer r.s.release(slot)
	done, err := r.s.outlive(r.ctx, r.req.Limits.WallTime)
	if err != nil {
		return nil, r.refused(err)
	}
	defer done()
	r.start()
	defer r.stop()
	exit, err := f(&r.sandbox)
	return r.result(exit, err)
}

// StopContext is driver.StopContext.
func StopContext(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Value(stopKey{}).(time.Duration)
	if !ok {
		d = stopTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

type stopKey struct{}

// sandboxContext is what the driver gets: a context that knows StopTimeout.
type sandboxContext struct {
	context.Context
	stop time.Duration
}

// Value implements context.Context.
func (c *sandboxContext) Value(key any) any {
	if key == (stopKey{}) {
		return c.stop
	}
	return c.Context.Value(key)
}

// errEnded is what a driver gets for events after the end.
var errEnded = errors.New("the run has ended")
