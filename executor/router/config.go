package router

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/settings"
)

// Config is the routing table. It is plain data, so that it can come from a file.
type Config struct {
	// Routes are tried in order, and the first that matches is used. If none matches, Create fails
	// with ErrInvalid.
	Routes []Route `json:"routes"`
}

// Route sends matching sessions to backends.
type Route struct {
	Name  string  `json:"name"` // unique; reported as Origin.Route
	Match Match   `json:"match,omitzero"`
	Split []Share `json:"split"`
	// Salt makes the assignment of subjects independent of other routes. A change of Salt assigns
	// every subject anew. Empty: the name.
	Salt string `json:"salt,omitempty"`
	// Fallback lists the backends to try, in order, if the assigned backend cannot do a Create.
	Fallback []string `json:"fallback,omitempty"`
	// OnUnavailable is for programs that keep conversations, such as package backends. The Router
	// does not use it. Empty: Replace.
	OnUnavailable OnUnavailable `json:"on_unavailable,omitempty"`

	orders map[string][]string // of a Router: what Create tries, by the assigned backend; "" if there is none
}

// OnUnavailable says what happens to a conversation whose backend does not answer.
type OnUnavailable string

// The policies.
const (
	Replace OnUnavailable = "replace" // after a while the conversation gets a new session, without its variables
	Wait    OnUnavailable = "wait"    // the conversation fails until the backend answers again
)

// Match selects Specs. A Spec must have everything that Match names. The zero Match selects all.
type Match struct {
	Attributes map[string]string   `json:"attributes,omitempty"` // "*" as a value means any value
	Labels     map[string]string   `json:"labels,omitempty"`     // likewise
	Languages  []executor.Language `json:"languages,omitempty"`  // the Spec names one of them
	Templates  []string            `json:"templates,omitempty"`  // the Spec names one of them
	Require    []executor.Feature  `json:"require,omitempty"`    // the Spec requires all of them
}

// Share gives a backend a part of the subjects: Weight divided by the sum of all weights.
type Share struct {
	Backend string `json:"backend"`
	Weight  int    `json:"weight"` // 0 to MaxWeight; 0: no subjects
}

// MaxWeight is the largest weight of a share. Parts of a thousandth are fine enough, and keep
// Decide fast.
const MaxWeight = 1000

// Check returns all errors in c, each as an *executor.FieldError, joined. backends are the names
// that routes may use.
func (c Config) Check(backends []string) error {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &executor.FieldError{Path: path, Err: fmt.Errorf(format, args...)})
	}
	known := func(path, name string) {
		if !slices.Contains(backends, name) {
			errs = append(errs, &executor.FieldError{Path: path, Err: settings.Unknown("backend", name, backends)})
		}
	}
	if len(c.Routes) == 0 {
		bad("routes", "none")
	}
	names := map[string]int{}
	for i, r := range c.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		if first, dup := names[r.Name]; dup {
			bad(at+".name", "%q is already the name of routes[%d]", r.Name, first)
		} else {
			names[r.Name] = i
		}
		if r.Name == "" {
			bad(at+".name", "empty")
		}
		if u := r.OnUnavailable; u != "" && u != Replace && u != Wait {
			bad(at+".on_unavailable", "unknown value %q; want %q or %q", u, Replace, Wait)
		}
		sum, seen := 0, map[string]bool{}
		for j, s := range r.Split {
			path := fmt.Sprintf("%s.split[%d]", at, j)
			known(path+".backend", s.Backend)
			if seen[s.Backend] {
				bad(path+".backend", "%q has a share already", s.Backend)
			}
			seen[s.Backend] = true
			if s.Weight < 0 || s.Weight > MaxWeight {
				bad(path+".weight", "%d is not between 0 and %d", s.Weight, MaxWeight)
			}
			sum += s.Weight
		}
		if sum <= 0 {
			bad(at+".split", "no share has a weight above 0")
		}
		for j, b := range r.Fallback {
			path := fmt.Sprintf("%s.fallback[%d]", at, j)
			known(path, b)
			if slices.Contains(r.Fallback[:j], b) {
				bad(path, "%q is there already", b)
			}
		}
		for j, f := range r.Match.Require {
			if _, ok := f.Info(); !ok {
				bad(fmt.Sprintf("%s.match.require[%d]", at, j), "unknown feature %q", f)
			}
		}
		if j := c.shadowedBy(i); j >= 0 {
			bad(at, "never reached: routes[%d] comes first and matches everything", j)
		}
	}
	return errors.Join(errs...)
}

// shadowedBy returns an earlier route that matches everything, or -1.
func (c Config) shadowedBy(i int) int {
	return slices.IndexFunc(c.Routes[:i], func(r Route) bool { return r.Match.all() })
}

// all reports whether m selects everything.
func (m Match) all() bool {
	return len(m.Attributes)+len(m.Labels)+len(m.Languages)+len(m.Templates)+len(m.Require) == 0
}

// clone returns a copy that shares nothing with c, because the configuration of a Router never
// changes.
// order returns the backends that Create tries, each once: the given ones and then the fallbacks.
func (r *Route) order(first ...string) (names []string) {
	for _, name := range append(first, r.Fallback...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.Clip(names)
}

func (c Config) clone() Config {
	out := Config{Routes: slices.Clone(c.Routes)}
	for i := range out.Routes {
		r := &out.Routes[i]
		r.Split, r.Fallback = slices.Clone(r.Split), slices.Clone(r.Fallback)
		r.Match.Attributes, r.Match.Labels = maps.Clone(r.Match.Attributes), maps.Clone(r.Match.Labels)
		r.Match.Languages, r.Match.Templates = slices.Clone(r.Match.Languages), slices.Clone(r.Match.Templates)
		r.Match.Require = slices.Clone(r.Match.Require)
		r.orders = map[string][]string{"": r.order()}
		for _, s := range r.Split {
			r.orders[s.Backend] = r.order(s.Backend)
		}
	}
	return out
}
