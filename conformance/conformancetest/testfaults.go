package conformancetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// FaultOptions says how TestFaults tests.
type FaultOptions struct {
	// Golden names a JSON file with, for each fault, the IDs of exactly those cases that fail, or
	// what the backend lacks for it. It is written anew if $CONFORMANCE_UPDATE is set, and then to
	// be read by a person: a case that fails for a wrong reason shows there.
	Golden string
	// Only names the faults to test. Nil: all.
	Only []string
	// Cases restricts a fault to cases by patterns as in Target.Only, where a run of the whole
	// suite takes too long. Nil, and a nil answer: all. What is asserted is exact among them: what
	// the golden file has of others is left as it is.
	Cases func(fault string) []string
	// Harmless names the faults that the backend makes up for, so that no case may notice them,
	// each with the reason.
	Harmless map[string]string
	// Virtual, if not nil, makes a target whose cases run in a bubble of testing/synctest, where
	// time takes no time and a busy machine makes no difference. Only a backend in memory can do
	// that. The cases for which real says so run over the other target: those that use the network
	// or another process. Those that count what is left run over each that another case runs over.
	Virtual func(wrap func(driver.Driver) driver.Driver) conformance.Target
	Real    func(id string) bool
	// Parallel is how many faults are tested at a time, each in a process of its own. Default 1.
	Parallel int
}

// noFault is the name under which the suite runs over the wrapper without a fault: no case may
// fail.
const noFault = "none"

// The variables that tell a process which fault it tests, and where its finding goes.
const (
	envFault   = "EXECBROKER_CONFORMANCE_FAULT"
	envFinding = "EXECBROKER_CONFORMANCE_FINDING"
)

// TestFaults runs the suite once for each fault, over the target that open makes with the fault
// planted, and fails unless exactly the cases that the golden file names fail. A fault that is not
// in the file, and one that no case notices, fail too. Of one that breaks a feature which the
// backend lacks the file says that, and nothing runs. The suite without a fault has to be green.
//
// To select faults, name their subtests to go test -run.
//
// Each fault is tested by this program again, started for the one test that calls TestFaults,
// because a suite counts what its process holds. Where TestFaults is called in a subtest, that runs
// alone again too.
func TestFaults(t *testing.T, open func(wrap func(driver.Driver) driver.Driver) conformance.Target, opts FaultOptions) {
	t.Helper()
	faults := append([]Fault{{Name: noFault, Doc: "Nothing is wrong.", Plant: plant(tamper{})}}, Faults()...)
	known := faults
	if opts.Only != nil {
		faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Name != noFault && !slices.Contains(opts.Only, f.Name) })
	}
	if name := os.Getenv(envFault); name != "" {
		i := slices.IndexFunc(faults, func(f Fault) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("there is no fault %q", name)
		}
		testFault(t, faults[i], open, opts)
		return
	}
	golden, err := readGolden(opts.Golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	without, err := find(t, faults[0], dir)
	if err != nil {
		t.Fatal(err)
	}
	caps := without.Capabilities
	found, errs := map[string]finding{noFault: without}, map[string]error{}
	var asked []Fault
	for _, f := range faults {
		missing, plantable := f.fits(caps)
		t.Run(f.Name, func(t *testing.T) {
			if plantable && f.Name != noFault {
				asked = append(asked, f)
			}
			t.Parallel() // until all that were asked for are tested
			if errs[f.Name] != nil {
				t.Fatal(errs[f.Name])
			}
			failing := found[f.Name].Failing
			got := outcome(failing, missing)
			if f.Name != noFault && opts.Harmless[f.Name] == "" && len(got) == 0 {
				t.Errorf("no case notices it: %s", f.Doc)
			}
			want := opts.among(f.Name, golden[f.Name])
			if os.Getenv(EnvUpdate) == "" && !slices.Equal(got, want) {
				t.Errorf("%s\n%s", f.Doc, difference(failing, got, want))
			}
		})
	}
	for name := range golden {
		if !slices.ContainsFunc(known, func(f Fault) bool { return f.Name == name }) {
			t.Errorf("%s: there is no fault %q", opts.Golden, name)
		}
	}
	for _, f := range faults { // whatever was selected
		if _, ok := golden[f.Name]; !ok && os.Getenv(EnvUpdate) == "" {
			t.Errorf("%s: the fault %q is missing", opts.Golden, f.Name)
		}
	}
	findAll(t, asked, opts.Parallel, dir, found, errs)
	if os.Getenv(EnvUpdate) != "" {
		renewed := map[string][]string{}
		for _, f := range known {
			missing, plantable := f.fits(caps)
			renewed[f.Name] = golden[f.Name]
			if tested, ok := found[f.Name]; ok || !plantable {
				selected := opts.among(f.Name, golden[f.Name])
				others := slices.DeleteFunc(slices.Clone(golden[f.Name]), func(id string) bool { return slices.Contains(selected, id) })
				renewed[f.Name] = append(outcome(tested.Failing, missing), others...)
				slices.Sort(renewed[f.Name])
			}
		}
		if err := writeGolden(opts.Golden, renewed); err != nil {
			t.Error(err)
		}
	}
}

