package backends

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// What the broker adds to handles. A handle stays with the application, so it still is not sent to
// a backend.
const (
	metaSubject    = "broker.subject"
	metaAttributes = "broker.attributes" // as JSON
)

// maxMeta is how many bytes of attributes a handle carries; more would not leave it room for what
// it needs. Beyond that it has none, and who attaches with it is audited without.
const maxMeta = 2 << 10

// attributesOf returns what a handle carries of them. It is hostile input: what is no map of text
// is nothing.
func attributesOf(h executor.Handle) (m map[string]string) {
	if text := h.Meta[metaAttributes]; text != "" && len(text) <= maxMeta && json.Unmarshal([]byte(text), &m) != nil {
		return nil
	}
	return m
}

// session puts the guard, the figures and the audit around a session of a route. Everything else
// goes through.
type session struct {
	executor.Session
	b       *Broker
	arm     *arm
	subject string
	born    time.Time
	own     bool // the program's: its runs are no turns

	attributes atomic.Pointer[map[string]string] // of the Spec, or of the last Acquire
	spent      atomic.Int64                      // nanoseconds that the next turn has taken so far
	leave      func()                            // of the guard
	once       sync.Once
}

// begin takes the session into the figures. What it has taken to get it is part of the first turn.
func (s *session) begin(a *arm, attributes map[string]string, took time.Duration) {
	s.arm = a
	s.attributes.Store(&attributes)
	s.spent.Store(int64(took))
	a.began(s)
}

// As lets backend-specific values through.
func (s *session) As(target any) bool {
	if k, ok := target.(*sessions.FileKeeper); ok {
		*k = s
		return true
	}
	return executor.As(s.Session, target)
}

// KeeperFiles are the files without the audit: see sessions.FileKeeper.
func (s *session) KeeperFiles() executor.Files { return s.Session.Files() }

// Files implements executor.Session.
func (s *session) Files() executor.Files { return &files{Files: s.Session.Files(), s: s} }

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
	attributes := ""
	if p := s.attributes.Load(); p != nil && len(*p) > 0 {
		if raw, err := json.Marshal(*p); err == nil && len(raw) <= maxMeta {
			attributes = string(raw)
		}
	}
	if s.subject == "" && attributes == "" {
		return i
	}
	i.Handle.Meta = maps.Clone(i.Handle.Meta)
	if i.Handle.Meta == nil {
		i.Handle.Meta = map[string]string{}
	}
	for key, value := range map[string]string{metaSubject: s.subject, metaAttributes: attributes} {
		if value != "" {
			i.Handle.Meta[key] = value
		}
	}
	return i
}

// Run implements executor.Session.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	a := Audit{Op: "run", Run: req.ID, Language: s.language(req.Language)}
	a.CodeSHA256, a.CodeBytes = code(req)
	return s.run(a, func() (*executor.Result, error) { return s.Session.Run(ctx, req, emit) })
}

// Install implements executor.Session.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	named := p
	named.Language = s.Session.Info().Capabilities.Interpreter(s.language(p.Language))
	a := Audit{Op: "install", Language: named.Language, Packages: []executor.Packages{named}}
	return s.run(a, func() (*executor.Result, error) { return s.Session.Install(ctx, p, emit) })
}

// Dial implements executor.Session.
func (s *session) Dial(ctx context.Context, port int) (executor.Conn, error) {
	a := Audit{Op: "dial", Port: port}
	s.opening(&a)
	c, err := s.Session.Dial(ctx, port)
	a.closing(nil, err)
	s.b.audit(a)
	return c, err
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
	s.opening(&a)
	spent := time.Duration(s.spent.Swap(0))
	defer func() {
		took := time.Since(a.Time)
		s.arm.ran(res, err, took)
		if !s.own {
			s.arm.turn(err, spent+took)
		}
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

// opening fills in what is known when an operation begins.
func (s *session) opening(a *Audit) {
	a.Time, a.Subject, a.Attributes = time.Now(), s.subject, *s.attributes.Load()
	a.Origin = origin(s.arm, s.Session.Info().Handle.Session)
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
		s.arm.ended(s)
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

// named returns packages with the language that an empty one means, as far as the Spec tells, and
// under whose name they are listed.
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
		if out[i].Language == executor.TypeScript { // which has those of JavaScript
			out[i].Language = executor.JavaScript
		}
	}
	return out
}
