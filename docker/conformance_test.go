package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/runner"
)

func TestMain(m *testing.M) {
	if owner := os.Getenv(hostProgram); owner != "" {
		fmt.Fprintln(os.Stderr, holdSessions(context.Background(), owner))
		os.Exit(1) // it was to be killed
	}
	was, err := conformance.RunChild(context.Background(), target("", ""))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

// must is what the backend has to declare with images for both languages.
var must = func() conformance.Must {
	m, _ := conformance.MustDeclare(Type)
	m.Features = append(append(m.Features, executor.FeatureMixedLanguages, executor.FeaturePorts), runner.GVisorLacks()...)
	m.Languages = map[executor.Language][]executor.Feature{
		executor.Python:     append([]executor.Feature{executor.FeaturePackages}, m.EachLanguage...),
		executor.JavaScript: append([]executor.Feature{executor.FeaturePackages}, m.EachLanguage...),
	}
	return m
}()

// What a run of the suite has of its own: owners, because others may test on the same engine, a
// directory with wheels and a cache, and a registry.
const (
	paramRun      = "run"
	paramDir      = "dir"
	paramRegistry = "registry"
	paramRuntime  = "runtime"
)

// setup makes them.
func setup(ctx context.Context, runtime string) (params map[string]string, cleanup func() error, err error) {
	s, err := packagestest.StartSuite(ctx, dockertest.Listen)
	if err != nil {
		return nil, nil, err
	}
	return map[string]string{paramRun: "conformance-" + strings.ToLower(rand.Text()), paramDir: s.Dir, paramRegistry: s.Registry, paramRuntime: runtime}, s.Close, nil
}

// target is what the suite tests: the adapter with a runtime of the engine, "" for its own.
func target(version, runtime string) conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: version},
		Mode:           conformance.Live,
		Setup: func(ctx context.Context) (map[string]string, func() error, error) {
			return setup(ctx, runtime)
		},
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			host, err := dockertest.Host()
			if err != nil {
				return nil, err
			}
			env := driver.Env{Owner: params[paramRun] + params[conformance.ParamOwner], CacheDir: filepath.Join(params[paramDir], "cache")}
			return Open(ctx, env, Config{
				Host: host, Runtime: params[paramRuntime], Image: dockertest.Python, Pull: PullNever, Ports: true, Languages: []executor.Language{executor.Python, executor.JavaScript},
				Templates: map[string]Template{"small": {Image: dockertest.Python, Limits: Limits{Memory: 128 << 20, Disk: 8 << 20}}},
				Packages: Packages{Packages: driver.Packages{
					Allow:  packagestest.Allow(),
					Wheels: params[paramDir], Registry: params[paramRegistry], Insecure: true, Size: 4 << 20,
				}},
			})
		},
		Leaks: func(ctx context.Context, params map[string]string) (left []string, err error) {
			host, err := dockertest.Host()
			if err != nil {
				return nil, err
			}
			list, err := dockertest.List(ctx, host, driver.LabelOwner)
			for _, i := range list {
				if strings.HasPrefix(i.Labels[driver.LabelOwner], params[paramRun]) {
					left = append(left, fmt.Sprintf("container %s %q, %s", i.ID, i.Names, i.State))
				}
			}
			return left, err
		},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 4,
	}
}

func TestConformance(t *testing.T) {
	e := testEngine(t)
	v, err := e.ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conformancetest.Test(t, target(v.Version, ""))
}

// needsRuntime skips a test if the engine has no such runtime, and returns the version of the
// engine.
func needsRuntime(t *testing.T, runtime string) (version string) {
	t.Helper()
	f, err := testEngine(t).facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.info.Runtimes[runtime]; !ok {
		t.Skipf("the engine has no runtime %q\n\tto prepare one: go run ./internal/ci prepare", runtime)
	}
	return f.info.ServerVersion
}

// testRuntime runs the suite with a further runtime of the engine of internal/ci.
func testRuntime(t *testing.T, runtime string) {
	x := target(needsRuntime(t, runtime), runtime)
	if runtime == dockertest.GVisor {
		x.Must.Isolation = executor.IsolationGVisor
		x.Must.Features = slices.DeleteFunc(slices.Clone(x.Must.Features), func(f executor.Feature) bool { return slices.Contains(runner.GVisorLacks(), f) })
	}
	conformancetest.Test(t, x)
}

func TestConformanceOfGVisor(t *testing.T) { testRuntime(t, dockertest.GVisor) }

func TestConformanceOfCrun(t *testing.T) { testRuntime(t, dockertest.Crun) }
