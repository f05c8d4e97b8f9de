package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

// envdVersion is the version of E2B's daemon that sandboxes claim. The SDKs refuse what came later.
const envdVersion = "0.6.4"

// The defaults of Config.
const (
	DefaultMaxTimeout   = 24 * time.Hour
	DefaultMaxSandboxes = 100
	DefaultPausedTTL    = time.Hour
	DefaultBodyTime     = time.Minute
)

// Config configures New. Keys are required.
type Config struct {
	// Keys are the API keys. Each has its own sandboxes.
	Keys []string
	// Domain is the end of the host names of sandboxes, PORT-ID.DOMAIN, and of the control plane,
	// api.DOMAIN. Empty: "localhost", and clients are not told a domain.
	Domain string
	// Hosts are more names and addresses, without ports, by which clients reach the server, besides
	// those of loopback. Requests for other hosts are refused: a web page sends them if its name
	// was made to resolve to this machine. "*" allows all.
	Hosts []string
	// Spec is the base of every sandbox: its limits, its run limits, its packages. No languages
	// means all that the backend can have in one session. Zero fields of Run mean as much as the
	// backend allows, because E2B's clients end runs themselves and read output as it comes.
	// Network is for sandboxes whose clients give no list of hosts; allowInternetAccess: true
	// does not change it, because SDKs send that by themselves. IdleTTL is not used.
	Spec executor.Spec
	// MaxNetwork is the most that a client may ask for: executor.NetworkNone refuses sandboxes with
	// a list of allowed hosts. Zero means executor.NetworkFull: clients may have such a list.
	MaxNetwork executor.NetworkMode
	// Templates maps E2B's names of templates to those of the backend. Other names are taken as
	// those of the backend. "base" and "code-interpreter-v1", which the SDKs ask for by themselves,
	// mean its default.
	Templates map[string]string
	// MaxTimeout is the longest life that a client may ask for, from the moment of asking. Zero
	// means DefaultMaxTimeout.
	MaxTimeout time.Duration
	// MaxSandboxes is how many each key may have at a time. Zero means DefaultMaxSandboxes.
	MaxSandboxes int
	// OnPause is for backends that cannot suspend sandboxes. Zero means PauseKeep.
	OnPause OnPause
	// PausedTTL is how long a paused sandbox waits to be resumed before it is ended. Zero means
	// DefaultPausedTTL.
	PausedTTL time.Duration
	// BodyTime is how long the body of a request, or the first message of a stream, may take to
	// arrive. A file, and a body for a server in a sandbox, have that time for each MiB. Zero means
	// DefaultBodyTime.
	BodyTime time.Duration
	// Ports says who reaches servers in sandboxes. Zero means PortsOff: nobody. Other values need a
	// backend with executor.FeaturePorts.
	Ports Ports
	// Root runs the commands of clients that ask for the user root, in the session of their sandbox
	// and by the rules of Session.Run. The contract has one user only, so the caller provides it.
	// Nil: they are refused.
	Root func(ctx context.Context, s executor.Session, req executor.Request, emit func(executor.Event) error) (*executor.Result, error)
	// Log gets what no client is told. Nil: nothing is logged.
	Log *slog.Logger
}

// endless is the output limit of a run where the backend has none: E2B does not limit output.
const endless = 1 << 50

func (c Config) withDefaults(caps executor.Capabilities) (Config, error) {
	if len(c.Keys) == 0 || slices.Contains(c.Keys, "") {
		return c, errors.New("e2b: keys: at least one API key is required, and none may be empty")
	}
	if err := c.names().Check(); err != nil {
		return c, fmt.Errorf("e2b: domain and hosts: %w", err)
	}
	c.MaxTimeout = cmp.Or(c.MaxTimeout, DefaultMaxTimeout)
	if caps.MaxLife > 0 {
		c.MaxTimeout = min(c.MaxTimeout, caps.MaxLife)
	}
	c.MaxSandboxes = cmp.Or(c.MaxSandboxes, DefaultMaxSandboxes)
	if c.MaxTimeout < time.Second || c.MaxSandboxes < 0 || c.BodyTime < 0 {
		return c, errors.New("e2b: max_timeout, max_sandboxes and body_time: want positive values")
	}
	c.OnPause, c.PausedTTL = cmp.Or(c.OnPause, PauseKeep), cmp.Or(c.PausedTTL, DefaultPausedTTL)
	if !slices.Contains([]OnPause{PauseKeep, PauseKill, PauseRefuse}, c.OnPause) || c.PausedTTL < time.Second {
		return c, errors.New("e2b: on_pause and paused_ttl: want keep, kill or refuse, and at least 1s")
	}
	if !slices.Contains([]Ports{PortsOff, PortsPrivate, PortsPublic}, c.Ports) {
		return c, fmt.Errorf("e2b: ports: %q is neither %q nor %q", c.Ports, PortsPrivate, PortsPublic)
	}
	c.MaxNetwork = cmp.Or(c.MaxNetwork, executor.NetworkFull)
	if c.MaxNetwork != executor.NetworkNone && c.MaxNetwork != executor.NetworkFull {
		return c, fmt.Errorf("e2b: max_network: %q is neither %q nor %q", c.MaxNetwork, executor.NetworkNone, executor.NetworkFull)
	}
	c.Spec.Ports = c.Ports != PortsOff
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if len(c.Spec.Languages) == 0 {
		for _, r := range caps.Languages {
			c.Spec.Languages = append(c.Spec.Languages, r.Language)
		}
		if len(caps.Languages) > 1 && !caps.Has(executor.FeatureMixedLanguages) {
			c.Spec.Languages = c.Spec.Languages[:1]
		}
	}
	if c.Spec.Run.WallTime == 0 {
		c.Spec.Run.WallTime = cmp.Or(c.Spec.MaxRun.WallTime, caps.MaxRun.WallTime, executor.NoLimit)
	}
	if c.Spec.Run.OutputBytes == 0 {
		c.Spec.Run.OutputBytes = cmp.Or(c.Spec.MaxRun.OutputBytes, caps.MaxRun.OutputBytes, endless)
	}
	return c, nil
}

// below matches what precedes the domain in host names.
var below = regexp.MustCompile(`^(api|` + sandboxLabel + `)$`)

// names are those that clients may use.
func (c Config) names() front.Policy {
	p := front.Policy{Hosts: c.Hosts, BodyTime: cmp.Or(c.BodyTime, DefaultBodyTime)}
	if c.Domain != "" {
		p.Hosts, p.Below = append([]string{c.Domain}, c.Hosts...), below
	}
	return p
}

// template returns the backend's name of a template.
func (c Config) template(id string, caps executor.Capabilities) (name string, ok bool) {
	if name, ok := c.Templates[id]; ok {
		return name, true
	}
	if id == "base" || id == "code-interpreter-v1" {
		return c.Spec.Template, true
	}
	return id, id != "" && slices.Contains(caps.Templates, id)
}
