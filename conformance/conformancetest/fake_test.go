package conformancetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestMain(m *testing.M) {
	os.Exit(conformancetest.Main(m, func() conformance.Target { return target(fake.All(), nil) }))
}

// address is the parameter with the socket of the backend.
const address = "address"

// target returns a target of the in-memory backend. It lives in the process that runs the suite;
// children reach it by its socket.
func target(caps executor.Capabilities, wrap func(driver.Driver) driver.Driver) conformance.Target {
	var b *fake.Backend
	t := conformance.Target{
		Implementation: conformance.Implementation{Name: "fake", Version: conformance.Version},
		Mode:           conformance.Fake,
		Setup: func(context.Context) (map[string]string, func() error, error) {
			b = fake.New(fake.Options{Capabilities: caps})
			at, stop, err := fake.Serve(b)
			return map[string]string{address: at}, stop, err
		},
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			env := driver.Env{Owner: params[conformance.ParamOwner], Wrap: wrap}
			if b != nil {
				return b.Open(env)
			}
			d, err := fake.Dial(ctx, params[address])
			if err != nil {
				return nil, err
			}
			return fake.Open(d, env)
		},
		Leaks:    func(context.Context, map[string]string) ([]string, error) { return b.Sandboxes(), nil },
		Grace:    15 * time.Second, // the machine may be busy
		Parallel: 8,
	}
	t.Must.Features, t.Must.Languages = caps.Features, map[executor.Language][]executor.Feature{}
	for _, r := range caps.Languages {
		t.Must.Languages[r.Language] = r.Features
		t.Programs = append(t.Programs, conformance.Programs{Language: r.Language, Source: fake.Programs(r.Language)})
	}
	return t
}

func TestConformance(t *testing.T) {
	totals := both(t, fake.All())
	if totals[conformance.Passed] < 300 {
		t.Errorf("got %v, want that a backend that has everything passes", totals)
	}
}

// TestDeclaringLittle runs the negative forms: what is not declared is not there.
func TestDeclaringLittle(t *testing.T) {
	var optional []executor.Feature
	for _, i := range executor.Features() {
		if !i.Core && i.Feature != executor.FeatureNetworkNone {
			optional = append(optional, i.Feature)
		}
	}
	caps := fake.Without(fake.All(), optional...)
	caps.Templates = nil
	totals := both(t, caps)
	if totals[conformance.Refused] < 150 {
		t.Errorf("got %v, want that what is not declared is refused", totals)
	}
}

// both runs every case of the suite, in virtual time where that is possible, and fails if one is
// not as it should be.
func both(t *testing.T, caps executor.Capabilities) map[conformance.Outcome]int {
	t.Helper()
	var languages []executor.Language
	for _, r := range caps.Languages {
		languages = append(languages, r.Language)
	}
	inBubble, outside := virtual(caps, nil), target(caps, nil)
	for _, c := range conformance.Cases(languages...) {
		leaks := strings.HasPrefix(c.ID, "leaks/")
		if leaks || !isReal(c.ID) {
			inBubble.Only = append(inBubble.Only, c.ID)
		}
		if leaks || isReal(c.ID) {
			outside.Only = append(outside.Only, c.ID)
		}
	}
	var reports [2]*conformance.Report
	var errs [2]error
	synctest.Test(t, func(t *testing.T) { reports[0], errs[0] = conformance.Run(t.Context(), inBubble) })
	reports[1], errs[1] = conformance.Run(t.Context(), outside)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	totals := map[conformance.Outcome]int{}
	for i, l := range reports[0].Cases {
		if !inBubble.Selects(l.ID) {
			l = reports[1].Cases[i]
		}
		totals[l.Outcome]++
		if l.Outcome != conformance.Passed && l.Outcome != conformance.Refused && !l.NotApplicable {
			t.Errorf("%s: %s: %s %q", l.ID, l.Outcome, l.Reason, l.Log)
		}
	}
	return totals
}

// TestOverAProcessBoundary runs the suite, in real time, over a backend that is reached by its
// socket only. Left out is what moves much, and what stops code within moments: that says more
// about the machine.
func TestOverAProcessBoundary(t *testing.T) {
	target := target(fake.Without(fake.All(executor.Python), executor.FeaturePorts, executor.FeaturePTY), nil)
	target.Parallel = 4
	for _, c := range conformance.Cases(executor.Python) {
		rule := strings.TrimPrefix(c.ID, "python/")
		area, _, _ := strings.Cut(rule, "/")
		if !slices.Contains(heavy, c.ID) && !slices.Contains([]string{"interrupt", "limits", "timeouts", "output", "commands"}, area) {
			target.Only = append(target.Only, c.ID)
		}
	}
	target.Open = func(ctx context.Context, params map[string]string) (executor.Executor, error) {
		d, err := fake.Dial(ctx, params[address])
		if err != nil {
			return nil, err
		}
		return fake.Open(d, driver.Env{Owner: params[conformance.ParamOwner]})
	}
	if len(target.Only) < 180 {
		t.Errorf("%d cases remain, want nearly all", len(target.Only))
	}
	conformancetest.Test(t, target)
}

