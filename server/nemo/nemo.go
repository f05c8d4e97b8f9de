// Package nemo implements the interface of the local sandbox of the NeMo Agent Toolkit over any
// backend, so that users of the toolkit change only a URL: POST /execute with generated_code,
// timeout and language returns process_status, stdout and stderr.
//
// It corrects faults of the original. Output is not limited to 64 KB, and output before a timeout
// is returned. sys.exit ends only the program. Code below "if __name__ == '__main__'" runs. Code in
// Markdown fences is unwrapped. Each key has a separate sandbox. Its files stay from call to call,
// its variables do not.
package nemo

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/tool"
)

// The defaults of Config.
const (
	DefaultMaxTimeout = server.DefaultMaxTimeout
	DefaultMaxRuns    = 100
	DefaultMaxBody    = 4 << 20
	DefaultBodyTime   = 30 * time.Second
	maxOutput         = 4 << 20 // bytes of each stream
)

// Config configures New. The zero value accepts every program that can reach the address, as the
// original does, but no web page.
type Config struct {
	// Keys are required as bearer tokens, if there are any. The toolkit's own client sends none.
	Keys server.Keys
	// Spec is the Spec of every sandbox. Its Languages are always Python. Its IdleTTL is how long a
	// workspace waits for its next call before it ends with its files.
	Spec executor.Spec
	// MaxTimeout is the longest run that a client may request. Zero: DefaultMaxTimeout, or less if
	// Run or MaxRun of Spec say so. It never exceeds what the backend allows.
	MaxTimeout time.Duration
	// MaxRuns limits the number of runs at the same time. Zero: DefaultMaxRuns.
	MaxRuns int
	// MaxBody and BodyTime limit the size and time of a request body. Zero: the defaults.
	MaxBody  int64
	BodyTime time.Duration
	// Hosts are the names and addresses, without ports, by which clients reach the server, in
	// addition to loopback. Requests for other hosts are refused: a web page can send them after
	// pointing its own name at this machine. "*" allows all.
	Hosts []string
	// Log gets what clients are not told. Nil: no log.
	Log *slog.Logger
}

// Server serves the interface. It is an http.Handler, safe for concurrent use. The caller closes it
// before the Executor.
type Server struct {
	cfg   Config
	front http.Handler
	runs  drain.Gate
	slots chan struct{} // contains one value for each run

	sessions   *sessions.Manager
	mu         sync.Mutex
	workspaces map[string]*workspace // by API key
}

var _ http.Handler = (*Server)(nil)

