package backends

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
	"github.com/execbroker/execbroker/executor/rollout"
)

// Stats are the statistics of a Broker since Open, across reloads. String formats them as tables.
type Stats struct {
	Backends []BackendStats `json:"backends"` // sorted by name
	Arms     []ArmStats     `json:"arms"`     // one for each combination of route, assigned backend and actual backend
}

// BackendStats are the statistics of one backend.
type BackendStats struct {
	Name     string       `json:"name"`
	Sessions int          `json:"sessions"`          // sessions now, including warm ones
	Waiting  int          `json:"waiting"`           // Creates in the queue now
	Breaker  string       `json:"breaker,omitempty"` // "closed", "open", "trying"
	Removed  bool         `json:"removed,omitempty"` // Reload removed the backend, but it still has sessions
	Pools    []pool.Stats `json:"pools,omitempty"`
}

// ArmStats are the statistics of one arm of a route. To compare backends without bias, add up the
// arms with the same Assigned: the assignment does not depend on the result. The arms with the same
// Backend show how that backend does.
type ArmStats struct {
	Route    string `json:"route"`             // empty: Backend was used directly
	Assigned string `json:"assigned"`          // the backend that the split selected
	Backend  string `json:"backend,omitempty"` // the backend that served; empty: none did

	// Turns counts the turns of users. A turn lasts from the request for a session to its result.
	// It is a Create, Attach or Acquire that failed, or a run or an installation. Answered counts
	// the turns that came to an end, whatever the result was. TurnErrors counts the others, by
	// executor.KindName.
	Turns      int64            `json:"turns"`
	Answered   int64            `json:"answered"`
	TurnErrors map[string]int64 `json:"turn_errors,omitempty"`

	// Outcomes says of each turn who is to blame, if anybody is.
	Outcomes map[rollout.Outcome]int64 `json:"outcomes,omitempty"`

	// Sessions counts the sessions that users wanted of a route, without those that a rule
	// refused or the caller spoiled. When its horizon has passed, a session is Settled: see
	// Rollout.Horizon. Bad counts the settled ones for which the assigned backend did not do
	// all that was asked, and Pending those that are not settled yet.
	Sessions int64 `json:"sessions"`
	Settled  int64 `json:"settled"`
	Bad      int64 `json:"bad"`
	Pending  int64 `json:"pending"`

	Creates      int64                     `json:"creates"`
	CreateErrors map[string]int64          `json:"create_errors,omitempty"` // failed Creates, by executor.KindName
	Runs         map[executor.Status]int64 `json:"runs,omitempty"`          // runs that came to an end
	RunErrors    map[string]int64          `json:"run_errors,omitempty"`    // failed runs, by executor.KindName; those that the guard refused are "denied"
	StateLost    int64                     `json:"state_lost"`              // runs that ended with StateLost

	// Restored counts the conversations that have lost their sandbox and went on in a new one from
	// a checkpoint, by sessions.Loss or "unknown", and Anew those that began anew.
	Restored map[string]int64 `json:"restored,omitempty"`
	Anew     map[string]int64 `json:"anew,omitempty"`

	Turn        Latency         `json:"turn"`           // time of turns, answered or not; the first run of a session includes the time to get the session
	Queue       Latency         `json:"queue"`          // time that Creates waited in the queue
	Create      Latency         `json:"create"`         // time of whole Creates
	Run         Latency         `json:"run"`            // time of runs, from the call to the end
	Cold        Latency         `json:"cold"`           // time of the first turns of new sessions, with the time to get the session
	Warm        Latency         `json:"warm"`           // time of the other runs of users
	SandboxTime driver.Duration `json:"sandbox_time"`   // total time that this process held sessions, including current ones, which providers bill
	Cost        executor.Money  `json:"cost,omitempty"` // by the Prices of the backend, including that of current sessions
}

// Good returns the fraction of the turns that were answered, from 0 to 1. Without turns it is 1.
func (s ArmStats) Good() float64 {
	if s.Turns == 0 {
		return 1
	}
	return float64(s.Answered) / float64(s.Turns)
}

// Latency is a distribution. Its values are at most 3 % too high.
type Latency struct {
	Count int64           `json:"count"`
	P50   driver.Duration `json:"p50"`
	P95   driver.Duration `json:"p95"`
	P99   driver.Duration `json:"p99"`
}

// cost counts what was charged.
func (a *arm) cost(c executor.Money) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Cost += c
}

