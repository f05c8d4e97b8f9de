package conformancetest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// envShown makes TestShown do something.
const envShown = "CONFORMANCETEST_SHOWN"

// TestShown is what TestHowFindingsShow looks at: a suite in which a case fails as planned, and one
// does not fail as it should.
func TestShown(t *testing.T) {
	if os.Getenv(envShown) == "" {
		return
	}
	target := target(fake.Without(fake.All(executor.Python), executor.FeatureStreaming), nil)
	target.Must.Features = append(target.Must.Features, "x-none")
	target.KnownFailures = map[string]string{"declares": "ticket 7", "python/output/stdout": "ticket 8"}
	conformancetest.Test(t, target)
}

func TestHowFindingsShow(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestShown$", "-test.v")
	cmd.Env = append(os.Environ(), envShown+"=1", conformancetest.EnvReport+"="+dir,
		conformancetest.EnvOnly+"=declares,python/output/std*,python/streaming/live")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("got no failure of\n%s", out)
	}
	for _, want := range []string{
		"--- PASS: TestShown/declares", // fails, as listed
		"--- FAIL: TestShown/python/output/stdout",
		"stale: listed as a known failure, but it holds: ticket 8\n",
		"--- PASS: TestShown/python/output/stderr",
		"--- PASS: TestShown/python/streaming/live",
		"promise not declared",
		"--- PASS: TestShown/attach/gone",
		"not selected",
		"python/output/stderr: passed in",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output has no %q", want)
		}
	}
	f, err := os.Open(filepath.Join(dir, "fake.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := conformance.ParseReport(f)
	if err != nil || r.Conformant || r.Totals[conformance.Known] != 1 || r.Totals[conformance.Stale] != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
