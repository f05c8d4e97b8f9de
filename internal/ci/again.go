package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// What failed once is looked at again, in the run of thousands of tests over engines, kernels and clocks of a machine that others use too.
// Its output stays where it was, a second look has to succeed every time, and few are granted: more are no accident of the machine. A data
// race, a panic, a test that did not end, a skipped one and whatever fails outside a test count as they are.
const (
	lookAgain = 3               // the most failures of a run
	looks     = 3               // the times that each has to pass now
	lookTime  = 8 * time.Minute // for all of them
)

// failure is a test that failed.
type failure struct {
	pkg, test string
	final     bool // there is nothing to look at again
}

// final reports output that no second look can take back.
func final(output string) bool {
	return strings.Contains(output, "DATA RACE") || strings.Contains(output, "panic:") || strings.Contains(output, "fatal error:")
}

// pattern is the argument of -run for one test or subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// again runs what failed once more, and returns the tally without the failures that were none.
func again(ctx context.Context, w io.Writer, dir string, ci bool, sum tally, failures []failure, args ...string) (tally, error) {
	if len(failures) == 0 || len(failures) > lookAgain || len(failures) != sum.failed {
		return sum, nil
	}
	for _, f := range failures {
		if f.final {
			return sum, nil
		}
	}
	deadline := time.Now().Add(lookTime)
	for _, f := range failures {
		fmt.Fprintf(w, "\nagain %s %s, %d times\n", f.pkg, f.test, looks)
		r := append([]string{fmt.Sprintf("-count=%d", looks), "-timeout=" + max(time.Until(deadline), time.Second).String(), "-run=" + pattern(f.test)}, args...)
		t, _, err := runTests(ctx, w, dir, ci, append(r, f.pkg)...)
		if err != nil {
			return sum, err
		}
		if t.failed > 0 || t.skipped > 0 || t.passed == 0 {
			continue
		}
		sum.failed--
		sum.passed++
		fmt.Fprintf(w, "UNSTEADY  %s %s failed once, as printed above, and passed %d times after that: look for the reason\n", f.pkg, f.test, looks)
	}
	return sum, nil
}
