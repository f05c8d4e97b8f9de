package server

import (
	"cmp"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// SessionRequest is a request for a session. Zero fields mean those of Config.Spec.
type SessionRequest struct {
	Languages   []executor.Language `json:"languages,omitempty"` // the first is the default of runs; none: the first of the backend
	Backend     string              `json:"backend,omitempty"`   // only with a key of an operator; none: the routes decide
	Template    string              `json:"template,omitempty"`
	Packages    []string            `json:"packages,omitempty"` // packages of the first language
	Env         map[string]string   `json:"env,omitempty"`
	Aliases     []string            `json:"aliases,omitempty"`      // other names of the working directory
	Ports       bool                `json:"ports,omitempty"`        // lets clients connect to servers in the sandbox: executor.Spec.Ports
	IdleSeconds float64             `json:"idle_seconds,omitempty"` // the session ends this long after its last use; zero: the longest allowed time
}

// Session describes a session.
type Session struct {
	ID          string               `json:"id"`
	Languages   []executor.Language  `json:"languages"`
	Template    string               `json:"template,omitempty"`
	Aliases     []string             `json:"aliases,omitempty"` // other names of the working directory
	Backend     string               `json:"backend"`
	Created     time.Time            `json:"created"`
	IdleSeconds float64              `json:"idle_seconds"`
	Busy        bool                 `json:"busy"` // an operation is in progress
	Limits      executor.Limits      `json:"limits"`
	Features    *BackendCapabilities `json:"capabilities,omitempty"` // not in a listing
}

// SessionList are the sessions of a key.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// session is a session of a key.
type session struct {
	executor.Session
	lease *sessions.Lease // of a conversation: the fields below but id are zero, and the Server does not end it
	id    string
	owner keyID
	idle  time.Duration
	free  func() // subtracts the session from the usage of its key
	once  sync.Once
	err   error // result of ending it

	// Guarded by Server.mu.
	uses  int
	ended bool
	timer *time.Timer
	runs  map[string]*typing // by the IDs of clients; nil: the run has ended
}

// spec returns the Spec of the sandbox for a request.
func (s *Server) spec(c Client, q SessionRequest) (executor.Spec, error) {
	spec := s.cfg.Spec
	spec.Subject, spec.Attributes = c.Subject, c.Attributes
	if len(q.Languages) > 0 {
		spec.Languages = q.Languages
	}
	spec.Template = cmp.Or(q.Template, spec.Template)
	if q.Aliases != nil {
		spec.Aliases = q.Aliases
	}
	spec.Ports = spec.Ports || q.Ports
	if len(q.Packages) > 0 {
		p := executor.Packages{Names: q.Packages}
		if len(spec.Languages) > 0 {
			p.Language = spec.Languages[0]
		}
		spec.Packages = append(slices.Clone(spec.Packages), p)
	}
	if len(q.Env) > 0 {
		spec.Env = maps.Clone(q.Env)
		maps.Copy(spec.Env, s.cfg.Spec.Env) // the configuration has precedence
	}
	idle, err := seconds("idle_seconds", q.IdleSeconds, s.cfg.MaxIdle)
	if err != nil {
		return spec, err
	}
	spec.IdleTTL = cmp.Or(idle, s.cfg.MaxIdle)
	return spec, nil
}

// seconds converts a duration of a client.
func seconds(name string, v float64, most time.Duration) (time.Duration, error) {
	if v < 0 || v > most.Seconds() || v != v {
		return 0, refuse(http.StatusBadRequest, "invalid", "%s: want 0 to %v", name, most.Seconds())
	}
	return time.Duration(v * float64(time.Second)), nil
}

// backend returns what makes the session of a request. Only operators choose: the routes are
// theirs.
func (s *Server) backend(c Client, name string) (executor.Executor, error) {
	if name == "" {
		return s.x, nil
	}
	if !c.Operator {
		return nil, notOperator()
	}
	var all map[string]executor.Executor
	if s.cfg.Backends != nil {
		all = s.cfg.Backends()
	}
	x, ok := all[name]
	if !ok {
		return nil, refuse(http.StatusBadRequest, "invalid", "backend: there is no %.100q; want one of %q", name, slices.Sorted(maps.Keys(all)))
	}
	return x, nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	var q SessionRequest
	if err := s.body(w, r, &q); err != nil {
		return 0, nil, err
	}
	spec, err := s.spec(c, q)
	if err != nil {
		return 0, nil, err
	}
	over, err := s.backend(c, q.Backend)
	if err != nil {
		return 0, nil, err
	}
	free, err := s.use(c, func(u *usage) *int { return &u.sessions }, s.cfg.MaxSessions, "sessions", executor.RuleSessions)
	if err != nil {
		return 0, nil, err
	}
	x, err := over.Create(r.Context(), spec)
	if err != nil {
		free()
		return 0, nil, err
	}
	b := &session{Session: x, id: strings.ToLower(rand.Text()), owner: c.id, idle: spec.IdleTTL, free: free}
	s.mu.Lock()
	if s.closed || r.Context().Err() != nil { // Close did not end it, or the client would not learn its name
		s.mu.Unlock()
		free()
		return 0, nil, errors.Join(draining(), x.Close())
	}
	s.sessions[b.id] = b
	s.usageOf(c).created++
	b.timer = time.AfterFunc(b.idle, func() { s.expire(b) })
	s.mu.Unlock()
	w.Header().Set("Location", "/v1/sessions/"+b.id)
	return http.StatusCreated, s.describe(b), nil
}

func (s *Server) describe(b *session) Session {
	i := b.Info()
	s.mu.Lock()
	busy := b.uses > 0
	s.mu.Unlock()
	v := Session{
		ID: b.id, Template: i.Template, Aliases: i.Aliases, Backend: i.Handle.Backend, Created: i.Created, IdleSeconds: b.idle.Seconds(), Busy: busy,
		Limits: i.Limits, Features: capabilitiesOf(i.Capabilities), Languages: []executor.Language{},
	}
	for _, l := range i.Capabilities.Languages {
		v.Languages = append(v.Languages, l.Language)
	}
	return v
}

// find returns the session of a request for use. A session of another key is reported in the same
// way as one that never existed.
func (s *Server) find(r *http.Request, c Client) (b *session, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b = s.sessions[r.PathValue("id")]
	if b == nil || b.owner != c.id || b.ended {
		return nil, nil, refuse(http.StatusNotFound, "not-found", "there is no such session; it has ended or never existed")
	}
	b.uses++
	b.timer.Stop()
	return b, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.uses--; b.uses == 0 && !b.ended {
			b.timer.Reset(b.idle)
		}
	}, nil
}

