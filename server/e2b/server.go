package e2b

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"crypto/sha256"
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
	"github.com/execbroker/execbroker/internal/front"
)

const maxJSON = 1 << 20 // of a body of the control plane

// owner is the hash of an API key. The time of comparing hashes tells nothing about keys, and logs
// cannot contain one.
type owner [sha256.Size]byte

// Server serves E2B's interfaces. It is an http.Handler; its methods are safe for concurrent use.
// The caller closes it, after the http.Server and before the Executor.
type Server struct {
	x      executor.Executor
	cfg    Config
	owners map[owner]bool
	api    *http.ServeMux
	front  http.Handler // before everything
	once   onces

	lives    sync.WaitGroup // sandboxes, from reserve to the end of live
	homeless sync.Map       // names of templates whose sandboxes can have no home
	wishes   sync.Map       // names of templates for which it was logged that the configuration gives the network
	keeps    sync.Once      // it was logged that paused sandboxes go on

	mu     sync.Mutex
	closed bool
	boxes  map[string]*sandbox
	used   *list.List    // of the sandboxes in boxes, the one that a request has named last first
	held   map[owner]int // sandboxes of a key, also those that are being created
}

var _ http.Handler = (*Server)(nil)

// New makes a Server over x, which stays the caller's. It fails if cfg asks for what x cannot do.
func New(x executor.Executor, cfg Config) (*Server, error) {
	caps := x.Info().Capabilities
	cfg, err := cfg.withDefaults(caps)
	if err != nil {
		return nil, err
	}
	if missing := caps.MissingFor(cfg.Spec); len(missing) > 0 {
		return nil, &executor.Error{Op: "e2b", Backend: x.Info().Name, Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing}
	}
	s := &Server{x: x, cfg: cfg, owners: map[owner]bool{}, boxes: map[string]*sandbox{}, used: list.New(), held: map[owner]int{}}
	for _, key := range cfg.Keys {
		s.owners[sha256.Sum256([]byte(key))] = true
	}
	s.api = s.routes()
	s.front = cfg.names().Handler(http.HandlerFunc(s.dispatch), func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		writeError(w, refuse(status, "%s", message))
	})
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.front.ServeHTTP(w, r) }

// dispatch finds out who a request is for.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	to, err := s.address(r)
	if err == nil && to.sandbox == "" {
		to, _ = s.signer(r)
	}
	switch {
	case err != nil:
		writeError(w, err)
	case to.sandbox != "":
		s.serveSandbox(w, r, to)
	default:
		s.api.ServeHTTP(w, r)
	}
}

// Close ends every sandbox and waits until they are gone. It may be called again. Requests that
// come later are refused.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.boxes))
	s.mu.Unlock()
	var errs []error
	for _, b := range all {
		b.stop(errServerClosed)
	}
	for _, b := range all {
		<-b.gone
		errs = append(errs, b.closeErr)
	}
	s.lives.Wait()
	return errors.Join(errs...)
}

var (
	errServerClosed = errors.New("the server is shutting down")
	errExpired      = errors.New("its time was over")
	errKilled       = errors.New("it was killed")
	errDied         = errors.New("it ended by itself")
)

// An operation of the control plane answers a client whose key is known.
type operation func(r *http.Request, o owner) (status int, answer any, err error)

func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, v := range []struct {
		path string
		dflt time.Duration // of the timeout; the two generations of paths differ in it
	}{{"", 15 * time.Second}, {"/v2", 300 * time.Second}} {
		m.Handle("POST "+v.path+"/sandboxes", s.op(func(r *http.Request, o owner) (int, any, error) {
			return s.idempotently(r, o, v.path != "", func(body []byte) (int, any, error) { return s.create(r.Context(), o, body, v.dflt) })
		}))
		m.Handle("POST "+v.path+"/sandboxes/{id}/connect", s.on(func(r *http.Request, b *sandbox) (int, any, error) {
			return s.connect(r, b, v.path != "")
		}))
	}
	m.Handle("GET /v2/sandboxes", http.HandlerFunc(s.list))
	m.Handle("GET /sandboxes", http.HandlerFunc(s.list))
	for pattern, f := range map[string]func(*http.Request, *sandbox) (int, any, error){
		"GET /sandboxes/{id}":            s.get,
		"DELETE /sandboxes/{id}":         s.kill,
		"GET /sandboxes/{id}/logs":       s.logs,
		"GET /v2/sandboxes/{id}/logs":    s.logs,
		"POST /sandboxes/{id}/pause":     s.pauseNow,
		"POST /sandboxes/{id}/resume":    s.resumeNow,
		"POST /sandboxes/{id}/timeout":   s.setTimeout,
		"POST /sandboxes/{id}/refreshes": s.refresh,
		"GET /sandboxes/{id}/metrics":    s.metrics,
		"POST /sandboxes/{id}/fork":      refusing("forking"),
		"POST /sandboxes/{id}/snapshots": refusing("snapshots"),
		"PUT /sandboxes/{id}/network":    refusing("changing the network"),
	} {
		m.Handle(pattern, s.on(f))
	}
	m.Handle("GET /templates/aliases/{alias}", s.op(s.alias))
	for path, what := range map[string]string{
		"GET /snapshots": "snapshots",
		"/volumes/":      "volumes", "/volumes": "volumes", "/templates/": "templates", "/templates": "templates", "/v2/templates": "templates", "/v2/templates/": "templates",
		"/v3/templates": "templates", "/v3/templates/": "templates", "/teams": "teams", "/teams/": "teams", "/secrets": "secrets", "/secrets/": "secrets",
		"GET /sandboxes/metrics": "metrics of many sandboxes",
	} {
		refuses := refusing(what)
		m.Handle(path, s.op(func(r *http.Request, _ owner) (int, any, error) { return refuses(r, nil) }))
	}
	m.HandleFunc("/files", func(w http.ResponseWriter, _ *http.Request) { // of a sandbox, if signer had found one
		writeError(w, refuse(http.StatusUnauthorized, "invalid signature, or its sandbox is not one of the %d that were used last: name it by its host name or by headers", maxSigners))
	})
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, refuse(http.StatusNotFound, "%s %s: there is no such operation here", r.Method, r.URL.Path))
	})
	return m
}

