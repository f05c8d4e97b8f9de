// Command load has many users at once use `execbroker serve`, and prints how long they waited and
// what it took.
//
//	go run ./internal/ci/load                     a hundred users on Docker, then on Pyodide, each for a minute
//	go run ./internal/ci/load -users 20 -think 1s fewer, who are in a hurry
//	go run ./internal/ci/load -url http://...     on a server that runs already, with the key in $EXECBROKER_API_KEYS
//
// Its exit code is 1 if a request failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// errFailed says that a request failed, or that there was nothing to measure.
var errFailed = errors.New("requests failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var p plan
	set := flag.NewFlagSet("load", flag.ContinueOnError)
	set.IntVar(&p.users, "users", 100, "how many there are")
	set.DurationVar(&p.arrive, "arrive", time.Minute, "in which time they come, each at a random moment")
	set.DurationVar(&p.lasts, "for", time.Minute, "how long they stay when all are there")
	set.DurationVar(&p.think, "think", 5*time.Second, "how long a user waits between an answer and the next run, on average")
	on := set.String("backends", "docker,pyodide", "where to run code")
	url := set.String("url", "", "the address of a server that runs already, instead")
	if err := set.Parse(args); err != nil {
		return err
	}
	if p.users < 1 || min(p.arrive, p.think) < 0 || p.lasts <= 0 {
		return errors.New("-users, -for, -arrive and -think: want at least 1, more than 0, 0 and 0")
	}
	fmt.Fprintf(out, "%d users who come within %v and stay %v, a run each %v after the answer; %s, %d CPUs\n", p.users, p.arrive, p.lasts, p.think, processor(), runtime.NumCPU())
	var columns []column
	if *url != "" {
		key, _, _ := strings.Cut(os.Getenv("EXECBROKER_API_KEYS"), ",")
		columns = append(columns, p.measure(ctx, *url, server{url: strings.TrimSuffix(*url, "/"), key: key}, 0))
	} else {
		program, remove, err := build(ctx)
		if err != nil {
			return err
		}
		defer remove()
		for name := range strings.SplitSeq(*on, ",") {
			c, err := p.on(ctx, program, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			columns = append(columns, c)
		}
	}
	fmt.Fprintf(out, "\n%s", table(columns))
	return verdict(columns)
}

// on measures a server of its own over a backend.
func (p plan) on(ctx context.Context, program, backend string) (column, error) {
	srv, err := serve(ctx, program, backend, p.users)
	if err != nil {
		return column{}, err
	}
	c := p.measure(ctx, backend, srv.server, srv.cmd.Process.Pid)
	return c, errors.Join(ctx.Err(), srv.stop())
}

// measure drives a server, whose process is pid if that is known.
func (p plan) measure(ctx context.Context, name string, s server, pid int) column {
	c := column{name: name}
	var busy [3]float64
	c.measured = p.drive(ctx, s, func(k int) {
		c.server[k], c.machine[k], busy[k] = resident(pid), used(), processors()
	})
	c.busy = (busy[2] - busy[0]) / p.lasts.Seconds()
	return c
}
