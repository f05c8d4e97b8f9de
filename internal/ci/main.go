// Command ci prepares a machine for the tests of this repository and runs them. The Makefile calls
// it, and so can a person:
//
//	go run ./internal/ci all         prepare, check and test: what has to pass
//	go run ./internal/ci exhaustive  prepare, then every test that all leaves out; see Exhaustive below
//	go run ./internal/ci prepare     make available what the tests need, and say what was found, installed or started
//	go run ./internal/ci check       formatting, linters and vet, go.mod, generated code, the tests without sandboxes
//	go run ./internal/ci lint        the linters only
//	go run ./internal/ci test        the tests of all
//	go run ./internal/ci fuzz        every fuzz target from the committed corpus
//	go run ./internal/ci conformance the suite against every backend; renews docs/reports
//	go run ./internal/ci matrix      renews the pages that are made from the reports
//	go run ./internal/ci outdated    lists direct dependencies that have a later version
//	go run ./internal/ci performance measures against what is underneath; renews docs/performance.md, and with -page only its text
//	go run ./internal/ci vulnerable  looks for known vulnerabilities with govulncheck
//	go run ./internal/ci part 20     prints which of twenty parts of exhaustive belongs to this commit
//	go run ./internal/ci release     makes what a version is published as; see package release
//	go run ./internal/ci mutate      changes the code at random and says which test notices; see package mutate
//
// The last line of all but prepare has the form "12 passed, 0 failed, 0 skipped". With CI=true in
// the environment nothing may be missing: a step of the preparation that fails ends the program,
// and a skipped test counts as failed.
//
// # Lanes and budgets
//
// Tests run in two lanes at a time, one package after the other in each: what uses a Docker engine,
// and what uses Pyodide. The lane that is free takes the packages that use neither. A test whose
// name begins with TestAlone measures clocks or memory, and runs when all others have ended. At the
// end stand the minutes of each lane, of each package and of the longest tests, and which package
// has taken more than its budget, which is in tiers.go.
//
// Up to three failed tests are retried; each must then pass three times. It is listed as UNSTEADY
// at the end and in the file unsteady.txt. In CI it counts as failed, unless testdata/unsteady.txt
// lists it. With -busy two busy loops for each processor run beside the tests, and nothing is
// retried.
//
// # Exhaustive
//
// The rules in tiers.go say which tests only exhaustive runs; it also fuzzes and vets for other
// systems. It prepares only what the selected tests need. Patterns of packages after the flags
// select, and so does -since REV: the packages that are affected by what has changed since this
// branch and REV parted. With -shard 2/3 it runs the second of three parts. A test that has passed
// on this machine with the same inputs is not repeated: files below the user's cache directory keep
// the results.
//
// Without -shard it also looks for known vulnerabilities with govulncheck, whose database has to be
// reached or named by -vulnerabilities. If it cannot be reached, the output says that nobody has
// looked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/execbroker/execbroker/internal/ci/mutate"
	publish "github.com/execbroker/execbroker/internal/ci/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:]); {
	case errors.Is(err, errNotPassed): // the closing line has said so
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

var errNotPassed = errors.New("not everything passed")

// commands are the stages that each command goes through.
var commands = map[string][]stage{
	"all":   {checkAndTest},
	"check": {check, vetOthers, generate, short},
	"lint":  {lint},
	"test":  {test},
	"fuzz":  {fuzz},

	"exhaustive":  {prepareAndRunTheRest, vulnerabilities},
	"vulnerable":  {vulnerabilities},
	"conformance": {renew},
	"matrix":      {matrix},
	"outdated":    {outdated},
	"performance": {measured},
}

// prepared are the commands that begin with prepare. The others that need a prepared machine say
// for what.
var prepared = map[string]bool{"all": true, "conformance": true}

// A stage does its part of the checking and prints what it finds as it goes. An error means that it
// could not find out.
type stage func(ctx context.Context, o options) (tally, error)

// options come from the command line and the environment.
type options struct {
	ci       bool // nothing may be missing or skipped
	fuzzTime time.Duration
	packages []string
	since    string // run what is affected by changes since this revision; empty: everything
	shard    int    // of shards, from 1
	shards   int
	busy     bool // beside busy loops, and nothing is retried
	page     bool // performance rewrites its page without measuring
	// vulnerable is the database of govulncheck; empty: Go's own.
	vulnerable string
	out        io.Writer
}

// everything is what the stages are about if no package is named.
var everything = []string{"./..."}

func run(ctx context.Context, args []string) error {
	o := options{ci: os.Getenv("CI") != "", shard: 1, shards: 1, out: os.Stdout}
	set := flag.NewFlagSet("ci", flag.ContinueOnError)
	set.DurationVar(&o.fuzzTime, "fuzztime", 30*time.Second, "how long each fuzz target runs")
	set.StringVar(&o.since, "since", "", "run what is affected by changes since this `revision`")
	set.StringVar(&o.vulnerable, "vulnerabilities", "", "the `address` of the database of govulncheck, such as file:///srv/vulndb (default Go's own)")
	set.BoolVar(&o.busy, "busy", false, "run the tests beside two busy loops for each processor, and retry none")
	set.BoolVar(&o.page, "page", false, "rewrite docs/performance.md without measuring; rows whose claim has changed are marked")
	set.Func("shard", "run part `i/n` only, 1/n to n/n", func(s string) error {
		if n, err := fmt.Sscanf(s, "%d/%d", &o.shard, &o.shards); n != 2 || err != nil || o.shard < 1 || o.shard > o.shards {
			return fmt.Errorf("want i/n with 1 <= i <= n")
		}
		return nil
	})
	if len(args) == 0 {
		return errors.New("want one of all, exhaustive, prepare, check, lint, test, fuzz, conformance, matrix, outdated, performance, vulnerable, part, release, mutate")
	}
	switch args[0] { // they have flags of their own
	case "mutate":
		return mutate.Run(ctx, args[1:])
	case "release":
		return publish.Run(ctx, args[1:], extract)
	case "part":
		return printPart(ctx, args[1:])
	}
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	if o.packages = set.Args(); len(o.packages) == 0 {
		o.packages = everything
	}
	// What tests build in other directories, such as a clone, is not compiled once more.
	if err := os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath")); err != nil {
		return err
	}
	if args[0] == "prepare" {
		return prepare(ctx, o)
	}
	stages, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("%s: unknown command", args[0])
	}
	var sum tally
	var errs []error
	if prepared[args[0]] {
		if err := prepare(ctx, o); err != nil {
			return errors.Join(err, release(ctx))
		}
	}
	quiet := func() {}
	if o.busy {
		var err error
		if quiet, err = beBusy(ctx); err != nil {
			return errors.Join(err, release(ctx))
		}
	}
	for _, s := range stages {
		t, err := s(ctx, o)
		sum.add(t)
		errs = append(errs, err)
	}
	quiet()
	errs = append(errs, release(ctx))
	// The errors come before the closing line, which readers look for at the very end.
	for _, err := range errs {
		if err != nil {
			sum.failed++
			fmt.Println("ci:", err)
		}
	}
	if args[0] != "matrix" && args[0] != "outdated" { // which count nothing
		fmt.Println(sum)
	}
	if sum.failed > 0 {
		return errNotPassed
	}
	return nil
}

// tally counts outcomes.
type tally struct{ passed, failed, skipped int }

func (t *tally) add(u tally) {
	t.passed += u.passed
	t.failed += u.failed
	t.skipped += u.skipped
}

func (t tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
}

// headline separates the stages in the output.
func headline(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	fmt.Printf("\n%s\n%s\n", s, strings.Repeat("-", len(s)))
}
