package modal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages/packagestest"
	"github.com/execbroker/execbroker/modal/modaltest"
)

// What a run of the suite has of its own.
const (
	paramOwner  = "owner"
	paramURL    = "url"
	paramID     = "id"
	paramSecret = "secret"

	paramDir      = "dir" // for wheels and the cache
	paramIndex    = "index"
	paramRegistry = "registry"
)

// setup starts a stand-in, and what packages come from.
func setup(ctx context.Context) (params map[string]string, cleanup func() error, err error) {
	host, err := dockertest.Host()
	if err != nil {
		return nil, nil, err
	}
	s, err := modaltest.New(ctx, modaltest.Config{Engine: host, Images: images, MaxSandboxes: 100})
	if err != nil {
		return nil, nil, err
	}
	from, err := packagestest.StartSuite(ctx, dockertest.Listen)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	id, secret := s.Token()
	return map[string]string{
		paramOwner: "conformance-" + strings.ToLower(rand.Text()), paramURL: s.URL(), paramID: id, paramSecret: secret,
		paramDir: from.Dir, paramIndex: from.Index, paramRegistry: from.Registry,
	}, func() error { return errors.Join(s.Close(), from.Close()) }, nil
}

// opened opens the backend of a run for an owner.
func opened(params map[string]string, owner string) (b *backend, err error) {
	err = dialling(params[paramURL], func() (err error) {
		if err := errors.Join(os.Setenv(idVariable, params[paramID]), os.Setenv(secretVariable, params[paramSecret])); err != nil {
			return err
		}
		b, err = newBackend(driver.Env{Owner: owner, CacheDir: filepath.Join(params[paramDir], "cache")}.WithInstance(), Config{
			App: testApp, TokenID: driver.Secret{Env: idVariable}, TokenSecret: driver.Secret{Env: secretVariable}, Runtime: VM, Ports: true,
			Languages: []executor.Language{executor.Python, executor.JavaScript},
			Templates: map[string]Template{"small": {Image: DefaultImage, Limits: Limits{Memory: 256 << 20}}},
			Packages: driver.Packages{
				Allow:    packagestest.Allow(),
				IndexURL: params[paramIndex], Registry: params[paramRegistry], Insecure: true, Size: 4 << 20,
			},
		})
		return err
	})
	return b, err
}

// target is what the suite tests.
func target() conformance.Target {
	must, _ := conformance.MustDeclare(Type)
	must.Features = append(must.Features, executor.FeatureMixedLanguages, executor.FeaturePorts)
	packages := append([]executor.Feature{executor.FeaturePackages}, must.EachLanguage...)
	must.Languages = map[executor.Language][]executor.Feature{executor.Python: packages, executor.JavaScript: packages}
	return conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: "modaltest"},
		Mode:           conformance.Emulated,
		Setup:          setup,
		Open: func(_ context.Context, params map[string]string) (executor.Executor, error) {
			b, err := opened(params, params[paramOwner]+params[conformance.ParamOwner])
			if err != nil {
				return nil, err
			}
			return b.open()
		},
		Leaks: func(ctx context.Context, params map[string]string) (left []string, err error) {
			b, err := opened(params, "")
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			for info, err := range b.sessions(ctx, "") {
				if err != nil {
					return nil, err
				}
				if owner := info.Labels[driver.LabelOwner]; strings.HasPrefix(owner, params[paramOwner]) {
					left = append(left, fmt.Sprintf("Sandbox of session %s of %s", info.Handle.Session, owner))
				}
			}
			return left, nil
		},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 4,
	}
}

func TestConformance(t *testing.T) { conformancetest.Test(t, target()) }
