// Package e2b is the adapter of type "e2b": sandboxes are those of E2B, or of a service or server
// that speaks E2B's protocols.
//
// A sandbox is a virtual machine made from a template. With the kernel "runner", the default, any
// template with python3 will do, and with node for JavaScript: the adapter sends a program along
// that supervises the code, and code finds what it finds on Docker. With the kernel
// "code-interpreter" code runs in E2B's own Jupyter kernels, which have more languages and fewer
// features of the contract.
//
// # Configuration
//
// See [Config]. The zero configuration takes the key of the service from E2B_API_KEY and runs
// Python in E2B's template "base". Every address is configurable, for self-hosted and compatible
// services.
//
// # Isolation
//
// A microVM, as the service says: this library cannot verify it. Sandboxes have no network unless
// asked for, and nothing in them can be reached from outside. docs/security/e2b.md says which layer
// stops what, and what remains.
//
// # As
//
// executor.As(s, &b) with b of type Sandbox gives the ID of the sandbox at the service.
// errors.As(err, &e) with e of type *ServiceError gives what the service has answered.
package e2b

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "e2b"

// Sandbox is what executor.As finds in a session of this adapter.
type Sandbox struct {
	ID string
}

// The time limits of the adapter.
const (
	answerTimeout = time.Minute      // of a request, unless the configuration says otherwise
	createTimeout = 3 * time.Minute  // of a session, with repeated requests
	closeTimeout  = 45 * time.Second // of Close and Destroy, which may have to find out what became of a request
)

// backend is a runner.Transport to one account.
type backend struct {
	cfg     Config
	env     driver.Env
	service *service

	life context.Context // until Close
	end  context.CancelFunc
	work sync.WaitGroup // what goes on when its caller has left; Close waits for it
}

var (
	_ runner.Transport = (*backend)(nil)
	_ runner.Finder    = (*backend)(nil)
	_ driver.Lister    = (*backend)(nil)
)

// Open opens the backend. It does no remote I/O.
func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	env = env.WithInstance() // of sessions, and of what fetches packages for them
	b, err := newBackend(env, cfg)
	if err != nil {
		return nil, err
	}
	return b.open(env)
}

// open makes an Executor of b.
func (b *backend) open(env driver.Env) (executor.Executor, error) {
	o := b.options()
	d, err := runner.New(env, b, o)
	if err != nil {
		return nil, err
	}
	if b.cfg.kernel() == KernelCodeInterpreter {
		d = &notebooks{d.(found), b}
	}
	return driver.New(d, env, o.Options)
}

// Factory is for registries.
func Factory() driver.Factory {
	return driver.WithPrices(driver.NewFactory(Type, Open, Doctor), prices)
}

// prices are those of E2B's price list of June 2026, in US dollars, with the size of a sandbox
// whose template says nothing else: 0.0504 for a vCPU and 0.0162 for a GiB of memory in an hour.
var prices = driver.Prices{CPUSecond: 14_000_000, GiBSecond: 4_500_000, CPUs: 2, MemoryBytes: 512 << 20}

func newBackend(env driver.Env, cfg Config) (*backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := newService(&cfg)
	if err != nil {
		return nil, err
	}
	b := &backend{cfg: cfg, env: env, service: s}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// networkFeatures say which feature a policy needs.
var networkFeatures = map[executor.NetworkMode]executor.Feature{
	executor.NetworkNone: executor.FeatureNetworkNone, executor.NetworkAllowlist: executor.FeatureNetworkAllowlist, executor.NetworkFull: executor.FeatureNetworkFull,
}

// options say what the backend is.
func (b *backend) options() runner.Options {
	o := runner.Options{
		Options: driver.Options{Type: Type, CreateTimeout: createTimeout, CleanupTimeout: closeTimeout},
		Capabilities: executor.Capabilities{
			Templates: slices.Sorted(maps.Keys(b.cfg.Templates)), Isolation: executor.IsolationMicroVM, MaxLife: b.cfg.maxLife(),
		},
		Python: python, Socket: socket, AnswerTimeout: b.cfg.timeout(), Attempts: sandboxes, Packages: driver.Packages(b.cfg.Packages),
	}
	c := &o.Capabilities
	if b.cfg.kernel() == KernelCodeInterpreter {
		c.Features, o.Without = []executor.Feature{FeatureCodeInterpreter}, []executor.Feature{executor.FeatureTypeScript}
	} else {
		c.Features = []executor.Feature{executor.FeatureLimitProcesses}
		for _, l := range b.cfg.languages() {
			c.Languages = append(c.Languages, executor.Runtime{Language: l})
		}
		if b.cfg.user() == DefaultUser { // another user's files could be changed by code
			c.Features = append(c.Features, executor.FeatureAliases)
		}
	}
	if b.cfg.Ports {
		c.Features = append(c.Features, executor.FeaturePorts)
	}
	for _, m := range b.cfg.networks() {
		c.Features = append(c.Features, networkFeatures[m])
	}
	return o
}

// Close implements io.Closer.
func (b *backend) Close() error {
	b.end()
	b.work.Wait()
	b.service.http.CloseIdleConnections()
	b.service.code.CloseIdleConnections()
	return nil
}

func (c *Config) languages() []executor.Language {
	if len(c.Languages) == 0 {
		return []executor.Language{executor.Python}
	}
	return c.Languages
}

func (c *Config) networks() []executor.NetworkMode {
	if len(c.Networks) == 0 {
		return []executor.NetworkMode{executor.NetworkNone, executor.NetworkAllowlist, executor.NetworkFull}
	}
	return c.Networks
}

func (c *Config) maxLife() time.Duration {
	return cmp.Or(time.Duration(c.MaxLife), DefaultMaxLife)
}

func (c *Config) timeout() time.Duration {
	return cmp.Or(time.Duration(c.Timeout), answerTimeout)
}
