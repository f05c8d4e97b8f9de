package flytest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/internal/standin"
)

// Config configures an emulator. The zero value is usable: the engine of the docker command, one
// token that is made, no app.
type Config struct {
	// Engine is the address of the Docker engine, for example "unix:///var/run/docker.sock". Empty:
	// that of DOCKER_HOST, or else the default socket.
	Engine string
	// Tokens are what clients may present. Empty: one is made, see Server.Token.
	Tokens []string
	// Apps exist from the beginning. Clients can make more.
	Apps []App
	// Images maps images of Machine configurations to images of the engine, for what it has under
	// another name. An image that is not in it is used as it is.
	Images map[string]string
	// Pull lets the engine fetch images that it does not have. Without it such an image is refused,
	// and nothing ever leaves for a registry.
	Pull bool
	// Publish are ports of every Machine that are published on loopback, besides those of its
	// services.
	Publish []int
	// Rate multiplies Fly's rate limits (1 request per second and action, burst 3; 5 and 10 for Get
	// Machine). Zero means 1; math.Inf(1) means no limits.
	Rate float64
	// MaxMachines bounds how many Machines there may be at a time; what exceeds it gets Fly's 422
	// for a region without capacity. Zero means 50.
	MaxMachines int
	// Regions are where Machines can be. Empty: iad, ord, lhr, fra, nrt, syd. The first is that of
	// Machines that name none.
	Regions []string
	// Log gets what happens to Machines, without their configuration. Nil: nothing is logged.
	Log *slog.Logger
}

// App is an app of the emulator.
type App struct {
	Name    string // [a-z0-9-], at most 63
	Org     string // slug of its organization. Empty: "personal"
	Network string // of its own; empty: that of the organization
}

const (
	defaultMachines = 50
	personal        = "personal"
)

var regions = []string{"iad", "ord", "lhr", "fra", "nrt", "syd"}

var (
	appName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	regionName = regexp.MustCompile(`^[a-z]{2,4}$`)
)

// Check returns every mistake in c. New does so, too.
func (c *Config) Check() error {
	var errs []error
	for i, a := range c.Apps {
		if !appName.MatchString(a.Name) {
			errs = append(errs, fmt.Errorf("apps[%d].name: want letters, digits and hyphens, at most 63, not %q", i, a.Name))
		}
		if slices.ContainsFunc(c.Apps[:i], func(b App) bool { return a.Name == b.Name }) {
			errs = append(errs, fmt.Errorf("apps[%d].name: %q is there already", i, a.Name))
		}
	}
	for i, t := range c.Tokens {
		if strings.TrimSpace(t) == "" {
			errs = append(errs, fmt.Errorf("tokens[%d]: empty", i))
		}
	}
	for i, p := range c.Publish {
		if p < 1 || p > 65535 {
			errs = append(errs, fmt.Errorf("publish[%d]: %d is not a port", i, p))
		}
	}
	for i, r := range c.Regions {
		if !regionName.MatchString(r) {
			errs = append(errs, fmt.Errorf("regions[%d]: want a code of two to four letters, not %q", i, r))
		}
	}
	if c.Rate < 0 || c.Rate != c.Rate {
		errs = append(errs, fmt.Errorf("rate: want zero or more, not %v", c.Rate))
	}
	if c.MaxMachines < 0 {
		errs = append(errs, fmt.Errorf("max machines: want zero or more, not %d", c.MaxMachines))
	}
	return errors.Join(errs...)
}

// Server is an emulator. It is an http.Handler for the paths below /v1. Its methods are safe for
// concurrent use.
type Server struct {
	cfg    Config
	engine *standin.Engine
	routes *http.ServeMux
	life   context.Context // of everything that works in the background
	end    context.CancelCauseFunc
	hands  context.Context // of what an engine would go on with if its client left; it outlives life
	drop   context.CancelFunc
	work   sync.WaitGroup
	limits *limiter

	mu       sync.Mutex
	closed   bool
	tokens   []token
	apps     map[string]*app
	switches []*armed
	digests  map[string]string // to IDs of images
	serial   int64             // of addresses and events
}

// errClosed ends what is under way when a Server is closed.
var errClosed = errors.New("the emulator is being closed")

// New starts an emulator. It removes what emulators have left that were killed on this machine. It
// fails if the engine does not answer or does not run Linux containers.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.Rate = cmp.Or(cfg.Rate, 1)
	cfg.MaxMachines = cmp.Or(cfg.MaxMachines, defaultMachines)
	if len(cfg.Regions) == 0 {
		cfg.Regions = regions
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Images = maps.Clone(cfg.Images)
	engine, err := standin.Open(ctx, "flytest", cfg.Engine)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, engine: engine, limits: newLimiter(cfg.Rate), apps: map[string]*app{}, digests: map[string]string{}}
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	s.hands, s.drop = context.WithCancel(context.WithoutCancel(ctx))
	for _, t := range cfg.Tokens {
		s.tokens = append(s.tokens, token{value: t})
	}
	if len(s.tokens) == 0 {
		s.tokens = []token{{value: "fo1_" + newToken()}} // as those of people; clients would look into a macaroon
	}
	for _, a := range cfg.Apps {
		s.apps[a.Name] = newApp(a)
	}
	s.routes = s.router()
	if err := engine.Sweep(ctx, cfg.Log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Token returns a token for everything: the first of the configuration, or the one that was made.
func (s *Server) Token() string { return s.tokens[0].value }

// Close ends and removes every Machine. Requests that are under way fail. An error says what may be
// left; calling it again tries again.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.drop)()
	s.end(errClosed)
	s.work.Wait()
	return s.engine.Release(ctx)
}

// Containers returns the Machines, as "app/id", whose containers the engine has, dead ones too:
// what is really there, whatever the emulator believes.
func (s *Server) Containers(ctx context.Context) ([]string, error) { return s.engine.Things(ctx) }

// closeTimeout bounds Close, whatever the engine does.
const closeTimeout = time.Minute

func newToken() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
