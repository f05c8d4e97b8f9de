package pyodide

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// An interrupt after the end of the code, and before its files are sent, does nothing: its signals
// would hit the next run.
func TestLateInterrupt(t *testing.T) {
	t.Parallel()
	in, err := find(realRuntime(t))
	if err != nil {
		t.Fatal(err)
	}
	clock, err := filepath.Abs("host/clock.mjs")
	if err != nil {
		t.Fatal(err)
	}
	const code = `
const { Run } = await import("file://" + Deno.args[0]);
const said = [];
const receiver = { heard: false, tell: () => said.push("tell"), interrupt: () => said.push("signal") };
const on = { tell: () => {}, late: () => said.push("late"), stuck: () => said.push("stuck") };
const heeded = new Run(1, 1e6, receiver, on);
heeded.started();
heeded.interrupt();
await new Promise((r) => setTimeout(r, 50));
heeded.ended();
console.log(said.join(" "));
said.length = 0;
const over = new Run(2, 1e6, receiver, on);
over.started();
over.ended();
over.interrupt();
await new Promise((r) => setTimeout(r, 50));
console.log(said.join(" "));
`
	cmd := exec.CommandContext(t.Context(), in.deno, "eval", "--no-config", "--no-lock", code, clock)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "tell signal\n\n" {
		t.Errorf("got %q, %v, want signals to code that runs and none afterwards", out, err)
	}
}
