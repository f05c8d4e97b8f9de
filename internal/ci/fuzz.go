package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// fuzz runs every fuzz target for a while, from the corpus in the repository. An input that fails is written beside it, to be committed.
func fuzz(ctx context.Context, o options) (tally, error) {
	headline("fuzz, %v for each target", o.fuzzTime)
	targets, err := fuzzTargets(ctx, o.packages)
	if err != nil {
		return tally{}, err
	}
	tmp, err := os.MkdirTemp("", "execbroker-fuzz-")
	if err != nil {
		return tally{}, err
	}
	defer os.RemoveAll(tmp)
	var sum tally
	for i, p := range targets {
		bin := filepath.Join(tmp, fmt.Sprintf("%d.test", i))
		// One instrumented program for all targets of a package; go test would link one for each.
		if _, err := output(ctx, "go", "test", "-c", "-vet=off", "-fuzz=.", "-o", bin, p.ImportPath); err != nil {
			return sum, err
		}
		for _, name := range p.targets {
			start := time.Now()
			out, err := fuzzOne(ctx, p.Dir, bin, filepath.Join(tmp, name), name, o.fuzzTime)
			switch {
			case ctx.Err() != nil:
				return sum, ctx.Err()
			case err == nil:
				sum.passed++
				fmt.Printf("ok    %s %s: %s%s\n", p.ImportPath, name, executions(out), took(start))
			default:
				sum.failed++
				fmt.Printf("FAIL  %s %s: %v\n%s\n", p.ImportPath, name, err, tail(out, 16<<10))
			}
		}
	}
	return sum, nil
}

// minimizeTime is how often the engine tries to make an input smaller that fails or is new. By default that is a minute for each, in which
// it does nothing else: all the time that a target has here.
const minimizeTime = "100x"

// fuzzOne runs one target in the directory of its package, where its corpus is. cache keeps what it finds out of the developer's own
// cache, so that every run begins alike.
func fuzzOne(ctx context.Context, dir, bin, cache, name string, d time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, bin, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+d.String(),
		"-test.fuzzcachedir="+cache, "-test.timeout=0", "-test.fuzzminimizetime="+minimizeTime)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && deadlineRace.Match(out) {
		err = nil
	}
	return string(out), err
}

// deadlineRace is all that a target says when the end of its time is mistaken for a failure (go.dev/issue/75804, until Go 1.27). A
// failing input is reported by more lines than this.
var deadlineRace = regexp.MustCompile(`(?m)^--- FAIL: \w+ \([0-9.]+s\)\n    context deadline exceeded\nFAIL\n\z`)

var execsLine = regexp.MustCompile(`execs: (\d+)`)

// executions returns the last count that the fuzzing engine printed.
func executions(out string) string {
	if all := execsLine.FindAllStringSubmatch(out, -1); all != nil {
		return all[len(all)-1][1] + " executions"
	}
	return "no executions"
}

// fuzzPackage is a package with fuzz targets.
type fuzzPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	targets                   []string
}

// fuzzTargets finds the targets in the test files that belong to this system, without building them.
func fuzzTargets(ctx context.Context, patterns []string) ([]fuzzPackage, error) {
	out, err := output(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var found []fuzzPackage
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p fuzzPackage
		if err := d.Decode(&p); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") {
					p.targets = append(p.targets, fn.Name.Name)
				}
			}
		}
		if len(p.targets) > 0 {
			found = append(found, p)
		}
	}
}
