package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// testTimeout bounds one package. The default of go test, ten minutes, is less than a conformance suite may take on a slow machine.
const testTimeout = 40 * time.Minute

// test runs every test with the race detector in random order. Vet is a check of its own.
func test(ctx context.Context, o options) (tally, error) {
	headline("go test")
	// Built ahead with all processors; what does not build is what go test will say.
	output(ctx, "go", append([]string{"build", "-race"}, o.packages...)...)
	// One package at a time: suites that look at clocks, processes and memory would else look at one another.
	args := []string{"-p=1", "-race", "-shuffle=on", "-vet=off"}
	return goTest(ctx, os.Stdout, ".", o.ci, args, o.packages...)
}

// goTest runs go test for packages in a directory, looks again at the few that fail, and prints to w what it finds.
func goTest(ctx context.Context, w io.Writer, dir string, ci bool, args []string, packages ...string) (tally, error) {
	all := append(append([]string{"-timeout=" + testTimeout.String()}, args...), packages...)
	sum, failures, err := runTests(ctx, w, dir, ci, all...)
	if err != nil {
		return sum, err
	}
	return again(ctx, w, dir, ci, sum, failures, args...)
}

// runTests runs go test once.
func runTests(ctx context.Context, w io.Writer, dir string, ci bool, args ...string) (tally, []failure, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = w
	// An interrupt lets go test end its children; they would outlive a kill.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return tally{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return tally{}, nil, err
	}
	r := newRecorder(w, ci)
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	sum := r.finish()
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return sum, nil, ctx.Err()
	case readErr != nil:
		return sum, nil, fmt.Errorf("go test: %w", readErr)
	case waitErr != nil && !errors.As(waitErr, &exit):
		return sum, nil, fmt.Errorf("go test: %w", waitErr)
	case waitErr != nil && sum.failed == 0:
		// Nothing that was counted explains it: a pattern without packages, a broken go.mod.
		return sum, nil, fmt.Errorf("go test: %w", waitErr)
	}
	return sum, r.failures, nil
}

// event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// keepOutput bounds what is kept of the output of one test, from its end: the reason of a failure stands there.
const keepOutput = 64 << 10

// recorder follows a run of go test: it prints failures when they happen and counts.
type recorder struct {
	w        io.Writer
	ci       bool
	packages map[string]*pkg
	builds   map[string]*strings.Builder // output of compilers, by import path
	failures []failure
}

// pkg is what is known of one package.
type pkg struct {
	name    string
	elapsed time.Duration
	tally   tally
	done    bool
	tests   map[string]*record // those that have begun and not ended; "" is the package itself
}

// record is a test that runs.
type record struct {
	output string
	parent bool // it has subtests, which are counted in its place unless it fails by itself
	failed bool // a subtest of it failed
}

func newRecorder(w io.Writer, ci bool) *recorder {
	return &recorder{w: w, ci: ci, packages: map[string]*pkg{}, builds: map[string]*strings.Builder{}}
}

// read takes events until the end of r. Lines that are no events come from go itself and are passed on.
func (r *recorder) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.event(e)
			} else {
				fmt.Fprintf(r.w, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *recorder) event(e event) {
	switch e.Action {
	case "build-output":
		b := r.builds[e.ImportPath]
		if b == nil {
			b = new(strings.Builder)
			r.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
		return
	case "build-fail":
		return // the packages that needed it say so
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, tests: map[string]*record{"": {}}}
		r.packages[e.Package] = p
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &record{}
		p.tests[e.Test] = t
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].parent = true
		}
	}
	switch e.Action {
	case "output":
		if !frame(e.Output) {
			t.output += e.Output
			if over := len(t.output) - keepOutput; over > 0 {
				t.output = t.output[over:]
			}
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(p, t, e)
		} else {
			r.endTest(p, t, e)
			delete(p.tests, e.Test)
		}
	}
}

// frame reports lines of go test that say only what an event says too.
func frame(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "-test.shuffle "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

func (r *recorder) endTest(p *pkg, t *record, e event) {
	switch {
	case e.Action == "pass" && !t.parent:
		p.tally.passed++
	case e.Action == "skip" && r.ci:
		p.tally.failed++
		r.failures = append(r.failures, failure{p.name, e.Test, true})
		fmt.Fprintf(r.w, "FAIL  %s %s: skipped, and nothing may be skipped in CI\n%s", p.name, e.Test, t.output)
	case e.Action == "skip":
		p.tally.skipped++
		fmt.Fprintf(r.w, "skip  %s %s\n%s", p.name, e.Test, t.output)
	case e.Action == "fail":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].failed = true
		}
		if !t.failed { // otherwise its subtests were counted and printed
			p.tally.failed++
			r.failures = append(r.failures, failure{p.name, e.Test, final(t.output)})
			fmt.Fprintf(r.w, "FAIL  %s %s (%.1f s)\n%s", p.name, e.Test, e.Elapsed, t.output)
		}
	}
}

func (r *recorder) endPackage(p *pkg, t *record, e event) {
	p.done, p.elapsed = true, time.Duration(e.Elapsed*float64(time.Second))
	if e.Action != "fail" {
		return
	}
	// A panic, a timeout or os.Exit ends a package in the middle of its tests, and a failing TestMain or build before them.
	unexplained := p.tally.failed == 0
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if name != "" {
			unexplained = false
			p.tally.failed++
			r.failures = append(r.failures, failure{p.name, name, true})
			fmt.Fprintf(r.w, "FAIL  %s %s did not end\n%s", p.name, name, p.tests[name].output)
		}
	}
	if b := r.builds[e.FailedBuild]; b != nil {
		t.output = b.String()
	}
	if unexplained || final(t.output) {
		p.tally.failed++
		r.failures = append(r.failures, failure{p.name, "", true})
		fmt.Fprintf(r.w, "FAIL  %s\n%s", p.name, t.output)
	}
}

// finish prints the minutes of each package, longest first, and returns the sum.
func (r *recorder) finish() tally {
	var sum tally
	var total time.Duration
	all := make([]*pkg, 0, len(r.packages))
	for _, p := range r.packages {
		if !p.done { // go test itself ended early
			p.tally.failed++
			fmt.Fprintf(r.w, "FAIL  %s did not end\n", p.name)
		}
		sum.add(p.tally)
		total += p.elapsed
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pkg) int {
		return cmp.Or(cmp.Compare(b.elapsed, a.elapsed), strings.Compare(a.name, b.name))
	})
	fmt.Fprintf(r.w, "\nminutes  passed  failed  skipped  package\n")
	for _, p := range all {
		if p.tally != (tally{}) || p.elapsed > 0 {
			fmt.Fprintf(r.w, "%7.2f %7d %7d %8d  %s\n", p.elapsed.Minutes(), p.tally.passed, p.tally.failed, p.tally.skipped, p.name)
		}
	}
	fmt.Fprintf(r.w, "%7.2f %7d %7d %8d  all\n", total.Minutes(), sum.passed, sum.failed, sum.skipped)
	return sum
}
