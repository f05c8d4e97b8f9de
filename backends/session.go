package backends

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// metaSubject is what the broker adds to handles. A handle stays with the application, so the subject still is not sent to a backend.
const metaSubject = "broker.subject"

// session puts the guard, the figures and the audit around a session of a route. Everything else goes through.
type session struct {
	executor.Session
	b       *Broker
	arm     *arm
	subject string
	born    time.Time
	leave   func() // of the guard
	once    sync.Once
}

// As lets backend-specific values through.
func (s *session) As(target any) bool { return executor.As(s.Session, target) }

// Info is that of the route's session, with the subject in its handle.
func (s *session) Info() executor.SessionInfo { return s.mark(s.Session.Info()) }

// Refresh likewise.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	if err != nil {
		return i, err
	}
	return s.mark(i), nil
}

func (s *session) mark(i executor.SessionInfo) executor.SessionInfo {
	if s.subject != "" {
		i.Handle.Meta = maps.Clone(i.Handle.Meta)
		if i.Handle.Meta == nil {
			i.Handle.Meta = map[string]string{}
		}
		i.Handle.Meta[metaSubject] = s.subject
	}
	return i
}

// Run implements executor.Session.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	a := Audit{Op: "run", Language: s.language(req.Language)}
	a.CodeSHA256, a.CodeBytes = code(req)
	return s.run(a, func() (*executor.Result, error) { return s.Session.Run(ctx, req, emit) })
}

// Install implements executor.Session.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	named := p
	named.Language = s.language(p.Language)
	a := Audit{Op: "install", Language: named.Language, Packages: []executor.Packages{named}}
	return s.run(a, func() (*executor.Result, error) { return s.Session.Install(ctx, p, emit) })
}

// language returns what an empty Language of a request means.
func (s *session) language(l executor.Language) executor.Language {
	if ls := s.Session.Info().Capabilities.Languages; l == "" && len(ls) > 0 {
		return ls[0].Language
	}
	return l
}

func (s *session) run(a Audit, do func() (*executor.Result, error)) (res *executor.Result, err error) {
	h := s.Session.Info().Handle
	a.Time, a.Subject, a.Origin = time.Now(), s.subject, origin(s.arm, h.Session)
	defer func() {
		s.arm.ran(res, err, time.Since(a.Time))
		a.closing(res, err)
		s.b.audit(a)
	}()
	end, refused := s.b.guard.run(s.subject, a.CodeBytes, a.Packages...)
	if refused != nil {
		refused.Op, refused.Backend, refused.Session = a.Op, h.Backend, h.Session
		return nil, refused
	}
	defer end()
	return do()
}

// Detach implements executor.Session.
func (s *session) Detach() error {
	err := s.Session.Detach()
	if err == nil || errors.Is(err, executor.ErrClosed) {
		s.end()
	}
	return err
}

// Close implements executor.Session.
func (s *session) Close() error {
	defer s.end()
	return s.Session.Close()
}

// end lets go of what the session counts for.
func (s *session) end() {
	s.once.Do(func() {
		s.leave()
		s.arm.ended(time.Since(s.born))
	})
}

func origin(a *arm, session string) executor.Origin {
	return executor.Origin{Backend: a.s.Backend, Session: session, Route: a.s.Route, Assigned: a.s.Assigned}
}

// ran returns what an error says about the code.
func ran(err error) executor.Ran {
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		return e.Ran
	}
	return executor.RanMaybe
}

// named returns packages with the language that an empty one means, as far as the Spec tells.
func named(spec executor.Spec) []executor.Packages {
	out := slices.Clone(spec.Packages)
	for i := range out {
		switch {
		case out[i].Language != "":
		case len(spec.Languages) > 0:
			out[i].Language = spec.Languages[0]
		default:
			out[i].Language = executor.Python
		}
	}
	return out
}
