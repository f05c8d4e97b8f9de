//go:build linux

package thirdparty

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func target() conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: "examples/thirdparty", Version: "1"},
		Mode:           conformance.Live,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			return Open(ctx, driver.Env{Owner: cmp.Or(params[conformance.ParamOwner], "conformance")}, Config{})
		},
		// The zero policy is none, which this backend refuses.
		Spec:     executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		// What its author promises, so that it does not pass by declaring less.
		Must: conformance.Must{
			Features: []executor.Feature{
				executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureParallelRuns, executor.FeatureKeepAlive,
				executor.FeatureMixedLanguages, executor.FeatureNetworkFull, executor.FeatureLimitProcesses,
			},
			EachLanguage: []executor.Feature{executor.FeatureState, executor.FeatureInterrupt, executor.FeatureFiles, executor.FeatureArtifacts},
		},
		Parallel: 4,
	}
}

func TestMain(m *testing.M) { os.Exit(conformancetest.Main(m, target)) }

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: some rules are about what happens after a while")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, as the backend does")
	}
	conformancetest.Test(t, target())
}

// TestGuide holds the guide to the file that it goes through, and the file to its length. What the
// guide shows are parts of a file, not programs: "golang" tells them from those that documents
// compile.
func TestGuide(t *testing.T) {
	source, err := os.ReadFile("thirdparty.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 150 {
		t.Errorf("the adapter has %d lines, more than 150", n)
	}
	guide, err := os.ReadFile("../../docs/guides/write-an-adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```golang\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1)
	for _, b := range blocks {
		if !strings.Contains(string(source), b[1]) {
			t.Errorf("the guide has what the adapter has not:\n%s", b[1])
		}
	}
	if len(blocks) < 4 {
		t.Errorf("the guide shows %d pieces of the adapter", len(blocks))
	}
}