// lost counts a conversation that has lost its sandbox.
func (a *arm) lost(why string, restored bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if restored {
		a.s.Restored = count(a.s.Restored, why)
	} else {
		a.s.Anew = count(a.s.Anew, why)
	}
}

// armKey names an arm.
type armKey struct{ route, assigned, backend string }

// arm collects the statistics of one arm.
type arm struct {
	name                                  string // in the ledger
	mu                                    sync.Mutex
	s                                     ArmStats
	turns, queue, create, run, cold, warm histogram
	costs                                 moments // of sessions that have ended
	cohorts                               []*cohort
	live                                  map[*session]bool
}

// collector collects the statistics of all arms.
type collector struct {
	mu   sync.Mutex
	arms map[armKey]*arm
}

func (f *collector) arm(k armKey) *arm {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.arms[k]
	if a == nil {
		if f.arms == nil {
			f.arms = map[armKey]*arm{}
		}
		a = &arm{name: k.String(), s: ArmStats{Route: k.route, Assigned: k.assigned, Backend: k.backend}, live: map[*session]bool{}}
		f.arms[k] = a
	}
	return a
}

func (a *arm) created(err error, queued, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Creates++
	a.queue.add(queued)
	if err != nil {
		a.s.CreateErrors = count(a.s.CreateErrors, executor.KindName(err))
		return
	}
	a.create.add(took)
}

func (a *arm) ran(res *executor.Result, err error, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.s.RunErrors = count(a.s.RunErrors, executor.KindName(err))
	}
	if res == nil {
		return
	}
	if res.StateLost {
		a.s.StateLost++
	}
	if err == nil {
		a.s.Runs = count(a.s.Runs, res.Status)
		a.run.add(took)
	}
}

// turn counts a user's turn that has ended.
func (a *arm) turn(res *executor.Result, err error, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Turns++
	a.s.Outcomes = count(a.s.Outcomes, outcome(res, err, a.s.Backend != a.s.Assigned && a.s.Route != ""))
	a.turns.add(took)
	if err != nil {
		a.s.TurnErrors = count(a.s.TurnErrors, executor.KindName(err))
		return
	}
	a.s.Answered++
}

func (a *arm) began(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live[s] = true
}

func (a *arm) ended(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.live, s)
	a.costs.add(float64(s.meter.cost()) / 1e6)
	a.s.SandboxTime += driver.Duration(time.Since(s.born))
}

func count[K comparable](m map[K]int64, k K) map[K]int64 {
	if m == nil {
		m = map[K]int64{}
	}
	m[k]++
	return m
}

// live returns the sessions that this process holds.
func (f *collector) live() (all []*session) {
	f.mu.Lock()
	arms := slices.Collect(maps.Values(f.arms))
	f.mu.Unlock()
	for _, a := range arms {
		a.mu.Lock()
		all = slices.AppendSeq(all, maps.Keys(a.live))
		a.mu.Unlock()
	}
	return all
}

// stats returns copies of the statistics, sorted.
func (f *collector) stats() []ArmStats {
	f.mu.Lock()
	arms := slices.Collect(maps.Values(f.arms))
	f.mu.Unlock()
	out := make([]ArmStats, len(arms))
	for i, a := range arms {
		out[i] = a.snapshot()
	}
	slices.SortFunc(out, func(a, b ArmStats) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Assigned, b.Assigned), cmp.Compare(a.Backend, b.Backend))
	})
	return out
}

func (a *arm) snapshot() ArmStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.counts()
	s.Cold, s.Warm = a.cold.latency(), a.warm.latency()
	s.Turn, s.Queue, s.Create, s.Run = a.turns.latency(), a.queue.latency(), a.create.latency(), a.run.latency()
	return s
}

// counts returns the statistics without the latencies. The caller has locked a.
func (a *arm) counts() ArmStats {
	pending := a.settle(time.Now())
	s := a.s
	s.Pending, s.Outcomes = pending, maps.Clone(s.Outcomes)
	s.TurnErrors, s.CreateErrors, s.Runs, s.RunErrors = maps.Clone(s.TurnErrors), maps.Clone(s.CreateErrors), maps.Clone(s.Runs), maps.Clone(s.RunErrors)
	s.Restored, s.Anew = maps.Clone(s.Restored), maps.Clone(s.Anew)
	for l := range a.live {
		s.SandboxTime += driver.Duration(time.Since(l.born))
		s.Cost += l.meter.unbilled()
	}
	return s
}
