package pyodide

import (
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// capabilities declares what sessions can do. Anything else is refused: WebAssembly has no
// processes, threads or sockets, and a session lives in one process and ends with it.
func capabilities(goos string, c Config, layer confine.Method) executor.Capabilities {
	caps := executor.Capabilities{
		MaxLife: c.MaxLife.Max(),
		Features: []executor.Feature{
			executor.FeatureCode,
			executor.FeatureLimitMemory,
			executor.FeatureLimitDisk,
			executor.FeatureNetworkNone,
			executor.FeatureAliases,
		},
		Languages: []executor.Runtime{{
			Language: executor.Python,
			Version:  pythonVersion,
			Features: []executor.Feature{
				executor.FeatureState,
				executor.FeatureInterrupt,
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
				executor.FeaturePackages,
			},
		}},
		Isolation:     isolation(layer),
		Templates:     slices.Sorted(maps.Keys(c.Templates)),
		MaxLimits:     executor.Limits{MemoryBytes: c.MaxMemory, DiskBytes: c.MaxDisk},
		DefaultLimits: executor.Limits{MemoryBytes: c.Memory, DiskBytes: c.Disk},
	}
	if javascriptOn(goos) {
		js := javascriptRuntime
		js.Isolation = scriptIsolation(layer)
		caps.Languages = append(caps.Languages, js)
		caps.Features = append(caps.Features, executor.FeatureTypeScript)
	}
	return caps
}
