// Package docker is the adapter of type "docker": sandboxes are containers of a Docker engine on
// this machine or another.
//
// Any image with python3 will do, and with node for JavaScript. Nothing is installed in it, no port
// is opened, nothing of the host is mounted: a program that the adapter sends along, the runner,
// supervises the code in the container and talks through the container's standard input and output.
//
// # Configuration
//
// See [Config]. The zero configuration finds the engine that the docker command uses and runs
// Python in [DefaultImage]. Engine 20.10 (API 1.41) and later.
//
// # Isolation
//
// A container: the kernel is shared with the host, and a mistake in it is a way out. Code has no
// network unless asked for, no capability, no way to gain one, a short list of system calls, a
// read-only root, and limits on memory, disk, processes and CPU. With Runtime "runsc" or "kata" the
// declared isolation is stronger, and what it is worth is theirs to say; gVisor passes the suite
// without three limits, and Kata is not tested here. docs/security/docker.md tells layer by layer
// what stops what and what remains.
//
// # As
//
// executor.As(s, &c) with c of type Container gives the client of the engine and the ID of the
// container.
package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "docker"

// Container is what executor.As finds in a session of this adapter.
type Container struct {
	Client *client.Client
	ID     string
}

// The time limits of the adapter. A question to the engine has one of its own; creating a session
// may take longer because it may pull an image.
const (
	engineTimeout = time.Minute
	createTimeout = 15 * time.Minute
	stopTimeout   = 10 * time.Second
)

// backend is a runner.Transport to one engine.
type backend struct {
	cfg    Config
	env    driver.Env
	engine *engine

	life     context.Context // until Close
	end      context.CancelFunc
	swept    sync.Once
	sweeping sync.WaitGroup

	sized  sync.Once     // of starts, when the engine has said what it has
	starts chan struct{} // holds an element for each container that is starting
}

var (
	_ runner.Transport = (*backend)(nil)
	_ runner.Finder    = (*backend)(nil)
	_ driver.Lister    = (*backend)(nil)
)

// Open opens the backend. It reads files of the docker command and does no remote I/O.
func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
	b, err := newBackend(env, cfg)
	if err != nil {
		return nil, err
	}
	return runner.Open(env, b, b.options())
}

// Factory is for registries.
func Factory() driver.Factory { return driver.NewFactory(Type, Open, Doctor) }

func newBackend(env driver.Env, cfg Config) (*backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	at := endpoint{host: client.DefaultDockerHost}
	if !env.Elsewhere {
		var err error
		if at, err = cfg.endpoint(processEnvironment()); err != nil {
			return nil, err
		}
	}
	c, err := at.client()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.from, err)
	}
	b := &backend{cfg: cfg, env: env, engine: newEngine(c, at, cmp.Or(time.Duration(cfg.Timeout), engineTimeout))}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// features are those of every session, beside what the runner brings.
var features = []executor.Feature{
	executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitDisk, executor.FeatureLimitProcesses,
	executor.FeatureNetworkNone, executor.FeatureNetworkFull, executor.FeatureAliases,
}

// options say what the backend is.
func (b *backend) options() runner.Options {
	c := executor.Capabilities{
		Features:  slices.Clone(features),
		Templates: slices.Sorted(maps.Keys(b.cfg.Templates)),
		Isolation: isolationOf(b.cfg.Runtime),
		MaxLimits: b.cfg.MaxLimits.Executor(),
		// The engine has not yet said how many processors it has, so their default is known only if
		// it is configured.
		DefaultLimits: b.cfg.limits(&executor.Spec{}, &facts{}),
		MaxLife:       b.cfg.MaxLife.Max(),
	}
	if b.cfg.Ports {
		c.Features = append(c.Features, executor.FeaturePorts)
	}
	for _, l := range b.cfg.languages() {
		c.Languages = append(c.Languages, executor.Runtime{Language: l})
	}
	o := runner.Options{
		// What stops a run goes through the engine, so an engine that is given up after a moment is
		// not waited for longer.
		Options: driver.Options{
			Type: Type, CreateTimeout: createTimeout, StopTimeout: min(b.engine.timeout, stopTimeout), Suspends: true, SuspendsRuns: true,
		},
		Capabilities: c, Python: python, Socket: socket, AnswerTimeout: b.engine.timeout, Packages: b.cfg.Packages.Packages,
	}
	if c.Isolation == executor.IsolationGVisor {
		return o.UnderGVisor()
	}
	return o
}

// Close implements io.Closer.
func (b *backend) Close() error {
	b.end()
	b.sweeping.Wait()
	return b.engine.Close()
}

func (c *Config) languages() []executor.Language {
	if len(c.Languages) == 0 {
		return []executor.Language{executor.Python}
	}
	return c.Languages
}
