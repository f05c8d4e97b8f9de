package backends

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Where rollouts are in the store.
const (
	rolloutPrefix = "rollout/"         // with the route and the plan: a rollout.State
	subjectSeen   = "rollout-subject/" // with the route, the step and a hash: the subject has been observed
)

const (
	// maxWatched bounds the subjects that are observed at the same time. More are not observed.
	maxWatched = 10_000
	// maxObserved bounds the observations that wait for a store that is away.
	maxObserved = 1000
	// seenFor is how long it is known that a subject has been observed in a step.
	seenFor = 30 * 24 * time.Hour
)

// rollouts observes the subjects of routes with a rollout, and moves their shares. Replicas share
// its states through the store.
type rollouts struct {
	b     *Broker
	store sessions.Store // set before the first tick
	wake  chan struct{}

	mu  sync.Mutex
	all map[string]*tracked // by route
}

// tracked is a rollout as this process knows it.
type tracked struct {
	route, id string
	plan      rollout.Plan
	known     bool // the fields below are from the store
	share     int
	status    rollout.Status
	since     time.Time
	step      int

	watched map[string]*watched // by subject
	ended   []*watched          // whose horizon has passed
}

// watched is a subject that is being observed. It is guarded by rollouts.mu.
type watched struct {
	t       *tracked
	subject string
	step    int
	until   time.Time
	seen    rollout.Observation
	over    bool

	// What was asked for before until and has not ended. It counts however long it takes: else a
	// backend that is slower than the horizon would never be judged.
	creating, running int
}

// set makes the rollouts those of a configuration. What is known of one with the same plan stays.
func (r *rollouts) set(cfg Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.all
	r.all = map[string]*tracked{}
	for route, c := range cfg.Rollouts {
		p := c.plan()
		id := hashOf(p)
		if t := old[route]; t != nil && t.id == id {
			r.all[route] = t
			continue
		}
		r.all[route] = &tracked{route: route, id: id, plan: p, watched: map[string]*watched{}}
	}
}

// share returns what Config.shared needs: the shares that are known of the plans of cfg.
func (r *rollouts) share(cfg Config) func(route string) (percent int, known bool) {
	return func(route string) (int, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		t := r.all[route]
		if t == nil || !t.known || t.id != hashOf(cfg.Rollouts[route].plan()) {
			return 0, false
		}
		return t.share, true
	}
}

// watch returns the observation of the subject of a session that is being created, or nil. It must
// be told how the creation ends.
func (r *rollouts) watch(key armKey, subject string) *watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.all[key.route]
	if t == nil || !t.known || t.status != rollout.Running && t.status != rollout.Paused {
		return nil
	}
	w := t.watched[subject]
	if w == nil {
		if len(t.watched) >= maxWatched {
			return nil
		}
		now := time.Now()
		w = &watched{t: t, subject: subject, step: t.step, until: now.Add(t.plan.Horizon)}
		w.seen.New, w.seen.Arrived = key.assigned == t.plan.To, now
		t.watched[subject] = w
	}
	if !w.open() {
		return nil
	}
	w.creating++
	return w
}

// open reports whether what is asked for now is part of the observation.
func (w *watched) open() bool {
	return !w.over && len(w.seen.Turns) < rollout.MaxRuns && time.Now().Before(w.until)
}

// asked counts a run that begins. It reports whether it is observed.
func (w *watched) asked(r *rollouts) bool {
	if w == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.open() {
		return false
	}
	w.running++
	return true
}

// complete reports whether everything that was asked for in the horizon is known. What has not
// ended a further horizon later is a turn that took that long, and a session that was not made.
func (w *watched) complete(now time.Time) bool {
	switch {
	case len(w.seen.Turns) >= rollout.MaxRuns:
		return true
	case !now.After(w.until):
		return false
	case w.creating+w.running == 0:
		return true
	case !now.After(w.until.Add(w.t.plan.Horizon)):
		return false
	}
	w.seen.Sessions += w.creating
	w.seen.Bad += w.creating
	for range min(w.creating+w.running, rollout.MaxRuns-len(w.seen.Turns)) {
		w.seen.Turns = append(w.seen.Turns, w.t.plan.Horizon.Seconds())
	}
	return true
}

// created counts a session that was asked for, unless the caller or a rule is the reason that there
// is none: bad if its assigned arm has not made it.
func (w *watched) created(r *rollouts, counts, bad, made bool, took time.Duration) {
	if w == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.creating--; !counts || w.over {
		return
	}
	w.seen.Sessions++
	if bad {
		w.seen.Bad++
	}
	if made && !w.open() { // its first turn begins too late to be seen, and takes longer
		w.seen.Turns = append(w.seen.Turns, took.Seconds())
	}
}

// watching is the part of a session that its subject's observation needs.
type watching struct {
	*watched
	bad bool // the session counts as bad already; guarded by rollouts.mu
}

