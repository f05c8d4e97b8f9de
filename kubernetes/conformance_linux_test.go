package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
	"github.com/execbroker/execbroker/runner"
)

// mainOf runs the tests, or the child that the suite has started.
func mainOf(m *testing.M) int {
	was, err := conformance.RunChild(context.Background(), target(nil))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	case was:
		return 0
	}
	return leaktest.Main(m)
}

// untilOK polls until a check does not fail.
func untilOK(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if perr := remote.Pause(ctx, 50*time.Millisecond); perr != nil {
			return errors.Join(perr, err)
		}
	}
}

// What a run of the suite has: a cluster and a namespace of its own.
const (
	paramKubeconfig = "kubeconfig"
	paramNamespace  = "namespace"
	paramDir        = "dir" // with wheels and a cache
	paramRegistry   = "registry"
	owner           = "conformance"
)

// must is what the backend has to declare with images for both languages.
var must = func() conformance.Must {
	m, _ := conformance.MustDeclare(Type)
	m.Features = append(append(m.Features, executor.FeatureMixedLanguages, executor.FeaturePorts, executor.FeatureNetworkFull), runner.GVisorLacks()...)
	each := append([]executor.Feature{executor.FeaturePackages}, m.EachLanguage...)
	m.Languages = map[executor.Language][]executor.Feature{executor.Python: each, executor.JavaScript: each}
	return m
}()

// setup is what a run of the suite has, with a source of packages that pods reach.
func setup(ctx context.Context, kubeconfig, namespace string, listen func(context.Context) (net.Listener, error)) (map[string]string, func() error, error) {
	from, err := packagestest.StartSuite(ctx, listen)
	if err != nil {
		return nil, nil, err
	}
	return map[string]string{paramKubeconfig: kubeconfig, paramNamespace: namespace, paramDir: from.Dir, paramRegistry: from.Registry}, from.Close, nil
}

// target is what the suite tests: the adapter with a cluster.
func target(c *kubetest.Cluster) conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: kubetest.Version},
		Mode:           conformance.Live,
		Setup: func(ctx context.Context) (map[string]string, func() error, error) {
			ns, err := c.NewNamespace(ctx)
			if err != nil {
				return nil, nil, err
			}
			return setup(ctx, c.Kubeconfig, ns, c.Listen)
		},
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			cfg := testConfig(params[paramKubeconfig], params[paramNamespace])
			cfg.Ports, cfg.AllowClusterNetwork = true, true
			cfg.Languages = []executor.Language{executor.Python, executor.JavaScript}
			cfg.Templates = map[string]Template{"small": {Image: dockertest.Python, Limits: Limits{Memory: 128 << 20, Disk: 8 << 20}}}
			cfg.Packages = driver.Packages{Allow: packagestest.Allow(), Wheels: params[paramDir], Registry: params[paramRegistry], Insecure: true, Size: 4 << 20}
			return Open(ctx, driver.Env{Owner: owner + params[conformance.ParamOwner], CacheDir: filepath.Join(params[paramDir], "cache")}, cfg)
		},
		Leaks: func(ctx context.Context, params map[string]string) (left []string, err error) {
			// Pods that have ended stay until a program of their owner comes along.
			b, err := newBackend(driver.Env{Owner: owner}, testConfig(params[paramKubeconfig], params[paramNamespace]))
			if err != nil {
				return nil, err
			}
			defer b.Close()
			if err := b.sweepNow(ctx, time.Now()); err != nil {
				return nil, err
			}
			running, err := c.Running()
			if err != nil {
				return nil, err
			}
			err = b.api.list(ctx, "", func(pod *corev1.Pod) bool {
				left = append(left, "pod "+pod.Name+", "+waitsFor(pod))
				return true
			})
			return append(left, running...), err // testLives counts what the node removes later
		},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 2,                // each pod has a dozen processes of the cluster beside it
		Grace:    15 * time.Second, // the machine may be busy
	}
}

// leftWithin is how long what has ended may be there: a pod is swept when it is old, and a node
// looks once a minute for containers whose pods are gone.
const leftWithin = 3 * time.Minute

// leftAt returns what is left of pods at nodes. Meanwhile it sweeps, as programs do now and then.
func leftAt(ctx context.Context, b *backend, find func() ([]string, error)) (left []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	for {
		if err := b.sweepNow(ctx, time.Now()); err != nil {
			return nil, err
		}
		if left, err = find(); err != nil || len(left) == 0 {
			return nil, err
		}
		if remote.Pause(ctx, time.Second) != nil {
			return left, nil
		}
	}
}

// TestConformance runs the suite against a real cluster.
func TestConformance(t *testing.T) { conformancetest.Test(t, target(testCluster(t))) }
