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
)

// Stats are figures of a Broker since Open, across reloads. String is a table of them.
type Stats struct {
	Backends []BackendStats `json:"backends"` // in order of their names
	Arms     []ArmStats     `json:"arms"`     // one for each route, assigned and actual backend that there was
}

// BackendStats are figures of one backend.
type BackendStats struct {
	Name     string       `json:"name"`
	Sessions int          `json:"sessions"`          // held now, warm ones included
	Waiting  int          `json:"waiting"`           // Creates in the queue
	Breaker  string       `json:"breaker,omitempty"` // "closed", "open", "trying"
	Removed  bool         `json:"removed,omitempty"` // by Reload, with sessions left
	Pools    []pool.Stats `json:"pools,omitempty"`
}

// ArmStats are figures of one arm of a route. Those of the arms of one Assigned, taken together,
// compare backends without bias: who was assigned did not depend on how it went. Those of one
// Backend tell how that backend does.
type ArmStats struct {
	Route    string `json:"route"`             // empty: Backend was asked directly
	Assigned string `json:"assigned"`          // what the split says
	Backend  string `json:"backend,omitempty"` // what served; empty: nothing did

	// Turns are those of users, each from wanting a session to having a result: a Create, Attach or
	// Acquire that came to nothing, and every run and installation. Answered came to an end,
	// whatever that was; TurnErrors did not, by executor.KindName.
	Turns      int64            `json:"turns"`
	Answered   int64            `json:"answered"`
	TurnErrors map[string]int64 `json:"turn_errors,omitempty"`

	Creates      int64                     `json:"creates"`
	CreateErrors map[string]int64          `json:"create_errors,omitempty"` // by executor.KindName
	Runs         map[executor.Status]int64 `json:"runs,omitempty"`          // that came to an end
	RunErrors    map[string]int64          `json:"run_errors,omitempty"`    // by executor.KindName; what the guard refused is "denied"
	StateLost    int64                     `json:"state_lost"`              // runs that ended with StateLost

	Turn        Latency         `json:"turn"`         // of turns, answered or not; the first run of a session with the time to get it
	Queue       Latency         `json:"queue"`        // of Creates, for a place
	Create      Latency         `json:"create"`       // the whole of it
	Run         Latency         `json:"run"`          // from the call to the end
	SandboxTime driver.Duration `json:"sandbox_time"` // that this process held sessions, those included that it holds: what providers bill
}

// Good is the part of the turns that were answered, from 0 to 1; 1 without any.
func (s ArmStats) Good() float64 {
	if s.Turns == 0 {
		return 1
	}
	return float64(s.Answered) / float64(s.Turns)
}

// Latency is a distribution. The figures are at most 3 % too high.
type Latency struct {
	Count int64           `json:"count"`
	P50   driver.Duration `json:"p50"`
	P95   driver.Duration `json:"p95"`
	P99   driver.Duration `json:"p99"`
}

// armKey names an arm.
type armKey struct{ route, assigned, backend string }

// arm collects the figures of one arm.
type arm struct {
	mu                        sync.Mutex
	s                         ArmStats
	turns, queue, create, run histogram
	live                      map[*session]bool
}

// figures are those of all arms.
type figures struct {
	mu   sync.Mutex
	arms map[armKey]*arm
}

func (f *figures) arm(k armKey) *arm {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.arms[k]
	if a == nil {
		if f.arms == nil {
			f.arms = map[armKey]*arm{}
		}
		a = &arm{s: ArmStats{Route: k.route, Assigned: k.assigned, Backend: k.backend}, live: map[*session]bool{}}
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

// turn counts one of a user that has ended.
func (a *arm) turn(err error, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.Turns++
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
	a.s.SandboxTime += driver.Duration(time.Since(s.born))
}

func count[K comparable](m map[K]int64, k K) map[K]int64 {
	if m == nil {
		m = map[K]int64{}
	}
	m[k]++
	return m
}

// stats returns copies, in order.
func (f *figures) stats() []ArmStats {
	f.mu.Lock()
	arms := make([]*arm, 0, len(f.arms))
	for _, a := range f.arms {
		arms = append(arms, a)
	}
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
	s := a.s
	s.TurnErrors, s.CreateErrors, s.Runs, s.RunErrors = maps.Clone(s.TurnErrors), maps.Clone(s.CreateErrors), maps.Clone(s.Runs), maps.Clone(s.RunErrors)
	s.Turn, s.Queue, s.Create, s.Run = a.turns.latency(), a.queue.latency(), a.create.latency(), a.run.latency()
	for l := range a.live {
		s.SandboxTime += driver.Duration(time.Since(l.born))
	}
	return s
}
