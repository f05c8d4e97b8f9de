package tool

import (
	"cmp"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Bash is the language of shell scripts. It is there where the backend declares
// [executor.FeatureCommand]: a script is the command bash -c, beside the interpreters and without
// their variables.
const Bash executor.Language = "bash"

// DefaultName is what a tool is called if its Options do not say.
const DefaultName = "execute_code"

// The defaults and bounds of Options.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultMaxTimeout = 2 * time.Minute
	DefaultMaxCode    = 100_000

	DefaultMaxOutput     = 16 << 10
	DefaultMaxImages     = 10
	DefaultMaxImageBytes = 4 << 20
	DefaultMaxFiles      = 50
	DefaultMaxFileBytes  = 8 << 20
)

// Options says what a model may do. The zero value is a tool for every language that the backend
// has, without network.
type Options struct {
	// Name is what the model calls, 1 to 64 of [A-Za-z0-9_-]. Empty: DefaultName.
	Name string
	// Spec is what sandboxes are created from. Its Languages are those of the call, and MaxTimeout
	// raises its MaxRun.WallTime. Nil Aliases are executor.DataDir where the backend has aliases;
	// empty ones are none.
	Spec executor.Spec
	// Languages are those that the model may use, among them Bash; the first is the default of a
	// call. Those that the backend lacks are left out. Nil: python, javascript and bash as far as
	// the backend has them.
	Languages []executor.Language
	// Packages are the names that the model may have installed, by language. A language that is not
	// there may have none. Nil: what the backend allows.
	Packages map[executor.Language][]string
	// Timeout is that of a call that names none, MaxTimeout the longest that a call may ask for.
	// Zero: the defaults, and never more than the backend allows.
	Timeout    time.Duration
	MaxTimeout time.Duration
	// MaxCode is how many bytes of code a call may have. Zero: DefaultMaxCode.
	MaxCode int

	// Bounds of what an answer has; what is beyond them is left out with a note. Zero: the
	// defaults. Negative: nothing.
	MaxOutput     int   // bytes of each of stdout, stderr, returnValue and error
	MaxImages     int   // images
	MaxImageBytes int64 // of all images together, before base64
	MaxFiles      int   // files that are listed
	MaxFileBytes  int64 // of all contents of files together, before base64
}

// with returns o without zero fields, as far as a backend with c can do it.
func (o Options) with(c executor.Capabilities) Options {
	o.Name = cmp.Or(o.Name, DefaultName)
	o.MaxCode = cmp.Or(o.MaxCode, DefaultMaxCode)
	o.MaxOutput = max(cmp.Or(o.MaxOutput, DefaultMaxOutput), 0)
	o.MaxImages = max(cmp.Or(o.MaxImages, DefaultMaxImages), 0)
	o.MaxImageBytes = max(cmp.Or(o.MaxImageBytes, DefaultMaxImageBytes), 0)
	o.MaxFiles = max(cmp.Or(o.MaxFiles, DefaultMaxFiles), 0)
	o.MaxFileBytes = max(cmp.Or(o.MaxFileBytes, DefaultMaxFileBytes), 0)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxTimeout = max(cmp.Or(o.MaxTimeout, DefaultMaxTimeout), o.Timeout)
	if most := c.MaxRun.WallTime; most > 0 {
		o.MaxTimeout = min(o.MaxTimeout, most)
	}
	o.Timeout = min(o.Timeout, o.MaxTimeout)
	if o.Spec.Aliases == nil && c.Has(executor.FeatureAliases) {
		o.Spec.Aliases = []string{executor.DataDir}
	}
	if o.Languages == nil {
		o.Languages = []executor.Language{executor.Python, executor.JavaScript, Bash}
	}
	o.Languages = slices.DeleteFunc(c.Interpreters(o.Languages), func(l executor.Language) bool {
		if l == Bash {
			return !c.Has(executor.FeatureCommand)
		}
		_, ok := c.Runtime(l)
		return !ok
	})
	return o
}

// takes reports whether calls may name a language: one of the tool's, or TypeScript where that
// comes with JavaScript.
func (o Options) takes(c executor.Capabilities, l executor.Language) bool {
	return slices.Contains(o.Languages, c.Interpreter(l))
}

// installs returns the languages whose packages a call may name.
func (o Options) installs(c executor.Capabilities) (ls []executor.Language) {
	for _, l := range o.Languages {
		if l != Bash && c.HasFor(l, executor.FeaturePackages) && (o.Packages == nil || len(o.Packages[l]) > 0) {
			ls = append(ls, l)
		}
	}
	return ls
}

// takesFiles reports whether every language of the tool can be given files.
func (o Options) takesFiles(c executor.Capabilities) bool {
	return !slices.ContainsFunc(o.Languages, func(l executor.Language) bool {
		return l != Bash && !c.HasFor(l, executor.FeatureFiles)
	})
}
