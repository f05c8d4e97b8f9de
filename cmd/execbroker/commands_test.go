package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", "backends:\n  good: {type: fake}\n  bad: {type: fake, broken: true}\n")
	got := run(t, exitFailed, "doctor", "--config", config).out.String()
	contains(t, got, "bad (fake) does not work yet\n", "  missing  engine: \"version \\x1b[31m7\"\n", "fix: start it\n", "good (fake) works\n", "  ok       engine: ")
	contains(t, run(t, exitOK, "doctor", "--config", config, "--backend", "good").out.String(), "good (fake) works\n")
	contains(t, run(t, exitOK, "doctor").out.String(), "fake works\n")
	var all []examined
	decode(t, run(t, exitFailed, "doctor", "--config", config, "--json").out.Bytes(), &all)
	if len(all) != 2 || all[0].Backend != "bad" || all[0].OK || !all[0].Needed || !all[1].OK || all[1].Type != "fake" {
		t.Errorf("got %+v", all)
	}
	run(t, exitUsage, "doctor", "--backend", "nothing")
}

func TestInit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "it's.yaml")
	quoted := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	contains(t, run(t, exitOK, "init", "--file", file).out.String(), "fake works\n", " is written. Try:\n",
		"execbroker doctor --config "+quoted, "execbroker run --config "+quoted+" -c 'print(6*7)'", "execbroker serve --config "+quoted)
	first := read(t, file)
	contains(t, first, "    type: fake\n", "# What each user may use")
	run(t, exitOK, "config", "check", "--config", file)

	contains(t, run(t, exitUsage, "init", "--file", file).err.String(), "exists", "--force")
	write(t, filepath.Dir(file), filepath.Base(file), "changed")
	var done begun
	decode(t, run(t, exitOK, "init", "--file", file, "--force", "--json", "--backend", "fake").out.Bytes(), &done)
	if got := read(t, file); got != first || done.File != file || len(done.Backends) != 1 || !done.Backends[0].OK || len(done.Try) != 3 {
		t.Errorf("got %+v and the file\n%s", done, got)
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	for _, args := range [][]string{{"--backend", "fake,nothing"}, {"--backend", "fake,fake"}, {"--backend", "strict"}, {"--config", file}} {
		run(t, exitUsage, append([]string{"init", "--file", none}, args...)...)
	}
	if _, err := os.Lstat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written all the same: %v", err)
	}
}

