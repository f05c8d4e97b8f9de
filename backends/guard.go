package backends

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Guard refuses operations with ErrDenied before anything starts, on every backend and every route.
// A zero field is no limit. Sessions whose Spec has no Subject count as one subject. All processes
// that share the store of the Sessions count together; otherwise each counts for itself.
type Guard struct {
	CodeBytes          int `json:"code_bytes,omitempty"`           // bytes of Request.Code, or of all words of Request.Command
	RunsPerMinute      int `json:"runs_per_minute,omitempty"`      // runs of one subject in any 60 seconds; at most 10000. An Install counts as a run
	RunsAtOnce         int `json:"runs_at_once,omitempty"`         // runs of one subject at the same time
	SessionsPerSubject int `json:"sessions_per_subject,omitempty"` // sessions that processes hold. One that moves to another process counts twice until the first notices
	// Packages are the names of packages that may be installed, by language, in any version. A
	// language that is not listed may install none. Without Packages everything may be
	// installed that the backend allows.
	Packages map[executor.Language][]string `json:"packages,omitempty"`
	// Quotas limit what is used in an hour, a day or a month.
	Quotas []Quota `json:"quotas,omitempty"`
	// OnStoreFailure says what happens while a shared store does not answer: Refuse, the
	// default, or Local. With Local each process grants LocalShare of each limit by itself. So
	// all together may exceed a limit by their number times this share.
	OnStoreFailure StoreFailure `json:"on_store_failure,omitempty"`
	LocalShare     float64      `json:"local_share,omitempty"` // more than 0, at most 1; default 0.1
}

// StoreFailure says what a Guard does while its store does not answer.
type StoreFailure string

// What a Guard can do.
const (
	Refuse StoreFailure = "refuse" // whatever needs the store, with ErrUnavailable
	Local  StoreFailure = "local"  // grant a share of each limit
)

const defaultShare = 0.1

// A Quota limits what sessions use in a period, which begins anew at the full hour, at midnight or
// on the first of the month, in UTC. At least one of Runs, Time and Cost is required. What a run
// may come to at most, with the time to stop it, is reserved before it begins, and what bytes cost
// before they pass. What is not used is given back. The time of a run is from its start to its end.
type Quota struct {
	// By says who has the quota: each subject ("subject", the default), or all sessions
	// together that have the same value of an attribute, by its name. A session without the
	// attribute does not count.
	By string `json:"by,omitempty"`
	// When are the attributes that sessions must have, with their values. Empty: all sessions.
	When map[string]string `json:"when,omitempty"`
	Per  string            `json:"per"` // "hour", "day" or "month"

	Runs int64           `json:"runs,omitempty"`
	Time driver.Duration `json:"time,omitempty"` // of runs
	Cost executor.Money  `json:"cost,omitempty"` // by the Prices of the backends
	// Soft only warns: see WithQuotaWarnings.
	Soft bool `json:"soft,omitempty"`
}

const bySubject = "subject"

func (q Quota) check() error {
	var bad problems
	if !slices.Contains(ledger.Periods[:], ledger.Period(q.Per)) {
		bad.add("per", "%q is not hour, day or month", q.Per)
	}
	bad.negative("runs", q.Runs)
	bad.negative("time", int64(q.Time))
	if q.Runs == 0 && q.Time == 0 && q.Cost == 0 {
		bad.add("", "limits nothing; want runs, time or cost")
	}
	return errors.Join(bad...)
}

// maxRate bounds the memory for each subject.
const maxRate = 10_000

func (g Guard) check() error {
	var bad problems
	bad.negative("code_bytes", int64(g.CodeBytes))
	bad.negative("runs_per_minute", int64(g.RunsPerMinute))
	bad.negative("runs_at_once", int64(g.RunsAtOnce))
	bad.negative("sessions_per_subject", int64(g.SessionsPerSubject))
	for i, q := range g.Quotas {
		bad = append(bad, driver.At(index("quotas", i), q.check()))
	}
	switch {
	case !slices.Contains([]StoreFailure{"", Refuse, Local}, g.OnStoreFailure):
		bad.add("on_store_failure", "%q is not refuse or local", g.OnStoreFailure)
	case g.LocalShare != 0 && g.OnStoreFailure != Local:
		bad.add("local_share", "needs on_store_failure: local")
	case !(g.LocalShare >= 0 && g.LocalShare <= 1):
		bad.add("local_share", "want more than 0 and at most 1")
	}
	if g.RunsPerMinute > maxRate {
		bad.add("runs_per_minute", "at most %d", maxRate)
	}
	for l, names := range g.Packages {
		for i, name := range names {
			_, err := packageName(l, name)
			bad = append(bad, driver.At(index("packages."+string(l), i), err))
		}
	}
	return errors.Join(bad...)
}

// packageName returns the normalized name of the package in a requirement.
func packageName(l executor.Language, text string) (string, error) {
	if l == executor.JavaScript {
		name := text
		if at := strings.LastIndexByte(text, '@'); at > 0 { // "@scope/name@1.2"
			name = text[:at]
		}
		if name == "" || strings.ContainsAny(name, " :\\") || strings.Count(name, "/") > strings.Count(name, "@") || strings.HasPrefix(name, ".") {
			return "", fmt.Errorf("%.60q is not the name of a package of npm", text)
		}
		return strings.ToLower(name), nil
	}
	r, err := requirement.Parse(text)
	return r.Name, err
}

// limitsTime reports whether a quota counts the time of runs.
func (g Guard) limitsTime() bool {
	return slices.ContainsFunc(g.Quotas, func(q Quota) bool { return q.Time > 0 })
}

// needsWallTime reports whether a quota bounds what a run without a wall time could exceed.
func (g Guard) needsWallTime() bool {
	return slices.ContainsFunc(g.Quotas, func(q Quota) bool { return !q.Soft && (q.Time > 0 || q.Cost > 0) })
}