// ran counts a turn of a session, and reports whether the session counts as bad from now on.
// observed is what [watched.asked] has said of the turn.
func (w *watching) ran(r *rollouts, observed bool, res *executor.Result, err error, took time.Duration, cost executor.Money) (first bool) {
	bad, counts := failure(err)
	bad = bad || res != nil && res.Status == executor.StatusLost
	if !observed && !bad {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if observed {
		w.running--
	}
	if !counts {
		return false
	}
	first = bad && !w.bad
	w.bad = w.bad || bad
	if !observed || w.over || len(w.seen.Turns) >= rollout.MaxRuns {
		return first
	}
	o := &w.seen
	o.Turns = append(o.Turns, took.Seconds())
	o.Cost += float64(cost)
	if first {
		o.Bad++
	}
	if res != nil && res.Status == executor.StatusFailed {
		o.Failed++
	}
	return first
}

// run moves the rollouts until ctx ends.
func (r *rollouts) run(ctx context.Context, every time.Duration) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-r.wake: // a reload
		}
		r.tick(ctx, time.Now())
		t.Reset(every)
	}
}

// tick moves each rollout once.
func (r *rollouts) tick(ctx context.Context, now time.Time) {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.all))
	for _, t := range all {
		for subject, w := range t.watched {
			if w.step != t.step || w.complete(now) {
				w.over = true
				delete(t.watched, subject)
				if w.step == t.step && w.seen.Sessions > 0 {
					t.ended = append(t.ended, w)
				}
			}
		}
		t.ended = t.ended[max(0, len(t.ended)-maxObserved):]
	}
	r.mu.Unlock()
	changed := false
	for _, t := range all {
		moved, err := r.move(ctx, t, now)
		changed = changed || moved
		if err != nil && ctx.Err() == nil {
			r.b.env.Logger().Warn("rollout: the session store does not answer, so the shares stay as they are", "route", t.route, "error", err)
		}
	}
	if changed {
		if err := r.b.reshare(); err != nil && ctx.Err() == nil {
			r.b.env.Logger().Error("rollout", "error", err)
		}
	}
}

