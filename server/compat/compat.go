package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

// The defaults of Config.
const (
	DefaultMaxTimeout   = server.DefaultMaxTimeout
	DefaultMaxRuns      = 100
	DefaultMaxRunsTotal = 1000
	DefaultMaxBody      = 32 << 20
	DefaultBodyTime     = time.Minute
	DefaultMaxKept      = 256 << 20
	DefaultKeepTime     = 24 * time.Hour
	maxOutput           = 1 << 20 // bytes of each stream in an answer
)

// Config configures New. At least one front is required.
type Config struct {
	Fronts []Front
	Keys   server.Keys
	// Local says that only this machine can reach the server: it listens at a loopback address or a
	// Unix socket. Fronts whose clients can send no key then need none.
	Local bool
	// Spec is the Spec of every sandbox. Subject and Attributes are those of the key, and Languages
	// those of the run.
	Spec executor.Spec
	// MaxTimeout is the longest run that a client may request. Zero: DefaultMaxTimeout, or less if
	// Run or MaxRun of Spec say so. It never exceeds what the backend allows.
	MaxTimeout time.Duration
	// MaxRuns limits the runs of a subject at the same time, and MaxRunsTotal those of all. Zero:
	// the defaults.
	MaxRuns, MaxRunsTotal int
	// MaxBody and BodyTime limit the size and time of a request body. Zero: the defaults.
	MaxBody  int64
	BodyTime time.Duration
	// MaxKept is how many bytes of files and results are kept for a subject, and KeepTime how long.
	// Zero: the defaults.
	MaxKept  int64
	KeepTime time.Duration
	// Hosts are the names and addresses, without ports, by which clients reach the server, in
	// addition to loopback. Requests for other hosts are refused: a web page can send them after
	// pointing its own name at this machine. "*" allows all.
	Hosts []string
	// Log gets what clients are not told. Nil: no log.
	Log *slog.Logger
}

// Server serves fronts. It is an http.Handler, safe for concurrent use. The caller closes it before
// the Executor.
type Server struct {
	x     executor.Executor
	cfg   Config
	front http.Handler
	runs  runs
	kept  shelf

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	live drain.Gate // what Close waits for: connections, and runs that nobody waits for
}

var _ http.Handler = (*Server)(nil)

// Check returns all errors in c, joined. It opens nothing.
func (c Config) Check() error {
	errs := []error{checkFronts(c.Fronts, c.Keys.Len() > 0, c.Local), checkKeys(c.Keys)}
	if len(c.Fronts) == 0 {
		errs = append(errs, errors.New("fronts: at least one is required"))
	}
	if min(c.MaxTimeout, c.BodyTime, c.KeepTime) < 0 || min(c.MaxRuns, c.MaxRunsTotal) < 0 || min(c.MaxBody, c.MaxKept) < 0 {
		errs = append(errs, errors.New("limits: none may be negative"))
	}
	if err := (front.Policy{Hosts: c.Hosts}).Check(); err != nil {
		errs = append(errs, fmt.Errorf("hosts: %w", err))
	}
	return errors.Join(errs...)
}

// New makes a Server over x. The caller still owns x. New fails if Check does, or if x cannot
// satisfy cfg.
func New(x executor.Executor, cfg Config) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, &executor.Error{Op: "compat", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	cfg.MaxRuns = cmp.Or(cfg.MaxRuns, DefaultMaxRuns)
	cfg.MaxRunsTotal = cmp.Or(cfg.MaxRunsTotal, DefaultMaxRunsTotal)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	cfg.BodyTime = cmp.Or(cfg.BodyTime, DefaultBodyTime)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if err := server.LongestRun("compat", x, &cfg.Spec, &cfg.MaxTimeout); err != nil {
		return nil, err
	}
	s := &Server{x: x, cfg: cfg, runs: runs{most: cfg.MaxRuns, mostTotal: cfg.MaxRunsTotal}}
	s.kept = shelf{mostBytes: cmp.Or(cfg.MaxKept, DefaultMaxKept), keep: cmp.Or(cfg.KeepTime, DefaultKeepTime)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.front = front.Policy{Hosts: cfg.Hosts, BodyTime: cfg.BodyTime}.Handler(s.mount(), func(w http.ResponseWriter, r *http.Request, status int, message string) {
		s.refuse(w, s.apiOf(r), refusal{status, message})
	})
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	s.front.ServeHTTP(w, r)
}

// Drain refuses new runs, and waits until current runs have ended or ctx ends.
func (s *Server) Drain(ctx context.Context) error { return s.runs.gate.Drain(ctx) }

// Close stops what still runs without a request, and forgets what is kept. It may be called again.
func (s *Server) Close() error {
	s.runs.gate.Shut()
	s.stop()
	return s.live.Drain(context.Background()) // all of it heeds the context that has ended
}
