package main

import (
	"strings"
	"testing"
)

// elsewhere is a file for machines that this one is not: a pod, a machine with a context of Docker,
// a control group and bwrap, and a process without the variables of Modal's SDK.
const elsewhere = `
backends:
  cluster: {type: kubernetes, namespace: sandboxes, in_cluster: true, broker: {pools: [{size: 1}]}}
  cloud: {type: modal, app: a, token_id: {env: NONE}, token_secret: {env: NONE}}
  engine: {type: docker, context: remote}
  local: {type: pyodide, os_layer: bubblewrap}
  box: {type: bubblewrap, cgroup: /none, broker: {pools: [{size: 1, limits: {processes: 9}}]}}
routes:
  - {name: all, split: [{backend: cluster, weight: 1}], fallback: [engine, cloud]}
`

// A check of a file does not need the machine that the file is for. It says what it could not do
// here, and finds the mistakes of those backends all the same.
func TestConfigCheckElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	execbroker := func(code int, args ...string) *process {
		t.Helper()
		p := installed(t, args...)
		p.Env = []string{"HOME=" + dir, "PATH=" + dir, "MODAL_ENVIRONMENT=other"}
		if got := p.code(t, p.Run()); got != code {
			t.Fatalf("%q: got exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, code, p.out.String(), p.err.String())
		}
		return p
	}
	file := write(t, dir, "c.yaml", elsewhere)
	out := execbroker(exitOK, "config", "check", "--config", file).out.String()
	contains(t, out,
		"not checked here: backends.cluster: in_cluster: ", " (line 3, column 3)\n",
		"not checked here: backends.cloud: variable MODAL_ENVIRONMENT: ", " (line 4, column 3)\n",
		"not checked here: backends.engine: context remote: there is none of that name", " (line 5, column 3)\n",
		"not checked here: backends.local: invalid argument: os_layer: ", " (line 6, column 3)\n",
		"not checked here: backends.box.broker.pools[0]: not supported by this backend: unsupported operation: needs limit-processes", " (line 7, ",
		file+" is right as far as this machine can say: 5 backends, 1 route; execbroker doctor checks the rest where the backends will run\n")
	var doc struct{ Unchecked []fieldReport }
	decode(t, execbroker(exitOK, "config", "check", "--config", file, "--json").out.Bytes(), &doc)
	if len(doc.Unchecked) != 5 || doc.Unchecked[0].Path != "backends.cluster" || doc.Unchecked[0].Line != 3 {
		t.Errorf("got %+v", doc.Unchecked)
	}
	contains(t, execbroker(exitOK, "config", "explain", "--config", file).out.String(), "tried     cluster, then engine, then cloud\n")
	execbroker(exitUsage, "run", "--config", file, "-c", "6*7")

	wrong := strings.NewReplacer("pools: [{size: 1}]", "pools: [{size: 1, ports: true}]", "context: remote", "context: remote, ports: true, pull: sometimes").Replace(elsewhere)
	contains(t, execbroker(exitUsage, "config", "check", "--config", write(t, dir, "wrong.yaml", wrong)).err.String(), "backends.engine.pull: ")
	wrong = strings.ReplaceAll(wrong, ", pull: sometimes", "")
	got := execbroker(exitUsage, "config", "check", "--config", write(t, dir, "pools.yaml", wrong)).err.String()
	contains(t, got, "backends.cluster.broker.pools[0]: not supported by this backend: unsupported operation: needs ports (line 3, ")
	if strings.Contains(got, "in_cluster: ") || strings.Contains(got, "backends.box") {
		t.Errorf("what is right elsewhere is no mistake: %s", got)
	}
}
