package pyodide_test

import (
	"context"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// chosen are the cases for faults for which those of Relevant are unsuitable here: they wait half a
// minute for code that nobody stops, or depend on how output is split into events, or on where an
// interrupt hits code that swallows interrupts.
var chosen = map[string][]string{
	"context-ignored":        {"python/cancel/during"},
	"output-at-the-end":      {"python/streaming/steps"},
	"output-repeated":        {"python/timeouts/not-early"},
	"refused-output-ignored": {"python/output/limit"},
	"run-repeated":           {"python/state/once", "python/events/cells"},
	"state-fresh-untold":     {"python/exit/abort", "python/state/fresh"},
	"state-lost-untold":      {"python/exit/abort", "python/timeouts/native"},
}

// relevant returns the cases with which a fault is tested. Only a few minutes are available for all
// faults together.
func relevant(fault string) []string {
	if ids, ok := chosen[fault]; ok {
		return append(slices.Clone(ids), "python/output/stdout", "python/state/variables", "declares", "leaks/*")
	}
	return conformancetest.Relevant(executor.Python, 4)(fault)
}

// TestFaults tests the suite over real sandboxes: each fault is found by exactly the cases in
// testdata/faults.json, among those that are relevant to it. With the in-memory backend all cases
// are tested.
func TestFaults(t *testing.T) {
	conformancetest.TestFaults(t, faulty, conformancetest.FaultOptions{
		Golden: "testdata/faults.json",
		Cases:  relevant,
		Harmless: map[string]string{
			"wall-time-ignored": "package driver stops code that the sandbox has not stopped, and says the same of it",
		},
		Parallel: 3, // the cases mostly wait for clocks
	})
}

// faulty is target with a fault.
func faulty(wrap func(driver.Driver) driver.Driver) conformance.Target {
	t := target()
	t.Parallel = 1
	t.Open = func(ctx context.Context, params map[string]string) (executor.Executor, error) {
		return openIn(ctx, params, wrap)
	}
	return t
}