func unsupported(what string) *apiError {
	return refuse(http.StatusNotImplemented, "%s: not supported by this server", what)
}

// refusing is an operation that this server does not have.
func refusing(what string) func(*http.Request, *sandbox) (int, any, error) {
	return func(*http.Request, *sandbox) (int, any, error) { return 0, nil, unsupported(what) }
}

// op makes a handler of an operation.
func (s *Server) op(f operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, err := s.authenticate(r)
		if err != nil {
			writeError(w, err)
			return
		}
		front.Admit(r.Context())
		r.Body = http.MaxBytesReader(w, r.Body, maxJSON)
		status, answer, err := f(r, o)
		switch {
		case err != nil:
			s.fail(w, r, err)
		case answer == nil:
			w.WriteHeader(status)
		default:
			writeJSON(w, status, answer)
		}
	})
}

func (s *Server) authenticate(r *http.Request) (owner, error) {
	key := r.Header.Get("X-API-KEY")
	if key == "" {
		return owner{}, refuse(http.StatusUnauthorized, "no API key: the header X-API-KEY is required")
	}
	o := owner(sha256.Sum256([]byte(key)))
	if !s.owners[o] {
		return owner{}, refuse(http.StatusUnauthorized, "the API key is not known here")
	}
	return o, nil
}

// find returns the sandbox of a request. One of another owner is as unknown as one that never was.
func (s *Server) find(r *http.Request, o owner) (*sandbox, error) {
	id := shortID(r.PathValue("id"))
	if b := s.lookup(id); b != nil && b.owner == o && b.life.Err() == nil {
		return b, nil
	}
	return nil, notFound(id)
}

func (s *Server) lookup(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b != nil {
		s.used.MoveToFront(b.use)
	}
	return b
}

// on makes a handler of an operation on a sandbox of the client.
func (s *Server) on(f func(*http.Request, *sandbox) (int, any, error)) http.Handler {
	return s.op(func(r *http.Request, o owner) (int, any, error) {
		b, err := s.find(r, o)
		if err != nil {
			return 0, nil, err
		}
		return f(r, b)
	})
}

// shortID returns an ID without the client ID that old SDKs append.
func shortID(id string) string {
	id, _, _ = strings.Cut(id, "-")
	return id
}

// owned returns the sandboxes of an owner, oldest first.
func (s *Server) owned(o owner) (all []*sandbox) {
	s.mu.Lock()
	for _, b := range s.boxes {
		if b.owner == o {
			all = append(all, b)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int {
		return cmp.Or(a.started.Compare(b.started), strings.Compare(a.id, b.id))
	})
	return all
}

// readBody reads a body of the control plane.
func readBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); err != nil && !errors.As(err, &tooLarge) {
		return nil, refuse(http.StatusBadRequest, "the body: %v", err)
	}
	return b, err
}

// decodeJSON decodes an object strictly: an unknown field asks for something that would not happen.
func decodeJSON(data []byte, v any) error {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "the body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse(http.StatusBadRequest, "the body: something follows the object")
	}
	return nil
}

// readJSON reads the body of a request into v. An optional body may be empty.
func readJSON(r *http.Request, v any, optional bool) error {
	body, err := readBody(r)
	if err != nil || optional && len(body) == 0 {
		return err
	}
	return decodeJSON(body, v)
}

// newToken returns a random token: 26 characters of [a-z2-7].
func newToken() string { return strings.ToLower(rand.Text()) }
