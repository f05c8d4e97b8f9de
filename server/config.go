package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/front"
)

// The defaults of Config.
const (
	DefaultMaxBody         = 16 << 20
	DefaultMaxFile         = 64 << 20
	DefaultMaxTimeout      = 5 * time.Minute
	DefaultMaxIdle         = time.Hour
	DefaultMaxSessions     = 100
	DefaultMaxRuns         = 100
	DefaultMaxRunsTotal    = 1000
	DefaultMaxTransfers    = 8
	DefaultBodyTime        = time.Minute
	DefaultArtifactsBytes  = 8 << 20
	maxOutputInResultBytes = 1 << 20 // bytes of each stream in an answer
)

// Config configures New. Keys are required.
type Config struct {
	Keys Keys
	// Spec is the Spec of every sandbox. A client adds languages, packages, variables and a
	// template. Subject and Attributes are those of its key. MaxTimeout raises its MaxRun.WallTime.
	Spec executor.Spec
	// Conversations has the conversations of clients. Its Executor is that of New. Nil: there
	// are no conversations. The caller closes it after the Server.
	Conversations *sessions.Manager
	// Experiments returns what GET /v1/experiments answers to operators, such as the method of that
	// name of a Broker. Nil: there are no experiments.
	Experiments func(context.Context) ([]rollout.Experiment, error)
	// Backends returns the backends that keys of operators may choose for a session, by their
	// names. Nil: the Executor decides for all.
	Backends func() map[string]executor.Executor
	// Overview returns what GET /v1/overview answers to operators of backends: Backends, Arms and
	// Used. Nil: these are empty.
	Overview func(context.Context) (Overview, error)
	// Page answers GET / and what is below /page/, without a key, such as page.Handler. Nil: there
	// is no page.
	Page http.Handler
	// MaxBody and MaxFile are the largest sizes of a JSON request and of a file in bytes. Zero: the
	// defaults.
	MaxBody, MaxFile int64
	// BodyTime is how long a request body may take to arrive. A file has that time for each MiB.
	// Zero: DefaultBodyTime.
	BodyTime time.Duration
	// MaxTimeout is the longest run that a client may request, and MaxIdle the longest time that a
	// session may wait for its next use. Zero: the defaults, or less if Run or MaxRun of Spec say
	// so; for MaxIdle the IdleTTL of Spec. Neither exceeds what the backend allows.
	MaxTimeout, MaxIdle time.Duration
	// MaxSessions, MaxRuns and MaxTransfers limit the sessions, runs and file transfers of a key at
	// the same time. MaxRunsTotal limits the runs of all keys. Zero: the defaults.
	MaxSessions, MaxRuns, MaxRunsTotal, MaxTransfers int
	// Hosts are the names and addresses, without ports, by which clients reach the server, in
	// addition to loopback. Requests for other hosts are refused: a web page can send them after
	// pointing its own name at this machine. "*" allows all.
	Hosts []string
	// Origins are the origins, such as https://app.example, whose web pages may use the server with
	// a key. Nil: none.
	Origins []string
	// Log gets what clients are not told. Nil: no log.
	Log *slog.Logger
}

func (c Config) policy() front.Policy {
	return front.Policy{Hosts: c.Hosts, Origins: c.Origins, BodyTime: c.BodyTime}
}

func (c Config) withDefaults(caps executor.Capabilities) (Config, error) {
	var errs []error
	if c.Keys.Len() == 0 {
		errs = append(errs, errors.New("keys: at least one is required"))
	}
	if min(c.MaxBody, c.MaxFile) < 0 || min(c.BodyTime, c.MaxTimeout, c.MaxIdle) < 0 || min(c.MaxSessions, c.MaxRuns, c.MaxRunsTotal, c.MaxTransfers) < 0 {
		errs = append(errs, errors.New("limits: none may be negative"))
	}
	if err := c.policy().Check(); err != nil {
		errs = append(errs, fmt.Errorf("hosts and origins: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return c, &executor.Error{Op: "server", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxFile = cmp.Or(c.MaxFile, DefaultMaxFile)
	c.BodyTime = cmp.Or(c.BodyTime, DefaultBodyTime)
	c.MaxIdle = cmp.Or(c.MaxIdle, c.Spec.IdleTTL, DefaultMaxIdle)
	if caps.MaxLife > 0 {
		c.MaxIdle = min(c.MaxIdle, caps.MaxLife)
	}
	c.MaxSessions = cmp.Or(c.MaxSessions, DefaultMaxSessions)
	c.MaxRuns = cmp.Or(c.MaxRuns, DefaultMaxRuns)
	c.MaxRunsTotal = cmp.Or(c.MaxRunsTotal, DefaultMaxRunsTotal)
	c.MaxTransfers = cmp.Or(c.MaxTransfers, DefaultMaxTransfers)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c, nil
}
