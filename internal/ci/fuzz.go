package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fuzz runs every fuzz target for a while, from the corpus in the repository. An input that fails
// is written beside it, to be committed.
func fuzz(ctx context.Context, o options) (tally, error) {
	headline("fuzz, %v for each target", o.fuzzTime)
	targets, err := fuzzTargets(ctx, o.packages)
	if err != nil {
		return tally{}, err
	}
	var sum tally
	for _, p := range targets {
		t, err := fuzzPackage(ctx, o.out, p, o.fuzzTime, runtime.GOMAXPROCS(0))
		if sum.add(t); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// fuzzPackage runs the fuzz targets of a package, each for d with so many processes.
func fuzzPackage(ctx context.Context, w io.Writer, p testFunctions, d time.Duration, processes int) (sum tally, err error) {
	tmp, err := os.MkdirTemp("", "execbroker-fuzz-")
	if err != nil {
		return sum, err
	}
	defer os.RemoveAll(tmp)
	bin := filepath.Join(tmp, "fuzz.test")
	// One instrumented program for all targets; go test would link one for each.
	if _, err := output(ctx, "go", "test", "-c", "-vet=off", "-fuzz=.", "-o", bin, p.ImportPath); err != nil {
		return sum, err
	}
	for _, name := range p.functions {
		start := time.Now()
		out, err := fuzzOne(ctx, p.Dir, bin, filepath.Join(tmp, name), name, d, processes)
		for more := 4 * d; err == nil && executions(out) == none && more <= 64*d && ctx.Err() == nil; more *= 4 {
			// A busy machine has only just started it.
			out, err = fuzzOne(ctx, p.Dir, bin, filepath.Join(tmp, name), name, more, processes)
		}
		if err == nil && executions(out) == none {
			err = errors.New("it was not run at all")
		}
		switch {
		case ctx.Err() != nil:
			return sum, ctx.Err()
		case err == nil:
			sum.passed++
			fmt.Fprintf(w, "ok    %s %s: %s%s\n", p.ImportPath, name, executions(out), took(start))
		default:
			sum.failed++
			fmt.Fprintf(w, "FAIL  %s %s: %v\n%s\n", p.ImportPath, name, err, tail(out, 16<<10))
		}
	}
	return sum, nil
}

// minimizeTime is how often the engine tries to make an input smaller that fails or is new. By
// default that is a minute for each, in which it does nothing else: all the time that a target has
// here.
const minimizeTime = "100x"

// fuzzOne runs one target in the directory of its package, where its corpus is. cache keeps what it
// finds out of the developer's own cache, so that every run begins alike. Fuzzing gives way to
// tests that run at the same time.
func fuzzOne(ctx context.Context, dir, bin, cache, name string, d time.Duration, processes int) (string, error) {
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", bin, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+d.String(),
		"-test.fuzzcachedir="+cache, "-test.timeout=0", "-test.fuzzminimizetime="+minimizeTime, "-test.parallel="+strconv.Itoa(processes))
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && deadlineRace.Match(out) {
		err = nil
	}
	return string(out), err
}

// deadlineRace is all that a target says when the end of its time is mistaken for a failure
// (go.dev/issue/75804, until Go 1.27). A failing input is reported by more lines than this.
var deadlineRace = regexp.MustCompile(`(?m)^--- FAIL: \w+ \([0-9.]+s\)\n    context deadline exceeded\nFAIL\n\z`)

var execsLine = regexp.MustCompile(`execs: (\d+)`)

// none is what executions returns if no input was tried.
const none = "no executions"

// executions returns the last count that the fuzzing engine printed.
func executions(out string) string {
	if all := execsLine.FindAllStringSubmatch(out, -1); all != nil {
		return all[len(all)-1][1] + " executions"
	}
	return none
}

// fuzzTargets finds the packages with fuzz targets, and nothing else of them.
func fuzzTargets(ctx context.Context, patterns []string) ([]testFunctions, error) {
	all, err := functions(ctx, patterns)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].functions = slices.DeleteFunc(all[i].functions, func(name string) bool { return !strings.HasPrefix(name, "Fuzz") })
	}
	return slices.DeleteFunc(all, func(p testFunctions) bool { return len(p.functions) == 0 }), nil
}
