package performance

// A claim compares what execbroker takes with what the same thing takes without it.
type claim struct {
	what  string // is measured, in words
	under string // what it is compared with, in words; empty: with nothing
	pkg   string // directory of the benchmark
	// ours and raw are measured by the benchmark.
	ours, raw metric
	form      form
	want      float64 // seconds, bytes, bytes per second or a ratio, as form says
	least     bool    // want is the least that will do, not the most
}

// A metric is a figure that a benchmark prints: the whole name of the benchmark without its count
// of processors, a space and the unit.
type metric string

// A form says which figure of a claim is held against what is wanted.
type form int

const (
	alone form = iota // ours
	times             // ours divided by raw
	more              // ours minus raw
)

// claims are in the order of the page.
var claims = []claim{
	{"Docker: from create to the first result", "the same container with a loop of Python, by the engine's client", "docker",
		"Cold ms-cold", "Cold ms-raw", times, 1.10, false},
	{"Docker: a run in a session", "a line to that loop and its answer", "docker",
		"Warm µs-warm", "Warm µs-raw", more, 0.5e-3, false},
	{"Docker: the first byte of a run", "the answer of that loop", "docker",
		"FirstByte µs-first-byte", "FirstByte µs-raw", more, 0.5e-3, false},
	{"Docker: standard output", "the engine's stream", "docker",
		"Stdout/session MB/s", "Stdout/raw MB/s", times, 1, true},
	{"Docker: a hundred users at once, the 95th percentile to the first result", "as many of these containers", "docker",
		"Arrivals s-p95", "Arrivals s-p95-raw", times, 1.5, false},
	{"bubblewrap: from create to the first result", "`python3 -c` in the same sandbox", "bubblewrap",
		"ColdStart session-ms", "ColdStart plain-ms", more, 40e-3, false},
	{"The runner: from its start to the first result, in a sandbox that is not the first of its kind", "`python3 -c`", "runner",
		"ColdStart/runner ns/op", "ColdStart/raw ns/op", more, 50e-3, false},
	{"The runner: a run of Python", "a line to a loop of Python and its answer", "runner",
		"WarmRun/python ns/op", "WarmRun/raw ns/op", more, 0.5e-3, false},
	{"The runner: a run of JavaScript", "a line to a loop of Python and its answer", "runner",
		"WarmRun/javascript ns/op", "WarmRun/raw ns/op", more, 0.5e-3, false},
	{"The runner: lines that code prints", "Python's own, into a pipe", "runner",
		"Output/lines MB/s", "Output/lines/raw MB/s", times, 0.5, true},
	{"Fly Machines: from create to the first result", "a Machine up to the first byte of a Python in it", "flymachines",
		"Cold ms-cold", "Cold ms-raw", more, 50e-3, false},
	{"Fly Machines: a run in a session", "one request to the runner and its answer", "flymachines",
		"WarmRun ns/op", "WarmRun ns/ready", more, 0.5e-3, false},
	{"E2B: from create to the first result", "a sandbox up to the first byte of a Python that its daemon starts", "e2b",
		"Cold ms-cold", "Cold ms-raw", more, 50e-3, false},
	{"E2B: a run in a session", "the exchange of its frames over the same connection", "e2b",
		"WarmRun/session ns/op", "WarmRun/raw ns/op", more, 0.5e-3, false},
	{"Pyodide: from create to the first result, with every layer and a spare", "Deno with Pyodide from npm, without a layer", "pyodide",
		"Cold/layer=auto/spare ms", "Cold/layer=auto/spare plain-ms", alone, 250e-3, false},
	{"Pyodide: the same without a spare", "Deno with Pyodide from npm, without a layer", "pyodide",
		"Cold/layer=auto ms", "Cold/layer=auto plain-ms", alone, 250e-3, false},
	{"Pyodide: processor time of a start", "", "pyodide",
		"Cold/layer=auto cpu-ms", "", alone, 120e-3, false},
	{"Pyodide: a run in a session", "", "pyodide",
		"Warm p50-ms", "", alone, 1e-3, false},
	{"Pyodide: printed lines of 32 bytes", "the same into /dev/null", "pyodide",
		"Output/lines=32 p50-MB/s", "Output/lines=32 null-MB/s", alone, 10e6, true},
	{"Pyodide: writes that cannot be joined", "", "pyodide",
		"Events events/s", "", alone, 50_000, true},
	{"Pyodide: memory of an idle session of Python", "", "pyodide",
		"IdleMemory/python MiB/session", "", alone, 90 << 20, false},
	{"Pyodide: memory of an idle session of JavaScript", "", "pyodide",
		"IdleMemory/javascript MiB/session", "", alone, 90 << 20, false},
	{"A routing decision", "", "executor/router",
		"Decide ns/op", "", alone, 1e-6, false},
	{"A session from a pool that has one", "", "executor/pool",
		"Hit ns-hit", "", alone, 10e-6, false},
	{"The broker: a run in a session", "the same run on the backend", "backends",
		"Run ns-broker", "Run ns-raw", more, 3e-6, false},
	{"The broker: the 99th percentile of a message of ten users, with 1,000 sessions", "with 10 sessions", "backends",
		"LiveSessions µs-p99-at-1000", "LiveSessions µs-p99-at-10", times, 2, false},
	{"The broker: the same with 100,000 sessions", "with 10 sessions", "backends",
		"LiveSessions µs-p99-at-100000", "LiveSessions µs-p99-at-10", times, 2, false},
	{"The broker: processor time of a message with a quota, with 1,000 conversations", "with 10 conversations", "backends",
		"Message µs-cpu-at-1000", "Message µs-cpu-at-10", times, 1.5, false},
	{"The broker: the same with 100,000, of which 1,000 have a sandbox", "with 10 conversations", "backends",
		"Message µs-cpu-at-100000", "Message µs-cpu-at-10", times, 1.5, false},
	{"The broker: reads of the session store by such a message, with 1,000 conversations", "with 10 conversations", "backends",
		"Message reads-at-1000", "Message reads-at-10", times, 1.5, false},
	{"The broker: the same reads with 100,000", "with 10 conversations", "backends",
		"Message reads-at-100000", "Message reads-at-10", times, 1.5, false},
	{"The broker: writes of the session store by such a message, with 1,000 conversations", "with 10 conversations", "backends",
		"Message writes-at-1000", "Message writes-at-10", times, 1.5, false},
	{"The broker: the same writes with 100,000", "with 10 conversations", "backends",
		"Message writes-at-100000", "Message writes-at-10", times, 1.5, false},
}

// peers are what people use instead. Nothing is wanted: they do less, or the same.
var peers = []claim{
	{"Docker: a session that is created, used once and closed", "`docker run --rm` with `python3 -c`", "docker",
		"CommandLine ms-session", "CommandLine ms-command", times, 0, false},
	{"E2B: from create to the first result", "E2B's SDK for JavaScript, on the same server", "e2b",
		"SDK ms-cold", "SDK ms-cold-sdk", times, 0, false},
	{"E2B: a run in a session", "E2B's SDK for JavaScript, on the same server", "e2b",
		"SDK ms-warm", "SDK ms-warm-sdk", times, 0, false},
	{"Pyodide: from create to the first result, with every layer", "Deno with Pyodide from npm, without a layer", "pyodide",
		"Cold/layer=auto ms", "Cold/layer=auto plain-ms", times, 0, false},
}
