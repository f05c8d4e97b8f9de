package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// session implements executor.Session.
type session struct {
	executor.BaseSession
	x        *exec
	box      *Sandbox
	id       string                // Handle.Session
	caps     executor.Capabilities // of this session
	reserved map[string]string     // its reserved labels
	names    names                 // the aliases that they tell

	calls    tracker   // in progress, of this session
	closing  untilDone // Close or Detach
	detached atomic.Bool
	left     atomic.Bool // its removal is tried in the background
	expiry   expiry

	mu   sync.Mutex
	info executor.SessionInfo // fills in where the driver says nothing
	use
}

var _ executor.Session = (*session)(nil)

// setInfo takes over what the driver says, completed by what is known already, and returns it.
func (s *session) setInfo(i executor.SessionInfo) executor.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.info
	if b.Created.IsZero() {
		b.Created = time.Now()
	}
	if i.Created.IsZero() {
		i.Created = b.Created
	}
	h := b.Handle // limits, TTLs, Meta and Fence are not the driver's
	h.Backend, h.Type = s.x.env.Name, s.x.o.Type
	h.Session = cmp.Or(i.Handle.Session, h.Session)
	if i.Handle.State != nil {
		h.State = i.Handle.State
	}
	if h.Created.IsZero() {
		h.Created = i.Created
	}
	i.Handle, i.Run, i.MaxRun = h, h.Run, h.MaxRun
	i.State = cmp.Or(i.State, executor.SessionRunning)
	i.Template = cmp.Or(i.Template, b.Template)
	i.Limits = cmp.Or(i.Limits, b.Limits)
	i.CPU = max(i.CPU, b.CPU)
	i.Aliases = s.names
	i.Instance = s.reserved[LabelInstance]
	if i.Expires.IsZero() {
		i.Expires = s.expiry.at()
	}
	if len(i.Capabilities.Languages) == 0 {
		i.Capabilities = b.Capabilities
	}
	if s.reserved[LabelPorts] != portsAsked {
		i.Capabilities.Features = without(i.Capabilities.Features, executor.FeaturePorts)
	}
	if i.Labels == nil {
		i.Labels = b.Labels
	}
	i.Labels = openLabels(i.Labels)
	s.info = i
	return i
}

// without returns features but for one. The slice is another's, and stays as it is.
func without(features []executor.Feature, f executor.Feature) []executor.Feature {
	if !slices.Contains(features, f) {
		return features
	}
	return slices.DeleteFunc(slices.Clone(features), func(o executor.Feature) bool { return o == f })
}

// Info implements executor.Session.
func (s *session) Info() executor.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// As supports executor.As.
func (s *session) As(target any) bool {
	if t, ok := target.(*executor.Suspender); ok {
		if s.box.Suspend != nil && s.x.o.Suspends {
			*t = s
			return true
		}
		return false
	}
	found := s.box.As != nil && s.box.As(target)
	if e, ok := target.(*executor.Ender); ok && found {
		*e = ender{s, *e}
	}
	return found
}

// ender is the Ender of a driver, which may not know what this holder has ended itself.
type ender struct {
	s *session
	executor.Ender
}

func (e ender) AfterEnd(f func()) (stop func() bool) {
	return e.Ender.AfterEnd(func() {
		if !e.s.calls.isClosed() {
			f()
		}
	})
}

// firstLanguage returns the default of requests. It is empty if the configuration has lost all that
// the session was made for.
func (s *session) firstLanguage() executor.Language {
	r, _ := s.caps.Runtime("")
	return r.Language
}

// lacks refuses what needs f unless the session has it; a PerLanguage feature, in each of its
// languages. An empty f needs nothing.
func (s *session) lacks(f executor.Feature) error {
	if f == "" || s.caps.Has(f) {
		return nil
	}
	if i, _ := f.Info(); !i.PerLanguage {
		return unsupported(string(f))
	}
	var missing []string
	for _, r := range s.caps.Languages {
		if !s.caps.HasFor(r.Language, f) {
			missing = append(missing, string(f)+":"+string(r.Language))
		}
	}
	return unsupported(missing...)
}

