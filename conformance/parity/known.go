package parity

import (
	"regexp"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// KnownDifference is something that programs do differently on a backend, that is documented and stays so. It explains a program if what
// differs matches it.
type KnownDifference struct {
	Why string // a sentence for users

	// Types are the types of backends that do so, TypePlain for the plain interpreter. None: those that lack the feature.
	Types    []string
	Lacks    executor.Feature
	Language executor.Language // empty: all

	// Got matches in the fields that differ, "NAME: VALUE" each, as the backend has them. Nil: everything.
	Got *regexp.Regexp
}

// KnownDifferences returns the list, which is in the documentation.
func KnownDifferences() []KnownDifference { return slices.Clone(knownDifferences) }

var knownDifferences = []KnownDifference{
	{
		Why: "cells may await outside of functions; scripts may not", Types: []string{TypePlain},
		Got: regexp.MustCompile(`^errors: .*SyntaxError: ('await' outside function|'async (for|with)' outside async function|asynchronous comprehension outside|await is only valid|Unexpected reserved word|missing \) after argument list)`),
	},
	{
		Why: "code cannot start threads", Lacks: executor.FeatureThreads, Language: executor.Python,
		Got: regexp.MustCompile(`can't start new thread`),
	},
	{
		Why: "code cannot start programs", Lacks: executor.FeatureSubprocess, Language: executor.Python,
		Got: regexp.MustCompile(`does not support processes`),
	},
}

// known returns why a subject differs, or "".
func known(s subject, p Program, found []Difference) string {
	for _, k := range knownDifferences {
		if k.Language != "" && k.Language != p.Language || len(k.Types) > 0 && !slices.Contains(k.Types, s.typ) ||
			k.Lacks != "" && (s.plain || s.Info().Capabilities.HasFor(p.Language, k.Lacks)) {
			continue
		}
		if k.Got == nil || slices.ContainsFunc(found, func(d Difference) bool { return k.Got.MatchString(d.Field + ": " + d.Got) }) {
			return k.Why
		}
	}
	return ""
}
