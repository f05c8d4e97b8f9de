package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/internal/ci/performance"
)

// Where reports are and what is made of them.
const (
	reportsDir = "docs/reports"
	matrixFile = "docs/matrix.md"
	readmeFile = "README.md"
)

// A subject is what a report is about: a backend, as a test of its package runs the suite against
// it.
type subject struct {
	name string // of the report
	dir  string // of the package
	test string
}

// backend reports whether s is a backend in its default configuration. The README compares those.
func (s subject) backend() bool { return s.name == s.dir }

// subjects are those that have reports, in the order of the matrix.
var subjects = []subject{
	{"pyodide", "pyodide", "TestConformance"},
	{"bubblewrap", "bubblewrap", "TestConformance"},
	{"docker", "docker", "TestConformance"},
	{"docker-gvisor", "docker", "TestConformanceOfGVisor"},
	{"kubernetes", "kubernetes", "TestConformance"},
	{"flymachines", "flymachines", "TestConformance"},
	{"modal", "modal", "TestConformance"},
	{"e2b", "e2b", "TestConformance"},
	{"e2b-code-interpreter", "e2b", "TestConformanceOfCodeInterpreter"},
}

// finding is the report about a subject.
type finding struct {
	subject
	*conformance.Report
}

// renew runs the suite against every backend. A report is what the suite wrote, whatever it says;
// that it says "conformant" is a test.
func renew(ctx context.Context, o options) (tally, error) {
	dir, err := filepath.Abs(reportsDir)
	if err != nil {
		return tally{}, err
	}
	var sum tally
	for _, s := range subjects {
		if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
			continue // it is still to be written
		}
		headline("conformance of %s", s.name)
		if err := os.Setenv("CONFORMANCE_REPORT", filepath.Join(dir, s.name+".json")); err != nil {
			return sum, err
		}
		res := newResults(o.out, ".", true)
		t, err := res.run(ctx, []string{"-count=1", "-run=^" + s.test + "$", "-timeout=2h"}, "./"+s.dir)
		sum.add(t)
		if err != nil {
			return sum, err
		}
	}
	return sum, render()
}

// measured compares what execbroker takes with what is under it.
func measured(ctx context.Context, o options) (tally, error) {
	if o.page {
		return tally{passed: 1}, performance.Rewrite(ctx)
	}
	if err := prepare(ctx, o); err != nil {
		return tally{}, err
	}
	headline("performance")
	if slices.Equal(o.packages, everything) {
		o.packages = nil
	}
	met, missed, err := performance.Measure(ctx, o.out, o.packages)
	return tally{passed: met, failed: missed}, err
}

// matrix renders the reports that there are.
func matrix(context.Context, options) (tally, error) { return tally{}, render() }

// render writes a page for each report, and the matrix of them all, in short in the README.
func render() error {
	pages, err := rendered(reportsDir)
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rendered returns the pages that belong to the reports in a directory, by file name.
func rendered(dir string) (map[string][]byte, error) {
	pages := map[string][]byte{}
	var findings []finding
	byName := map[string]*conformance.Report{}
	for _, s := range subjects {
		f, err := os.Open(filepath.Join(dir, s.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := conformance.ParseReport(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		findings, byName[s.name] = append(findings, finding{s, r}), r
		var b bytes.Buffer
		if err := r.Markdown(&b); err != nil {
			return nil, err
		}
		pages[filepath.Join(dir, s.name+".md")] = b.Bytes()
	}
	for _, m := range moves {
		if byName[m.from] == nil || byName[m.to] == nil {
			continue
		}
		var b bytes.Buffer
		if err := m.write(&b, byName[m.from], byName[m.to]); err != nil {
			return nil, err
		}
		pages[filepath.Join(dir, filepath.Base(m.page()))] = b.Bytes()
	}
	var b bytes.Buffer
	writeMatrix(&b, findings)
	pages[matrixFile] = b.Bytes()
	readme, err := withMatrix(readmeFile, findings)
	if err != nil {
		return nil, err
	}
	pages[readmeFile] = readme
	return pages, nil
}
