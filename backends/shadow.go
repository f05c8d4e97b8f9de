package backends

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
)

// Shadow repeats runs of a sample of the conversations of a route on another backend, after they
// have ended, and compares: see package compare. Users notice nothing. Only conversations whose
// code could have no effect outside of its sandbox are repeated: without network, environment and
// ports, and with no packages but those of Guard.Packages.
type Shadow struct {
	To    string            `json:"to"`    // where runs are repeated
	Share Percent           `json:"share"` // of the conversations that may be repeated, up to 100%
	When  map[string]string `json:"when"`  // attributes that the Spec must have, with their values: by them subjects allow it
	// Most and Budget bound the repeated runs of all processes that share the store of the
	// Sessions: "10/min", "5/day". While the store does not answer nothing is repeated.
	Most   Bound[int64]           `json:"most"`             // runs in a minute, an hour, a day or a month
	Budget Bound[executor.Money]  `json:"budget"`           // by the Prices of the backends, in an hour, a day or a month
	Time   Bound[driver.Duration] `json:"time,omitzero"`    // of runs, in an hour, a day or a month; zero: no bound but that of Most
	AtOnce int                    `json:"at_once,omitzero"` // sandboxes at the same time, of all processes; default 4
	// Control is the part of the sample that is repeated on the backend of the original. What
	// differs there changes from run to run by itself.
	Control Percent    `json:"control,omitzero"` // 5% to 50%; default 20%
	Keep    ShadowKeep `json:"keep,omitzero"`
}

// ShadowKeep says what is kept of the conversations of users that differ. The zero value keeps
// nothing but numbers.
type ShadowKeep struct {
	Code     bool            `json:"code,omitempty"`     // code, input and files, so that an example can be repeated
	Output   bool            `json:"output,omitempty"`   // what differs, and texts of exceptions in the names of classes
	Examples int             `json:"examples,omitempty"` // at most 100; default 20. At most 3 of a class
	For      driver.Duration `json:"for,omitzero"`       // at most 30 days; default 1 day
}

// Bound is the most of something in a period, written as "10/min", "5/day" or "2h/day".
type Bound[T int64 | executor.Money | driver.Duration] struct {
	Most T
	Per  string // "min", "hour", "day" or "month"
}

// MarshalText implements encoding.TextMarshaler.
func (b Bound[T]) MarshalText() ([]byte, error) {
	amount, err := json.Marshal(b.Most)
	return []byte(strings.Trim(string(amount), `"`) + "/" + b.Per), err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bound[T]) UnmarshalText(text []byte) error {
	amount, per, _ := strings.Cut(string(text), "/")
	quoted, err := json.Marshal(amount)
	if err == nil {
		if err = json.Unmarshal([]byte(amount), &b.Most); err != nil {
			err = json.Unmarshal(quoted, &b.Most)
		}
	}
	if err != nil || b.Most <= 0 || !slices.Contains([]string{"min", "hour", "day", "month"}, per) {
		return errors.New(`want an amount and a period, such as "10/min" or "5/day"; periods are min, hour, day and month`)
	}
	b.Per = per
	return nil
}

const (
	defaultAtOnce   = 4
	defaultControl  = Percent(.2)
	defaultExamples = 20
	maxExamples     = 100
	defaultKeep     = 24 * time.Hour
	maxKeep         = 30 * 24 * time.Hour
)

// checkShadows checks the shadows against the routes and the backends.
func (c Config) checkShadows() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Shadows)) {
		route, err := c.route(name)
		if err != nil {
			errs = append(errs, driver.At("shadows", err))
			continue
		}
		at := "shadows." + name
		errs = append(errs, driver.At(at, c.Shadows[name].check(route, slices.Sorted(maps.Keys(c.Backends)), func(path string) bool { return c.at.wrong[at+"."+path] })))
	}
	return errors.Join(errs...)
}

