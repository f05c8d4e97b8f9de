package backends

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/executor/sessions"
)

// experimentPrefix is where the figures of experiments are in the store: with a hash of what makes
// the experiment, and one of the arm and the backend that served.
const experimentPrefix = "experiment/"

const (
	// forgetReplica is when a process that no longer writes is left out of an entry, and
	// maxReplicas how many an entry has at most.
	forgetReplica = 24 * time.Hour
	maxReplicas   = 300
)

// experiments adds what this process counts of the routes with several arms to the store. Each
// process adds its changes, and says by which write, so that a write whose answer was lost is not
// repeated.
type experiments struct {
	b     *Broker
	store sessions.Store
	alone bool // no other process has the store
	life  string

	mu   sync.Mutex // one publish at a time
	sent map[armKey]*sent
}

// sent is what the store has of an arm of this process.
type sent struct {
	figures
	key     string   // of the entry
	pending int64    // as last told
	trying  *figures // what the store has if the write with the name token was made
	token   string
}

// figures are what is reported of an arm.
type figures struct {
	Sessions int64                     `json:"sessions"`
	Settled  int64                     `json:"settled"`
	Bad      int64                     `json:"bad"`
	Turns    int64                     `json:"turns"`
	Outcomes map[rollout.Outcome]int64 `json:"outcomes"`
	Errors   map[string]int64          `json:"errors"`
	Cost     int64                     `json:"cost"`
	Costs    moments                   `json:"costs"`
	Cold     *histogram                `json:"cold"`
	Warm     *histogram                `json:"warm"`
}

// entry is an arm in the store.
type entry struct {
	Route    string    `json:"route"`
	Assigned string    `json:"assigned"`
	Backend  string    `json:"backend"`
	Since    time.Time `json:"since"`
	figures
	Replicas map[string]replicaMark `json:"replicas"` // by its life
}

// replicaMark is what a process has written last.
type replicaMark struct {
	Write   string    `json:"write"`
	Time    time.Time `json:"time"`
	Pending int64     `json:"pending,omitempty"`
}

// plus adds o, n times.
func (f *figures) plus(o *figures, n int64) {
	f.Sessions, f.Settled, f.Bad, f.Turns, f.Cost = f.Sessions+n*o.Sessions, f.Settled+n*o.Settled, f.Bad+n*o.Bad, f.Turns+n*o.Turns, f.Cost+n*o.Cost
	f.Outcomes, f.Errors = sum(f.Outcomes, o.Outcomes, n), sum(f.Errors, o.Errors, n)
	f.Costs.plus(o.Costs, n)
	for _, h := range []struct {
		to   **histogram
		from *histogram
	}{{&f.Cold, o.Cold}, {&f.Warm, o.Warm}} {
		if *h.to == nil {
			*h.to = &histogram{}
		}
		if h.from != nil {
			(*h.to).plus(h.from, n)
		}
	}
}

func sum[K comparable](to, from map[K]int64, n int64) map[K]int64 {
	if to == nil {
		to = map[K]int64{}
	}
	for k, v := range from {
		if to[k] += n * v; to[k] == 0 {
			delete(to, k)
		}
	}
	return to
}

// figures returns copies of the figures of now, and the number of sessions that are not settled.
func (a *arm) figures() (f *figures, pending int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.counts()
	cold, warm := a.cold, a.warm
	return &figures{
		Sessions: s.Sessions, Settled: s.Settled, Bad: s.Bad, Turns: s.Turns, Outcomes: s.Outcomes, Errors: s.TurnErrors,
		Cost: int64(s.Cost), Costs: a.costs, Cold: &cold, Warm: &warm,
	}, s.Pending
}

// experimental returns the routes that compare backends, and the keys of their entries.
func (c Config) experimental() (routes []router.Route, keys map[string]string) {
	keys = map[string]string{}
	for _, r := range c.Routes {
		if len(r.Split) < 2 {
			continue
		}
		parts := []string{r.Name, cmp.Or(r.Salt, r.Name)}
		for _, s := range r.Split {
			parts = append(parts, s.Backend)
		}
		slices.Sort(parts[2:])
		routes, keys[r.Name] = append(routes, r), experimentPrefix+hashOf(parts)+"/"
	}
	return routes, keys
}

// run publishes until ctx ends.
func (x *experiments) run(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := x.publish(ctx); err != nil && ctx.Err() == nil {
			x.b.env.Logger().Warn("experiments: the session store does not answer, so figures are missing there", "error", err)
		}
	}
}

// publish adds what has changed to the store.
func (x *experiments) publish(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, keys := x.b.current().cfg.experimental()
	var errs []error
	for k, a := range x.b.collector.all() {
		if at, ok := keys[k.route]; ok && k.assigned != "" {
			errs = append(errs, x.put(ctx, at+hashOf([]string{k.assigned, k.backend}), k, a))
		}
	}
	return errors.Join(errs...)
}

// all returns the arms.
func (f *collector) all() map[armKey]*arm {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.arms)
}

// put adds what has changed of an arm to its entry.
func (x *experiments) put(ctx context.Context, key string, k armKey, a *arm) error {
	p := x.sent[k]
	if p == nil {
		p = &sent{key: key}
		x.sent[k] = p
	}
	now, pending := a.figures()
	if p.key == key && p.trying == nil && pending == p.pending && now.same(&p.figures) {
		return nil
	}
	token, tried := rand.Text()[:8], false
	_, err := update(ctx, x.store, key, func(e *entry, fresh bool) bool {
		if p.trying != nil && p.key == key && e.Replicas[x.life].Write == p.token {
			p.figures = *p.trying
		}
		p.key, p.trying = key, nil
		if fresh {
			*e = entry{Route: k.route, Assigned: k.assigned, Backend: k.backend, Since: time.Now()}
		}
		e.plus(now.since(&p.figures), 1)
		e.mark(x.life, replicaMark{token, time.Now(), pending})
		tried = true
		return true
	})
	switch {
	case err == nil:
		p.figures, p.pending = *now, pending
	case tried:
		p.trying, p.token = now, token
	}
	return err
}

