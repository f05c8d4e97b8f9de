package flymachines

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
)

// What a run of the suite has of its own.
const (
	paramOwner = "owner"
	paramAPI   = "api"
	paramEdge  = "edge"
	paramToken = "token"

	paramDir      = "dir" // for wheels and the cache
	paramIndex    = "index"
	paramRegistry = "registry"
)

// live reports whether the suite is to run against Fly itself, which costs money: a token alone is
// no reason.
func live() bool {
	return os.Getenv("CONFORMANCE_LIVE") == "fly" && os.Getenv("FLY_API_TOKEN") != ""
}

// setup starts an emulator, unless the suite runs against Fly.
func setup(ctx context.Context) (params map[string]string, cleanup func() error, err error) {
	params = map[string]string{paramOwner: "conformance-" + strings.ToLower(rand.Text())}
	if live() {
		return params, func() error { return nil }, nil
	}
	host, err := dockertest.Host()
	if err != nil {
		return nil, nil, err
	}
	// What fly-go links makes this directory when a program of tests begins, a child of the suite
	// for example.
	if err := os.MkdirAll(filepath.Join(os.TempDir(), "goimports"), 0o700); err != nil {
		return nil, nil, err
	}
	cfg := flytest.Config{Engine: host, Apps: []flytest.App{{Name: testApp}}, Rate: math.Inf(1), Images: images, MaxMachines: 100}
	if os.Getenv("EXECBROKER_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s, err := flytest.Start(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	params[paramAPI], params[paramEdge], params[paramToken] = s.API, s.Edge, s.Token()
	from, err := packagestest.StartSuite(ctx, dockertest.Listen)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	params[paramDir], params[paramIndex], params[paramRegistry] = from.Dir, from.Index, from.Registry
	return params, func() error { return errors.Join(s.Close(), from.Close()) }, nil
}

// configOf is for the Fly of a run. Machines are reached through the proxy, by every process.
func configOf(params map[string]string) (Config, error) {
	languages := []executor.Language{executor.Python, executor.JavaScript}
	if live() {
		return Config{
			App: os.Getenv("FLY_APP"), Token: driver.Secret{Env: "FLY_API_TOKEN"}, Image: os.Getenv("FLY_IMAGE"), Proxy: os.Getenv("FLY_PROXY"), Languages: languages, Ports: true,
			Packages: driver.Packages{Allow: map[executor.Language][]string{executor.Python: {"six", packagestest.Missing}}},
		}, nil
	}
	if err := os.Setenv(tokenVariable, params[paramToken]); err != nil {
		return Config{}, err
	}
	return Config{
		App: testApp, Token: driver.Secret{Env: tokenVariable}, API: params[paramAPI], Proxy: params[paramEdge], Rate: 1000, Languages: languages, Ports: true,
		Templates: map[string]Template{"small": {Image: DefaultImage, Guest: Guest{CPUs: 1, MemoryMB: 256}}},
		Packages: driver.Packages{
			Allow:    packagestest.Allow(),
			IndexURL: params[paramIndex], Registry: params[paramRegistry], Insecure: true, Size: 4 << 20,
		},
	}, nil
}

// target is what the suite tests.
func target() conformance.Target {
	must, _ := conformance.MustDeclare(Type)
	must.Features = append(must.Features, executor.FeatureMixedLanguages, executor.FeaturePorts)
	packages := append([]executor.Feature{executor.FeaturePackages}, must.EachLanguage...)
	must.Languages = map[executor.Language][]executor.Feature{executor.Python: packages, executor.JavaScript: packages}
	mode, most := conformance.Emulated, 0
	if live() {
		mode, most = conformance.Live, 300
		must.Languages[executor.JavaScript] = must.EachLanguage // nobody says where a registry of npm is
	}
	return conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: "flytest"},
		Mode:           mode,
		MaxSessions:    most,
		Setup:          setup,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			cfg, err := configOf(params)
			if err != nil {
				return nil, err
			}
			env := driver.Env{Owner: params[paramOwner] + params[conformance.ParamOwner]}
			if params[paramDir] != "" {
				env.CacheDir = filepath.Join(params[paramDir], "cache")
			}
			return Open(ctx, env, cfg)
		},
		Leaks: func(ctx context.Context, params map[string]string) (left []string, err error) {
			cfg, err := configOf(params)
			if err != nil {
				return nil, err
			}
			b, err := newBackend(ctx, driver.Env{}, cfg)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			ms, err := b.api.flaps.List(ctx, cfg.App, "")
			if err != nil {
				return nil, err
			}
			for _, m := range ms {
				switch {
				case !strings.HasPrefix(m.GetMetadataByKey(metadataOwner), params[paramOwner]), m.State == fly.MachineStateDestroyed:
				// What Fly destroys is Fly's. The emulator does it in this process,
				// whose goroutines and descriptors the suite counts next.
				case m.State == "destroying" && (live() || b.api.waitFor(ctx, m.ID, fly.MachineStateDestroyed) == nil):
				default:
					left = append(left, fmt.Sprintf("Machine %s, %s", m.ID, m.State))
				}
			}
			return left, nil
		},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 4,
	}
}

func TestConformance(t *testing.T) {
	if !live() {
		t.Log("against the emulator; with FLY_API_TOKEN, FLY_APP, FLY_PROXY and CONFORMANCE_LIVE=fly it runs against Fly and costs money")
	}
	conformancetest.Test(t, target())
}

// TestLeaksWaitForTheEmulator checks that a Machine is left until the emulator has destroyed it: it
// asks the engine meanwhile, over descriptors that the suite would take for the adapter's.
func TestLeaksWaitForTheEmulator(t *testing.T) {
	w := newWorld(t)
	t.Setenv(tokenVariable, w.Token()) // configOf sets it
	params := map[string]string{
		paramOwner: w.owner, paramAPI: w.API, paramEdge: w.Edge, paramToken: w.Token(),
		paramIndex: w.API, paramRegistry: w.API, // nothing is installed
	}
	release := w.Switch(flytest.StuckDestroying())
	defer release()
	if err := create(t, w.open(t), executor.Spec{}).Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if left, err := target().Leaks(ctx, params); err != nil || len(left) != 1 {
		t.Errorf("got %q, %v, want the Machine that is being destroyed", left, err)
	}
	release()
	if left, err := target().Leaks(t.Context(), params); err != nil || len(left) > 0 {
		t.Errorf("got %q, %v, want none", left, err)
	}
	if all, err := w.Containers(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("got containers of %q, %v, want none", all, err)
	}
}
