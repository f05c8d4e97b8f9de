package server

import (
	"bytes"
	"context"
	_ "embed" // for openapi.json
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/internal/front"
)

// OpenAPI is the description of the API, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte

// Server serves the API. It is an http.Handler; its methods are safe for concurrent use. The caller
// drains and closes it, after the http.Server and before the Executor.
type Server struct {
	x       executor.Executor
	cfg     Config
	mux     *http.ServeMux
	front   http.Handler // wraps mux
	started time.Time
	ends    sync.WaitGroup // sessions that are ending, and connections to ports
	runs    drain.Gate

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	usage    map[keyID]*usage
	failures []FailedRequest // the newest last
}

// usage is what a key uses and has used.
type usage struct {
	sessions  int // including those that are being created
	runs      int // current runs
	transfers int // current transfers
	turns     int // current requests in conversations
	done      map[executor.Status]int64
	failed    int64 // runs without a result
	created   int64
}

var _ http.Handler = (*Server)(nil)

// New makes a Server over x. The caller still owns x. New fails if x cannot satisfy cfg.
func New(x executor.Executor, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults(x.Info().Capabilities)
	if err != nil {
		return nil, err
	}
	if err := LongestRun("server", x, &cfg.Spec, &cfg.MaxTimeout); err != nil {
		return nil, err
	}
	s := &Server{x: x, cfg: cfg, started: time.Now(), sessions: map[string]*session{}, usage: map[keyID]*usage{}}
	s.routes()
	s.front = cfg.policy().Handler(s.mux, func(w http.ResponseWriter, r *http.Request, status int, message string) {
		s.answerError(w, r, refuse(status, "origin", "%s", message))
	})
	return s, nil
}

// operation answers a client whose key is known. A nil answer means that the operation has written
// it.
type operation func(w http.ResponseWriter, r *http.Request, c Client) (status int, answer any, err error)

func (s *Server) routes() {
	s.mux = http.NewServeMux()
	for pattern, op := range s.conversationRoutes() {
		s.mux.Handle(pattern, s.authenticated(op))
	}
	for pattern, op := range map[string]operation{
		"GET /v1/capabilities":                      s.capabilities,
		"GET /v1/stats":                             s.stats,
		"GET /v1/experiments":                       s.experiments,
		"GET /v1/overview":                          s.overview,
		"POST /v1/run":                              s.runOnce,
		"POST /v1/run/stream":                       s.streamOnce,
		"GET /v1/sessions":                          s.list,
		"POST /v1/sessions":                         s.create,
		"GET /v1/sessions/{id}":                     s.in(s.get),
		"DELETE /v1/sessions/{id}":                  s.in(s.remove),
		"POST /v1/sessions/{id}/run":                s.in(s.within(s.run)),
		"POST /v1/sessions/{id}/run/stream":         s.in(s.within(s.streamed)),
		"POST /v1/sessions/{id}/runs/{run}/input":   s.in(s.send),
		"PUT /v1/sessions/{id}/runs/{run}/terminal": s.in(s.resize),
		"POST /v1/sessions/{id}/reset":              s.in(s.reset),
		"POST /v1/sessions/{id}/packages":           s.in(s.install),
		"POST /v1/sessions/{id}/ports/{port}":       s.dial,
		"GET /v1/sessions/{id}/files":               s.in(s.listFiles),
		"GET /v1/sessions/{id}/files/{name...}":     s.in(s.readFile),
		"PUT /v1/sessions/{id}/files/{name...}":     s.in(s.writeFile),
		"DELETE /v1/sessions/{id}/files/{name...}":  s.in(s.removeFile),
	} {
		s.mux.Handle(pattern, s.authenticated(op))
	}
	s.mux.HandleFunc("GET /v1/health", s.health)
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		front.Text(w, http.StatusOK, "application/json", OpenAPI)
	})
	if s.cfg.Page != nil {
		s.mux.Handle("GET /{$}", s.cfg.Page)
		s.mux.Handle("GET /page/", s.cfg.Page)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := s.methods(r); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.answerError(w, r, refuse(http.StatusMethodNotAllowed, "method", "%s %.200q: want %s", r.Method, r.URL.Path, strings.Join(allowed, " or ")))
			return
		}
		s.answerError(w, r, refuse(http.StatusNotFound, "no-such-operation", "%s %.200q: there is no such operation; see /v1/openapi.json", r.Method, r.URL.Path))
	})
}