// among returns those of the IDs in the golden file that are of cases which the options select for
// a fault.
func (o FaultOptions) among(fault string, ids []string) (selected []string) {
	var target conformance.Target
	if o.Cases != nil {
		target.Only = o.Cases(fault)
	}
	for _, id := range ids {
		if strings.HasPrefix(id, "(") || target.Selects(strings.TrimSuffix(id, errored)) {
			selected = append(selected, id)
		}
	}
	return selected
}

// errored marks the ID of a case that the suite could not find out about.
const errored = " (errored)"

// outcome is what stands in the golden file for a fault: the failing cases, or the feature that is
// missing for it.
func outcome(failing map[string]string, missing executor.Feature) []string {
	if missing != "" {
		return []string{fmt.Sprintf("(not planted: the backend has no %s that could be broken)", missing)}
	}
	ids := slices.AppendSeq([]string{}, maps.Keys(failing))
	slices.Sort(ids)
	return ids
}

// finding is what the suite said about a fault.
type finding struct {
	Capabilities executor.Capabilities
	Failing      map[string]string // by ID, with the reason; IDs of what the suite could not find out are marked
}

// add takes in the lines of a report.
func (f *finding) add(r *conformance.Report) {
	f.Capabilities = r.Info.Capabilities
	if f.Failing == nil {
		f.Failing = map[string]string{}
	}
	for _, l := range r.Cases {
		switch l.Outcome {
		case conformance.Failed:
			f.Failing[l.ID] = l.Reason
		case conformance.Errored:
			f.Failing[l.ID+errored] = l.Reason
		}
	}
}

// testFault is TestFaults in the process of one fault.
func testFault(t *testing.T, f Fault, open func(func(driver.Driver) driver.Driver) conformance.Target, opts FaultOptions) {
	var (
		found finding
		err   error
	)
	target := f.in(open)
	if opts.Cases != nil {
		target.Only = opts.Cases(f.Name)
	}
	if opts.Virtual != nil {
		virtual := f.in(opts.Virtual)
		virtual.Only, target.Only = split(target, opts.Real)
		synctest.Test(t, func(t *testing.T) {
			defer undoRemains()
			err = found.from(t.Context(), virtual)
		})
	}
	ctx, cancel := withMargin(t)
	defer cancel()
	defer undoRemains()
	if target.Only == nil || len(target.Only) > 0 {
		err = errors.Join(err, found.from(ctx, target))
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv(envFinding), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// from runs the suite over a target.
func (f *finding) from(ctx context.Context, target conformance.Target) error {
	r, err := conformance.Run(ctx, target)
	f.add(r)
	return err
}

// split returns which of the cases that target selects run in virtual time, and which do not.
// Neither are those that count what is left, unless there is something to count for.
func split(target conformance.Target, isReal func(id string) bool) (virtual, real []string) {
	virtual, real = []string{}, []string{}
	var both []string
	for _, c := range conformance.Cases(languages(target)...) {
		switch {
		case !target.Selects(c.ID):
		case strings.HasPrefix(c.ID, "leaks/"):
			both = append(both, c.ID)
		case isReal(c.ID):
			real = append(real, c.ID)
		default:
			virtual = append(virtual, c.ID)
		}
	}
	virtual = append(virtual, both...)
	if len(real) > 0 {
		real = append(real, both...)
	}
	return virtual, real
}

// findAll tests faults, some at a time, and adds to found and errs.
func findAll(t *testing.T, faults []Fault, parallel int, dir string, found map[string]finding, errs map[string]error) {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next = make(chan Fault)
	)
	for range max(parallel, 1) {
		wg.Go(func() {
			for f := range next {
				r, err := find(t, f, dir)
				mu.Lock()
				found[f.Name], errs[f.Name] = r, err
				mu.Unlock()
			}
		})
	}
	for _, f := range faults {
		next <- f
	}
	close(next)
	wg.Wait()
}

// find tests a fault in a process of its own, which leaves what it found in dir.
func find(t *testing.T, f Fault, dir string) (found finding, err error) {
	name := filepath.Join(dir, f.Name+".json")
	exe, err := os.Executable()
	if err != nil {
		return found, err
	}
	parts := strings.Split(t.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/"), "-test.count=1"}
	if d, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprintf("-test.timeout=%v", time.Until(d)))
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), envFault+"="+f.Name, envFinding+"="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return found, fmt.Errorf("the process of the fault: %w\n%s", err, &out)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return found, fmt.Errorf("the process of the fault has found nothing: %w\n%s", err, &out)
	}
	return found, json.Unmarshal(data, &found)
}

// difference says what is too much and what is missing, with the reasons.
func difference(failing map[string]string, got, want []string) string {
	var b strings.Builder
	for _, id := range got {
		if !slices.Contains(want, id) {
			fmt.Fprintf(&b, "fails, and should not: %s: %s\n", id, failing[id])
		}
	}
	for _, id := range want {
		if !slices.Contains(got, id) {
			fmt.Fprintf(&b, "should fail, and does not: %s\n", id)
		}
	}
	return b.String()
}

func readGolden(name string) (golden map[string][]string, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(EnvUpdate) != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return golden, json.Unmarshal(data, &golden)
}

func writeGolden(name string, golden map[string][]string) error {
	data, err := json.MarshalIndent(golden, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644)
}