// New makes a Server over x. The caller still owns x. New fails if x has no Python, or cannot
// satisfy cfg.
func New(x executor.Executor, cfg Config) (*Server, error) {
	if cfg.MaxTimeout < 0 || cfg.MaxRuns < 0 || cfg.MaxBody < 0 || cfg.BodyTime < 0 {
		return nil, &executor.Error{Op: "nemo", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: errors.New("limits: none may be negative")}
	}
	names := front.Policy{Hosts: cfg.Hosts, BodyTime: cmp.Or(cfg.BodyTime, DefaultBodyTime)}
	if err := names.Check(); err != nil {
		return nil, &executor.Error{Op: "nemo", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf("hosts: %w", err)}
	}
	cfg.MaxRuns = cmp.Or(cfg.MaxRuns, DefaultMaxRuns)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Spec.Languages = []executor.Language{executor.Python}
	if err := server.LongestRun("nemo", x, &cfg.Spec, &cfg.MaxTimeout); err != nil {
		return nil, err
	}
	m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "nemo." + strings.ToLower(rand.Text()), Private: true, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, slots: make(chan struct{}, cfg.MaxRuns), sessions: m, workspaces: map[string]*workspace{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /execute", s.execute)
	mux.HandleFunc("/execute", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", http.MethodPost)
		write(w, http.StatusMethodNotAllowed, Answer{Status: "error", Stderr: r.Method + " is not supported; want POST"})
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	s.front = names.Handler(mux, func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		write(w, status, Answer{Status: "error", Stderr: message})
	})
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Frame-Options", "SAMEORIGIN")
	s.front.ServeHTTP(w, r)
}

// Drain refuses new runs, and waits until current runs have ended or ctx ends.
func (s *Server) Drain(ctx context.Context) error { return s.runs.Drain(ctx) }

// Answer is the answer of /execute.
type Answer struct {
	Status string `json:"process_status"` // "completed", "error", "timeout"
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// refusal is the answer to a call that was not run.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	a, err := s.answer(w, r)
	if err == nil {
		write(w, http.StatusOK, a)
		return
	}
	var bad *refusal
	if !errors.As(err, &bad) {
		s.cfg.Log.WarnContext(r.Context(), "request failed", "id", front.RequestID(r.Context()), "kind", executor.KindName(err), "err", err)
		// The toolkit's client repeats a call that was answered with 502, so that status is never
		// used for a call that may have run.
		bad = &refusal{http.StatusInternalServerError, "Server error: " + tool.Explain(err)}
		if executor.Retryable(err) {
			bad.status = http.StatusBadGateway
		} else if e := (*executor.Error)(nil); errors.As(err, &e) && e.Kind == executor.ErrDenied {
			bad.status = http.StatusTooManyRequests
		}
	}
	write(w, bad.status, Answer{Status: "error", Stderr: bad.text})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (a Answer, err error) {
	spec, key := s.cfg.Spec, "all"
	if s.cfg.Keys.Len() > 0 {
		c, ok := s.cfg.Keys.Lookup(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			return a, &refusal{http.StatusUnauthorized, "A key is required, as a bearer token"}
		}
		front.Admit(r.Context())
		spec.Subject, spec.Attributes, key = c.Subject, c.Attributes, c.ID()
	}
	req, err := s.read(w, r)
	if err != nil {
		return a, err
	}
	end, err := s.begin()
	if err != nil {
		return a, err
	}
	defer end()
	res, lost, err := s.run(r.Context(), key, spec, req)
	if err != nil {
		return a, err
	}
	a = Answer{Status: "completed", Stdout: server.Text(res, executor.EventStdout), Stderr: server.Text(res, executor.EventStderr)}
	switch res.Status {
	case executor.StatusOK:
		return a, nil
	case executor.StatusTimedOut:
		a.Status = "timeout"
		a.say("Timed out")
	default:
		a.Status = "error"
		a.say(server.Failure(res))
	}
	if lost || res.FilesLost { // this may be why the code failed
		a.say("The files of earlier calls are gone: the sandbox that had them has ended")
	}
	return a, nil
}

// say adds a line to stderr.
func (a *Answer) say(text string) {
	if a.Stderr != "" && !strings.HasSuffix(a.Stderr, "\n") {
		a.Stderr += "\n"
	}
	a.Stderr += strings.TrimRight(text, "\n") + "\n"
}

// read reads a call. Its error messages are those of the original.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (req executor.Request, err error) {
	no := func(format string, args ...any) (executor.Request, error) {
		return executor.Request{}, &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return no("Request must be JSON")
	}
	body, err := front.Body(w, r, s.cfg.MaxBody)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return req, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("The body has more than %d bytes", large.Limit)}
	}
	if err != nil {
		return req, &refusal{http.StatusRequestTimeout, "The body did not arrive"}
	}
	var m map[string]any
	if json.Unmarshal(body, &m) != nil || m == nil {
		return no("Invalid JSON data")
	}
	for _, name := range []string{"generated_code", "timeout", "language"} {
		if _, ok := m[name]; !ok {
			return no("Missing required field: %s", name)
		}
	}
	code, ok := m["generated_code"].(string)
	if !ok {
		return no("Wrong type of field: generated_code")
	}
	seconds, ok := m["timeout"].(float64)
	if !ok || seconds <= 0 || math.IsNaN(seconds) || seconds > s.cfg.MaxTimeout.Seconds() {
		return no("Wrong value of field: timeout; want a number of seconds up to %v", s.cfg.MaxTimeout.Seconds())
	}
	if l, _ := m["language"].(string); l != "python" {
		return no("Only python execution is supported")
	}
	in, err := tool.ParseInput(code, executor.Python)
	if err != nil {
		return no("%v", err)
	}
	return executor.Request{
		Language: executor.Python, Code: in.Code, Keep: maxOutput,
		Limits: executor.RunLimits{WallTime: max(time.Duration(seconds*float64(time.Second)), time.Millisecond)},
	}, nil
}

// begin takes a slot for a run.
func (s *Server) begin() (end func(), err error) {
	full := &refusal{http.StatusBadGateway, "Server error: there is no room for a run at the moment"} // see execute
	leave, ok := s.runs.Enter()
	if !ok {
		return nil, full
	}
	select {
	case s.slots <- struct{}{}:
	default:
		leave()
		return nil, full
	}
	return func() {
		<-s.slots
		leave()
	}, nil
}

func write(w http.ResponseWriter, status int, v any) {
	front.Answer(w, status, v, `{"process_status":"error","stdout":"","stderr":"Server error: "}`)
}
