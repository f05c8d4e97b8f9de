package jupyter

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

// version is that of the Jupyter server whose interface this is.
const version = "2.14.0"

// call is a request whose client is known.
type call struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	client server.Client
}

// operation answers a request. A status of zero means that it has written the answer itself.
type operation func(*call) (status int, answer any, err error)

// operations are those that need a key, by the pattern of http.ServeMux.
func (s *Server) operations() map[string]operation {
	return map[string]operation{
		"GET /api/me":                      (*call).me,
		"GET /api/status":                  (*call).status,
		"GET /api/kernelspecs":             (*call).listSpecs,
		"GET /api/kernelspecs/{name}":      (*call).getSpec,
		"GET /api/kernels":                 (*call).listKernels,
		"POST /api/kernels":                (*call).createKernel,
		"GET /api/kernels/{id}":            on(func(_ *call, k *kernel) (int, any, error) { return http.StatusOK, k.model(), nil }),
		"DELETE /api/kernels/{id}":         on((*call).deleteKernel),
		"POST /api/kernels/{id}/interrupt": on((*call).interruptKernel),
		"POST /api/kernels/{id}/restart":   on((*call).restartKernel),
		"GET /api/kernels/{id}/channels":   on((*call).channels),
		"GET /api/sessions":                (*call).listSessions,
		"POST /api/sessions":               (*call).createSession,
		"GET /api/sessions/{session}":      in((*call).getSession),
		"PATCH /api/sessions/{session}":    in((*call).changeSession),
		"DELETE /api/sessions/{session}":   in((*call).deleteSession),
		"GET /api/contents":                (*call).getContents,
		"GET /api/contents/{path...}":      (*call).getContents,
		"PUT /api/contents/{path...}":      (*call).putContents,
		"PATCH /api/contents/{path...}":    (*call).renameContents,
		"DELETE /api/contents/{path...}":   (*call).deleteContents,
		"POST /api/contents/{path...}":     refused("this server makes no files without a name; save a file with PUT"),
		"GET /api/terminals":               refused("this server has no terminals"),
	}
}

// routes makes the handler. Everything but the version needs a key.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, op := range s.operations() {
		mux.Handle(pattern, s.handler(op))
	}
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		front.Answer(w, http.StatusOK, map[string]string{"version": version}, "{}")
	})
	mux.Handle("/", s.handler(func(c *call) (int, any, error) {
		return 0, nil, refuse(http.StatusNotFound, "%s %.200q: this server has no such operation", c.r.Method, c.r.URL.Path)
	}))
	return mux
}

// refused is an operation that a Jupyter server has and this one does not.
func refused(why string) operation {
	return func(*call) (int, any, error) { return 0, nil, refuse(http.StatusNotImplemented, "%s", why) }
}

// ServeHTTP implements http.Handler. The key in a URL goes no further than here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	s.front.ServeHTTP(w, withoutToken(r))
}

// withoutToken returns a request whose URL has no key: it is in the header, as if the client had
// sent it there.
func withoutToken(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	q := r.URL.Query()
	if token := q.Get("token"); token != "" && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "token "+token)
	}
	q.Del("token")
	r.URL.RawQuery = q.Encode()
	r.RequestURI = r.URL.RequestURI()
	r.Header.Del("Referer")
	return r
}

// handler makes a handler of an operation.
func (s *Server) handler(op operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		client, ok := s.cfg.Keys.Lookup(strings.TrimSpace(key))
		var err error
		status, v := 0, any(nil)
		switch {
		case front.CrossOrigin(r):
			err = refuse(http.StatusForbidden, "the request is from a web page of another origin")
		case !ok || !strings.EqualFold(scheme, "token") && !strings.EqualFold(scheme, "bearer"):
			w.Header().Set("WWW-Authenticate", "Bearer")
			err = refuse(http.StatusForbidden, "a key is required, as Authorization: token KEY, or as token=KEY in the URL")
		default:
			front.Admit(r.Context())
			status, v, err = op(&call{s, w, r, client})
		}
		switch {
		case err != nil:
			if p := server.ProblemOf(err); p.Status >= http.StatusInternalServerError {
				s.cfg.Log.WarnContext(r.Context(), "request failed", "id", front.RequestID(r.Context()), "path", r.Pattern, "err", err)
			}
			reply(w, err)
		case v != nil:
			front.Answer(w, status, v, `{"message": "internal error"}`)
		case status != 0:
			w.WriteHeader(status)
		}
	})
}

// refuse refuses a request of a client.
func refuse(status int, format string, args ...any) *server.Problem {
	return &server.Problem{Status: status, Ran: executor.RanNo.String(), Message: fmt.Sprintf(format, args...)}
}

var errShutdown = refuse(http.StatusServiceUnavailable, "the server is shutting down")

// explain is err in words for clients.
func explain(err error) string { return server.ProblemOf(err).Message }

// reply answers that a request failed.
func reply(w http.ResponseWriter, err error) {
	p := server.ProblemOf(err)
	front.Answer(w, p.Status, map[string]any{"message": p.Message, "reason": nil}, `{"message": "internal error"}`)
}

// body decodes the body of a request, which may be empty.
func (c *call) body(v any) error {
	raw, err := front.Body(c.w, c.r, c.cfg.MaxBody)
	if errors.Is(err, front.ErrBody) {
		return refuse(http.StatusRequestTimeout, "%v", err)
	}
	if err != nil || len(raw) == 0 {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return refuse(http.StatusBadRequest, "the body: %v", err)
	}
	return nil
}

// stamp is a time as Jupyter writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// newID returns an ID that cannot be guessed, in the form of a UUID.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // Read never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (c *call) me() (int, any, error) {
	name := c.client.Subject
	return http.StatusOK, map[string]any{
		"identity":    map[string]any{"username": name, "name": name, "display_name": name, "initials": nil, "avatar_url": nil, "color": nil},
		"permissions": struct{}{},
	}, nil
}

func (c *call) status() (int, any, error) {
	last, connections := c.started, 0
	own := c.own()
	for _, k := range own {
		m := k.model()
		connections += m.Connections
		if k.used().After(last) {
			last = k.used()
		}
	}
	return http.StatusOK, map[string]any{"started": stamp(c.started), "last_activity": stamp(last), "connections": connections, "kernels": len(own)}, nil
}

// own returns the kernels of the client's subject, the oldest first.
func (c *call) own() []*kernel {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := slices.DeleteFunc(slices.Collect(maps.Values(c.kernels)), func(k *kernel) bool { return k.spec.Subject != c.client.Subject })
	slices.SortFunc(own, func(a, b *kernel) int { return a.created.Compare(b.created) })
	return own
}
