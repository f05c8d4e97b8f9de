package e2b

import (
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/runner"
)

// The kernels: what runs the code of a sandbox.
const (
	// KernelRunner is the program that Docker sandboxes have too, sent along to any template with Python. Code sees on E2B what it sees there.
	KernelRunner = "runner"
	// KernelCodeInterpreter is E2B's own: Jupyter kernels of more languages, in templates made from E2B's code interpreter. It has chart data
	// and no standard input; the documentation of the backend says what else differs. Commands and files are as with the other.
	KernelCodeInterpreter = "code-interpreter"

	// InterpreterTemplate is the default of Config.Template for KernelCodeInterpreter.
	InterpreterTemplate = "code-interpreter-v1"

	// FeatureCodeInterpreter is what a backend with KernelCodeInterpreter declares, so that a Spec can require it.
	FeatureCodeInterpreter executor.Feature = "x-code-interpreter"
)

// cellFeatures are what every language of the code interpreter has.
var cellFeatures = []executor.Feature{
	executor.FeatureContexts, executor.FeatureState, executor.FeatureStreaming, executor.FeatureArtifacts, executor.FeatureFiles,
	executor.FeatureSubprocess, executor.FeatureWorkdir,
}

// scriptFeatures are of languages in which the adapter sets up what a run asks for.
var scriptFeatures = []executor.Feature{
	executor.FeatureRichOutput, executor.FeatureEnv, executor.FeatureDir, executor.FeatureThreads, executor.FeatureTopLevelAwait,
}

// interpreterLanguages are those of the code interpreter, in the order of errors about unknown ones, with what they have beside cellFeatures.
// None has standard input, and interrupts of others than Python do not always work.
var interpreterLanguages = []executor.Runtime{
	{Language: executor.Python, Features: slices.Concat(scriptFeatures, []executor.Feature{executor.FeatureInterrupt, executor.FeatureExitCode})},
	{Language: executor.JavaScript, Features: scriptFeatures},
	{Language: executor.TypeScript, Features: scriptFeatures},
	{Language: "r", Features: []executor.Feature{executor.FeatureRichOutput}},
	{Language: "java", Features: []executor.Feature{executor.FeatureRichOutput, executor.FeatureThreads}},
	{Language: "bash"},
}

func (c *Config) kernel() string {
	if c.Kernel == "" {
		return KernelRunner
	}
	return c.Kernel
}

// known returns the languages that the kernel of c can have.
func (c *Config) known() (ls []executor.Language) {
	if c.kernel() != KernelCodeInterpreter {
		return runner.Languages
	}
	for _, r := range interpreterLanguages {
		ls = append(ls, r.Language)
	}
	return ls
}

// runtimeOf returns what a language can do in the code interpreter.
func runtimeOf(l executor.Language) executor.Runtime {
	i := slices.IndexFunc(interpreterLanguages, func(r executor.Runtime) bool { return r.Language == l })
	r := interpreterLanguages[i] // Validate has seen that it is there
	r.Features = slices.Concat(cellFeatures, r.Features)
	return r
}

// hasExitCode reports whether code of a language can end with an exit code of its choice.
func hasExitCode(l executor.Language) bool {
	return slices.Contains(runtimeOf(l).Features, executor.FeatureExitCode)
}
