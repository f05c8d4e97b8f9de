// Package cases has the cases of the conformance suite and the programs that they run.
//
// A case is about a rule of package executor. What runs it, and what it can ask for, is the
// [Engine], which is package conformance. Cases know nothing of how it works.
package cases

import (
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Case is a case as it is written down. In the suite it is there once, or once for each language.
type Case struct {
	ID          string // without the language
	Doc         string // the rule, one sentence
	Feature     executor.Feature
	Needs       []executor.Feature // that the positive form uses besides Feature
	PerLanguage bool               // implied by a Feature that is
	Only        executor.Language  // not empty: the case is about what other languages do not have
	Programs    []string           // what T.Program is called with
	Bound       time.Duration      // how long a form may take, without Grace. Zero: a minute
	Alone       bool               // it measures time or counts what is shared: no other case runs at the same time
	Positive    func(*T)           // the feature is declared, or there is none
	Negative    func(*T)           // it is not

	// Unsuited says why the case asks nothing of a backend or on this platform, or "". Nil: it asks
	// all.
	Unsuited func(caps executor.Capabilities) string
}

// T is what cases use: the engine, and the checks that several cases share.
type T struct{ Engine }

// Child is work of a case in another process, with the input and the output of Engine.Child.
type Child func(t *T, in []byte) []byte

// All returns the cases. conformance.Version grows when one is added or changes.
func All() []Case {
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
		checkpointCases(),
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

// Children returns the functions that Engine.Child can name.
func Children() map[string]Child {
	all := lifecycleChildren()
	maps.Copy(all, attachChildren())
	return all
}
