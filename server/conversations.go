package server

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
	"github.com/execbroker/execbroker/executor/sessions"
)

// A conversation is a session under a name that the client chooses. Any server over the same store
// goes on with it, one request at a time. It outlives the server.

// ConversationRequest is an execution in a conversation. Its ID can be used once in the
// conversation, at whichever server.
type ConversationRequest struct {
	RunRequest
	Session SessionRequest `json:"session,omitzero"` // of a new sandbox, if the conversation has none; see Conversation.Fresh
}

// Conversation describes a conversation after a request.
type Conversation struct {
	Key       string               `json:"key"`
	Languages []executor.Language  `json:"languages"`
	Template  string               `json:"template,omitempty"`
	Aliases   []string             `json:"aliases,omitempty"`
	Backend   string               `json:"backend"`
	Created   time.Time            `json:"created"` // the sandbox
	Limits    executor.Limits      `json:"limits"`
	Features  *BackendCapabilities `json:"capabilities"`
	Turn
}

// Turn says what a conversation has kept: see sessions.Lease.
type Turn struct {
	Fresh bool          `json:"fresh"`          // the request made the sandbox
	Lost  bool          `json:"lost"`           // an earlier sandbox is gone, with all that is not in Kept
	Why   sessions.Loss `json:"why,omitempty"`  // why it is gone, if that is known
	Kept  *Kept         `json:"kept,omitempty"` // what a fresh sandbox got back from the last checkpoint
}

// Kept is sessions.Kept, with at most a hundred of each list.
type Kept struct {
	Made    time.Time             `json:"made"`
	Files   []string              `json:"files,omitempty"`
	Names   []string              `json:"names,omitempty"`
	Omitted []checkpoint.Omission `json:"omitted,omitempty"`
	Behind  int                   `json:"behind,omitempty"`
	Refused string                `json:"refused,omitempty"`
}

const maxKept = 100

func turn(l *sessions.Lease) *Turn {
	t := &Turn{Fresh: l.Fresh, Lost: l.Lost, Why: l.Why}
	if k := l.Kept; k != nil {
		t.Kept = &Kept{
			Made: k.Made, Files: k.Files[:min(len(k.Files), maxKept)], Names: k.Names[:min(len(k.Names), maxKept)],
			Omitted: k.Omitted[:min(len(k.Omitted), maxKept)], Behind: k.Behind, Refused: k.Refused,
		}
	}
	return t
}

// conversationRoutes are the operations on conversations.
func (s *Server) conversationRoutes() map[string]operation {
	return map[string]operation{
		"PUT /v1/conversations/{key}":                    s.open,
		"GET /v1/conversations/{key}":                    s.on(s.look),
		"DELETE /v1/conversations/{key}":                 s.discard,
		"POST /v1/conversations/{key}/run":               s.converse(s.run),
		"POST /v1/conversations/{key}/run/stream":        s.converse(s.streamed),
		"POST /v1/conversations/{key}/reset":             s.on(s.reset),
		"POST /v1/conversations/{key}/packages":          s.on(s.install),
		"GET /v1/conversations/{key}/files":              s.on(s.listFiles),
		"GET /v1/conversations/{key}/files/{name...}":    s.on(s.readFile),
		"PUT /v1/conversations/{key}/files/{name...}":    s.on(s.writeFile),
		"DELETE /v1/conversations/{key}/files/{name...}": s.on(s.removeFile),
	}
}

// keyOf returns the key of the conversation that a request names. Conversations belong to the
// subject: its keys share them, and no other subject can name them.
func (s *Server) keyOf(r *http.Request, c Client) (string, error) {
	if s.cfg.Conversations == nil {
		return "", refuse(http.StatusNotImplemented, executor.KindName(executor.ErrUnsupported), "this server has no conversations: start it with a configuration")
	}
	return "http/" + url.PathEscape(c.Subject) + "/" + r.PathValue("key"), nil
}

