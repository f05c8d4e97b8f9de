// Command ci prepares a machine for the tests of this repository and runs them. The Makefile calls it, and so can a person:
//
//	go run ./internal/ci all         prepare, check, test and fuzz: what has to pass
//	go run ./internal/ci prepare     make available what the tests need, and say what was found, installed or started
//	go run ./internal/ci check       formatting, vet on three systems, linters, go.mod, generated code, and the tests that need no sandbox
//	go run ./internal/ci lint        the linters only
//	go run ./internal/ci test        every test, and the minutes of each package
//	go run ./internal/ci fuzz        every fuzz target from the committed corpus
//	go run ./internal/ci conformance the suite against every backend; renews docs/reports
//	go run ./internal/ci matrix      renews the pages that are made from the reports
//
// The last line of all but prepare has the form "12 passed, 0 failed, 0 skipped". With CI=true in the environment nothing may be
// missing: a step of the preparation that fails ends the program, and a skipped test counts as failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
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
	"all":   {check, generate, test, fuzz},
	"check": {check, generate, short},
	"lint":  {lint},
	"test":  {test},
	"fuzz":  {fuzz},

	"conformance": {renew},
	"matrix":      {matrix},
}

// prepared are the commands that begin with prepare and end what that has started.
var prepared = map[string]bool{"all": true, "conformance": true}

// A stage does its part of the checking and prints what it finds as it goes. An error means that it could not find out.
type stage func(ctx context.Context, o options) (tally, error)

// options come from the command line and the environment.
type options struct {
	ci       bool // nothing may be missing or skipped
	fuzzTime time.Duration
	packages []string
}

// everything is what the stages are about if no package is named.
var everything = []string{"./..."}

func run(ctx context.Context, args []string) error {
	o := options{ci: os.Getenv("CI") != ""}
	set := flag.NewFlagSet("ci", flag.ContinueOnError)
	set.DurationVar(&o.fuzzTime, "fuzztime", 6*time.Second, "how long each fuzz target runs")
	if len(args) == 0 {
		return errors.New("want one of all, prepare, check, lint, test, fuzz, conformance, matrix")
	}
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	if o.packages = set.Args(); len(o.packages) == 0 {
		o.packages = everything
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
	for _, s := range stages {
		t, err := s(ctx, o)
		sum.add(t)
		errs = append(errs, err)
	}
	errs = append(errs, release(ctx))
	// The errors come before the closing line, which readers look for at the very end.
	for _, err := range errs {
		if err != nil {
			sum.failed++
			fmt.Println("ci:", err)
		}
	}
	if sum != (tally{}) { // matrix counts nothing
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
