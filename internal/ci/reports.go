package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/execbroker/execbroker/conformance"
)

// Where reports are and what is made of them.
const (
	reportsDir = "docs/reports"
	matrixFile = "docs/matrix.md"
	readmeFile = "README.md"
)

// adapters are the packages whose TestConformance writes a report, in the order of the matrix.
var adapters = []string{"pyodide", "docker", "flymachines", "e2b"}

// renew runs the suite against every backend. A report is what the suite wrote, whatever it says; that it says "conformant" is a test.
func renew(ctx context.Context, _ options) (tally, error) {
	dir, err := filepath.Abs(reportsDir)
	if err != nil {
		return tally{}, err
	}
	var sum tally
	for _, name := range adapters {
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
			continue // it is still to be written
		}
		headline("conformance of %s", name)
		if err := os.Setenv("CONFORMANCE_REPORT", filepath.Join(dir, name+".json")); err != nil {
			return sum, err
		}
		t, _, err := runTests(ctx, os.Stdout, ".", true, "-count=1", "-run=^TestConformance$", "-timeout=2h", "./"+name)
		sum.add(t)
		if err != nil {
			return sum, err
		}
	}
	return sum, render()
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
	var reports []*conformance.Report
	byType := map[string]*conformance.Report{}
	for _, name := range adapters {
		f, err := os.Open(filepath.Join(dir, name+".json"))
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
		reports, byType[name] = append(reports, r), r
		var b bytes.Buffer
		if err := r.Markdown(&b); err != nil {
			return nil, err
		}
		pages[filepath.Join(dir, name+".md")] = b.Bytes()
	}
	for _, m := range moves {
		if byType[m.from] == nil || byType[m.to] == nil {
			continue
		}
		var b bytes.Buffer
		if err := m.write(&b, byType[m.from], byType[m.to]); err != nil {
			return nil, err
		}
		pages[filepath.Join(dir, filepath.Base(m.page()))] = b.Bytes()
	}
	var b bytes.Buffer
	writeMatrix(&b, reports)
	pages[matrixFile] = b.Bytes()
	readme, err := withMatrix(readmeFile, reports)
	if err != nil {
		return nil, err
	}
	pages[readmeFile] = readme
	return pages, nil
}
