package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// testPackage is a package that may have tests.
type testPackage struct {
	path string
	dir  string          // from the root of the repository; "." is that
	deps map[string]bool // import paths of all that its tests are built of, and of itself
}

// testPackages lists the packages with tests that match patterns.
func testPackages(ctx context.Context, patterns []string) ([]*testPackage, error) {
	// One line for each program that go test would build of a package, one for the package with its tests, and one for its external tests.
	out, err := output(ctx, "go", append([]string{"list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}`}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var all []*testPackage
	byPath := map[string]*testPackage{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		p := byPath[f[0]]
		if p == nil {
			p = &testPackage{path: f[0], dir: directory(f[0]), deps: map[string]bool{}}
			byPath[f[0]] = p
			all = append(all, p)
		}
		for _, d := range f {
			p.deps[d] = true
		}
	}
	return all, nil
}

// directory returns where a package of this module is, from its root.
func directory(path string) string {
	if path == modulePath {
		return "."
	}
	return strings.TrimPrefix(path, modulePath+"/")
}

// Lanes run at the same time; the jobs of one lane run one after the other, as do the packages of a job. So no two suites share an engine,
// and there is work for two processors. Processes, files and containers that are left are counted for their owner, so lanes do not see
// each other's.
const (
	engineLane  = "engine"  // what uses a Docker engine
	pyodideLane = "pyodide" // what uses Pyodide and no engine
	anyLane     = "any"     // the rest: the lane that is free takes the next job
	aloneLane   = "alone"   // what runs when the others have ended
)

// lane returns the lane of a package.
func (p *testPackage) lane() string {
	switch {
	case p.dir == "internal/ci": // prepares an engine and needs none
		return anyLane
	case p.deps[modulePath+"/docker/dockertest"]:
		return engineLane
	case p.deps[modulePath+"/pyodide"]:
		return pyodideLane
	}
	return anyLane
}

// job is a part of a lane.
type job struct {
	lane    string
	minutes float64 // expected
	run     func(ctx context.Context) error
}

// runLanes runs jobs in their lanes, those that are expected to take longest first, and then those that run alone. It tells took what each
// lane took.
func runLanes(ctx context.Context, jobs []job, took func(lane string, d time.Duration)) error {
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.minutes, a.minutes) })
	queues := map[string][]job{}
	for _, j := range jobs {
		queues[j.lane] = append(queues[j.lane], j)
	}
	var (
		mu       sync.Mutex
		firstErr error
		wg       sync.WaitGroup
	)
	next := func(lanes ...string) *job {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lanes {
			if q := queues[l]; len(q) > 0 && firstErr == nil {
				queues[l] = q[1:]
				return &q[0]
			}
		}
		return nil
	}
	work := func(lanes ...string) {
		start, worked := time.Now(), false
		for j := next(lanes...); j != nil; j = next(lanes...) {
			worked = true
			if err := j.run(ctx); err != nil {
				mu.Lock()
				if firstErr == nil {
					firstErr = err
				}
				mu.Unlock()
			}
		}
		if worked {
			took(lanes[0], time.Since(start))
		}
	}
	wg.Go(func() { work(engineLane, anyLane) })
	wg.Go(func() { work(pyodideLane, anyLane) })
	wg.Wait()
	work(aloneLane)
	return firstErr
}

// testArgs are those of every test: the race detector, random order, and no vet, which is a check of its own. Tests wait for clocks and
// other processes as much as for a processor.
func testArgs() []string {
	return []string{"-p=1", "-race", "-shuffle=on", "-vet=off", fmt.Sprintf("-parallel=%d", max(4, runtime.GOMAXPROCS(0)))}
}

// batch is how many packages with a small budget one call of go test takes: each call costs a second.
const batch = 6

