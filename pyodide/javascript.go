package pyodide

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// javascriptOn reports whether a system has sessions with JavaScript. Their memory belongs to the
// engine, and only Linux can limit all of it. A limit that does not work must not be declared, and
// without it the language is not offered.
func javascriptOn(goos string) bool { return goos == "linux" }

var javascriptHere = javascriptOn(runtime.GOOS)

// javascriptRuntime is what sessions with JavaScript can do. A loop cannot be interrupted: stopping
// it loses the state.
var javascriptRuntime = executor.Runtime{
	Language: executor.JavaScript,
	Version:  "ECMAScript",
	Features: []executor.Feature{
		executor.FeatureState,
		executor.FeatureStreaming,
		executor.FeatureRichOutput,
		executor.FeatureArtifacts,
		executor.FeatureFiles,
		executor.FeatureStdin,
		executor.FeatureEnv,
		executor.FeatureDir,
		executor.FeatureExitCode,
		executor.FeatureTopLevelAwait,
		executor.FeatureLinger,
		executor.FeatureCellNames,
		executor.FeatureWorkdir,
	},
}

// scriptSpare is memory that the engine has reserved but not used when it is ready, which code
// could use in addition to its limit.
const scriptSpare = 40 * mib

// scriptData is the memory of a process with JavaScript when it is ready, by the path of its
// program.
var scriptData = struct {
	sync.Mutex
	of map[string]uint64
}{of: map[string]uint64{}}

// javascript starts the host of a session with JavaScript.
//
// Buffers are outside of the engine's heap, so the operating system limits them: to the memory of
// such a process when its session begins, plus the memory of the session. Contents of files are in
// buffers too, so they count against both limits. The memory of such a process depends on the
// machine and is measured once in the life of this program. The limit is set at the start, because
// only a process itself can always lower its limit.
func (p *prepared) javascript(ctx context.Context, denoDir string, o sandboxOptions) (*host, error) {
	opts := hostOptions{Mode: "javascript"}
	prog := p.program(denoDir, o.memory, 0)
	prog.script = true
	scriptData.Lock()
	base := scriptData.of[p.deno]
	scriptData.Unlock()
	if base == 0 {
		h, err := startHost(ctx, prog, opts)
		if err == nil {
			err = h.begin(ctx, o)
		}
		if err != nil {
			return nil, err
		}
		base, err = settled(ctx, confine.PID(h.layer, h.cmd.Process.Pid))
		h.end()
		if err != nil {
			return nil, fmt.Errorf("measuring the memory of the sandbox: %w", err)
		}
		scriptData.Lock()
		scriptData.of[p.deno] = base
		scriptData.Unlock()
	}
	prog.limits.DataBytes = base + uint64(o.memory-scriptSpare)
	return startHost(ctx, prog, opts)
}

// settled returns the memory of a process that has started, when what the engine has needed for
// the start alone is given back: up to 40 MiB, some of it after the process is ready.
func settled(ctx context.Context, pid int) (least uint64, err error) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	const enough, most = 10, 100
	least = math.MaxUint64
	for same, n := 0, 0; same < enough && n < most; n++ {
		now, err := dataOf(pid)
		if err != nil {
			return 0, err
		}
		if same++; now < least {
			least, same = now, 0
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return least, nil
}
