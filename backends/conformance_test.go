package backends_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// elsewhere reports whether a case cannot run in virtual time, because it needs another process, a
// listener, or real time.
func elsewhere(id string) bool {
	for _, s := range []string{
		"network/", "attach/created-elsewhere", "attach/dead", "attach/destroy", "attach/holder-killed", "attach/other-process",
		"attach/forged-handle", "list/created-elsewhere", "lifecycle/killed-host", "runs/result", "stdin/answer",
	} {
		if strings.Contains(id, s) {
			return true
		}
	}
	return false
}

// TestBrokerIsAnExecutor runs the suite over a broker with everything that a configuration can add
// to a backend. The results must be the same.
func TestBrokerIsAnExecutor(t *testing.T) { isAnExecutor(t, executor.Python) }

func TestBrokerIsAnExecutorForJavaScript(t *testing.T) { isAnExecutor(t, executor.JavaScript) }

func isAnExecutor(t *testing.T, language executor.Language) {
	t.Helper()
	caps := fake.All()
	provider := fake.New(fake.Options{Capabilities: caps})
	reg := backends.NewRegistry(driver.NewFactory(fake.Type, func(_ context.Context, env driver.Env, _ struct{}) (executor.Executor, error) {
		return provider.Open(env)
	}, nil))
	cfg := parse(t, `
backends:
  fake:
    type: fake
    broker: {queue: {max: 200, wait: 10s}, breaker: {failures: 1000}, prices: {creation: 0.01, second: 0.01, run: 0.01}}
guard: {code_bytes: 100000000, runs_per_minute: 10000, runs_at_once: 1000, sessions_per_subject: 1000, quotas: [{per: month, runs: 1000000, cost: 1000000000, soft: true}]}`)
	target := conformance.Target{
		Implementation: conformance.Implementation{Name: "broker", Version: conformance.Version},
		Mode:           conformance.Fake,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			return backends.Open(ctx, driver.Env{Owner: params[conformance.ParamOwner]}, reg, cfg)
		},
		Leaks: func(context.Context, map[string]string) ([]string, error) { return provider.Sandboxes(), nil },
		Child: []string{},
		Grace: 2 * time.Second,
	}
	for _, r := range caps.Languages {
		target.Programs = append(target.Programs, conformance.Programs{Language: r.Language, Source: fake.Programs(r.Language)})
	}
	for _, c := range conformance.Cases(language) {
		if !elsewhere(c.ID) {
			target.Only = append(target.Only, c.ID)
		}
	}
	var report *conformance.Report
	var err error
	synctest.Test(t, func(t *testing.T) { report, err = conformance.Run(t.Context(), target) })
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, l := range report.Cases {
		switch {
		case !target.Selects(l.ID) || l.NotApplicable:
		case l.Outcome == conformance.Passed || l.Outcome == conformance.Refused:
			passed++
		default:
			t.Errorf("%s: %s: %s %q", l.ID, l.Outcome, l.Reason, l.Log)
		}
	}
	if passed < 260 {
		t.Errorf("only %d cases held", passed)
	}
}
