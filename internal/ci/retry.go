package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The run of thousands of tests over engines, kernels and clocks meets accidents of the machine. Up
// to three failed tests are retried; each must then pass three times. The output of the failure
// stays where it was. A data race, a panic, a test that did not end, a skipped one and whatever
// fails outside of a test, such as a leak that TestMain finds, are never retried.
//
// In CI a retried test that passes fails the run, unless tolerated lists it. So an accident can
// hold up one change, and be repeated with the reason written down, and never passes unseen.
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

// tolerated is the list of unsteady tests that CI lets pass. A line has the directory of the
// package, the test, the date and the reason.
const tolerated = "internal/ci/testdata/unsteady.txt"

// maxTolerated is the largest number of lines of that list.
const maxTolerated = 3

// toleratedLine is the form of a line.
var toleratedLine = regexp.MustCompile(`^(\S+) (\S+) (\d{4}-\d\d-\d\d) (\S.*)$`)

// readTolerated returns the tests of the list in the repository at dir. Without the file there is
// none.
func readTolerated(dir string) ([]failure, error) {
	text, err := os.ReadFile(filepath.Join(dir, tolerated))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []failure
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := toleratedLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: %q: want a directory, a test, a date and a reason", tolerated, line)
		}
		all = append(all, failure{pkg: m[1], test: m[2]})
	}
	if len(all) > maxTolerated {
		return nil, fmt.Errorf("%s: %d lines: want at most %d; mend the tests", tolerated, len(all), maxTolerated)
	}
	return all, err
}

// retry runs the tests that failed once more, one after the other. Those that pass are unsteady.
// They count as passed, but in CI only if they are tolerated.
func (s *results) retry(ctx context.Context) error {
	if s.final {
		return nil
	}
	known, err := readTolerated(s.dir)
	if err != nil {
		return err
	}
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
		s.unsteady = append(s.unsteady, f)
		fmt.Fprintf(s.w, "UNSTEADY  %v failed once, as printed above, and passed %d times after that: look for the reason\n", f, retryCount)
		if s.ci && !slices.ContainsFunc(known, func(k failure) bool { return k.pkg == directory(f.pkg) && k.test == f.test }) {
			fmt.Fprintf(s.w, "FAIL  %v: an unsteady test fails the run in CI; mend it, or list it in %s\n", f, tolerated)
			continue
		}
		of := s.packages[f.pkg]
		of.tally.failed--
		of.tally.passed++
	}
	return nil
}
