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

// chosen are the cases of faults for which those that Relevant knows are not good here: they wait
// until code that nobody stops has run for half a minute, or depend on how output falls into
// events, or on where in code that swallows interrupts one hits.
var chosen = map[string][]string{
	"context-ignored":        {"python/cancel/during"},
	"output-at-the-end":      {"python/streaming/steps"},
	"output-repeated":        {"python/timeouts/not-early"},
	"refused-output-ignored": {"python/output/limit"},
	"run-repeated":           {"python/state/once", "python/events/cells"},
	"state-fresh-untold":     {"python/exit/abort", "python/state/fresh"},
	"state-lost-untold":      {"python/exit/abort", "python/timeouts/native"},
}

// relevant returns the cases that a fault is tested with: there are minutes for all faults
// together.
func relevant(fault string) []string {
	if ids, ok := chosen[fault]; ok {
		return append(slices.Clone(ids), "python/output/stdout", "python/state/variables", "declares", "leaks/*")
	}
	return conformancetest.Relevant(executor.Python, 4)(fault)
}

// TestFaults proves the suite over real sandboxes: each fault is found out by exactly the cases in
// testdata/faults.json, of those that are relevant to it. The in-memory backend goes through all of
// them.
func TestFaults(t *testing.T) {
	conformancetest.TestFaults(t, faulty, conformancetest.FaultOptions{
		Golden: "testdata/faults.json",
		Cases:  relevant,
		Harmless: map[string]string{
			"wall-time-ignored": "package driver stops code that the sandbox has not stopped, and says the same of it",
		},
		Parallel: 3, // they wait for clocks as much as for the processor
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
