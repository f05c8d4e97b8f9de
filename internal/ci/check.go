package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// golangci is built from its source when it is needed, so that everybody has this version and
// nobody installs anything.
const golangci = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// A probe is one check of the source. It passes if the program succeeds and, with silent, has
// nothing to say on standard output: what go downloads it tells on standard error.
type probe struct {
	name   string
	env    []string
	args   []string
	silent bool
	// minutes are expected of it, for shares of equal size.
	minutes float64
}

// cross vets for a system that this machine need not be. Without cgo no compiler for it is needed.
// Everything is compiled for that system.
func cross(goos, goarch string) probe {
	return probe{name: "vet " + goos + "/" + goarch, minutes: 3, env: []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"}, args: []string{"go", "vet", "./..."}}
}

var linters = probe{name: "golangci-lint", args: []string{"go", "run", golangci, "run"}}

func check(ctx context.Context, o options) (tally, error) {
	return probes(ctx, o.out, []probe{
		{name: "gofmt", args: []string{"gofmt", "-l", "."}, silent: true},
		{name: "go.mod", args: []string{"go", "mod", "tidy", "-diff"}, silent: true},
		linters,
	})
}

// otherSystems vets for the systems that this machine is not, and for a processor whose int has 32
// bits.
func otherSystems() (all []probe) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		if goos != runtime.GOOS {
			all = append(all, cross(goos, "amd64"))
		}
	}
	return append(all, cross("linux", "386"))
}

// vetOthers is a stage that vets for other systems.
func vetOthers(ctx context.Context, o options) (tally, error) {
	return probes(ctx, o.out, otherSystems())
}

func lint(ctx context.Context, o options) (tally, error) { return probes(ctx, o.out, []probe{linters}) }

func probes(ctx context.Context, w io.Writer, all []probe) (tally, error) {
	var sum tally
	for _, p := range all {
		start := time.Now()
		cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
		cmd.Env = append(os.Environ(), p.env...)
		cmd.WaitDelay = 5 * time.Second
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		err := cmd.Run()
		if ctx.Err() != nil {
			return sum, ctx.Err()
		}
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return sum, err
		}
		if err == nil && !(p.silent && out.Len() > 0) {
			sum.passed++
			fmt.Fprintf(w, "ok    %-16s%s\n", p.name, took(start))
			continue
		}
		sum.failed++
		fmt.Fprintf(w, "FAIL  %-16s%s\n%s%s\n", p.name, strings.Join(append(p.env, p.args...), " "), log.Bytes(), out.Bytes())
	}
	return sum, nil
}
