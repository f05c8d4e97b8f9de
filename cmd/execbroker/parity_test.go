package main

import (
	"testing"

	"github.com/execbroker/execbroker/conformance/parity"
)

func TestParity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "app.yaml", "backends: {a: {type: fake}, b: {type: docker, without: [stdin]}, c: {type: fake}}\nguard: {runs_per_minute: 1}\n")
	programs := t.TempDir()
	write(t, programs, "same.py", "x = 1\n# %%\nprint(x)\nx\n")
	write(t, programs, "input.py", "# Reads.\n# %%\n# stdin: \"Ada\\n\"\nprint(readline())\n")
	args := []string{"parity", "--config", config, "--corpus", programs}

	p := run(t, 0, append(args, "a", "c")...)
	contains(t, p.out.String(), "a        2     0          0          0         0      0\n")

	// An undeclared feature explains the difference.
	p = run(t, 0, append(args, "--reuse", "10")...)
	contains(t, p.out.String(), "explained: it lacks stdin:python (b 1)\n", "b        1     1 ", "c        2     0 ")

	lines := write(t, dir, "programs.jsonl", `{"id": "sum", "language": "python", "code": "print(1)", "stdout": "2\n"}`+"\n")
	args[4] = lines
	p = run(t, 1, append(args, "a", "c")...)
	contains(t, p.out.String(), "different: stdout differs (a 1, c 1)\n    sum\n        cell 1, stdout: \"2\\n\" -> \"1\\n\"\n")

	p = run(t, 1, append(args, "--json")...)
	var r parity.Report
	decode(t, p.out.Bytes(), &r)
	if r.Totals["a"][parity.Different] != 1 || len(r.Programs) != 1 || len(r.Causes) != 1 || r.Causes[0].Names[0] != "sum" || r.Backends[0] != "plain" {
		t.Errorf("got %+v", r)
	}
	p = run(t, 1, append(args, "--json", "--plain", "none")...)
	decode(t, p.out.Bytes(), &r)
	if len(r.Backends) != 3 {
		t.Errorf("got %q", r.Backends)
	}
}

func TestParityUsage(t *testing.T) {
	t.Parallel()
	bad := write(t, t.TempDir(), "bad.jsonl", "{}\n{\n")
	for _, args := range [][]string{
		{"parity"},
		{"parity", "fake", "--plain", "none"},
		{"parity", "fake", "fake"},
		{"parity", "fake", "nothing"},
		{"parity", "fake", "docker", "--plain", "nothing"},
		{"parity", "fake", "docker", "--corpus", t.TempDir()},
		{"parity", "fake", "docker", "--corpus", bad},
		{"parity", "fake", "docker", "--corpus", "no-such-file"},
		{"parity", "fake", "docker", "--backend", "fake"},
		{"parity", "fake", "--environment"},
	} {
		run(t, 2, args...)
	}
}
