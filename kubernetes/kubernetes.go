// Package kubernetes is the adapter of type "kubernetes": sandboxes are pods of a Kubernetes
// cluster, one for each session.
//
// Any image with python3 will do, and with node for JavaScript. Nothing is installed in the cluster
// or in the image, no port is opened and no service is made: a program that the adapter sends
// along, the runner, supervises the code in the pod and talks through the API server, over the
// WebSocket of an exec.
//
// # Configuration
//
// See [Config]. Namespace is required and should hold nothing but sandboxes. The cluster is that of
// the kubeconfig, as kubectl finds it, or the one that this program runs in. Kubernetes 1.30 and
// later.
//
// # Isolation
//
// A container: the kernel is shared with the node, and a mistake in it is a way out. Code has no
// network unless asked for, no capability, no way to gain one, a filter of system calls, a
// read-only root, no token, and limits on memory, disk, processes and CPU. With a RuntimeClass of
// gVisor or Kata the declared isolation is stronger, and what it is worth is theirs to say.
// docs/security/kubernetes.md tells layer by layer what stops what and what remains.
//
// # As
//
// executor.As(s, &p) with p of type Pod gives the connection to the cluster and the name of the
// pod.
package kubernetes

import (
	"context"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Type is the name of this adapter in configurations and handles.
const Type = "kubernetes"

// Pod is what executor.As finds in a session of this adapter.
type Pod struct {
	Config    *rest.Config // a copy; it holds credentials
	Namespace string
	Name      string
}

// The time limits of the adapter.
const (
	requestTimeout = 30 * time.Second // of one request to the API server
	stopTimeout    = 10 * time.Second
)

// backend is a runner.Transport to one namespace of a cluster.
type backend struct {
	cfg Config
	env driver.Env
	api *client

	life     context.Context // until Close
	end      context.CancelFunc
	sweeping sync.WaitGroup

	denied atomic.Bool // the NetworkPolicy is there
	starts startTimes

	mu    sync.Mutex
	swept time.Time // when the last sweep began
}

var (
	_ runner.Transport = (*backend)(nil)
	_ runner.Finder    = (*backend)(nil)
	_ driver.Lister    = (*backend)(nil)
)

// Open opens the backend. It reads the kubeconfig and does no remote I/O.
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
	api := &client{transport: new(http.Transport)}
	if !env.Elsewhere {
		var err error
		if api, err = newClient(&cfg); err != nil {
			return nil, err
		}
	}
	b := &backend{cfg: cfg, env: env, api: api}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// features are those of every session, beside what the runner brings.
var features = []executor.Feature{
	executor.FeatureLimitCPU, executor.FeatureLimitMemory, executor.FeatureLimitDisk, executor.FeatureLimitProcesses,
	executor.FeatureNetworkNone,
}

// options say what the backend is.
func (b *backend) options() runner.Options {
	c := executor.Capabilities{
		Features:      slices.Clone(features),
		Templates:     slices.Sorted(maps.Keys(b.cfg.Templates)),
		Isolation:     isolationOf(b.cfg.RuntimeClass),
		MaxLimits:     b.cfg.MaxLimits.Executor(),
		DefaultLimits: b.cfg.limits(&executor.Spec{}),
		MaxLife:       b.cfg.MaxLife.Max(),
	}
	if b.cfg.AllowClusterNetwork {
		c.Features = append(c.Features, executor.FeatureNetworkFull)
	}
	if b.cfg.Ports {
		c.Features = append(c.Features, executor.FeaturePorts)
	}
	for _, l := range b.cfg.languages() {
		c.Languages = append(c.Languages, executor.Runtime{Language: l})
	}
	o := runner.Options{
		Options: driver.Options{
			Type: Type, CreateTimeout: b.cfg.timeout(), StopTimeout: stopTimeout, Suspends: true, SuspendsRuns: true,
		},
		Capabilities: c, Python: python, Attempts: 2, Packages: b.cfg.Packages,
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
	b.api.close()
	return nil
}

// isolationOf returns the boundary that a RuntimeClass gives. The name is the administrator's; what
// does not look like a stronger one is a container.
func isolationOf(class string) executor.Isolation {
	name := path.Base(class)
	switch {
	case strings.HasPrefix(name, "runsc"), strings.HasPrefix(name, "gvisor"):
		return executor.IsolationGVisor
	case strings.HasPrefix(name, "kata"):
		return executor.IsolationMicroVM
	}
	return executor.IsolationContainer
}
