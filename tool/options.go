package tool

import (
	"cmp"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Bash is the language of shell scripts. It is available if the backend declares
// [executor.FeatureCommand]: a script is run as the command bash -c, outside the interpreters and
// without their variables.
const Bash executor.Language = "bash"

// DefaultName is the name of a tool without Options.Name.
const DefaultName = "execute_code"

// The defaults and limits of Options.
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
	// Name is the name of the tool for the model, 1 to 64 of [A-Za-z0-9_-]. Empty: DefaultName.
	Name string
	// Spec is the Spec of sandboxes. Its Languages are set from the call, and MaxTimeout raises its
	// MaxRun.WallTime. Nil Aliases mean executor.DataDir if the backend has aliases; an empty slice
	// means none.
	Spec executor.Spec
	// Languages are the languages that the model may use, which can include Bash. The first is the
	// default of a call. Those that the backend lacks are left out. Nil: those of python,
	// javascript and bash that the backend has.
	Languages []executor.Language
	// Packages are the names of packages that the model may install, by language. A language that
	// is not listed may install none. Nil: what the backend allows.
	Packages map[executor.Language][]string
	// Timeout is the timeout of a call that does not set one, and MaxTimeout the longest that a
	// call may set. Zero: the defaults, or less if Run or MaxRun of Spec say so. Neither exceeds
	// what the backend allows.
	Timeout    time.Duration
	MaxTimeout time.Duration
	// MaxCode is the largest size of the code of a call in bytes. Zero: DefaultMaxCode.
	MaxCode int

	// The limits of an answer. More is left out with a note. Zero: the defaults. Negative: nothing.
	MaxOutput     int   // bytes of each of stdout, stderr, returnValue and error
	MaxImages     int   // images
	MaxImageBytes int64 // of all images together, before base64
	MaxFiles      int   // listed files
	MaxFileBytes  int64 // of all contents of files together, before base64
}

// with returns o with defaults for its zero fields, limited to what a backend with c can do.
func (o Options) with(c executor.Capabilities) Options {
	o.Name = cmp.Or(o.Name, DefaultName)
	o.MaxCode = cmp.Or(o.MaxCode, DefaultMaxCode)
	o.MaxOutput = max(cmp.Or(o.MaxOutput, DefaultMaxOutput), 0)
	o.MaxImages = max(cmp.Or(o.MaxImages, DefaultMaxImages), 0)
	o.MaxImageBytes = max(cmp.Or(o.MaxImageBytes, DefaultMaxImageBytes), 0)
	o.MaxFiles = max(cmp.Or(o.MaxFiles, DefaultMaxFiles), 0)
	o.MaxFileBytes = max(cmp.Or(o.MaxFileBytes, DefaultMaxFileBytes), 0)
	run, most := o.Spec.Bounds()
	if o.MaxTimeout == 0 && most.WallTime > 0 && (o.Spec.Run.WallTime > 0 || o.Spec.MaxRun.WallTime > 0) {
		o.MaxTimeout = min(DefaultMaxTimeout, most.WallTime) // nobody has said that calls may have more
		o.Timeout = cmp.Or(o.Timeout, min(run.WallTime, o.MaxTimeout))
	}
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

// takes reports whether calls may use a language: one of the tool's, or TypeScript if it is
// available with JavaScript.
func (o Options) takes(c executor.Capabilities, l executor.Language) bool {
	return slices.Contains(o.Languages, c.Interpreter(l))
}

// installs returns the languages for which a call may name packages.
func (o Options) installs(c executor.Capabilities) (ls []executor.Language) {
	for _, l := range o.Languages {
		if l != Bash && c.HasFor(l, executor.FeaturePackages) && (o.Packages == nil || len(o.Packages[l]) > 0) {
			ls = append(ls, l)
		}
	}
	return ls
}

// takesFiles reports whether every language of the tool can get files.
func (o Options) takesFiles(c executor.Capabilities) bool {
	return !slices.ContainsFunc(o.Languages, func(l executor.Language) bool {
		return l != Bash && !c.HasFor(l, executor.FeatureFiles)
	})
}
