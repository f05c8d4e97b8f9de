package backends

import (
	"time"

	"github.com/execbroker/execbroker/executor/rollout"
)

// cohort is the sessions of an arm that users asked for within a short time. They are judged
// together when each has been observed for the horizon. Until then nothing is known of them: those
// that fail at once would count before those that do not fail. The lock of the arm guards it.
type cohort struct {
	until         time.Time // of the last session of the cohort
	horizon       time.Duration
	sessions, bad int64
	settled       bool
}

// cohorts is how many there are in a horizon, which bounds the memory for any number of sessions.
const cohorts = 20

// horizon returns how long the sessions of a route are observed.
func (c Config) horizon(route string) time.Duration {
	if r, ok := c.Rollouts[route]; ok {
		return r.plan().Horizon
	}
	return rollout.DefaultHorizon
}

// asked counts a session that a user asked for.
func (a *arm) asked(at time.Time, horizon time.Duration, bad bool) *cohort {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(at)
	a.s.Sessions++
	var c *cohort
	if n := len(a.cohorts); n > 0 {
		c = a.cohorts[n-1]
	}
	if c == nil || c.horizon != horizon || at.After(c.until) {
		c = &cohort{until: at.Add(horizon / cohorts), horizon: horizon}
		a.cohorts = append(a.cohorts, c)
	}
	c.sessions++
	if bad {
		c.bad++
	}
	return c
}

// spoiled counts a session of a cohort as bad, if the cohort is not judged yet. Nil is not counted.
func (a *arm) spoiled(c *cohort) {
	if c == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(time.Now())
	if !c.settled {
		c.bad++
	}
}

// settle judges the cohorts whose time has come, and returns the number of sessions in the others.
// The caller has locked a.
func (a *arm) settle(now time.Time) (pending int64) {
	rest := a.cohorts[:0]
	for _, c := range a.cohorts {
		if now.Before(c.until.Add(c.horizon)) {
			rest = append(rest, c)
			pending += c.sessions
			continue
		}
		c.settled = true
		a.s.Settled += c.sessions
		a.s.Bad += c.bad
	}
	clear(a.cohorts[len(rest):])
	a.cohorts = rest
	return pending
}

// timed counts the time of a run that has ended. spent is the time before it that belongs to its
// turn.
func (a *arm) timed(first bool, spent, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first {
		a.cold.add(spent + took)
	} else {
		a.warm.add(took)
	}
}
