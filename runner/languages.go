package runner

import "github.com/execbroker/execbroker/executor"

// Languages are those that the program can run where their interpreters are: python3, which it needs itself, and Node.js.
var Languages = []executor.Language{executor.Python, executor.JavaScript}

// Features returns what each of the Languages can do: the program makes them alike. Packages are for the adapter to add, and
// executor.FeatureTypeScript is one of the sandbox.
func Features() []executor.Feature {
	return []executor.Feature{
		executor.FeatureContexts, executor.FeatureState, executor.FeatureInterrupt, executor.FeatureStreaming, executor.FeatureRichOutput,
		executor.FeatureArtifacts, executor.FeatureFiles, executor.FeatureStdin, executor.FeatureEnv, executor.FeatureDir,
		executor.FeatureExitCode, executor.FeatureSubprocess, executor.FeatureThreads, executor.FeatureTopLevelAwait,
		executor.FeatureLinger, executor.FeatureCellNames, executor.FeatureWorkdir,
	}
}
