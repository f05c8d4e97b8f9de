package main

import (
	"bufio"
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
	"sync"
	"time"
)

// testTimeout bounds one call of go test. The default, ten minutes for a package, is less than a
// suite may take on a slow machine.
const testTimeout = 40 * time.Minute

// goTest runs go test for packages in a directory, retries the few tests that fail, and prints to w
// what it finds.
func goTest(ctx context.Context, w io.Writer, dir string, ci bool, args []string, packages ...string) (*results, error) {
	res := newResults(w, dir, ci)
	_, err := res.run(ctx, args, packages...)
	if err == nil {
		err = res.retry(ctx)
	}
	return res, err
}

// results are those of several calls of go test, some of which may run at the same time.
type results struct {
	w   io.Writer // of one line or block at a time
	dir string
	ci  bool // a skipped test counts as failed, and an unsteady one

	final bool // nothing is retried

	mu       sync.Mutex
	packages map[string]*total
	tests    []timing // of the top level
	lanes    []timing
	failures []failure
	unsteady []failure // of the failures those that passed when they were retried
}

// total is what is known of a package, over all calls.
type total struct {
	elapsed time.Duration
	tally   tally
}

// timing is how long something took.
type timing struct {
	name    string
	elapsed time.Duration
}

func newResults(w io.Writer, dir string, ci bool) *results {
	return &results{w: &lockedWriter{w: w}, dir: dir, ci: ci, packages: map[string]*total{}}
}

// lockedWriter keeps apart what is written at the same time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// run calls go test, adds what it finds and returns its counts.
func (s *results) run(ctx context.Context, args []string, packages ...string) (sum tally, err error) {
	r, err := runTests(ctx, s.w, s.dir, s.ci, slices.Concat([]string{"-timeout=" + testTimeout.String()}, args, packages)...)
	return s.add(r, args), err
}

// add adds what a call with args found.
func (s *results) add(r *recorder, args []string) (sum tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r.failures {
		r.failures[i].args = args
	}
	s.failures = append(s.failures, r.failures...)
	s.tests = append(s.tests, r.tests...)
	for name, p := range r.packages {
		t := s.packages[name]
		if t == nil {
			t = &total{}
			s.packages[name] = t
		}
		t.elapsed += p.elapsed
		t.tally.add(p.tally)
		sum.add(p.tally)
	}
	return sum
}

// sum counts what all calls have found.
func (s *results) sum() (sum tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.packages {
		sum.add(p.tally)
	}
	return sum
}

// raceOptions are those of the race detector. By default each program that it watches waits for a
// second before it exits, so that races of other goroutines are seen: tests start hundreds of
// programs, and have waited for their goroutines themselves.
const raceOptions = "atexit_sleep_ms=20"

// runTests calls go test once. What it returns is never nil.
func runTests(ctx context.Context, w io.Writer, dir string, ci bool, args ...string) (*recorder, error) {
	r := newRecorder(w, ci)
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GORACE="+raceOptions+" "+os.Getenv("GORACE"))
	cmd.Stderr = w
	// An interrupt lets go test end its children; they would outlive a kill.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	sum := r.finish()
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case readErr != nil:
		return r, fmt.Errorf("go test: %w", readErr)
	case waitErr != nil && !errors.As(waitErr, &exit):
		return r, fmt.Errorf("go test: %w", waitErr)
	case waitErr != nil && sum.failed == 0:
		// Nothing that was counted explains it: a pattern without packages, a broken go.mod.
		return r, fmt.Errorf("go test: %w", waitErr)
	}
	return r, nil
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

// keepOutput bounds what is kept of the output of one test, from its end: the reason of a failure
// stands there.
const keepOutput = 64 << 10

// recorder follows a run of go test: it prints failures when they happen and counts.
type recorder struct {
	w        io.Writer
	ci       bool
	packages map[string]*pkg
	builds   map[string]*strings.Builder // output of compilers, by import path
	failures []failure
	tests    []timing // of the top level, by package and name
}

// pkg is what is known of one package.
type pkg struct {
	name    string
	elapsed time.Duration
	tally   tally
	done    bool
	tests   map[string]*record // those that have begun and not ended; "" is the package itself
}

// above returns the test that a subtest belongs to, or nil. The name of a subtest may have several
// elements.
func (p *pkg) above(test string) *record {
	for i := strings.LastIndexByte(test, '/'); i > 0; i = strings.LastIndexByte(test[:i], '/') {
		if t := p.tests[test[:i]]; t != nil {
			return t
		}
	}
	return nil
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

// read takes events until the end of r. Lines that are no events come from go itself and are passed
// on.
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
		if above := p.above(e.Test); above != nil {
			above.parent = true
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
	prefixes := []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "-test.shuffle "}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

func (r *recorder) endTest(p *pkg, t *record, e event) {
	if !strings.Contains(e.Test, "/") {
		r.tests = append(r.tests, timing{p.name + " " + e.Test, time.Duration(e.Elapsed * float64(time.Second))})
	}
	switch {
	case e.Action == "pass" && !t.parent:
		p.tally.passed++
	case e.Action == "skip" && r.ci:
		p.tally.failed++
		r.failures = append(r.failures, failure{pkg: p.name, test: e.Test, final: true})
		fmt.Fprintf(r.w, "FAIL  %s %s: skipped, and nothing may be skipped in CI\n%s", p.name, e.Test, t.output)
	case e.Action == "skip":
		p.tally.skipped++
		fmt.Fprintf(r.w, "skip  %s %s\n%s", p.name, e.Test, t.output)
	case e.Action == "fail":
		if above := p.above(e.Test); above != nil {
			above.failed = true
		}
		if !t.failed { // otherwise its subtests were counted and printed
			p.tally.failed++
			r.failures = append(r.failures, failure{pkg: p.name, test: e.Test, final: final(t.output)})
			fmt.Fprintf(r.w, "FAIL  %s %s (%.1f s)\n%s", p.name, e.Test, e.Elapsed, t.output)
		}
	}
}

func (r *recorder) endPackage(p *pkg, t *record, e event) {
	p.done, p.elapsed = true, time.Duration(e.Elapsed*float64(time.Second))
	if e.Action != "fail" {
		return
	}
	// A panic, a timeout or os.Exit ends a package in the middle of its tests, and a failing
	// TestMain or build before them.
	unexplained := p.tally.failed == 0
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if name != "" {
			unexplained = false
			p.tally.failed++
			r.failures = append(r.failures, failure{pkg: p.name, test: name, final: true})
			fmt.Fprintf(r.w, "FAIL  %s %s did not end\n%s", p.name, name, p.tests[name].output)
		}
	}
	if b := r.builds[e.FailedBuild]; b != nil {
		t.output = b.String()
	}
	if unexplained || final(t.output) {
		p.tally.failed++
		r.failures = append(r.failures, failure{pkg: p.name, final: true})
		fmt.Fprintf(r.w, "FAIL  %s\n%s", p.name, t.output)
	}
}

// finish counts what did not end as failed, and returns the sum.
func (r *recorder) finish() (sum tally) {
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		p := r.packages[name]
		if !p.done { // go test itself ended early
			p.tally.failed++
			r.failures = append(r.failures, failure{pkg: name, final: true})
			fmt.Fprintf(r.w, "FAIL  %s did not end\n", name)
		}
		sum.add(p.tally)
	}
	return sum
}
