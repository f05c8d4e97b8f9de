package bubblewrap

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(programEnv); how != "" {
		if err := program(context.Background(), how, os.Getenv(ownerEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	was, err := conformance.RunChild(context.Background(), target(""))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

// must is what the backend has to declare with both languages and control groups.
var must = func() conformance.Must {
	m, _ := conformance.MustDeclare(Type)
	m.Features = append(append(m.Features, executor.FeatureMixedLanguages, executor.FeaturePorts), counted...)
	m.Languages = map[executor.Language][]executor.Feature{
		executor.Python: m.EachLanguage, executor.JavaScript: m.EachLanguage,
	}
	return m
}()

// paramRun is the beginning of the owners of a run of the suite.
const paramRun = "run"

// target is what the suite tests.
func target(version string) conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: Type, Version: version},
		Mode:           conformance.Live,
		Setup: func(context.Context) (map[string]string, func() error, error) {
			return map[string]string{paramRun: "conformance-" + strings.ToLower(rand.Text())}, func() error { return nil }, nil
		},
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			return Open(ctx, driver.Env{Owner: params[paramRun] + params[conformance.ParamOwner]}, Config{
				Ports: true, Languages: []executor.Language{executor.Python, executor.JavaScript},
				Templates: map[string]Template{"small": {Limits: Limits{Memory: 128 << 20, Disk: 8 << 20}}},
			})
		},
		Leaks: func(_ context.Context, params map[string]string) (left []string, err error) {
			return leftOf(params[paramRun])
		},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 4,
	}
}

// leftOf returns the sandboxes of owners whose names begin so.
func leftOf(owners string) (left []string, err error) {
	all, err := running()
	for _, f := range all {
		if strings.HasPrefix(f.info.Labels[driver.LabelOwner], owners) {
			left = append(left, fmt.Sprintf("sandbox %s, process %d", f.ID, f.monitor))
		}
	}
	return left, err
}

func version(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bwrap", "--version").Output()
	if err != nil {
		t.Skipf("%v\n\tto prepare bubblewrap: go run ./internal/ci prepare", err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "bubblewrap ")
}

func TestConformance(t *testing.T) { conformancetest.Test(t, target(version(t))) }