// gone forgets a session whose sandbox has ended by itself, and returns err.
func (s *Server) gone(b *session, err error) error {
	if e := (*executor.Error)(nil); b.lease == nil && errors.As(err, &e) && (e.Kind == executor.ErrNotFound || e.Kind == executor.ErrClosed) {
		if err := s.end(b); err != nil {
			s.cfg.Log.Warn("ending a session whose sandbox is gone", "err", err)
		}
	}
	return err
}

// expire ends an unused session.
func (s *Server) expire(b *session) {
	s.mu.Lock()
	if b.uses > 0 || b.ended || s.closed {
		s.mu.Unlock()
		return
	}
	s.ends.Add(1)
	defer s.ends.Done()
	s.mu.Unlock()
	if err := s.end(b); err != nil {
		s.cfg.Log.Warn("ending an idle session", "err", err)
	}
}

// end destroys the sandbox of a session, and everything that runs in it.
func (s *Server) end(b *session) error {
	s.mu.Lock()
	b.ended = true
	b.timer.Stop()
	delete(s.sessions, b.id)
	s.mu.Unlock()
	b.once.Do(func() {
		b.err = b.Close()
		b.free()
	})
	return b.err
}

func (s *Server) get(_ http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	if i, err := b.Refresh(r.Context()); err != nil {
		return 0, nil, s.gone(b, err)
	} else if i.State != executor.SessionRunning {
		return 0, nil, s.gone(b, &executor.Error{Op: "session", Kind: executor.ErrNotFound, Ran: executor.RanNo})
	}
	v := s.describe(b)
	s.mu.Lock()
	v.Busy = b.uses > 1 // this request counts as one
	s.mu.Unlock()
	return http.StatusOK, v, nil
}

func (s *Server) list(_ http.ResponseWriter, _ *http.Request, c Client) (int, any, error) {
	var own []*session
	s.mu.Lock()
	for _, b := range s.sessions {
		if b.owner == c.id && !b.ended {
			own = append(own, b)
		}
	}
	s.mu.Unlock()
	all := []Session{}
	for _, b := range own {
		v := s.describe(b)
		v.Features = nil // as in the listing of an Executor
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b Session) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return http.StatusOK, SessionList{all}, nil
}

func (s *Server) remove(_ http.ResponseWriter, _ *http.Request, _ Client, b *session) (int, any, error) {
	return http.StatusNoContent, nil, s.end(b)
}

// ResetRequest says which interpreters to end. A zero field matches all.
type ResetRequest struct {
	Language executor.Language `json:"language,omitempty"`
	Context  string            `json:"context,omitempty"`
}

func (s *Server) reset(w http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	var q ResetRequest
	if r.ContentLength != 0 {
		if err := s.body(w, r, &q); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusNoContent, nil, s.gone(b, b.Reset(r.Context(), executor.Interpreter(q)))
}

// PackagesRequest names packages to install.
type PackagesRequest struct {
	Language executor.Language `json:"language,omitempty"` // empty: the first of the session
	Names    []string          `json:"names"`
}

func (s *Server) install(w http.ResponseWriter, r *http.Request, c Client, b *session) (int, any, error) {
	var q PackagesRequest
	if err := s.body(w, r, &q); err != nil {
		return 0, nil, err
	}
	end, err := s.begin(c)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	res, err := b.Install(r.Context(), executor.Packages(q), nil)
	return s.result(c, b, res, s.gone(b, err))
}
