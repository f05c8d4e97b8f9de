//go:build unix

package stateless

import (
	"cmp"
	"context"
	"os"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func target() conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: "examples/stateless", Version: "1"},
		Mode:           conformance.Live,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			return Open(ctx, driver.Env{Owner: cmp.Or(params[conformance.ParamOwner], "conformance")}, Config{})
		},
		// The zero policy is none, which this backend refuses.
		Spec:     executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		Programs: []conformance.Programs{conformance.Python},
		// What its author promises, so that it does not pass by declaring less.
		Must: conformance.Must{
			Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkFull},
			Languages: map[executor.Language][]executor.Feature{executor.Python: {executor.FeatureStreaming, executor.FeatureEnv, executor.FeatureExitCode}},
		},
	}
}

func TestMain(m *testing.M) { os.Exit(conformancetest.Main(m, target)) }

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: some rules are about what happens after a while")
	}
	conformancetest.Test(t, target())
}