// since returns what has been added to o.
func (f *figures) since(o *figures) *figures {
	change := &figures{}
	change.plus(f, 1)
	change.plus(o, -1)
	return change
}

// same reports whether nothing has been added to o.
func (f *figures) same(o *figures) bool {
	return f.Sessions == o.Sessions && f.Settled == o.Settled && f.Turns == o.Turns && f.Cost == o.Cost && f.Costs.Count == o.Costs.Count
}

// mark notes the last write of a process, and forgets those that have not written for long.
func (e *entry) mark(life string, m replicaMark) {
	if e.Replicas == nil {
		e.Replicas = map[string]replicaMark{}
	}
	e.Replicas[life] = m
	maps.DeleteFunc(e.Replicas, func(_ string, r replicaMark) bool { return m.Time.Sub(r.Time) > forgetReplica })
	for len(e.Replicas) > maxReplicas {
		oldest := life
		for l, r := range e.Replicas {
			if r.Time.Before(e.Replicas[oldest].Time) {
				oldest = l
			}
		}
		delete(e.Replicas, oldest)
	}
}

// Experiments returns what the arms of each route with a split have done. If the store of the
// sessions is shared, the figures are those of all processes: those of others come within a third
// of the lease TTL. Otherwise they are those of this process.
func (b *Broker) Experiments(ctx context.Context) ([]rollout.Experiment, error) {
	err := b.experiments.publish(ctx)
	var all []rollout.Experiment
	if err == nil {
		all, err = ReadExperiments(ctx, b.experiments.store, b.current().cfg)
	}
	if err != nil {
		return nil, &executor.Error{Op: "experiments", Backend: b.current().info().Name, Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: err}
	}
	for i := range all {
		if b.experiments.alone {
			all[i].Replica = b.env.Instance
		}
	}
	return all, nil
}

// ReadExperiments is Broker.Experiments for a program that has the store but no Broker.
func ReadExperiments(ctx context.Context, store sessions.Store, cfg Config) ([]rollout.Experiment, error) {
	reports, err := ReadRollouts(ctx, store, cfg)
	if err != nil {
		return nil, err
	}
	of := map[string]*rollout.Report{}
	for i := range reports {
		of[reports[i].Route] = &reports[i]
	}
	shown := cfg
	shown.Routes = cfg.shared(func(route string) (int, bool) {
		if r := of[route]; r != nil {
			return r.Share, true
		}
		return 0, false
	})
	routes, keys := shown.experimental()
	all := []rollout.Experiment{}
	for _, r := range routes {
		x := rollout.Experiment{Route: r.Name, Horizon: cfg.horizon(r.Name).Seconds(), Rollout: of[r.Name]}
		entries, err := readEntries(ctx, store, keys[r.Name])
		if err != nil {
			return nil, err
		}
		weights := 0
		for _, s := range r.Split {
			weights += s.Weight
		}
		pendingNew := int64(0)
		for _, s := range r.Split {
			a := armOf(s.Backend, entries, cfg.horizon(r.Name))
			a.Share = float64(s.Weight) / float64(weights)
			x.Arms = append(x.Arms, a)
			if x.Rollout != nil && s.Backend == x.Rollout.To {
				pendingNew = a.Pending
			}
		}
		for _, e := range entries {
			if x.Since.IsZero() || e.Since.Before(x.Since) {
				x.Since = e.Since
			}
		}
		x.Verdict = x.Rollout.Verdict(pendingNew)
		all = append(all, x)
	}
	return all, nil
}

func readEntries(ctx context.Context, store sessions.Store, prefix string) (all []entry, err error) {
	for key, err := range store.Keys(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		e, stored, err := read[entry](ctx, store, key)
		if err != nil {
			return nil, err
		}
		if stored.Rev != "" {
			all = append(all, e)
		}
	}
	return all, nil
}

// armOf adds up the entries of an arm.
func armOf(assigned string, entries []entry, horizon time.Duration) rollout.Arm {
	f := &figures{}
	f.plus(&figures{}, 1)
	a := rollout.Arm{Backend: assigned}
	late := time.Now().Add(-horizon - horizon/cohorts - time.Minute) // what was pending then is not any more
	for _, e := range entries {
		if e.Assigned != assigned {
			continue
		}
		f.plus(&e.figures, 1)
		for _, r := range e.Replicas {
			if r.Time.After(late) {
				a.Pending += r.Pending
			}
		}
	}
	a.Sessions, a.Turns, a.Outcomes, a.Errors, a.Cost = f.Sessions, f.Turns, f.Outcomes, f.Errors, executor.Money(f.Cost)
	a.Unobserved = max(f.Sessions-f.Settled-a.Pending, 0)
	a.Success = rollout.NewRate(f.Settled-f.Bad, f.Settled)
	var counted int64
	for o, n := range f.Outcomes {
		if o.Counts() {
			counted += n
		}
	}
	answered := f.Outcomes[rollout.OK] + f.Outcomes[rollout.Code]
	a.Answered, a.Code = rollout.NewRate(answered, counted), rollout.NewRate(f.Outcomes[rollout.OK], answered)
	a.Cold, a.Warm = f.Cold.times(), f.Warm.times()
	a.SessionCost = rollout.NewMean(f.Costs.Count, f.Costs.Sum, f.Costs.Squares)
	return a
}