// check returns all errors in s. wrong says which values Parse has refused already.
func (s Shadow) check(route router.Route, names []string, wrong func(path string) bool) error {
	var bad problems
	switch {
	case wrong("to"):
	case s.To == "":
		bad.add("to", "missing; want the backend on which runs are repeated")
	case !slices.Contains(names, s.To):
		bad = append(bad, driver.At("to", driver.Unknown("backend", s.To, names)))
	case !slices.ContainsFunc(route.Split, func(r router.Share) bool { return r.Backend != s.To }):
		bad.add("to", "the route %q has no other backend, so there is nothing to compare with", route.Name)
	}
	if !wrong("share") && !(s.Share > 0 && s.Share <= 1) {
		bad.add("share", "want more than 0%% and at most 100%% of the conversations")
	}
	if !wrong("when") && len(s.When) == 0 {
		bad.add("when", "missing; want the attributes by which subjects allow that their code is repeated, such as {shadow: allowed}")
	}
	switch {
	case wrong("most"):
	case s.Most.Most == 0:
		bad.add("most", "missing; want the most runs that are repeated, such as 10/min")
	case s.Most.Per == perMinute && s.Most.Most > maxRate:
		bad.add("most", "at most %d/min", maxRate)
	}
	switch {
	case wrong("budget"):
	case s.Budget.Most == 0:
		bad.add("budget", "missing; want what repeated runs may cost, such as 5/day")
	case s.Budget.Per == perMinute:
		bad.add("budget", "want an hour, a day or a month")
	}
	if s.Time.Per == perMinute {
		bad.add("time", "want an hour, a day or a month")
	}
	bad.negative("at_once", int64(s.AtOnce))
	if s.Control != 0 && !(s.Control >= .05 && s.Control <= .5) {
		bad.add("control", "want 5%% to 50%%")
	}
	k := s.Keep
	if k.Examples < 0 || k.Examples > maxExamples {
		bad.add("keep.examples", "want 1 to %d", maxExamples)
	}
	if k.For < 0 || time.Duration(k.For) > maxKeep {
		bad.add("keep.for", "want at most %v", maxKeep)
	}
	if !k.Code && !k.Output && (k.Examples != 0 || k.For != 0) {
		bad.add("keep", "keeps nothing; want code or output")
	}
	return errors.Join(bad...)
}

// perMinute is the period that a Quota does not have.
const perMinute = "min"

// limits returns what the ledger holds s to.
func (s Shadow) limits() ledger.Limits {
	l := ledger.Limits{Sessions: cmp.Or(s.AtOnce, defaultAtOnce), Shared: true}
	quota := func(per string, most ledger.Amount) {
		if most != (ledger.Amount{}) {
			l.Quotas = append(l.Quotas, ledger.Quota{Per: ledger.Period(per), Most: most})
		}
	}
	if s.Most.Per == perMinute {
		l.RunsPerMinute = int(s.Most.Most)
	} else {
		quota(s.Most.Per, ledger.Amount{Runs: s.Most.Most})
	}
	quota(s.Budget.Per, ledger.Amount{Cost: s.Budget.Most})
	quota(s.Time.Per, ledger.Amount{Time: time.Duration(s.Time.Most)})
	return l
}

// id names s with everything in it, so that what is counted of one plan is not added to another.
func (s Shadow) id() string { return hashOf(s) }

// leftBy says why a conversation leaves the sample after an error of the ledger.
func leftBy(err error) string {
	var r *ledger.Refused
	switch {
	case !errors.As(err, &r):
		return leftStore
	case r.Rule == executor.RuleSessions:
		return "at_once"
	case r.Rule == executor.RuleQuotaCost:
		return "budget"
	case r.Rule == executor.RuleQuotaTime:
		return "time"
	}
	return "most"
}

// excluded returns why a conversation cannot be repeated, or "". Its original may have had an
// effect outside of its sandbox, or its interpreter holds what another would not have.
func excluded(r *rules, spec executor.Spec, pools []Pool, caps executor.Capabilities) string {
	switch {
	case spec.Network.Mode != "" && spec.Network.Mode != executor.NetworkNone:
		return "network"
	case len(spec.Env) > 0:
		return "env"
	case spec.Ports:
		return "ports"
	case len(spec.Packages) > 0 && !r.lists(named(spec)...):
		return "packages"
	}
	for _, p := range pools {
		if _, differ := (Settings{Pools: []Pool{p}}).Misfit(caps, spec); len(p.Prelude) > 0 && len(differ) == 0 {
			return "prelude"
		}
	}
	return ""
}

// lists reports whether there is a list of packages that has all of them.
func (r *rules) lists(ps ...executor.Packages) bool {
	return r.allowed != nil && r.packages(ps...) == nil
}

// repeated returns the Spec of the sandbox in which a conversation is repeated. It names what is
// taken over, so that nothing else is: no environment, no labels, no network, and nobody's name.
func repeated(spec executor.Spec, original executor.SessionInfo) executor.Spec {
	s := executor.Spec{
		Template: spec.Template, Languages: spec.Languages, Packages: spec.Packages, Aliases: spec.Aliases,
		Limits: spec.Limits, Run: spec.Run, MaxRun: spec.MaxRun, MaxLife: spec.MaxLife,
		MinIsolation: spec.MinIsolation, Require: spec.Require,
		Network: executor.NetworkPolicy{Mode: executor.NetworkNone},
	}
	if have := original.Capabilities.Languages; len(s.Languages) == 0 && len(have) > 0 {
		s.Languages = []executor.Language{have[0].Language} // the first of another backend may be another
	}
	return s
}
