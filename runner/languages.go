package runner

import "github.com/execbroker/execbroker/executor"

// Languages are those that the runner can run where their interpreters are: python3, which it needs
// itself, and Node.js.
var Languages = []executor.Language{executor.Python, executor.JavaScript}

// sessionFeatures are what the runner brings to every session.
var sessionFeatures = []executor.Feature{
	executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureParallelRuns,
	executor.FeatureFilesDuringRun, executor.FeatureKeepAlive, executor.FeatureTypeScript,
}

// languageFeatures are what it brings to each of the Languages: the program makes them alike.
var languageFeatures = []executor.Feature{
	executor.FeatureContexts, executor.FeatureState, executor.FeatureInterrupt, executor.FeatureStreaming, executor.FeatureRichOutput,
	executor.FeatureArtifacts, executor.FeatureFiles, executor.FeatureStdin, executor.FeatureEnv, executor.FeatureDir,
	executor.FeatureExitCode, executor.FeatureSubprocess, executor.FeatureThreads, executor.FeatureTopLevelAwait,
	executor.FeatureLinger, executor.FeatureCellNames, executor.FeatureWorkdir,
}
