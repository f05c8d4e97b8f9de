package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	// One line for each program that go test would build of a package, one for the package with its
	// tests, and one for its external tests.
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

// Lanes run at the same time; the jobs of one lane run one after the other, as do the packages of a
// job. So no two suites share an engine, and there is work for two processors. Processes, files and
// containers that are left are counted for their owner, so lanes do not see each other's.
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

// runLanes runs jobs in their lanes, those that are expected to take longest first, and then those
// that run alone. It tells took what each lane took.
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

// testArgs are those of every test: the race detector, random order, and no vet, which is a check
// of its own. Tests wait for clocks and other processes as much as for a processor.
func testArgs() []string {
	return []string{"-p=1", "-race", "-shuffle=on", "-vet=off", fmt.Sprintf("-parallel=%d", max(4, runtime.GOMAXPROCS(0)))}
}

// batch is how many packages with a small budget one call of go test takes: each call costs a
// second.
const batch = 6

// test runs the tests of make test.
func test(ctx context.Context, o options) (tally, error) { return testBeside(ctx, o) }

// checkAndTest does the same, and what check does in the lane that is free.
func checkAndTest(ctx context.Context, o options) (tally, error) {
	return testBeside(ctx, o, check, generate)
}

// testBeside runs the tests of make test, and others in the lane that is free.
func testBeside(ctx context.Context, o options, others ...stage) (sum tally, err error) {
	headline("go test")
	packages, err := testPackages(ctx, o.packages)
	if err != nil {
		return sum, err
	}
	// Compiled ahead with all processors; what does not compile is what go test will say. Programs
	// are linked when they are tested: go test does not keep them.
	output(ctx, "go", append([]string{"list", "-e", "-race", "-test", "-export", "-f="}, o.packages...)...)
	res := newResults(o.out, ".", o.ci)
	res.final = o.busy
	o.out = res.w
	jobs, err := res.jobs(ctx, o, packages)
	if err != nil {
		return sum, err
	}
	var mu sync.Mutex
	for _, other := range others {
		jobs = append(jobs, job{anyLane, checkMinutes, func(ctx context.Context) error {
			t, err := other(ctx, o)
			mu.Lock()
			defer mu.Unlock()
			sum.add(t)
			return err
		}})
	}
	err = res.finish(ctx, jobs, true)
	sum.add(res.sum())
	return sum, err
}

// finish runs jobs, retries what has failed, prints what was found and keeps the list of unsteady
// tests.
func (s *results) finish(ctx context.Context, jobs []job, budgets bool) error {
	err := runLanes(ctx, jobs, s.lane)
	if err == nil {
		err = s.retry(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.print(budgets)
	return errors.Join(err, s.keepUnsteady())
}

// jobs are the calls of go test for packages.
func (s *results) jobs(ctx context.Context, o options, packages []*testPackage) (jobs []job, err error) {
	add := func(lane string, minutes float64, args []string, paths ...string) {
		jobs = append(jobs, job{lane, minutes, func(ctx context.Context) error {
			_, err := s.run(ctx, append(testArgs(), args...), paths...)
			return err
		}})
	}
	small := map[string][]string{}
	for _, p := range packages {
		skip, lane := skipped(p.dir), p.lane()
		for _, r := range plain {
			if r.dir == p.dir {
				skip = strings.TrimPrefix(skip+"|"+r.expression(), "|")
				jobs = append(jobs, job{lane, budget(p.dir), func(ctx context.Context) error {
					args := slices.DeleteFunc(testArgs(), func(arg string) bool { return arg == "-race" })
					_, err := s.run(ctx, append(args, "-run="+r.expression()), p.path)
					return err
				}})
			}
		}
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
		return nil, err
	}
	for _, path := range apart {
		add(aloneLane, 1, []string{"-run=" + alone}, path)
	}
	return jobs, nil
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

// print prints the minutes of each package and lane and of the longest tests, and which packages
// and tests want attention. Budgets are those of make test.
func (s *results) print(budgets bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(s.packages), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.packages[b].elapsed, s.packages[a].elapsed), strings.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(name string) bool { return *s.packages[name] == total{} })
	var attention []string
	table(s.w, "minutes  budget  passed  failed  skipped  package", names, func(name string) string {
		p, most := s.packages[name], "-"
		if b := budget(directory(name)); budgets {
			most = fmt.Sprintf("%.2f", b)
			if p.elapsed.Minutes() > 1.5*b {
				attention = append(attention, fmt.Sprintf("over its budget of %s minutes by more than half: %s, %.2f", most, name, p.elapsed.Minutes()))
			}
		}
		return fmt.Sprintf("%7.2f %7s %7d %7d %8d  %s", p.elapsed.Minutes(), most, p.tally.passed, p.tally.failed, p.tally.skipped, name)
	})
	timings := func(head string, all []timing) {
		table(s.w, head, all, func(t timing) string { return fmt.Sprintf("%7.2f  %s", t.elapsed.Minutes(), t.name) })
	}
	timings("minutes  lane", s.lanes)
	slices.SortStableFunc(s.tests, func(a, b timing) int { return cmp.Compare(b.elapsed, a.elapsed) })
	timings("minutes  the longest tests", s.tests[:min(longest, len(s.tests))])
	for _, f := range s.unsteady {
		attention = append(attention, fmt.Sprintf("UNSTEADY  %v", f))
	}
	if len(attention) > 0 {
		fmt.Fprintf(s.w, "\n%s\n", strings.Join(attention, "\n"))
	}
}

// table prints a line for each row below a head, and nothing if there is no row.
func table[T any](w io.Writer, head string, rows []T, line func(T) string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", head)
	for _, r := range rows {
		fmt.Fprintln(w, line(r))
	}
}

// unsteadyFile lists the tests that failed once and passed when they were retried. Continuous
// integration keeps it.
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