// TestFaults looks for each fault in the cases that take little time: a case that needs another
// process or the network costs seconds, and one that moves tens of megabytes as much as fifty
// others. The faults that only such a case notices have them too, and each fault has those that the
// golden file says notice it.
func TestFaults(t *testing.T) {
	faults(t, conformancetest.FaultOptions{}, "allow-list-ignored", "disk-limit-ignored", "network-open")
}

// TestFaultsInAllCases looks for faults that break what many cases need in all of them.
func TestFaultsInAllCases(t *testing.T) {
	all := []string{
		"none", "cancel-ignored", "clock-in-the-queue", "declares-less", "destroy-refuses-the-dead", "fence-ignored", "idle-ttl-ignored",
		"label-filter-ignored", "labels-lost", "other-owner-accepted", "process-leaked", "reset-ignored", "session-leaked",
		"state-kept-undeclared", "stdin-ignored",
	}
	faults(t, conformancetest.FaultOptions{Only: all}, all...)
}

// faults tests faults, those of everywhere in all cases.
func faults(t *testing.T, opts conformancetest.FaultOptions, everywhere ...string) {
	if testing.Short() {
		t.Skip("runs the suite a hundred times")
	}
	const golden = "testdata/faults.json"
	var notice map[string][]string
	data, err := os.ReadFile(golden)
	if err := errors.Join(err, json.Unmarshal(data, &notice)); err != nil {
		t.Fatal(err)
	}
	caps := fake.All(executor.Python)
	opts.Golden, opts.Parallel, opts.Real = golden, 5, isReal
	opts.Cases = func(fault string) (ids []string) {
		for _, c := range conformance.Cases(executor.Python) {
			if slices.ContainsFunc(endEitherWay[fault], func(end string) bool { return strings.HasSuffix(c.ID, end) }) {
				continue
			}
			light := !isReal(c.ID) && (!slices.Contains(heavy, c.ID) || strings.HasPrefix(fault, "file-"))
			if light || slices.Contains(notice[fault], c.ID) && !isReal(c.ID) || slices.Contains(everywhere, fault) {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	opts.Virtual = func(wrap func(driver.Driver) driver.Driver) conformance.Target { return virtual(caps, wrap) }
	conformancetest.TestFaults(t, func(wrap func(driver.Driver) driver.Driver) conformance.Target {
		t := target(caps, wrap)
		t.Grace = 6 * time.Second
		return t
	}, opts)
}

// virtual returns a target whose backend has neither a socket nor another process, so that it works
// in a bubble.
func virtual(caps executor.Capabilities, wrap func(driver.Driver) driver.Driver) conformance.Target {
	t := target(caps, wrap)
	b := fake.New(fake.Options{Capabilities: caps})
	t.Setup, t.Child, t.Parallel, t.Grace = nil, []string{}, 1, 2*time.Second
	t.Open = func(_ context.Context, params map[string]string) (executor.Executor, error) {
		return b.Open(driver.Env{Owner: params[conformance.ParamOwner], Wrap: wrap})
	}
	t.Leaks = func(context.Context, map[string]string) ([]string, error) { return b.Sandboxes(), nil }
	return t
}

// heavy are the cases that move much. Of the others only faults of files need them.
var heavy = []string{
	"python/exceptions/huge", "python/files/large", "python/files/reader", "python/limits/disk", "python/output/bulk", "python/output/many-lines",
	"python/output/slow-reader", "ports/hostile", "pty/slow-reader",
}

// endEitherWay are the ends of the cases that notice a fault only if one of two things comes first:
// the result or the error of a run whose sandbox ends, or the end of Create or of Close.
var endEitherWay = map[string][]string{
	"started-as-not-run": {"during-run", "close/destroy", "ttl/max-life"},
	"session-leaked":     {"close/during-create"},
}

func isReal(id string) bool {
	for _, l := range []string{"python/", "javascript/"} {
		id = strings.TrimPrefix(id, l)
	}
	return slices.Contains(real, id) || strings.HasPrefix(id, "network/")
}

// real are the cases that cannot run in virtual time, besides those of the network.
var real = []string{
	// They need another process.
	"attach/created-elsewhere", "attach/dead", "attach/destroy", "attach/holder-killed", "attach/other-process",
	"list/created-elsewhere", "lifecycle/killed-host",
	"attach/forged-handle", // it listens
	"runs/result",          // it wants to see time pass
	"stdin/answer",         // it leaves a Read behind if the code says nothing
}
