package conformance

import (
	"runtime"

	"github.com/execbroker/execbroker/executor"
)

// Must is what the implementation has to declare, so that declaring nothing is not conformant. What
// is missing fails "declares".
type Must struct {
	Features  []executor.Feature
	Languages map[executor.Language][]executor.Feature
	// EachLanguage has what every language that is declared must have, where configuration says
	// which there are.
	EachLanguage []executor.Feature
	Isolation    executor.Isolation
}

// MustDeclare returns what each backend of a type has to declare on this platform, whatever its
// configuration. The tests of the adapters and the command line share it. Of a type that is not one
// of this module nothing is known: its author says it in Target.Must.
func MustDeclare(typ string) (must Must, known bool) {
	f, known := mustDeclare[typ]
	if !known {
		return Must{}, false
	}
	return f(), true
}

// runnerLanguage is what every language has where the runner is. The languages are those of the
// images.
var runnerLanguage = []executor.Feature{
	executor.FeatureContexts, executor.FeatureState, executor.FeatureInterrupt, executor.FeatureStreaming, executor.FeatureRichOutput,
	executor.FeatureArtifacts, executor.FeatureFiles, executor.FeatureStdin, executor.FeatureEnv, executor.FeatureDir,
	executor.FeatureExitCode, executor.FeatureSubprocess, executor.FeatureThreads, executor.FeatureTopLevelAwait, executor.FeatureLinger,
	executor.FeatureCellNames, executor.FeatureWorkdir,
}

// mustDeclare says it by type.
var mustDeclare = map[string]func() Must{
	"pyodide": func() Must {
		m := Must{
			Features: []executor.Feature{
				executor.FeatureCode, executor.FeatureLimitMemory, executor.FeatureLimitDisk, executor.FeatureNetworkNone,
				executor.FeatureAliases,
			},
			Languages: map[executor.Language][]executor.Feature{
				executor.Python: {
					executor.FeatureState, executor.FeatureInterrupt, executor.FeatureStreaming, executor.FeatureRichOutput, executor.FeatureArtifacts,
					executor.FeatureFiles, executor.FeatureStdin, executor.FeatureEnv, executor.FeatureDir, executor.FeatureExitCode,
					executor.FeatureTopLevelAwait, executor.FeatureLinger, executor.FeatureCellNames, executor.FeatureWorkdir, executor.FeaturePackages,
				},
			},
			Isolation: executor.IsolationWasm, // with a layer of the system it is more
		}
		if runtime.GOOS == "linux" { // elsewhere nothing bounds the memory of JavaScript
			m.Languages[executor.JavaScript] = []executor.Feature{
				executor.FeatureState, executor.FeatureStreaming, executor.FeatureRichOutput, executor.FeatureArtifacts, executor.FeatureFiles,
				executor.FeatureStdin, executor.FeatureEnv, executor.FeatureDir, executor.FeatureExitCode, executor.FeatureTopLevelAwait,
				executor.FeatureLinger, executor.FeatureCellNames, executor.FeatureWorkdir,
			}
			m.Features = append(m.Features, executor.FeatureTypeScript)
		}
		return m
	},
	"flymachines": machines,
	"modal":       machines, // in virtual machines; under gVisor it has less
	"docker": func() Must {
		return Must{
			Features: []executor.Feature{
				executor.FeatureCode, executor.FeatureCommand, executor.FeatureParallelRuns,
				executor.FeatureAttach, executor.FeatureList, executor.FeatureKeepAlive, executor.FeatureLimitDisk,
				executor.FeatureAliases,
				executor.FeatureNetworkNone, executor.FeatureNetworkFull, executor.FeatureTypeScript, // the other limits, and terminals, are not those of every runtime
			},
			EachLanguage: runnerLanguage,
			Isolation:    executor.IsolationContainer,
		}
	},
	"kubernetes": func() Must {
		return Must{
			Features: []executor.Feature{ // the other limits, and terminals, are not those of every runtime
				executor.FeatureCode, executor.FeatureCommand, executor.FeatureParallelRuns,
				executor.FeatureAttach, executor.FeatureList, executor.FeatureKeepAlive, executor.FeatureLimitDisk,
				executor.FeatureNetworkNone, executor.FeatureTypeScript,
			},
			EachLanguage: runnerLanguage,
			Isolation:    executor.IsolationContainer,
		}
	},
	"bubblewrap": func() Must {
		return Must{
			Features: []executor.Feature{ // limits but that of disk are those of machines with control groups
				executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureParallelRuns,
				executor.FeatureAttach, executor.FeatureList, executor.FeatureKeepAlive, executor.FeatureLimitDisk,
				executor.FeatureNetworkNone, executor.FeatureTypeScript, executor.FeatureAliases,
			},
			EachLanguage: runnerLanguage,
			Isolation:    executor.IsolationContainer,
		}
	},
	"e2b": func() Must {
		return Must{
			Features: []executor.Feature{
				executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureParallelRuns,
				executor.FeatureAttach, executor.FeatureList, executor.FeatureKeepAlive,
				executor.FeatureNetworkNone, executor.FeatureNetworkFull,
			},
			EachLanguage: []executor.Feature{ // whatever the kernel and the language; with the runner it is all of runnerLanguage
				executor.FeatureContexts, executor.FeatureState, executor.FeatureStreaming, executor.FeatureArtifacts, executor.FeatureFiles,
				executor.FeatureSubprocess, executor.FeatureWorkdir,
			},
			Isolation: executor.IsolationMicroVM,
		}
	},
}

// machines is what backends promise whose sandboxes are virtual machines with the runner.
func machines() Must {
	return Must{
		Features: []executor.Feature{
			executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureParallelRuns,
			executor.FeatureAttach, executor.FeatureList, executor.FeatureKeepAlive, executor.FeatureLimitCPU, executor.FeatureLimitMemory,
			executor.FeatureLimitProcesses, executor.FeatureNetworkNone, executor.FeatureNetworkFull, executor.FeatureTypeScript,
			executor.FeatureAliases,
		},
		EachLanguage: runnerLanguage,
		Isolation:    executor.IsolationMicroVM,
	}
}
