package conformancetest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

// The variables of the environment that a developer sets. They are not flags, because a library
// does not register any.
const (
	// EnvReport names the file that Test writes the report to as JSON; if it is a directory, the
	// file in it is named after the implementation.
	EnvReport = "CONFORMANCE_REPORT"
	// EnvOnly selects cases by comma-separated patterns, in place of Target.Only.
	EnvOnly = "CONFORMANCE_ONLY"
	// EnvUpdate makes TestFaults write its golden file.
	EnvUpdate = "CONFORMANCE_UPDATE"
)

// testGrace is Target.Grace of a test that does not set it: other tests of a machine may leave
// little of it to this one, and a target that keeps its bounds does not wait for it.
const testGrace = 15 * time.Second

// reportMargin is what is kept of the time of a test for its report.
const reportMargin = 15 * time.Second

// Test runs the suite, one subtest for each case, and writes the report to $CONFORMANCE_REPORT if
// that is set. Outcomes but passed, refused and known fail their subtest. Cases run while Test
// does, side by side as the target says; the subtests say what was found.
//
// If Target.Grace is zero, it is 15 seconds here, so that no case fails because the machine is
// busy.
//
// To select cases, name their subtests to go test -run, or set $CONFORMANCE_ONLY.
func Test(t *testing.T, target conformance.Target) *conformance.Report {
	t.Helper()
	if only := os.Getenv(EnvOnly); only != "" {
		target.Only = strings.Split(only, ",")
	}
	if testing.Verbose() && target.Progress == nil {
		target.Progress = func(l conformance.Line) { t.Logf("%s: %s in %d ms", l.ID, l.Outcome, l.Millis) }
	}
	target.Grace = cmp.Or(target.Grace, testGrace)
	found := map[string]conformance.Line{}
	cases := conformance.Cases(languages(target)...)
	asked := []string{} // nil would be every case
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			asked = append(asked, c.ID)
			t.Parallel() // until Test has returned
			judge(t, found[c.ID])
		})
	}
	if len(asked) < len(cases) {
		target.Only = slices.DeleteFunc(asked, func(id string) bool { return !target.Selects(id) })
	}
	ctx, cancel := withMargin(t)
	defer cancel()
	r, err := conformance.Run(ctx, target)
	if werr := writeReport(r); werr != nil {
		t.Error(werr)
	}
	for _, l := range r.Cases {
		found[l.ID] = l
	}
	if err != nil {
		t.Error(err)
	}
	return r
}

// languages returns those that a target has programs in.
func languages(target conformance.Target) []executor.Language {
	var all []executor.Language
	for _, p := range target.Programs {
		all = append(all, p.Language)
	}
	return all
}

// withMargin returns a context that ends before go test kills the program: the report says more
// than its stacks.
func withMargin(t *testing.T) (context.Context, context.CancelFunc) {
	if d, ok := t.Deadline(); ok && time.Until(d) > 2*reportMargin {
		return context.WithDeadlineCause(t.Context(), d.Add(-reportMargin), fmt.Errorf("the time of the test is over: see go test -timeout"))
	}
	return context.WithCancel(t.Context())
}

// judge is the subtest of a line.
func judge(t *testing.T, l conformance.Line) {
	for _, line := range l.Log {
		t.Log(line)
	}
	switch {
	case l.Outcome == conformance.Passed || l.Outcome == conformance.Refused || l.Outcome == conformance.Known:
	case l.Skipped():
		t.Log("does not apply: " + l.Reason) // a skip would say that something was left out
	default:
		t.Errorf("%s: %s\nthe rule: %s", l.Outcome, l.Reason, l.Doc)
	}
}

func writeReport(r *conformance.Report) error {
	name := os.Getenv(EnvReport)
	if name == "" {
		return nil
	}
	if i, err := os.Stat(name); err == nil && i.IsDir() {
		name = filepath.Join(name, filepath.Base(r.Implementation.Name)+".json")
	}
	return writeJSON(name, r)
}

func writeJSON(name string, r *conformance.Report) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := r.JSON(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Main is m.Run for packages that call Test: a child process of the suite does its work instead. It
// returns the exit code.
func Main(m *testing.M, target func() conformance.Target) int {
	was, err := conformance.RunChild(context.Background(), target())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	case was:
		return 0
	}
	return m.Run()
}
