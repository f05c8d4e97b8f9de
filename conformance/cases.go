package conformance

import (
	"maps"
	"slices"
)

// allCases returns the cases of the suite, before they are expanded for languages. Version grows when one is added or changes.
func allCases() []caseDef {
	return slices.Concat(
		createCases(),
		resultCases(),
		outputCases(),
		eventCases(),
		valueCases(),
		cellCases(),
		exceptionCases(),
		exitCases(),
		inputCases(),
		languageCases(),
		typescriptCases(),
		stateCases(),
		lingerCases(),
		timeoutCases(),
		cancelCases(),
		limitCases(),
		fileCases(),
		artifactCases(),
		environmentCases(),
		surroundingsCases(),
		aliasCases(),
		isolationCases(),
		contextCases(),
		languagesCases(),
		commandCases(),
		ptyCases(),
		hostileCases(),
		lifecycleCases(),
		ttlCases(),
		attachCases(),
		fencingCases(),
		listCases(),
		networkCases(),
		portCases(),
		packageCases(),
	)
}

// allChildren returns the functions that T.Child can name.
func allChildren() map[string]childFunc {
	all := lifecycleChildren()
	maps.Copy(all, attachChildren())
	return all
}
