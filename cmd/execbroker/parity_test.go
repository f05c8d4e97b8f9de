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
	args := []string{"parity", "--config", config, "--programs", programs}

	p := run(t, 0, append(args, "--from", "a", "--to", "c")...)
	contains(t, p.out.String(), "a and c: 2 same\n")

	p = run(t, 1, append(args, "--from", "a", "--to", "b")...)
	contains(t, p.out.String(), "input.py: different\n    cell 1, refused: none -> stdin:python\n", "stdout: \"Ada\\n\" -> none", "a and b: 1 different, 1 same\n")

	p = run(t, 1, append(args, "--from", "a", "--to", "b", "--json")...)
	var r parity.Report
	decode(t, p.out.Bytes(), &r)
	if r.Totals[parity.Different] != 1 || len(r.Programs) != 2 || r.Programs[0].Doc != "Reads." {
		t.Errorf("got %+v", r)
	}

	write(t, programs, "input.py", "# differs on docker: it has no input.\n# %%\n# stdin: \"Ada\\n\"\nprint(readline())\n")
	write(t, programs, "stale.py", "# differs on docker: so they say.\nprint(1)\n")
	p = run(t, 0, append(args, "--from", "b", "--to", "a")...)
	contains(t, p.out.String(), "input.py: explained (docker: it has no input.)\n", "stale.py: stale", "b and a: 1 explained, 1 same, 1 stale\n")
}

func TestParityUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"parity", "--from", "fake"},
		{"parity", "--from", "fake", "--to", "fake"},
		{"parity", "--from", "fake", "--to", "nothing"},
		{"parity", "--from", "fake", "--to", "docker", "--programs", t.TempDir()},
		{"parity", "--from", "fake", "--to", "docker", "--backend", "fake"},
	} {
		run(t, 2, args...)
	}
}
