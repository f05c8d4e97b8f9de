package jupyter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/drain"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

// The defaults of Config.
const (
	DefaultMaxTimeout = server.DefaultMaxTimeout
	DefaultMaxKernels = server.DefaultMaxSessions
	DefaultMaxBody    = server.DefaultMaxBody
	DefaultBodyTime   = server.DefaultBodyTime
	DefaultIdle       = time.Hour
)

// Config configures New. Keys are required.
type Config struct {
	Keys server.Keys
	// Spec is the Spec of every sandbox. Subject and Attributes are those of the key, and Languages
	// that of the kernel. A zero IdleTTL is DefaultIdle, or less if the backend allows only that.
	Spec executor.Spec
	// Sessions has the sandboxes of kernels. Its Executor is that of New. Nil: the Server has a
	// Manager of its own. The caller closes it after the Server.
	Sessions *sessions.Manager
	// MaxTimeout is how long a cell may run. Zero: DefaultMaxTimeout, or less if Run or MaxRun of
	// Spec say so. It never exceeds what the backend allows.
	MaxTimeout time.Duration
	// MaxKernels limits the kernels of a subject. Zero: DefaultMaxKernels.
	MaxKernels int
	// MaxBody limits a request body, a message and a file in bytes, and BodyTime limits how long a
	// body may take to arrive. Zero: the defaults.
	MaxBody  int64
	BodyTime time.Duration
	// Hosts are the names and addresses, without ports, by which clients reach the server, in
	// addition to loopback. Requests for other hosts are refused: a web page can send them after
	// pointing its own name at this machine. "*" allows all.
	Hosts []string
	// Log gets what clients are not told. Nil: no log.
	Log *slog.Logger
}

// Server serves the interface. It is an http.Handler, safe for concurrent use. The caller drains
// and closes it, before the Executor.
type Server struct {
	x        executor.Executor
	cfg      Config
	sessions *sessions.Manager
	own      bool // sessions is closed with the server
	front    http.Handler
	started  time.Time

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	runs drain.Gate // what Drain waits for: requests in kernels
	live drain.Gate // what Close waits for: connections, and what kernels do

	mu      sync.Mutex
	kernels map[string]*kernel
	opened  map[string]*notebook // Jupyter's sessions, by ID
}

var _ http.Handler = (*Server)(nil)

// New makes a Server over x. The caller still owns x. New fails if x cannot satisfy cfg.
func New(x executor.Executor, cfg Config) (*Server, error) {
	var errs []error
	if cfg.Keys.Len() == 0 {
		errs = append(errs, errors.New("keys: at least one is required"))
	}
	if min(cfg.MaxTimeout, cfg.BodyTime) < 0 || cfg.MaxKernels < 0 || cfg.MaxBody < 0 {
		errs = append(errs, errors.New("limits: none may be negative"))
	}
	names := front.Policy{Hosts: cfg.Hosts, BodyTime: cmp.Or(cfg.BodyTime, DefaultBodyTime)}
	if err := names.Check(); err != nil {
		errs = append(errs, fmt.Errorf("hosts: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &executor.Error{Op: "jupyter", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	cfg.MaxKernels = cmp.Or(cfg.MaxKernels, DefaultMaxKernels)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, DefaultMaxBody)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Spec.IdleTTL = cmp.Or(cfg.Spec.IdleTTL, DefaultIdle)
	if most := x.Info().Capabilities.MaxLife; most > 0 {
		cfg.Spec.IdleTTL = min(cfg.Spec.IdleTTL, most)
	}
	if err := server.LongestRun("jupyter", x, &cfg.Spec, &cfg.MaxTimeout); err != nil {
		return nil, err
	}
	s := &Server{x: x, cfg: cfg, sessions: cfg.Sessions, started: time.Now(), kernels: map[string]*kernel{}, opened: map[string]*notebook{}}
	if s.sessions == nil {
		m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "jupyter." + strings.ToLower(rand.Text()), Private: true, Log: cfg.Log})
		if err != nil {
			return nil, err
		}
		s.sessions, s.own = m, true
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.front = names.Handler(s.routes(), func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		reply(w, refuse(status, "%s", message))
	})
	return s, nil
}

// Drain refuses new runs, and waits until current runs have ended or ctx ends.
func (s *Server) Drain(ctx context.Context) error { return s.runs.Drain(ctx) }

// closeTime is how long Close may take to end all kernels.
const closeTime = time.Minute

// Close ends every kernel, with what runs in it, and every connection. It may be called again.
func (s *Server) Close() error {
	s.runs.Shut()
	s.live.Shut()
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.kernels))
	s.mu.Unlock()
	errs := make([]error, len(all), len(all)+2)
	var ends sync.WaitGroup
	for i, k := range all {
		ends.Go(func() { errs[i] = k.end(ctx) })
	}
	ends.Wait()
	errs = append(errs, s.live.Drain(ctx))
	if s.own {
		errs = append(errs, s.sessions.Close(ctx))
	}
	return errors.Join(errs...)
}
