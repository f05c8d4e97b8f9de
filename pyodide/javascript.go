package pyodide

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// javascriptOn says whether there are sessions with JavaScript on a system. Their memory is the
// engine's own, of which only Linux bounds all; a limit that does not hold is not declared, and
// without it there is no language.
func javascriptOn(goos string) bool { return goos == "linux" }

var javascriptHere = javascriptOn(runtime.GOOS)

// javascriptRuntime is what sessions with JavaScript can do. Nothing interrupts a loop: it costs
// the state.
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

// scriptSpare is what the engine has taken and not used when it is up, so that code could have it
// besides.
const scriptSpare = 24 * mib

// scriptData is the memory of a process with JavaScript that is up, by the path of its program.
var scriptData = struct {
	sync.Mutex
	of map[string]uint64
}{of: map[string]uint64{}}

// javascript starts the host of a session with JavaScript.
//
// Buffers are outside of the engine's heap, so it is the system that bounds them: by what such a
// process has when it is up, and the memory of the session. Contents of files are in buffers as
// well, so that they count against both limits. The former depends on the machine and is measured
// once in the life of this program: nobody but a process itself may always lower its limit.
func (p *prepared) javascript(ctx context.Context, denoDir string, o sandboxOptions) (*host, error) {
	opts := hostOptions{Mode: "javascript", Disk: o.disk, Nodes: o.nodes(), Env: o.env, IdleMS: o.idle.Milliseconds(), LifeMS: o.life.Milliseconds()}
	prog := p.program(denoDir, o.memory, 0)
	prog.script = true
	scriptData.Lock()
	base := scriptData.of[p.deno]
	scriptData.Unlock()
	if base == 0 {
		h, err := startHost(ctx, prog, opts)
		if err != nil {
			return nil, err
		}
		base, err = dataOf(confine.PID(h.layer, h.cmd.Process.Pid))
		h.kill()
		<-h.dead
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
