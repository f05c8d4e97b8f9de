package conformance

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Mode says what stood behind the adapter.
type Mode string

// The modes. Only a Live report says something about a service.
const (
	Live     Mode = "live"     // the real service
	Emulated Mode = "emulated" // a stand-in that speaks the service's protocol and really runs the code
	Fake     Mode = "fake"     // a stand-in that runs no code
)

// Implementation identifies what was tested. Name and Version must be set: a report that does not
// say of what it is says nothing.
type Implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	URL     string `json:"url,omitempty"`
}

// Target is what is tested.
type Target struct {
	Implementation Implementation
	Mode           Mode

	// Setup starts what Open needs: stand-ins, keys, directories. It runs once, in the parent
	// process. params is JSON-like data that reaches Open in parent and children. May be nil. A
	// failure makes every case errored.
	Setup func(ctx context.Context) (params map[string]string, cleanup func() error, err error)

	// Open returns a new Executor. All that were opened with the same params reach the same
	// backend, as the same owner unless params[ParamOwner] says otherwise, and share no memory. The
	// suite closes them.
	Open func(ctx context.Context, params map[string]string) (executor.Executor, error)

	// Leaks returns what is left at the backend beyond what Sessions lists: volumes, networks,
	// processes, directories. May be nil.
	Leaks func(ctx context.Context, params map[string]string) ([]string, error)

	// Child is a command that calls RunChild with this Target. Nil: this program again. Empty:
	// none, and cases that need a second process are errored.
	Child []string

	Spec     executor.Spec // the base of every session
	Programs []Programs    // one entry for each language to test; a declared language without one fails "declares"
	Must     Must

	// KnownFailures maps case IDs to reasons. The cases run; one that holds is stale.
	KnownFailures map[string]string

	Only        []string      // patterns of case IDs as in path.Match, "/" included; others are unchecked. Nil: all
	Grace       time.Duration // added to every bound in time. Default 5 s
	Parallel    int           // cases at a time. Default 1
	MaxSessions int           // created in all; beyond it cases are errored. Default 500 for each language

	// Progress, if not nil, is called with the line of each case as it ends, one call at a time.
	Progress func(Line)
}

// ParamOwner is the key under which the suite passes another owner to Open.
const ParamOwner = "conformance.owner"

// Programs are source texts in one language, by the names of ProgramNames. A case whose program is
// missing is unchecked. A text may hold {{name}} where the case puts a value: see T.Program.
type Programs struct {
	Language executor.Language
	Source   map[string]string
}

// ProgramInfo says what a program must do.
type ProgramInfo struct{ Name, Doc string }

// The defaults of a Target.
const (
	defaultGrace       = 5 * time.Second
	defaultMaxSessions = 500 // for each language
)

// withDefaults returns t with its zero fields filled in.
func (t Target) withDefaults() Target {
	if t.Grace <= 0 {
		t.Grace = defaultGrace
	}
	if t.Parallel <= 0 {
		t.Parallel = 1
	}
	if t.MaxSessions <= 0 {
		t.MaxSessions = defaultMaxSessions * max(len(t.Programs), 1)
	}
	return t
}

// languages returns the languages that t has programs for, in order.
func (t Target) languages() (ls []executor.Language) {
	for _, p := range t.Programs {
		ls = append(ls, p.Language)
	}
	return ls
}

// program returns the text of a program of t.
func (t Target) program(l executor.Language, name string) (string, bool) {
	for _, p := range t.Programs {
		if p.Language == l {
			src, ok := p.Source[name]
			return src, ok
		}
	}
	return "", false
}

// validate reports every error in t that is the caller's.
func (t Target) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Implementation.Name == "" || t.Implementation.Version == "" {
		bad("implementation: name and version must be set")
	}
	switch t.Mode {
	case Live, Emulated, Fake:
	default:
		bad("mode: %q is none of live, emulated, fake", t.Mode)
	}
	if t.Open == nil {
		bad("open: must be set")
	}
	if len(t.Programs) == 0 {
		bad("programs: must be set for at least one language")
	}
	names := ProgramNames()
	for i, p := range t.Programs {
		if p.Language == "" || slices.ContainsFunc(t.Programs[:i], func(q Programs) bool { return q.Language == p.Language }) {
			bad("programs: language %q is empty or repeated", p.Language)
		}
		for name := range p.Source {
			if !slices.ContainsFunc(names, func(i ProgramInfo) bool { return i.Name == name }) {
				bad("programs: %s: %q is not the name of a program of the suite", p.Language, name)
			}
		}
	}
	for id, reason := range t.KnownFailures {
		if reason == "" {
			bad("known failures: %s: a reason must be given", id)
		}
	}
	for _, p := range t.Only {
		if _, err := matches(p, "x"); err != nil {
			bad("only: %q: %w", p, err)
		}
	}
	return errors.Join(errs...)
}

// Selects reports whether Only selects a case.
func (t Target) Selects(id string) bool {
	return t.Only == nil || slices.ContainsFunc(t.Only, func(p string) bool { ok, _ := matches(p, id); return ok })
}

// matches reports whether a pattern of Target.Only selects a case. Other than in path.Match a "*"
// may stand for several elements.
func matches(pattern, id string) (bool, error) {
	if !strings.ContainsAny(pattern, `*?[\`) { // most name a case, and every case is compared with each
		return pattern == id, nil
	}
	flat := strings.NewReplacer("/", "\x01")
	return path.Match(flat.Replace(pattern), flat.Replace(id))
}