// test runs the tests of make test.
func test(ctx context.Context, o options) (tally, error) {
	headline("go test")
	packages, err := testPackages(ctx, o.packages)
	if err != nil {
		return tally{}, err
	}
	// Built ahead with all processors; what does not build is what go test will say.
	output(ctx, "go", append([]string{"build", "-race"}, o.packages...)...)
	res := newResults(o.out, ".", o.ci)
	var jobs []job
	add := func(lane string, minutes float64, args []string, paths ...string) {
		jobs = append(jobs, job{lane, minutes, func(ctx context.Context) error {
			_, err := res.run(ctx, append(testArgs(), args...), paths...)
			return err
		}})
	}
	small := map[string][]string{}
	for _, p := range packages {
		skip, lane := skipped(p.dir), p.lane()
		if skip == "" && budget(p.dir) == budget("") {
			small[lane] = append(small[lane], p.path)
			continue
		}
		add(lane, budget(p.dir), []string{"-skip=" + strings.TrimSuffix(alone+"|"+skip, "|")}, p.path)
	}
	for lane, paths := range small {
		for some := range slices.Chunk(paths, batch) {
			add(lane, float64(len(some))*budget(""), []string{"-skip=" + alone}, some...)
		}
	}
	apart, err := testsAlone(ctx, o.packages)
	if err != nil {
		return tally{}, err
	}
	for _, path := range apart {
		add(aloneLane, 1, []string{"-run=" + alone}, path)
	}
	err = runLanes(ctx, jobs, res.lane)
	if err == nil {
		err = res.retry(ctx)
	}
	res.print()
	return res.sum(), errors.Join(err, res.keepUnsteady())
}

// testsAlone lists the packages with tests that run alone.
func testsAlone(ctx context.Context, patterns []string) (paths []string, err error) {
	all, err := functions(ctx, patterns)
	if err != nil {
		return nil, err
	}
	is := regexp.MustCompile(alone)
	for _, p := range all {
		if slices.ContainsFunc(p.functions, is.MatchString) {
			paths = append(paths, p.ImportPath)
		}
	}
	return paths, nil
}

// lane records what a lane took.
func (s *results) lane(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = append(s.lanes, timing{name, d})
}

// longest is how many tests are listed by their time.
const longest = 10

// print prints the minutes of each package and lane and of the longest tests, and which packages and tests want attention.
func (s *results) print() {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(s.packages), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.packages[b].elapsed, s.packages[a].elapsed), strings.Compare(a, b))
	})
	fmt.Fprintf(s.w, "\nminutes  budget  passed  failed  skipped  package\n")
	var total time.Duration
	var over []string
	for _, name := range names {
		p, most := s.packages[name], budget(directory(name))
		total += p.elapsed
		if p.tally != (tally{}) || p.elapsed > 0 {
			fmt.Fprintf(s.w, "%7.2f %7.2f %7d %7d %8d  %s\n", p.elapsed.Minutes(), most, p.tally.passed, p.tally.failed, p.tally.skipped, name)
		}
		if p.elapsed.Minutes() > 1.5*most {
			over = append(over, fmt.Sprintf("over its budget of %.2f minutes by more than half: %s, %.2f", most, name, p.elapsed.Minutes()))
		}
	}
	fmt.Fprintf(s.w, "\nminutes  lane\n")
	for _, l := range s.lanes {
		fmt.Fprintf(s.w, "%7.2f  %s\n", l.elapsed.Minutes(), l.name)
	}
	slices.SortStableFunc(s.tests, func(a, b timing) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Fprintf(s.w, "\nminutes  the longest tests\n")
	for _, t := range s.tests[:min(longest, len(s.tests))] {
		fmt.Fprintf(s.w, "%7.2f  %s\n", t.elapsed.Minutes(), t.name)
	}
	fmt.Fprintln(s.w)
	for _, line := range over {
		fmt.Fprintln(s.w, line)
	}
	for _, f := range s.unsteady {
		fmt.Fprintf(s.w, "UNSTEADY  %v\n", f)
	}
}

// unsteadyFile lists the tests that failed once and passed when they were retried. Continuous integration keeps it.
const unsteadyFile = "unsteady.txt"

// keepUnsteady writes the file of this run, or removes that of the run before.
func (s *results) keepUnsteady() error {
	var b strings.Builder
	for _, f := range s.unsteady {
		fmt.Fprintln(&b, f)
	}
	if b.Len() > 0 {
		return os.WriteFile(unsteadyFile, []byte(b.String()), 0o644)
	}
	if err := os.Remove(unsteadyFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
