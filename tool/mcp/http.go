package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/tool"
)

// maxMessage bounds a message: a call with the largest arguments, and what surrounds them.
const maxMessage = tool.MaxInput + 1<<20

// The defaults of HTTPOptions.
const (
	DefaultIdle              = 30 * time.Minute
	DefaultMaxSessions       = 100
	DefaultMaxSessionsPerKey = 20
	DefaultBodyTime          = 30 * time.Second
)

// HTTPOptions configures Server.Handler. Authenticate is required.
type HTTPOptions struct {
	// Authenticate returns the owner of a key, which comes as a bearer token. The key is empty if
	// the request has none. A function that accepts the empty key serves everybody who can reach
	// the address.
	Authenticate func(key string) (subject string, attributes map[string]string, ok bool)
	// Idle is how long a session lives without a request. Zero: DefaultIdle.
	Idle time.Duration
	// MaxSessions limits the sessions of all clients, and MaxSessionsPerKey those of each key.
	// Zero: the defaults. If a key would have too many, a new session ends the least recently used
	// session of that key. If all clients together would have too many, it ends one of the key with
	// the most sessions. If all of those are in use, the new session is refused.
	MaxSessions, MaxSessionsPerKey int
	// BodyTime is how long a request body may take to arrive. Zero: DefaultBodyTime.
	BodyTime time.Duration
	// Hosts are the names and addresses, without ports, by which clients reach the server, in
	// addition to loopback. Requests for other hosts are refused: a web page can send them after
	// pointing its own name at this machine. "*" allows all.
	Hosts []string
}

// identity says who sent a request.
type identity struct {
	subject    string
	attributes map[string]string
}

// Handler serves clients over the streamable HTTP transport of the protocol. A session can be used
// only with the key that began it. The handler needs a path of its own, such as /mcp. Requests from
// web pages of other origins are refused.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	o.Idle = cmp.Or(o.Idle, DefaultIdle)
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.MaxSessionsPerKey = cmp.Or(o.MaxSessionsPerKey, DefaultMaxSessionsPerKey)
	o.BodyTime = cmp.Or(o.BodyTime, DefaultBodyTime)
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		SessionTimeout: o.Idle, MaxRequestBodyBytes: maxMessage, Logger: s.o.Log,
		DisableLocalhostProtection: true, // the policy below does that, with the configured names
	})
	authenticated := auth.RequireBearerToken(func(_ context.Context, key string, _ *http.Request) (*auth.TokenInfo, error) {
		return verify(o, key)
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(s.guard(o, s.answered(inner)))
	return front.Policy{Hosts: o.Hosts, BodyTime: o.BodyTime}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(front.RequestIDHeader, front.RequestID(r.Context())) // the SDK passes on headers, not contexts
		if _, _, open := o.Authenticate(""); open && r.Header.Get("Authorization") == "" {
			// The SDK identifies the sender of a request only by its token.
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+anybody)
		}
		authenticated.ServeHTTP(w, r)
	}), func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		http.Error(w, message, status)
	})
}

// sessionHeader contains the session of a request, and in an answer the session that was begun.
const sessionHeader = "Mcp-Session-Id"

// anybody replaces the missing key if the server requires none.
const anybody = "-"

func verify(o HTTPOptions, key string) (*auth.TokenInfo, error) {
	if key == anybody {
		key = ""
	}
	subject, attributes, ok := o.Authenticate(key)
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	sum := sha256.Sum256([]byte(key))
	return &auth.TokenInfo{UserID: hex.EncodeToString(sum[:]), Extra: map[string]any{"": identity{subject, attributes}}}, nil
}

// guard limits requests, and ends the calls of a session that its client ends.
func (s *Server) guard(o HTTPOptions, next http.Handler) http.Handler {
	sessions := newAdmission(s, o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		front.Admit(r.Context())
		id, user := r.Header.Get(sessionHeader), auth.TokenInfoFromContext(r.Context()).UserID
		switch r.Method {
		case http.MethodPost:
			body, err := front.Body(w, r, maxMessage)
			if err == front.ErrBody {
				http.Error(w, err.Error(), http.StatusRequestTimeout)
				return
			} else if err != nil {
				http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
				return
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			if id == "" {
				leave, status := sessions.enter(user)
				if status != 0 {
					w.Header().Set("Retry-After", "10")
					http.Error(w, "there are too many sessions, and all are in use", status)
					return
				}
				defer s.begun()
				defer leave("")
				w = answering{w, leave}
			} else {
				defer sessions.use(id)()
			}
		case http.MethodDelete:
			// The SDK waits for the calls of a session before it ends it.
			if c := s.bySession(id); c != nil && c.user == user {
				c.end(errGone)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bySession returns the client with a session ID, or nil if that client has not called anything.
func (s *Server) bySession(id string) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session, c := range s.clients {
		if id != "" && session.ID() == id {
			return c
		}
	}
	return nil
}

// caller returns the client of a request.
func (s *Server) caller(session *sdk.ServerSession, extra *sdk.RequestExtra) (*client, error) {
	user, who := "", identity{s.o.Subject, s.o.Attributes}
	if extra != nil && extra.TokenInfo != nil {
		t := extra.TokenInfo
		user = t.UserID
		who, _ = t.Extra[""].(identity)
	}
	c := s.client(session, user, who.subject, who.attributes, nil)
	if c == nil {
		return nil, errClosed
	}
	if c.user != user { // the SDK has already checked this
		return nil, errors.New("the session belongs to another user")
	}
	return c, nil
}