// move adds what was observed to the state in the store, and takes what it says. It reports whether
// the share has changed.
func (r *rollouts) move(ctx context.Context, t *tracked, now time.Time) (changed bool, err error) {
	observed, err := r.claim(ctx, t)
	if err != nil {
		r.again(t, observed)
		return false, err
	}
	state, decided, err := change(ctx, r.store, t.route, t.id, func(s *rollout.State, fresh bool) bool {
		if fresh {
			*s = t.plan.Begin(now)
		}
		t.plan.Add(s, observed...)
		_, moved := t.plan.Next(s, now)
		return fresh || moved || len(observed) > 0
	})
	if err != nil {
		r.again(t, observed)
		return false, err
	}
	if decided != nil {
		r.b.audit(Audit{Op: "rollout", Time: decided.Time, Origin: executor.Origin{Route: t.route, Assigned: t.plan.To}, Ran: executor.RanNo.String(), Rollout: decided})
		r.b.env.Logger().Info("rollout", "route", t.route, "decision", decided.What, "why", decided.Why, "share", decided.Step)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	share := t.plan.Share(state)
	changed = !t.known || t.share != share
	t.known, t.share, t.status, t.since, t.step = true, share, state.Status, state.Since, state.Step
	return changed, nil
}

// again keeps observations that were claimed for the next tick.
func (r *rollouts) again(t *tracked, observed []rollout.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range observed {
		t.ended = append(t.ended, &watched{t: t, step: t.step, seen: o, over: true})
	}
}

// claim returns the observations that this process is the first to make: each subject is observed
// once in a step, by the replica that is ready first.
func (r *rollouts) claim(ctx context.Context, t *tracked) (observed []rollout.Observation, err error) {
	r.mu.Lock()
	ended := t.ended
	t.ended = nil
	r.mu.Unlock()
	for i, w := range ended {
		if w.subject != "" {
			sum := sha256.Sum256([]byte(w.subject))
			key := fmt.Sprintf("%s%s/%s/%d/%x", subjectSeen, t.route, t.id, w.step, sum[:16])
			_, err := r.store.Put(ctx, key, sessions.Entry{Value: []byte("1"), Expires: time.Now().Add(seenFor)})
			if errors.Is(err, sessions.ErrConflict) {
				continue
			}
			if err != nil {
				r.mu.Lock()
				t.ended = append(t.ended, ended[i:]...)
				r.mu.Unlock()
				return observed, err
			}
		}
		observed = append(observed, w.seen)
	}
	return observed, nil
}

// change changes the state of a rollout in the store. Each plan has its own, so that replicas with
// different configurations do not disturb each other. do gets the state, or fresh if there is none,
// and reports whether it has changed it; it may be called again. decided is the last decision, if
// do has made one.
func change(ctx context.Context, store sessions.Store, route, id string, do func(s *rollout.State, fresh bool) bool) (s rollout.State, decided *rollout.Decision, err error) {
	changed := false
	before := time.Time{}
	s, err = update(ctx, store, rolloutPrefix+route+"/"+id, func(s *rollout.State, fresh bool) bool {
		before = time.Time{}
		if n := len(s.Log); n > 0 {
			before = s.Log[n-1].Time
		}
		changed = do(s, fresh)
		return changed
	})
	if n := len(s.Log); err == nil && changed && n > 0 && s.Log[n-1].Time.After(before) {
		decided = &s.Log[n-1]
	}
	return s, decided, err
}

// reshare makes a table with the shares of now. Nothing is opened or closed.
func (b *Broker) reshare() error {
	select {
	case b.reloading <- struct{}{}:
		defer func() { <-b.reloading }()
	case <-b.ctx.Done(): // Close waits for this goroutine
		return context.Cause(b.ctx)
	}
	old, err := b.use("rollout")
	if err != nil {
		return err
	}
	old.done() // only the holder of b.reloading replaces the table
	next, err := newTable(b.env.Name, old.cfg, b.rollouts.share(old.cfg), old.members, b.env.Hooks)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.table = next
	b.mu.Unlock()
	b.work.Go(func() { b.retire(old, next, nil, nil) })
	return nil
}

// RolloutChange is a decision by hand.
type RolloutChange string

// The changes.
const (
	RolloutPause   RolloutChange = "pause"   // keep the share
	RolloutResume  RolloutChange = "resume"  // after a pause
	RolloutAbort   RolloutChange = "abort"   // all to the old backend
	RolloutPromote RolloutChange = "promote" // all to the new backend
	RolloutRestart RolloutChange = "restart" // begin anew
)

// ReadRollouts returns the rollouts of a configuration, in order of their routes. Those that no
// process has begun are left out.
func ReadRollouts(ctx context.Context, store sessions.Store, cfg Config) (all []rollout.Report, err error) {
	for _, route := range slices.Sorted(maps.Keys(cfg.Rollouts)) {
		p := cfg.Rollouts[route].plan()
		s, e, err := read[rollout.State](ctx, store, rolloutPrefix+route+"/"+hashOf(p))
		if err != nil {
			return nil, err
		}
		if e.Rev == "" {
			continue
		}
		all = append(all, rollout.Report{
			Route: route, To: p.To, Share: p.Share(s), Status: s.Status, Since: s.Since, Arms: s.Arms, Guards: p.Findings(s), Log: s.Log,
		})
	}
	return all, nil
}

// ChangeRollout decides by hand. by is who, for the record. It fails with ErrInvalid if the state
// does not allow the change.
func ChangeRollout(ctx context.Context, store sessions.Store, cfg Config, route string, c RolloutChange, by string) error {
	invalid := func(format string, args ...any) error {
		return &executor.Error{Op: "rollout", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf(format, args...)}
	}
	r, ok := cfg.Rollouts[route]
	if !ok {
		return invalid("the configuration has no rollout of the route %q", route)
	}
	p, now := r.plan(), time.Now()
	do := map[RolloutChange]func(*rollout.State, time.Time, string) (rollout.Decision, bool){
		RolloutPause: p.Pause, RolloutResume: p.Resume, RolloutAbort: p.Abort, RolloutPromote: p.Promote,
		RolloutRestart: func(s *rollout.State, now time.Time, _ string) (rollout.Decision, bool) {
			*s = p.Begin(now)
			return rollout.Decision{}, true
		},
	}[c]
	if do == nil {
		return invalid("unknown change %q", c)
	}
	allowed := true
	s, _, err := change(ctx, store, route, hashOf(p), func(s *rollout.State, fresh bool) bool {
		if fresh {
			*s = p.Begin(now)
		}
		_, allowed = do(s, now, by)
		return allowed
	})
	if err == nil && !allowed {
		err = invalid("%s: the rollout is %s", c, s.Status)
	}
	return err
}

// Rollouts is ReadRollouts with the store and the configuration of b.
func (b *Broker) Rollouts(ctx context.Context) ([]rollout.Report, error) {
	return ReadRollouts(ctx, b.rollouts.store, b.current().cfg)
}

// ChangeRollout is the function ChangeRollout with the store and the configuration of b. This
// process obeys at once, others within some seconds.
func (b *Broker) ChangeRollout(ctx context.Context, route string, c RolloutChange, by string) error {
	if err := ChangeRollout(ctx, b.rollouts.store, b.current().cfg, route, c, by); err != nil {
		return err
	}
	b.rollouts.tick(ctx, time.Now())
	return nil
}