func requestID(r *http.Request) string { return front.RequestID(r.Context()) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	s.front.ServeHTTP(w, r)
}

// methods returns the methods that the path of a request supports.
func (s *Server) methods(r *http.Request) (allowed []string) {
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
		q := r.Clone(r.Context())
		q.Method = m
		if _, pattern := s.mux.Handler(q); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	return allowed
}

func (s *Server) authenticated(f operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			key = r.Header.Get("X-API-Key")
		}
		c, ok := s.cfg.Keys.Lookup(key)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.answerError(w, r, refuse(http.StatusUnauthorized, "unauthorized", "a key is required, as a bearer token or in X-API-Key"))
			return
		}
		front.Admit(r.Context())
		status, v, err := f(w, r, c)
		switch {
		case err != nil:
			s.failed(r, c, err)
			s.answerError(w, r, err)
		case v != nil:
			answer(w, status, v)
		case status != 0:
			w.WriteHeader(status)
		}
	})
}

// body decodes a JSON body into v strictly: an unknown field would be a request that is ignored.
func (s *Server) body(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := s.arrive(w, r, s.cfg.MaxBody)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "invalid", "the body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse(http.StatusBadRequest, "invalid", "body: unexpected data after the object")
	}
	return nil
}

// arrive reads a whole body in bounded time.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	data, err := front.Body(w, r, most)
	if err == front.ErrBody {
		err = refuse(http.StatusRequestTimeout, "invalid", "%v", err)
	}
	return data, err
}

// use adds one to a count of a key, unless that would exceed most. rule is the rule of the limit,
// which may be empty. release subtracts it again.
func (s *Server) use(c Client, what func(*usage) *int, most int, name string, rule executor.Rule) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs.IsShut() {
		return nil, draining()
	}
	n := what(s.usageOf(c))
	if *n >= most {
		return nil, tooMany(name, rule, most)
	}
	*n++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*n--
	}, nil
}

// usageOf returns the usage of a key. The caller holds mu.
func (s *Server) usageOf(c Client) *usage {
	u := s.usage[c.id]
	if u == nil { // the number of keys bounds the map
		u = &usage{done: map[executor.Status]int64{}}
		s.usage[c.id] = u
	}
	return u
}

// begin counts a run, which a shutdown waits for.
func (s *Server) begin(c Client) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leave, ok := s.runs.Enter()
	if !ok {
		return nil, draining()
	}
	u := s.usageOf(c)
	switch {
	case s.runs.Busy() > s.cfg.MaxRunsTotal:
		leave()
		return nil, &Problem{Status: http.StatusTooManyRequests, Kind: "exhausted", Ran: "no", Message: "the server has as many runs as it can take", retry: time.Second}
	case u.runs >= s.cfg.MaxRuns:
		leave()
		return nil, tooMany("runs", executor.RuleRunsAtOnce, s.cfg.MaxRuns)
	}
	u.runs++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.runs--
		leave()
	}, nil
}

func draining() *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Kind: "draining", Ran: "no", Message: "the server is shutting down", retry: 5 * time.Second}
}

func tooMany(what string, rule executor.Rule, most int) *Problem {
	return &Problem{
		Status: http.StatusTooManyRequests, Kind: "denied", Ran: "no", Message: "the key has too many " + what + " at a time",
		Denied: executor.Denial{Rule: rule, Limit: int64(most), Have: int64(most)}, retry: time.Second,
	}
}

// in makes an operation of one on a session of the client.
func (s *Server) in(f func(http.ResponseWriter, *http.Request, Client, *session) (int, any, error)) operation {
	return func(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
		b, done, err := s.find(r, c)
		if err != nil {
			return 0, nil, err
		}
		defer done()
		return f(w, r, c, b)
	}
}

// Drain refuses new runs and sessions. It waits until current runs have ended and been answered, or
// until ctx ends. Health then reports that, so that a load balancer can use another server.
func (s *Server) Drain(ctx context.Context) error { return s.runs.Drain(ctx) }

// Close ends every session, with everything that runs in it, and waits until the sandboxes are
// gone. It may be called again.
func (s *Server) Close() error {
	s.runs.Shut()
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	var errs []error
	for _, b := range all {
		errs = append(errs, s.end(b))
	}
	s.ends.Wait()
	return errors.Join(errs...)
}
