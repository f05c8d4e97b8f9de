package pyodide_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// must is what the backend must declare on a machine that was prepared for the tests, where bwrap
// is installed.
var must = func() conformance.Must {
	m, _ := conformance.MustDeclare(pyodide.Type)
	m.Isolation = executor.IsolationWasmOS
	return m
}()

func target() conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: pyodide.Type, Version: pyodide.PyodideVersion},
		Mode:           conformance.Live,
		Setup:          setup,
		Open: func(ctx context.Context, params map[string]string) (executor.Executor, error) {
			return openIn(ctx, params, nil)
		},
		Leaks:    leaks,
		Spec:     executor.Spec{Languages: []executor.Language{executor.Python}},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must:     must,
		Parallel: 3,
	}
}

// openIn opens the backend for a suite, with a wrapped driver.
func openIn(ctx context.Context, params map[string]string, wrap func(driver.Driver) driver.Driver) (executor.Executor, error) {
	env := driver.Env{Owner: cmp.Or(params[conformance.ParamOwner], "conformance"), CacheDir: params["cache"], Wrap: wrap}
	return pyodide.Open(ctx, env, pyodide.Config{Packages: pyodide.Packages{Wheels: filepath.Join(params["cache"], "packages")}})
}

// setup creates a separate cache directory for the suite, so that leaks can tell its processes and
// files from others.
func setup(ctx context.Context) (params map[string]string, cleanup func() error, err error) {
	dir, err := os.MkdirTemp("", "execbroker-conformance-")
	if err != nil {
		return nil, nil, err
	}
	cleanup = func() error { return os.RemoveAll(dir) }
	name, wheel, err := pyodide.MakeWheel("six", "1.0", nil, map[string]string{"six.py": "moves = None\n"})
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "packages"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "packages", name), wheel, 0o600)
	}
	if err == nil {
		_, err = pyodide.Seed(ctx, dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, cleanup())
	}
	return map[string]string{"cache": dir}, cleanup, nil
}

// leaks lists the processes of sandboxes and the directories of running programs. The
// directory of a killed program stays until the next program starts, so it does not count.
func leaks(_ context.Context, params map[string]string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(params["cache"], "pyodide", "run-*", "*"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range dirs {
		if pyodide.ProgramLives(filepath.Dir(dir)) {
			found = append(found, dir)
		}
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), params["cache"]) && strings.Contains(string(b), "main.mjs") {
			found = append(found, filepath.Dir(p))
		}
	}
	return found, nil
}

func TestMain(m *testing.M) {
	if pyodide.PrepareChild() {
		return
	}
	// Probe before other tests change PATH, so that they do not influence which layers are found.
	for _, m := range []confine.Method{confine.Bubblewrap, confine.Namespaces} {
		if err := confine.Probe(context.Background(), m); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(conformancetest.Main(m, target))
}

func TestConformance(t *testing.T) { conformancetest.Test(t, target()) }

// TestReportIsWhole checks that every case of Python has run, in one form or the other. JavaScript
// lacks features that some cases need.
func TestReportIsWhole(t *testing.T) {
	f, err := os.Open("../docs/reports/pyodide.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := conformance.ParseReport(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Cases {
		if l.Language != executor.JavaScript && l.Outcome != conformance.Passed && l.Outcome != conformance.Refused && !l.NotApplicable {
			t.Errorf("%s: %s: %s", l.ID, l.Outcome, l.Reason)
		}
	}
}
