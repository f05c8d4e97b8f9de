package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/remote"
)

// Attach implements executor.Executor.
func (x *exec) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	ctx, endProgress := executor.ScopeProgress(ctx)
	defer endProgress()
	var s *session
	err := x.do(ctx, executor.Op{Name: "attach", Session: h.Session}, func(c *call) error {
		if x.b.Attach == nil {
			return unsupported(string(executor.FeatureAttach))
		}
		if err := x.checkHandle(h); err != nil {
			return err
		}
		if h.Fence != 0 && !x.info.Capabilities.Has(executor.FeatureFencing) {
			return unsupported(string(executor.FeatureFencing))
		}
		return x.attempt(c, x.o.CreateTimeout, func(ctx context.Context) error {
			base, labels, err := x.lookup(ctx, h)
			if err != nil {
				return err
			}
			if base.State == executor.SessionDead {
				return Fail(executor.ErrNotFound, executor.RanNo, errDead)
			}
			box, err := x.b.Attach(ctx, base.Handle)
			if err != nil {
				return err
			}
			s, err = x.adopt(box, base, labels)
			if err == nil && s.id != h.Session {
				err = Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the driver has attached to session %q instead", s.id))
			}
			if s != nil && err != nil {
				s.letGo()
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// checkHandle refuses what MarshalText refuses, and handles of other backends.
func (x *exec) checkHandle(h executor.Handle) error {
	if _, err := h.MarshalText(); err != nil {
		return err
	}
	if h.Type != x.o.Type {
		return Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("the handle is of a backend of type %q, this one is %q", h.Type, x.o.Type))
	}
	return nil
}

var errDead = errors.New("the sandbox is dead")

// errForeign tells another owner's sandbox from one that is gone.
var errForeign = errors.New("this owner has none of that name")

// lookup asks the provider about a sandbox of this owner. base describes a session that is
// attached: what the provider says, and what is known from the handle only.
func (x *exec) lookup(ctx context.Context, h executor.Handle) (base executor.SessionInfo, labels map[string]string, err error) {
	base, err = x.b.Lookup(ctx, h)
	if err != nil {
		return base, nil, err
	}
	labels = base.Labels
	if owner := labels[LabelOwner]; owner != x.env.Owner {
		x.log.Warn("a session of another owner was asked for", "session", h.Session, "owner", owner)
		return base, nil, Fail(executor.ErrNotFound, executor.RanNo, errForeign)
	}
	base.Handle = h
	base.Handle.Run, base.Handle.MaxRun = x.boundsOf(h)
	base.Handle.IdleTTL = min(cmp.Or(h.IdleTTL, executor.DefaultIdleTTL), longest)
	if base.Created.IsZero() {
		base.Created = h.Created
	}
	if len(base.Capabilities.Languages) == 0 {
		caps := x.info.Capabilities
		if ls := splitLanguages(labels[LabelLanguages]); len(ls) > 0 || !caps.Has(executor.FeatureMixedLanguages) {
			caps = caps.For(ls...)
		}
		base.Capabilities = caps
	}
	return base, labels, nil
}

// boundsOf returns the run limits that h carries. A handle is not signed, so it cannot raise them
// above those of the backend.
func (x *exec) boundsOf(h executor.Handle) (run, maxRun executor.RunLimits) {
	spec := executor.Spec{Run: h.Run, MaxRun: h.MaxRun}
	_, maxRun = spec.Bounds()
	ceiling := x.info.Capabilities.MaxRun
	if c := ceiling.WallTime; c > 0 && (maxRun.WallTime == executor.NoLimit || maxRun.WallTime > c) {
		maxRun.WallTime = c
	}
	if c := ceiling.OutputBytes; c > 0 {
		maxRun.OutputBytes = min(maxRun.OutputBytes, c)
	}
	if len(h.Run.Exceeds(maxRun)) > 0 { // what was forged, or allowed once, falls back to the ceiling
		spec.Run = executor.RunLimits{}
	}
	run, _ = executor.Spec{Run: spec.Run, MaxRun: maxRun}.Bounds()
	return run, maxRun
}

// Destroy implements executor.Executor.
func (x *exec) Destroy(ctx context.Context, h executor.Handle) error {
	return x.do(ctx, executor.Op{Name: "destroy", Session: h.Session}, func(c *call) error {
		if err := x.checkHandle(h); err != nil {
			return err
		}
		return x.attempt(c, x.o.CleanupTimeout, func(ctx context.Context) error {
			attaches := x.b.Destroy != nil
			if held := x.held(h.Session); len(held) > 0 {
				var errs []error
				destroyed := false
				for _, s := range held {
					err := s.destroy(ctx)
					errs = append(errs, err)
					destroyed = destroyed || err == nil && !s.detached.Load()
				}
				// A session that was fenced off by a later one cannot destroy the sandbox, nor one
				// that is being detached. The driver can, without a session.
				if err := joinFailures(errs...); !attaches || destroyed && err == nil || err != nil && !errors.Is(err, executor.ErrClosed) {
					return err
				}
			}
			if !attaches {
				return unsupported(string(executor.FeatureAttach))
			}
			base, _, err := x.lookup(ctx, h)
			if errors.Is(err, executor.ErrNotFound) && !errors.Is(err, errForeign) {
				return nil
			}
			if err == nil {
				err = x.b.Destroy(ctx, base.Handle)
			}
			return err
		})
	})
}

// LastContact implements executor.Executor.
func (x *exec) LastContact(ctx context.Context, h executor.Handle) (at time.Time, err error) {
	err = x.do(ctx, executor.Op{Name: "last-contact", Session: h.Session}, func(c *call) error {
		if x.b.LastContact == nil {
			return unsupported("last-contact")
		}
		if err := x.checkHandle(h); err != nil {
			return err
		}
		return x.attempt(c, x.o.CreateTimeout, func(ctx context.Context) error {
			base, _, err := x.lookup(ctx, h)
			if err == nil && base.State == executor.SessionDead {
				err = Fail(executor.ErrNotFound, executor.RanNo, errDead)
			}
			if err == nil {
				at, err = x.b.LastContact(ctx, base.Handle)
			}
			return err
		})
	})
	return at, err
}

// held returns the sessions of this Executor that are open on a sandbox.
func (x *exec) held(id string) (held []*session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.live {
		if s.id == id {
			held = append(held, s)
		}
	}
	return held
}

// Sessions implements executor.Executor.
func (x *exec) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		c := &call{x: x}
		defer c.finish()
		err := c.begin(ctx, executor.Op{Name: "sessions"})
		if err == nil {
			err = x.list(c, labels, yield)
		}
		if err = c.end(err); err != nil {
			yield(executor.SessionInfo{}, err)
		}
	}
}

// list yields what the driver lists and the labels allow. The filter of the provider saves traffic;
// it is not relied on.
func (x *exec) list(c *call, labels map[string]string, yield func(executor.SessionInfo, error) bool) error {
	if x.b.Sessions == nil {
		return unsupported(string(executor.FeatureList))
	}
	if err := (executor.Spec{Labels: labels}).Validate(); err != nil {
		return err
	}
	want := map[string]string{}
	maps.Copy(want, labels)
	want[LabelOwner] = x.env.Owner // the last: nobody lists what is another's
	for info, err := range x.b.Sessions(c.ctx, maps.Clone(want)) {
		switch {
		case err != nil:
			err = x.fail(c.ctx, "sessions", "", true, err)
			c.out.Err = err
			info = executor.SessionInfo{}
		case !remote.Carries(info.Labels, want) || info.Handle.Session == "":
			continue
		default:
			info = x.listed(info)
		}
		if !yield(info, err) {
			break
		}
	}
	return nil
}

// letGo detaches from a sandbox after an Attach that has failed.
func (s *session) letGo() {
	if s.box.Detach == nil { // that is why it failed
		s.x.mu.Lock()
		delete(s.x.live, s)
		s.x.mu.Unlock()
		return
	}
	if err := s.Detach(); err != nil {
		s.x.log.Warn("a session that could not be used was not detached from either", "session", s.id, "error", err)
	}
}

// listed completes what the driver says about a sandbox that is not open.
func (x *exec) listed(i executor.SessionInfo) executor.SessionInfo {
	i.Handle.Backend, i.Handle.Type = x.env.Name, x.o.Type
	if i.Handle.Created.IsZero() {
		i.Handle.Created = i.Created
	}
	i.State = cmp.Or(i.State, executor.SessionRunning)
	i.Instance = cmp.Or(i.Instance, i.Labels[LabelInstance])
	i.Aliases = splitAliases(i.Labels[LabelAliases])
	i.Labels = openLabels(i.Labels)
	i.Capabilities = executor.Capabilities{}
	return i
}
