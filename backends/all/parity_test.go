package all_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/conformance/corpus"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
	"github.com/execbroker/execbroker/executor/driver"
)

var (
	update = flag.Bool("update", false, "TestParity and TestCarried renew their reports")
	seed   = flag.Uint64("seed", 14, "of the programs that TestParity generates")
)

// TestParity runs the corpus on the backends and with the plain interpreters of the image. Each
// program must do the same on all of them, or the difference must be documented. To renew the
// report it runs the generated programs, too.
func TestParity(t *testing.T) {
	t.Parallel()
	x := openAll(t)
	corpus := compared(t, x, programs(t, 1))
	if *update {
		if len(x) < len(all.Registry().Types()) {
			t.Fatal("this machine does not run every backend")
		}
		others := compared(t, x, generate(*seed, generated))
		text := fmt.Sprintf("%s## The corpus\n\n%s\n## Generated programs\n\n%s\n%s", reportHead, corpus.Markdown(), others.Markdown(), listed())
		if err := os.WriteFile(reportFile, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestParityOfGenerated is TestParity with generated programs, a fifth of those in the report.
func TestParityOfGenerated(t *testing.T) {
	t.Parallel()
	compared(t, openAll(t), generate(*seed, generated)[:generated/5])
}

// generated is the number of generated programs in the report.
const generated = 1000

const (
	reportFile = "../../docs/reports/parity.md"
	reportHead = `# Programs on every backend and as scripts

What [` + "`execbroker parity`" + `](../guides/parity.md) finds with the programs of this repository, made by ` + "`make parity`" + `. ` + "`plain`" + ` is
` + "`python3 cell.py` and `node cell.js`" + ` in the image of ` + "`docker`" + `, for programs of one cell. The backends run in the
tests' configuration: Docker, stand-ins for Fly Machines and E2B over the same engine and image, bubblewrap with the files of that
image as root, and Pyodide.

`
)

// listed returns the section of the documented differences.
func listed() string {
	var b strings.Builder
	b.WriteString("## Documented differences\n\n")
	for _, k := range compare.KnownDifferences() {
		where := "all backends"
		switch {
		case k.Lacks != "":
			where = "without `" + string(k.Lacks) + "`"
		case len(k.Types) > 0:
			where = "`" + strings.Join(k.Types, "`, `") + "`"
		}
		fmt.Fprintf(&b, "- %s: %s\n", where, k.Why)
	}
	return b.String()
}

// TestParityReport checks that the report has the current documented differences.
func TestParityReport(t *testing.T) {
	text, err := os.ReadFile(reportFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(text), listed()) {
		t.Error("the documented differences are others; run make parity")
	}
}

// TestParityOfSample is TestParity with every two-hundredth program.
func TestParityOfSample(t *testing.T) {
	t.Parallel()
	compared(t, openAll(t), programs(t, 200))
}

// programs returns every nth program of the corpus.
func programs(t *testing.T, nth int) (some []parity.Program) {
	t.Helper()
	all, err := parity.Load(corpus.FS)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Errorf("got %d programs, want at least 500", len(all))
	}
	for i := nth - 1; i < len(all); i += nth {
		some = append(some, all[i])
	}
	return some
}

// openAll opens the backends, Docker first and Pyodide last. Their names are their types. Where the
// machine cannot run bubblewrap it is not among them.
func openAll(t *testing.T) []executor.Executor {
	t.Helper()
	f := newFour(t)
	settings := map[string]string{"docker": f.settings[box], "flymachines": f.settings[machines], "e2b": f.settings[cloud], "pyodide": f.settings[local]}
	names := []string{"docker", "flymachines", "e2b", "pyodide"}
	if _, err := exec.LookPath("bwrap"); err != nil || runtime.GOOS != "linux" {
		t.Logf("without bubblewrap: %v", err)
	} else {
		names = slices.Insert(names, 3, "bubblewrap")
		settings["bubblewrap"] = fmt.Sprintf("type: bubblewrap, root: %q", rootOf(t, dockertest.Python))
	}
	var file strings.Builder
	for _, name := range names {
		languages := ", languages: [python, javascript]"
		if name == "pyodide" {
			languages = "" // it has both, in separate sessions
		}
		fmt.Fprintf(&file, "  %s: {%s%s}\n", name, settings[name], languages)
	}
	cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n%sroutes:\n  - {name: all, split: [{backend: docker, weight: 1}]}\n", &file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: f.owner}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	var executors []executor.Executor
	for _, name := range names {
		x, ok := b.Backend(name)
		if !ok {
			t.Fatalf("no backend %s", name)
		}
		executors = append(executors, x)
	}
	last := len(executors) - 1
	checkSurroundings(t, append(executors[last:last+1:last+1], executors[:last]...)) // Pyodide differs most from the others
	return executors
}

// rootOf returns a directory with the files of an image.
func rootOf(t *testing.T, image string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "execbroker-root-") // not below a directory that only this user can enter
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	host, err := dockertest.Host()
	check(t, err)
	c, err := client.New(client.WithHost(host))
	check(t, err)
	defer c.Close()
	made, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image, Cmd: []string{"none"}}})
	check(t, err)
	defer func() {
		_, err := c.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
		check(t, err)
	}()
	files, err := c.ContainerExport(t.Context(), made.ID, client.ContainerExportOptions{})
	check(t, err)
	defer files.Close()
	// bubblewrap puts directories of its own in these places.
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir, "--exclude=dev/*", "--exclude=proc/*", "--exclude=sys/*")
	unpack.Stdin = files
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// compared runs programs on backends, and as scripts on the first. A difference without an
// explanation is an error.
func compared(t *testing.T, executors []executor.Executor, programs []parity.Program) *parity.Report {
	t.Helper()
	r, err := parity.Run(t.Context(), parity.Options{Backends: executors, Plain: executors[0], Parallel: 2, Reuse: 20}, programs)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Causes {
		t.Logf("%s: %s: %v", c.Outcome, c.Cause, c.Programs)
	}
	for _, l := range r.Programs {
		for _, f := range l.Findings {
			if f.Outcome == parity.Different || f.Outcome == parity.Stale {
				t.Errorf("%s: %s on %s: %s: %+v", l.Name, f.Outcome, f.Backend, f.Cause, f.Differences)
			}
		}
	}
	return r
}

// checkSurroundings checks that every backend describes its interpreters, and that these are not
// all the same.
func checkSurroundings(t *testing.T, executors []executor.Executor) {
	t.Helper()
	var first parity.Fields
	for _, x := range executors {
		f, err := parity.Surroundings(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"python.version", "python.time-zone", "javascript.globals"} {
			if f[name] == "" {
				t.Errorf("%s does not say %s", x.Info().Name, name)
			}
		}
		if first == nil {
			first = f
			continue
		}
		found := parity.CompareSurroundings(first, f)
		t.Logf("%s: %d differences of surroundings", x.Info().Name, len(found))
		if len(found) == 0 {
			t.Errorf("nothing differs on %s", x.Info().Name)
		}
	}
}
