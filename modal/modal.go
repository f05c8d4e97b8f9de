// Package modal is the adapter of type "modal": sandboxes are Sandboxes of Modal, one for each
// session, over Modal's own SDK for Go.
//
// Any image with python3 will do, and with node for JavaScript. Nothing is installed in the image,
// no port is opened and no tunnel is made: a program that the adapter sends along, the runner,
// supervises the code in the Sandbox and talks over the streams of an exec.
//
// It was never run against Modal itself, only against the stand-in of package modal/modaltest.
//
// # Configuration
//
// See [Config]. App, TokenID and TokenSecret are required. The SDK reads variables MODAL_* and
// ~/.modal.toml by itself; Open refuses what they set differently from the configuration.
//
// # Isolation
//
// Modal's: gVisor, or a virtual machine with Config.Runtime. In it code runs as a user of its own
// without any capability, and without network unless it was asked for. docs/security/modal.md says
// which layer stops what, and what remains.
//
// # As
//
// executor.As(s, &m) with m of type *modal.Sandbox (github.com/modal-labs/modal-client/go) gives
// the Sandbox of the SDK.
package modal

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "modal"

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// socket is where bridges find the runner: each Sandbox has abstract names of its own.
const socket = "@execbroker"

// The time limits of the adapter.
const (
	createTimeout  = 10 * time.Minute // Modal builds an image when it is used for the first time
	requestTimeout = 30 * time.Second // of one attempt at a request that makes nothing
	cleanTimeout   = time.Minute
	attempts       = 2 // Sandboxes that may be made for a session, if the first breaks before code has run
)

// backend is a runner.Transport to one app.
type backend struct {
	cfg Config
	env driver.Env
	sdk *sdk.Client

	sending sync.WaitGroup // of the streams

	mu     sync.Mutex
	app    *sdk.App
	images map[string]*sdk.Image // that are built, by their names in the configuration
}

var (
	_ runner.Transport = (*backend)(nil)
	_ runner.Finder    = (*backend)(nil)
	_ driver.Lister    = (*backend)(nil)
)

// Open opens the backend. It does no remote I/O. An error names what is wrong in cfg, or the
// variable or the key of the SDK's file that says something else than cfg.
func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	b, err := newBackend(env.WithInstance(), cfg) // of sessions, and of what fetches packages for them
	if err != nil {
		return nil, err
	}
	return b.open()
}

// open makes an Executor of b.
func (b *backend) open() (executor.Executor, error) { return runner.Open(b.env, b, b.options()) }

// Factory is for registries.
func Factory() driver.Factory {
	return driver.WithPrices(driver.NewFactory(Type, Open, Doctor), prices)
}

// prices are those that others quote from Modal's price list of 2026 for Sandboxes, in US dollars,
// for each physical core and GiB of memory that is asked for. What is used beyond that costs more,
// and so do regions, GPUs and Sandboxes that must not be preempted: the configuration can say so.
var prices = driver.Prices{CPUSecond: 39_420, GiBSecond: 6_720, CPUs: defaultCPUs, MemoryBytes: defaultMemory}

func newBackend(env driver.Env, cfg Config) (*backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &backend{cfg: cfg, env: env, images: map[string]*sdk.Image{}}
	if env.Elsewhere {
		return b, nil // the SDK reads variables and files
	}
	p, err := b.params()
	if err != nil {
		return nil, err
	}
	if b.sdk, err = sdk.NewClientWithOptions(p); err != nil {
		return nil, err
	}
	return b, nil
}

// options say what the backend is.
func (b *backend) options() runner.Options {
	c := executor.Capabilities{
		Features: []executor.Feature{
			executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitProcesses,
			executor.FeatureNetworkNone, executor.FeatureNetworkFull, executor.FeatureAliases,
		},
		Templates: slices.Sorted(maps.Keys(b.cfg.Templates)), Isolation: b.cfg.isolation(), MaxLimits: b.cfg.MaxLimits.Executor(),
		DefaultLimits: b.cfg.limits(&executor.Spec{}),
		MaxLife:       b.cfg.MaxLife.Max(),
	}
	if b.cfg.Ports {
		c.Features = append(c.Features, executor.FeaturePorts)
	}
	for _, l := range b.cfg.languages() {
		c.Languages = append(c.Languages, executor.Runtime{Language: l})
	}
	o := runner.Options{
		Options:      driver.Options{Type: Type, CreateTimeout: b.cfg.timeout(), CleanupTimeout: cleanTimeout},
		Capabilities: c, Python: python, Attempts: attempts, Packages: b.cfg.Packages, Socket: socket,
	}
	if c.Isolation == executor.IsolationGVisor {
		return o.UnderGVisor()
	}
	return o
}

// Close implements io.Closer.
func (b *backend) Close() error {
	if b.sdk != nil {
		b.sdk.Close()
	}
	sent := make(chan struct{})
	go func() { // until Modal answers, or the SDK gives up
		b.sending.Wait()
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(farewell):
	}
	return nil
}