// lacksFor refuses what needs the PerLanguage feature f in l unless the session has it.
func (s *session) lacksFor(l executor.Language, f executor.Feature) error {
	if _, ok := s.caps.Runtime(l); !ok {
		return unsupported("language:" + string(l))
	}
	if !s.caps.HasFor(l, f) {
		return unsupported(string(f) + ":" + string(l))
	}
	return nil
}

// someHave reports whether the session has f in one of its languages.
func (s *session) someHave(f executor.Feature) bool {
	return slices.ContainsFunc(s.caps.Languages, func(r executor.Runtime) bool { return s.caps.HasFor(r.Language, f) })
}

// Refresh implements executor.Session.
func (s *session) Refresh(ctx context.Context) (info executor.SessionInfo, err error) {
	err = s.do(ctx, "refresh", "", func(ctx context.Context) (err error) {
		if s.box.Refresh == nil {
			info = s.setInfo(s.box.Info())
			return nil
		}
		if info, err = s.box.Refresh(ctx); err != nil {
			return err
		}
		if got := info.Handle.Session; got != "" && got != s.id {
			return Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the driver has answered for session %q", got))
		}
		s.expiry.learn(info.Expires)
		info = s.setInfo(info)
		return nil
	})
	if err != nil {
		return executor.SessionInfo{}, err
	}
	return info, nil
}

// Reset implements executor.Session. It does not acquire a slot, since its purpose is to end the
// run in progress.
func (s *session) Reset(ctx context.Context, which executor.Interpreter) error {
	return s.do(ctx, "reset", "", func(ctx context.Context) error {
		if err := s.canReset(which); err != nil {
			return err
		}
		which.Language = s.caps.Interpreter(which.Language)
		return s.box.Reset(ctx, which)
	})
}

func (s *session) canReset(which executor.Interpreter) error {
	if which.Context != "" {
		// The form of a context is that of a request's.
		if err := (executor.Request{Language: cmp.Or(which.Language, "any"), Context: which.Context}).Validate(); err != nil {
			return err
		}
	}
	if which.Language == "" {
		if !s.someHave(executor.FeatureState) {
			return s.lacks(executor.FeatureState)
		}
		if which.Context != "" && !s.someHave(executor.FeatureContexts) {
			return s.lacks(executor.FeatureContexts)
		}
		return nil
	}
	if err := s.lacksFor(which.Language, executor.FeatureState); err != nil || which.Context == "" {
		return err
	}
	return s.lacksFor(which.Language, executor.FeatureContexts)
}

// KeepAlive implements executor.Session.
func (s *session) KeepAlive(ctx context.Context, idle time.Duration) (expires time.Time, err error) {
	err = s.do(ctx, "keep-alive", executor.FeatureKeepAlive, func(ctx context.Context) (err error) {
		if idle <= 0 {
			return Fail(executor.ErrInvalid, executor.RanNo, errors.New("idle ttl: want more than nothing"))
		}
		if m := s.caps.MaxLife; m > 0 && idle > m {
			return unsupported(fmt.Sprintf("idle-ttl<=%v", m))
		}
		idle = min(idle, longest)
		expires, err = s.keepAlive(ctx, idle)
		if err == nil {
			s.mu.Lock()
			s.info.Handle.IdleTTL = idle
			s.mu.Unlock()
		}
		return err
	})
	return expires, err
}

// Suspend implements executor.Suspender.
func (s *session) Suspend(ctx context.Context) error {
	return s.do(ctx, "suspend", "", func(ctx context.Context) error {
		if err := s.beginSuspend(); err != nil {
			return err
		}
		defer s.endSuspend()
		return s.box.Suspend(ctx)
	})
}