func TestSetup(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", "backends:\n  good: {type: fake}\n  bad: {type: fake, broken: true}\n")
	if got := run(t, exitOK, "setup").out.String(); got != "fake is set up\n" {
		t.Errorf("got %q", got)
	}
	contains(t, run(t, exitInfrastructure, "setup", "--config", config).err.String(), "backends.bad: ", "no network")
	var d struct {
		Backends []string
		Error    *errorReport
	}
	decode(t, run(t, exitInfrastructure, "setup", "--config", config, "--json").out.Bytes(), &d)
	if len(d.Backends) != 2 || d.Error == nil || d.Error.Kind != "unavailable" {
		t.Errorf("got %+v", d)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{"r.json": `"cases"`, "r.md": "# Conformance of fake", "r.xml": "<testsuite"}
	args := []string{"conformance", "--mode", "fake", "--only", "declares"}
	for name := range files {
		args = append(args, "--report", filepath.Join(dir, name))
	}
	contains(t, run(t, exitOK, args...).out.String(), "fake ", "checked in part (1 passed")
	for name, want := range files {
		contains(t, read(t, filepath.Join(dir, name)), want)
	}
	var r conformance.Report
	decode(t, run(t, exitOK, "conformance", "--only", "declares", "--mode", "fake", "--json").out.Bytes(), &r)
	if r.Mode != conformance.Fake || r.Totals[conformance.Passed] != 1 || r.Implementation.Name != "fake" {
		t.Errorf("got %+v", r.Totals)
	}
	run(t, exitUsage, "conformance", "--report", filepath.Join(dir, "r.txt"))
	run(t, exitUsage, "conformance", "--mode", "wishful")
	run(t, exitUsage, "conformance", "--format", "yaml", "--report", "x")

	report := filepath.Join(dir, "r.json")
	contains(t, run(t, exitOK, "conformance", "render", report).out.String(), "# Conformance of fake")
	contains(t, run(t, exitOK, "conformance", "render", report, "--format", "junit").out.String(), "<testsuite")
	run(t, exitUsage, "conformance", "render", filepath.Join(dir, "r.md"))

	if got := run(t, exitOK, "conformance", "diff", report, report).out.String(); got != "nothing changes\n" {
		t.Errorf("got %q", got)
	}
	config := write(t, dir, "less.yaml", "backends:\n  less: {type: fake, without: [stdin]}\n")
	less := filepath.Join(dir, "less.json")
	run(t, exitOK, "conformance", "--config", config, "--only", "declares", "--mode", "fake", "--report", less)
	contains(t, run(t, exitFailed, "conformance", "diff", report, less).out.String(), "stdin")
	var changes []conformance.Change
	decode(t, run(t, exitFailed, "conformance", "diff", report, less, "--json").out.Bytes(), &changes)
	if len(changes) == 0 {
		t.Error("got no change")
	}
}

// TestConformanceOfLittle checks that a backend does not conform just by declaring little, if it is
// known what its type must declare.
func TestConformanceOfLittle(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", "backends:\n  all: {type: docker}\n  less: {type: docker, without: [stdin]}\n")
	args := []string{"conformance", "--config", config, "--only", "declares", "--mode", "fake", "--backend"}
	run(t, exitOK, append(args, "all")...)
	contains(t, run(t, exitFailed, append(args, "less")...).err.String(), "must declare stdin for python")
	contains(t, run(t, exitOK, "conformance", "--only", "declares", "--mode", "fake").err.String(), "there is no list of what")
}

// TestConformanceUsesProcesses runs a case that needs a second process, which is this program
// again.
func TestConformanceUsesProcesses(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	run(t, exitOK, "conformance", "--config", config, "--mode", "fake", "--only", "attach/*", "--only", "list/*")
	if got := b.Sandboxes(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", "backends:\n  good: {type: fake}\n  bad: {type: fake}\n")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, exitOK, "completion", shell).out.String(); !strings.Contains(got, "execbroker") {
			t.Errorf("%s: got %q", shell, got)
		}
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"command":  {[]string{"ru"}, "run\tRun code in a new sandbox and remove the sandbox\n"},
		"type":     {[]string{"run", "--backend", ""}, "docker\nfake\nstrict\n"},
		"backend":  {[]string{"run", "--config", config, "--backend", ""}, "bad\ngood\n"},
		"language": {[]string{"run", "--language", "p"}, "python\n"},
		"mode":     {[]string{"conformance", "--mode", ""}, "live\nemulated\nfake\n"},
		"ending":   {[]string{"run", ""}, "py\njs\nmjs\ncjs\n:8\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, exitOK, append([]string{"__complete"}, c.args...)...).out.String(); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	b, shop := shared(t)
	hs := leave(t, b, "shop", executor.Spec{})
	if got := run(t, exitOK, "__complete", "session", "kill", "--config", shop, "--owner", "shop", "").out.String(); got != hs[0].Session+"\n:4\n" {
		t.Errorf("got %q", got)
	}
}

// TestHelp tests that every command explains itself, with an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range [][]string{
		{"run"}, {"repl"}, {"doctor"}, {"init"}, {"setup"}, {"session", "ls"}, {"session", "kill"}, {"session", "reap"},
		{"conformance"}, {"conformance", "diff"}, {"conformance", "render"}, {"serve"},
	} {
		got := run(t, exitOK, append(c, "--help")...).out.String()
		contains(t, got, "Usage:", "execbroker "+strings.Join(c, " "), "Examples:", "execbroker "+strings.Join(c, " "), "Flags:")
		for line := range strings.Lines(got) {
			if len(line) > 160 {
				t.Errorf("%v: a line of %d characters: %s", c, len(line), line)
			}
		}
	}
}
