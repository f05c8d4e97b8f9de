// Package engine runs the drivers of package driver: it is what must be the same on every backend.
//
// It validates, fills in defaults and refuses what is not declared; it keeps the clocks and the
// states busy, closed and suspended; it numbers events, cuts output at characters and limits,
// captures it and judges how a run ended; it cleans names, completes errors, calls hooks and cleans
// up.
//
// The contract of adapters is package driver, which imports this one. So the engine knows no
// interface of it: it is given records of functions, in which what an adapter does not implement is
// nil. Each function has to keep what driver says of the method of its name.
package engine

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// New makes an Executor of a backend: see driver.New.
func New(b Backend, env Env, opts Options) (executor.Executor, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	env.Name = cmp.Or(env.Name, opts.Type)
	x := &exec{b: b, env: env, log: env.Log.With("backend", env.Name), o: opts, live: map[*session]bool{}}
	x.left = leftovers{timeout: opts.CleanupTimeout, stop: make(chan struct{})}
	x.info = executor.Info{Name: env.Name, Type: opts.Type, Capabilities: b.Capabilities, Suspends: opts.Suspends, Grace: opts.Grace}
	if err := x.check(); err != nil {
		return nil, err
	}
	return x, nil
}

// NewID returns 26 characters of [a-z2-7], of which no two are ever alike.
func NewID() string { return strings.ToLower(rand.Text()) }

// exec implements executor.Executor.
type exec struct {
	executor.BaseExecutor
	b    Backend
	env  Env
	log  *slog.Logger // never nil
	o    Options
	info executor.Info

	calls   tracker // of the driver and of all its sessions
	closing untilDone
	left    leftovers

	mu   sync.Mutex
	live map[*session]bool // neither closed nor detached
}

var _ executor.Executor = (*exec)(nil)

func (x *exec) Info() executor.Info { return x.info }

// languageName is what fits into a label with others, and into the words of MissingFor.
var languageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+#_-]{0,31}$`)

// check compares declarations with interfaces and rules.
func (x *exec) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c := x.info.Capabilities
	if x.o.Type == "" {
		bad("options: Type is empty")
	}
	if x.env.Owner == "" {
		bad("env: Owner is empty; it says whose sandboxes these are")
	}
	for name, v := range map[string]string{"Owner": x.env.Owner, "Instance": x.env.Instance} {
		if err := (executor.Spec{Labels: map[string]string{"a": v}}).Validate(); err != nil {
			bad("env: %s: want at most 255 bytes of printable ASCII, since it becomes a label", name)
		}
	}
	if len(c.Languages) == 0 || !c.Has(executor.FeatureCode) {
		bad("capabilities: no language, or no %s", executor.FeatureCode)
	}
	declared := func(fs []executor.Feature, perLanguage bool) {
		for _, f := range fs {
			i, ok := f.Info()
			if !ok && !strings.HasPrefix(string(f), "x-") || ok && i.PerLanguage != perLanguage {
				bad("capabilities: %s is unknown or in the wrong place", f)
			}
		}
	}
	declared(c.Features, false)
	for i, r := range c.Languages {
		declared(r.Features, true)
		if !languageName.MatchString(string(r.Language)) || slices.ContainsFunc(c.Languages[:i], func(o executor.Runtime) bool { return o.Language == r.Language }) {
			bad("capabilities: language %q is no name or repeated", r.Language)
		}
	}
	if (x.b.Attach != nil) != c.Has(executor.FeatureAttach) {
		bad("capabilities: %s and Attacher disagree", executor.FeatureAttach)
	}
	if (x.b.Sessions != nil) != c.Has(executor.FeatureList) {
		bad("capabilities: %s and Lister disagree", executor.FeatureList)
	}
	if c.Has(executor.FeatureFencing) && !c.Has(executor.FeatureAttach) {
		bad("capabilities: %s needs %s", executor.FeatureFencing, executor.FeatureAttach)
	}
	return errors.Join(errs...)
}