// lease leases the conversation of a request, or fails if it has no sandbox and spec is nil. The
// number of requests that wait for conversations is bounded for each key.
func (s *Server) lease(r *http.Request, c Client, spec *executor.Spec) (b *session, release func(), err error) {
	key, err := s.keyOf(r, c)
	if err != nil {
		return nil, nil, err
	}
	free, err := s.use(c, func(u *usage) *int { return &u.turns }, s.cfg.MaxRuns, "requests in conversations", executor.RuleRunsAtOnce)
	if err != nil {
		return nil, nil, err
	}
	var l *sessions.Lease
	if spec == nil {
		l, err = s.cfg.Conversations.AcquireExisting(r.Context(), key, executor.Spec{Subject: c.Subject, Attributes: c.Attributes})
	} else {
		l, err = s.cfg.Conversations.Acquire(r.Context(), key, *spec)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return &session{Session: l, lease: l, id: r.PathValue("key")}, func() {
		defer free()
		if err := l.Release(); err != nil { // the lease ends by itself
			s.cfg.Log.WarnContext(r.Context(), "releasing a conversation", "id", requestID(r), "err", err)
		}
	}, nil
}

// on makes an operation of one on a conversation that has a sandbox.
func (s *Server) on(f func(http.ResponseWriter, *http.Request, Client, *session) (int, any, error)) operation {
	return func(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
		b, release, err := s.lease(r, c, nil)
		if err != nil {
			return 0, nil, err
		}
		defer release()
		return f(w, r, c, b)
	}
}

// open makes a conversation, or goes on with it.
func (s *Server) open(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	var q SessionRequest
	if r.ContentLength != 0 {
		if err := s.body(w, r, &q); err != nil {
			return 0, nil, err
		}
	}
	spec, err := s.conversationSpec(c, q)
	if err != nil {
		return 0, nil, err
	}
	b, release, err := s.lease(r, c, &spec)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	status := http.StatusOK
	if b.lease.Fresh {
		status = http.StatusCreated
	}
	return status, s.conversation(b), nil
}

// conversationSpec is spec without what only a session at one server can have.
func (s *Server) conversationSpec(c Client, q SessionRequest) (executor.Spec, error) {
	if q.Backend != "" {
		return executor.Spec{}, refuse(http.StatusBadRequest, "invalid", "backend: the routes decide for conversations; choose one for a session")
	}
	if q.Ports {
		return executor.Spec{}, refuse(http.StatusBadRequest, "invalid", "ports: only in /v1/sessions")
	}
	return s.spec(c, q)
}

func (s *Server) conversation(b *session) Conversation {
	v := s.describe(b)
	return Conversation{
		Key: v.ID, Languages: v.Languages, Template: v.Template, Aliases: v.Aliases, Backend: v.Backend, Created: v.Created, Limits: v.Limits,
		Features: v.Features, Turn: *turn(b.lease),
	}
}

func (s *Server) look(_ http.ResponseWriter, _ *http.Request, _ Client, b *session) (int, any, error) {
	return http.StatusOK, s.conversation(b), nil
}

// discard ends a conversation, and what runs in it, at whichever server that is.
func (s *Server) discard(_ http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	key, err := s.keyOf(r, c)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.cfg.Conversations.Discard(r.Context(), key)
}

// converse makes an operation of a run in a conversation. A run that did not begin may be repeated
// with the same ID.
func (s *Server) converse(run execution) operation {
	return func(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
		var q ConversationRequest
		if err := s.body(w, r, &q); err != nil {
			return 0, nil, err
		}
		if q.Input {
			return 0, nil, refuse(http.StatusBadRequest, "invalid", "input: only for runs in /v1/sessions")
		}
		req, err := s.request(q.RunRequest)
		if err != nil {
			return 0, nil, err
		}
		spec, err := s.conversationSpec(c, q.Session)
		if err != nil {
			return 0, nil, err
		}
		end, err := s.begin(c)
		if err != nil {
			return 0, nil, err
		}
		defer end()
		b, release, err := s.lease(r, c, &spec)
		if err != nil {
			return 0, nil, err
		}
		defer release()
		if req.ID == "" {
			return run(w, r, c, b, req)
		}
		undo, err := b.lease.Once(r.Context(), req.ID)
		var e *executor.Error
		if errors.Is(err, sessions.ErrRepeated) && errors.As(err, &e) {
			return 0, nil, repeated(e.Ran)
		} else if err != nil {
			return 0, nil, err
		}
		status, v, err := run(w, r, c, b, req)
		if didNotRun(err) {
			undo()
		}
		return status, v, err
	}
}
