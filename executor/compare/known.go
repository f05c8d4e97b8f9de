package compare

import (
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// TypePlain is the type of the plain interpreter, as "python3 file.py" and "node file.js" start it.
const TypePlain = "plain"

// KnownDifference is something that programs do differently on a backend, that is documented and
// stays so. It explains a difference if what differs matches it.
type KnownDifference struct {
	Why string // a sentence for users

	// Types are the types of backends that do so, TypePlain for the plain interpreter. None: those
	// that lack the feature. Neither: all.
	Types    []string
	Lacks    executor.Feature
	Language executor.Language // empty: all

	// Got matches in one of the fields that differ, "NAME: VALUE", as the backend has it.
	Got *regexp.Regexp
	// Apart is in the place of Got: where it matches, the fields that differ may differ, and
	// nowhere else.
	Apart *regexp.Regexp
	// Left is in the place of Got: the run has left something running, and there is less of what it
	// was to do.
	Left bool
}

// KnownDifferences returns the list, which is in the documentation.
func KnownDifferences() []KnownDifference { return slices.Clone(knownDifferences) }

var pyodide = []string{"pyodide"}

var knownDifferences = []KnownDifference{
	{
		Why: "cells may await outside of functions; scripts may not", Types: []string{TypePlain},
		Got: regexp.MustCompile(`^errors: .*SyntaxError: ('await' outside function|'async (for|with)' outside async function|asynchronous comprehension outside|await is only valid|Unexpected reserved word|missing \) after argument list)`),
	},
	{
		Why: "cells take the syntax of notebooks, and code that is indented; scripts do not", Types: []string{TypePlain}, Language: executor.Python,
		Got: regexp.MustCompile(`(?s)^errors: .*(SyntaxError: invalid syntax|IndentationError: unexpected indent)`),
	},
	{
		Why: "an interrupt that nobody catches ends a script by its signal; a run fails with exit code 130", Types: []string{TypePlain}, Language: executor.Python,
		Got: regexp.MustCompile(`^signal: SIGINT`),
	},
	{
		Why: "cells import IPython.display without IPython", Types: []string{TypePlain}, Language: executor.Python,
		Got: regexp.MustCompile(`No module named 'IPython'`),
	},
	{
		Why: "a script is a file in its working directory, and code that lists the directory sees it", Types: []string{TypePlain},
		Got: regexp.MustCompile(`(?s)^stdout: .*\bcell\.(py|m?js)\b`),
	},
	{
		Why: "a run does not wait for what goes on without an end, such as an interval or a server, and names it; a script does", Left: true,
	},
	{
		Why: "code cannot start threads", Lacks: executor.FeatureThreads, Language: executor.Python,
		Got: regexp.MustCompile(`can't start new thread`),
	},
	{
		Why: "code cannot start programs", Lacks: executor.FeatureSubprocess, Language: executor.Python,
		Got: regexp.MustCompile(`does not support processes|No module named '_multiprocessing'|module '_?posixsubprocess'`),
	},
	{
		Why: "the numbers of errors of the operating system are those of its C library", Types: pyodide, Language: executor.Python,
		Apart: regexp.MustCompile(`\[Errno \d+\]`),
	},
	{
		Why: "its Python is another version than that of the image, and some messages of exceptions are others", Types: pyodide, Language: executor.Python,
		Apart: regexp.MustCompile(`(?m)^<cell>:\d+: DeprecationWarning: .*\n.*|expected \d+(, got \d+)?\)|(integer |float |complex |decimal )?(floor )?(division|modulo|divmod\(\))( or modulo)?( by zero)?|math domain error|expected a (\w+ input|number between \S+ and \S+), got \S+|\S+ is not in list|list\.index\(x\): x not in list|unhashable type: '\w+'|cannot use '\w+' as a (dict key|set element) \(unhashable type: '\w+'\)`),
	},
	{
		Why: "its parser of JavaScript says syntax errors in other words", Types: pyodide, Language: executor.JavaScript,
		Apart: regexp.MustCompile(`SyntaxError: .*`),
	},
	{
		Why: "its JavaScript is another version than that of the image: messages about JSON say the line as well, keys that are symbols are shown without brackets, and `%s` shows a date as in a value", Types: pyodide, Language: executor.JavaScript,
		Apart: regexp.MustCompile(` \(line \d+ column \d+\)|\[?Symbol\([\w.]*\)\]?: |\w{3} \w{3} \d\d \d{4} [\d:]{8} GMT\+0000 \([\w ]+\)|\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z`),
	},
	{
		Why: "half of a character in a value that is shown is U+FFFD, and not its number", Types: pyodide, Language: executor.JavaScript,
		Got: regexp.MustCompile(`(?s)^(stdout|values): .*\x{FFFD}`),
	},
	{
		Why: "what modules of Node keep in their objects is not the same, and shows where an object is displayed", Types: pyodide, Language: executor.JavaScript,
		Apart: regexp.MustCompile(`(?s)main text/plain (Timeout|Immediate|Readable|ReadStream|Writable|WriteStream|Transform) \{.*`),
	},
	{
		Why: "a module that is not found does not say who asked for it", Types: pyodide, Language: executor.JavaScript,
		Apart: regexp.MustCompile(`\nRequire stack:(\n- \S+)*`),
	},
	{
		Why: "the standard library lacks dbm and what hashlib has of OpenSSL", Types: pyodide, Language: executor.Python,
		Got: regexp.MustCompile(`No module named '_?(g?dbm)'|module 'hashlib' has no attribute`),
	},
	{
		Why: "of the modules of Node there are those that its page lists", Types: pyodide, Language: executor.JavaScript,
		Got: regexp.MustCompile(`Cannot find module '[^']+': this sandbox has|a file cannot be a module with import and export here`),
	},
}

// Explain returns why a backend of a type and with these capabilities differs, or "" if neither its
// capabilities nor the documented differences explain it. seen is what it did in all runs.
func Explain(typ string, caps executor.Capabilities, language executor.Language, seen []Fields, found []Difference) string {
	if len(seen) > 0 && seen[len(seen)-1]["refused"] != "" {
		return "it lacks " + seen[len(seen)-1]["refused"]
	}
	for _, k := range knownDifferences {
		if k.Language != "" && k.Language != language || len(k.Types) > 0 && !slices.Contains(k.Types, typ) ||
			k.Lacks != "" && (typ == TypePlain || caps.HasFor(language, k.Lacks)) {
			continue
		}
		if k.matches(seen, found) {
			return k.Why
		}
	}
	return ""
}

func (k KnownDifference) matches(seen []Fields, found []Difference) bool {
	if k.Left {
		return slices.ContainsFunc(seen, func(f Fields) bool { return f[LeftRunning] != "" }) &&
			!slices.ContainsFunc(found, func(d Difference) bool { return d.Field == "status" || !strings.HasPrefix(d.Want, d.Got) })
	}
	if k.Apart != nil {
		return !slices.ContainsFunc(found, func(d Difference) bool {
			return k.Apart.ReplaceAllLiteralString(d.Want, "") != k.Apart.ReplaceAllLiteralString(d.Got, "")
		})
	}
	return slices.ContainsFunc(found, func(d Difference) bool { return k.Got.MatchString(d.Field + ": " + d.Got) })
}
