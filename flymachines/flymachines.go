// Package flymachines is the adapter of type "flymachines": sandboxes are Machines of Fly.io, one
// for each session.
//
// Any image with python3 will do, and with node for JavaScript. The adapter sends a program along
// in the configuration of the Machine, the runner, which is its main process. It supervises the
// code and answers over HTTP those who have its secret. The Machine has a digest of that secret
// only.
//
// # Configuration
//
// See [Config]. App and Token are required: an app without secrets, on a network of its own.
// docs/guides/fly-machines.md explains it.
//
// # Isolation
//
// A microVM, which is the provider's. In it code runs as a user of its own without any capability,
// in a network namespace without a way out unless it was asked for. The directory with the socket
// that acts for the Machine, which every guest of Fly has, is covered. docs/security/flymachines.md
// says which layer stops what, and what remains.
//
// # As
//
// executor.As(s, &m) with m of type *fly.Machine (github.com/superfly/fly-go) gives the Machine as
// it was when the session was opened. With *Machine it gives the client, the app and the ID as
// well.
package flymachines

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "flymachines"

// Machine is what executor.As finds in a session of this adapter. Calls of Client are bounded by
// the rates that the backend keeps; what they change is not known to it.
type Machine struct {
	Client  *flaps.Client
	App     string
	Machine *fly.Machine
}

// The time limits of the adapter.
const (
	createTimeout = 5 * time.Minute  // the first pull of an image on a host takes long
	answerTimeout = 75 * time.Second // of a runner that is to be set up or connected to, or to start a program in a sandbox
	cleanTimeout  = time.Minute
)

// backend is a runner.Transport to one app.
type backend struct {
	cfg  Config
	env  driver.Env
	api  *api
	data *http.Transport

	addresses func() ([]net.Addr, error) // of this program

	noFiles atomic.Bool // Fly has refused those of a create as too large

	life     context.Context // until Close
	end      context.CancelFunc
	swept    sync.Once
	sweeping sync.WaitGroup
}

var (
	_ runner.Transport = (*backend)(nil)
	_ runner.Finder    = (*backend)(nil)
	_ driver.Lister    = (*backend)(nil)
)

// Open opens the backend. It does no remote I/O.
func Open(ctx context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	env = env.WithInstance() // of sessions, and of what fetches packages for them
	b, err := newBackend(ctx, env, cfg)
	if err != nil {
		return nil, err
	}
	return runner.Open(env, b, b.options())
}

// Factory is for registries.
func Factory() driver.Factory {
	return driver.WithPrices(driver.NewFactory(Type, Open, Doctor), prices)
}

// prices are those of Fly's price list of August 2026 for a Machine with shared processors while it
// is started, in US dollars: 2.02 for one processor with 256 MB in 30 days, of which a GB of memory
// is 5. Other kinds of processors and regions cost more: the configuration can say so.
var prices = driver.Prices{CPUSecond: 297_000, GiBSecond: 1_929_000, CPUs: 1, MemoryBytes: 256 << 20}

func newBackend(ctx context.Context, env driver.Env, cfg Config) (*backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a, err := newAPI(ctx, env, &cfg)
	if err != nil {
		return nil, err
	}
	b := &backend{cfg: cfg, env: env, api: a, data: cfg.dataTransport(), addresses: net.InterfaceAddrs}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// features are those of every session, beside what the runner brings.
var features = []executor.Feature{
	executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitProcesses,
	executor.FeatureNetworkNone, executor.FeatureNetworkFull, executor.FeatureAliases,
}

// options say what the backend is.
func (b *backend) options() runner.Options {
	c := executor.Capabilities{
		Features: slices.Clone(features), Templates: b.cfg.templates(), Isolation: executor.IsolationMicroVM, MaxLimits: b.cfg.maxLimits(),
		DefaultLimits: b.cfg.defaultLimits(),
		MaxLife:       b.cfg.MaxLife.Max(),
	}
	if b.cfg.Ports {
		c.Features = append(c.Features, executor.FeaturePorts)
	}
	for _, l := range b.cfg.languages() {
		c.Languages = append(c.Languages, executor.Runtime{Language: l})
	}
	return runner.Options{
		Options:      driver.Options{Type: Type, CreateTimeout: b.cfg.timeout(), CleanupTimeout: cleanTimeout, Suspends: b.cfg.suspends()},
		Capabilities: c, Python: python, AnswerTimeout: answerTimeout, Packages: driver.Packages(b.cfg.Packages),
	}
}

// Close implements io.Closer.
func (b *backend) Close() error {
	b.end()
	b.sweeping.Wait()
	b.data.CloseIdleConnections()
	b.api.close()
	return nil
}
