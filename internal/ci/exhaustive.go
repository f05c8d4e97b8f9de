package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// unit is a part of the exhaustive tier that runs, or is known to have passed, as a whole: tests of
// a rule, the fuzz targets of a package, or a check of the source.
type unit struct {
	name    string // what a person reads
	p       *testPackage
	rule    string         // directory and tests of the rule
	run     string         // pattern of the tests
	targets *testFunctions // of fuzzing
	probe   *probe
	minutes float64 // expected
	key     string  // of its inputs; empty: it always runs
}

// shardTime bounds one shard.
const shardTime = 90 * time.Minute

// prepareAndRunTheRest prepares the machine for the units that the options select, and runs them.
func prepareAndRunTheRest(ctx context.Context, o options) (sum tally, err error) {
	units, err := planUnits(ctx, o)
	if err != nil {
		return sum, err
	}
	if err := prepareFor(ctx, o, units); err != nil {
		return sum, err
	}
	headline("exhaustive, part %d of %d", o.shard, o.shards)
	cache, err := passedDir()
	if err != nil {
		return sum, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, shardTime, fmt.Errorf("the shard has taken %v: use more of them", shardTime))
	defer cancel()
	res := newResults(o.out, ".", o.ci)
	var jobs []job
	for _, u := range units {
		if before, err := recall(cache, u.key); u.key != "" && err == nil {
			sum.passed += before.Passed
			fmt.Fprintf(res.w, "same  %s: %d passed on %s with the same inputs\n", u.name, before.Passed, before.When.Format(time.DateOnly))
			continue
		}
		jobs = append(jobs, job{u.lane(), u.minutes, func(ctx context.Context) error {
			start := time.Now()
			t, err := u.do(ctx, res, o.fuzzTime)
			if u.run == "" { // tests are counted in res
				sum.add(t)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(res.w, "done  %s: %v in %.1f minutes\n", u.name, t, time.Since(start).Minutes())
			if t.failed > 0 || t.skipped > 0 || u.key == "" {
				return nil
			}
			return remember(cache, u.key, pass{t.passed, time.Now()})
		}})
	}
	err = res.finish(ctx, jobs, false)
	sum.add(res.sum())
	return sum, err
}

// planUnits lists the units of the part that the options ask for.
func planUnits(ctx context.Context, o options) ([]unit, error) {
	all, err := allUnits(ctx, o)
	return shard(all, o.shard, o.shards), err
}

// allUnits lists the units that the options ask for, of all parts.
func allUnits(ctx context.Context, o options) ([]unit, error) {
	packages, err := testPackages(ctx, o.packages)
	if err != nil {
		return nil, err
	}
	dirs, err := packageDirs(ctx)
	if err != nil {
		return nil, err
	}
	if o.since != "" {
		names, err := changed(ctx, o.since)
		if err != nil {
			return nil, err
		}
		packages = slices.DeleteFunc(packages, func(p *testPackage) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return affects(name, p, dirs) })
		})
	}
	files, err := contents(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := describeMachine(ctx)
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, p := range packages {
		for _, r := range exhaustive {
			if r.dir == p.dir {
				run := selected(r)
				units = append(units, unit{name: r.dir + " " + shorten(r.tests), p: p, rule: r.dir + " " + r.tests, run: run, minutes: r.minutes, key: inputs(p, files, dirs, machine, run)})
			}
		}
	}
	if o.fuzzTime > 0 && len(packages) > 0 {
		paths := make([]string, len(packages))
		for i, p := range packages {
			paths[i] = p.path
		}
		targets, err := fuzzTargets(ctx, paths)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			p := packages[slices.IndexFunc(packages, func(p *testPackage) bool { return p.path == t.ImportPath })]
			units = append(units, unit{
				name: p.dir + " fuzz targets", p: p, targets: &t,
				minutes: float64(len(t.functions))*o.fuzzTime.Minutes() + 0.5,
				key:     inputs(p, files, dirs, machine, "fuzz", o.fuzzTime.String()),
			})
		}
	}
	for _, c := range otherSystems() {
		units = append(units, unit{name: c.name, probe: &c, minutes: c.minutes})
	}
	return units, nil
}

// shorten makes a pattern fit into a line.
func shorten(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}

// shard returns the units of shard i of n, of 1 to n. Each unit is in exactly one, which depends on
// nothing but the units: the longest is given first, each to the shard that would be done first
// with it.
func shard(units []unit, i, n int) []unit {
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(b.minutes, a.minutes), strings.Compare(a.name, b.name))
	})
	shards := make([][]unit, n)
	for _, u := range units {
		best, least := 0, math.Inf(1)
		for j, s := range shards {
			// Of shards that would be done at the same time the one with the least work.
			if m := wallMinutes(append(slices.Clip(s), u)) + workMinutes(s)/1000; m < least {
				best, least = j, m
			}
		}
		shards[best] = append(shards[best], u)
	}
	return shards[i-1]
}

// workMinutes are the expected minutes of units one after the other.
func workMinutes(units []unit) (sum float64) {
	for _, u := range units {
		sum += u.minutes
	}
	return sum
}

// wallMinutes are the expected minutes of units in their lanes, two of which run at a time.
func wallMinutes(units []unit) float64 {
	lanes := map[string]float64{}
	for _, u := range units {
		lanes[u.lane()] += u.minutes
	}
	return max(lanes[engineLane], lanes[pyodideLane], workMinutes(units)/2, slices.MaxFunc(units, func(a, b unit) int { return cmp.Compare(a.minutes, b.minutes) }).minutes)
}

// lane returns where a unit runs. Fuzzing and checks need no engine.
func (u unit) lane() string {
	if u.run == "" {
		return anyLane
	}
	return u.p.lane()
}

// do runs a unit.
func (u unit) do(ctx context.Context, res *results, fuzzTime time.Duration) (tally, error) {
	switch {
	case u.probe != nil:
		return probes(ctx, res.w, []probe{*u.probe})
	case u.targets != nil:
		return fuzzPackage(ctx, res.w, *u.targets, fuzzTime, 1)
	}
	return res.run(ctx, append(testArgs(), "-run="+u.run), u.p.path)
}

// pass is what is kept of a unit that has passed.
type pass struct {
	Passed int
	When   time.Time
}

// passedDir is the directory in which a file for each unit that has passed says so.
func passedDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "execbroker", "passed")
	return dir, os.MkdirAll(dir, 0o755)
}

func recall(dir, key string) (p pass, err error) {
	b, err := os.ReadFile(filepath.Join(dir, key))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

func remember(dir, key string, p pass) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, key), b, 0o644)
}

// describeMachine says what of a machine may decide what tests find.
func describeMachine(ctx context.Context) (string, error) {
	version, err := output(ctx, "go", "version")
	if err != nil {
		return "", err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil && runtime.GOOS == "linux" {
		return "", err
	}
	return version + string(kernel), nil
}
