package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The run of thousands of tests over engines, kernels and clocks meets accidents of the machine. Up
// to three failed tests are retried; each must then pass three times. The output of the failure
// stays where it was. A data race, a panic, a test that did not end, a skipped one and whatever
// fails outside of a test, such as a leak that TestMain finds, are never retried.
const (
	retryTests = 3               // the most failures of a run
	retryCount = 3               // how often each has to pass
	retryTime  = 8 * time.Minute // for all of them
)

// failure is a test that failed.
type failure struct {
	pkg, test string
	final     bool     // it is not retried
	args      []string // of go test
}

func (f failure) String() string { return f.pkg + " " + f.test }

// final reports output after which no retry helps.
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

// retry runs the tests that failed once more, one after the other. Those that pass are unsteady,
// and count as passed.
func (s *results) retry(ctx context.Context) error {
	if n := len(s.failures); n == 0 || n > retryTests || n != s.sum().failed || slices.ContainsFunc(s.failures, func(f failure) bool { return f.final }) {
		return nil
	}
	deadline := time.Now().Add(retryTime)
	for _, f := range s.failures {
		fmt.Fprintf(s.w, "\nretry %v, %d times\n", f, retryCount)
		// What selects tests for the whole run is replaced by the name of this one.
		args := slices.DeleteFunc(slices.Clone(f.args), func(a string) bool { return strings.HasPrefix(a, "-run=") || strings.HasPrefix(a, "-skip=") })
		args = append(args, fmt.Sprintf("-count=%d", retryCount), "-timeout="+max(time.Until(deadline), time.Second).String(), "-run="+pattern(f.test), f.pkg)
		r, err := runTests(ctx, s.w, s.dir, s.ci, args...)
		if err != nil {
			return err
		}
		t := r.packages[f.pkg].tally
		if t.failed > 0 || t.skipped > 0 || t.passed == 0 {
			continue
		}
		of := s.packages[f.pkg]
		of.tally.failed--
		of.tally.passed++
		s.unsteady = append(s.unsteady, f)
		fmt.Fprintf(s.w, "UNSTEADY  %v failed once, as printed above, and passed %d times after that: look for the reason\n", f, retryCount)
	}
	return nil
}
