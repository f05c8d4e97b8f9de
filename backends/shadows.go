package backends

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// shadowOwner is added to the owner of the sandboxes in which runs are repeated.
const shadowOwner = "-shadow"

// The bounds of what is repeated in a process, beside those of its configuration. What is beyond
// leaves the sample.
const (
	maxFollowed    = 200      // conversations
	maxFollowBytes = 16 << 20 // input and results of a conversation that wait
	maxShadowBytes = 64 << 20 // of all of them
	maxShadowQueue = 100      // operations of a conversation that wait
	shadowIdle     = 10 * time.Minute
	shadowFlush    = 10 * time.Second // bounds the last write of Close
)

// The reasons for which a conversation leaves the sample, beside those of excluded and leftBy.
const (
	leftEnded      = "ended"       // the user's session ended; nothing went wrong
	leftDiffered   = "differed"    // what follows from a difference would count again
	leftStopped    = "stopped"     // a limit stopped the original: how far it came is by chance
	leftStore      = "store"       // the store does not answer
	leftSlow       = "behind"      // the repetition could not keep up
	leftMemory     = "memory"      // too much to hold
	leftConcurrent = "concurrent"  // operations at the same time have no order
	leftCanceled   = "canceled"    // by the user: how far the code came is not known
	leftError      = "error"       // of the infrastructure of the original
	leftInput      = "input"       // typed by a person, or too long
	leftTerminal   = "terminal"    // typed by a person
	leftEnv        = "env"         // a run with an environment
	leftNoWall     = "wall time"   // a run without one: its cost has no bound
	leftPackages   = "packages"    // installed, and not on the list
	leftFiles      = "files"       // a change of files that could not be repeated
	leftDirect     = "direct"      // the program reached the sandbox without this library
	leftIdle       = "idle"        // nothing happened for some time
	leftClosed     = "closed"      // the program ended
	leftReload     = "reload"      // the configuration has changed
	leftDown       = "unavailable" // the repetition has no sandbox any more
)

// shadows follows a sample of conversations.
type shadows struct {
	b      *Broker
	store  sessions.Store // set before the first conversation
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	all      map[string]*shadow // by route
	members  map[string]*member // opened when they are needed
	followed map[*follower]bool // those that have begun

	held atomic.Int64 // bytes that wait
}

// shadow is a Shadow of the configuration at work.
type shadow struct {
	Shadow
	route, id string
	account   account

	mu    sync.Mutex
	count ShadowCounts // not in the store yet
}

// set makes the shadows those of a configuration. A conversation goes on if nothing that concerns
// it has changed.
func (s *shadows) set(cfg Config) {
	s.mu.Lock()
	old := s.all
	s.all = map[string]*shadow{}
	for route, c := range cfg.Shadows {
		id := c.id()
		if sh := old[route]; sh != nil && sh.id == id {
			s.all[route] = sh
			delete(old, route)
			continue
		}
		s.all[route] = &shadow{Shadow: c, route: route, id: id, account: account{name: "shadow/" + route, limits: c.limits()}}
	}
	for _, sh := range old {
		s.keep(sh)
	}
	gone := map[string]*member{}
	for name, m := range s.members {
		if c, ok := cfg.Backends[name]; !ok || !m.same(c) {
			delete(s.members, name)
			gone[name] = m
		}
	}
	var leaving []*follower
	for f := range s.followed {
		if s.all[f.sh.route] != f.sh || gone[f.to] != nil {
			leaving = append(leaving, f)
		}
	}
	for _, m := range gone {
		s.work.Go(func() { s.discard(m) })
	}
	s.mu.Unlock()
	for _, f := range leaving { // with its own lock held, a follower takes that of s
		f.leave(leftReload, true)
	}
}

func (s *shadows) discard(m *member) {
	if err := m.Close(); err != nil {
		s.b.env.Logger().Warn("shadow: close a backend", "backend", m.name, "error", err)
	}
}

// keep stores what was counted of a shadow that the configuration no longer has.
func (s *shadows) keep(sh *shadow) {
	if s.store != nil && !s.closed {
		s.work.Go(func() { s.flush(s.ctx, sh) })
	}
}

// member returns a backend for repetitions. It has no pools and no queue, and its sandboxes have
// their own owner, so it takes nothing from those of users.
func (s *shadows) member(ctx context.Context, name string) (*member, error) {
	cfg := s.b.current().cfg
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, context.Canceled
	}
	if m := s.members[name]; m != nil {
		return m, nil
	}
	c, ok := cfg.Backends[name]
	if !ok {
		return nil, errors.New("the backend has been removed")
	}
	env := s.b.env
	env.Owner, env.OneShot = env.Owner+shadowOwner, true
	if s.b.env.Owner == "" {
		env.Owner = shadowOwner[1:]
	}
	env.Hooks = executor.Hooks{} // what is observed there is not what users experience
	m, err := openMember(ctx, env, name, s.b.reg, c)
	if err != nil {
		return nil, err
	}
	if _, err := m.apply(Settings{Breaker: c.Broker.Breaker}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.members[name] = m
	return m, nil
}

// candidate returns the follower of a session that has just been created, or nil. It follows
// nothing before the first run.
func (s *shadows) candidate(t *table, key armKey, spec executor.Spec, x executor.Session) *follower {
	s.mu.Lock()
	sh := s.all[key.route]
	s.mu.Unlock()
	if sh == nil || key.backend == sh.To || !has(spec.Attributes, sh.When) || rand.Float64() >= float64(sh.Share) {
		return nil
	}
	info, m := x.Info(), t.members[key.backend]
	if m == nil {
		return nil
	}
	if why := excluded(s.b.guard.rules(), spec, t.cfg.Backends[key.backend].Broker.Pools, m.Info().Capabilities); why != "" {
		sh.add(func(c *ShadowCounts) { c.exclude(why) })
		return nil
	}
	f := &follower{
		s: s, sh: sh, to: sh.To, spec: repeated(spec, info), subject: spec.Subject, attributes: spec.Attributes,
		original: info.Handle.Session, wake: make(chan struct{}, 1),
	}
	if rand.Float64() < float64(cmp.Or(sh.Control, defaultControl)) {
		f.control, f.to = true, key.backend
	}
	return f
}

// begin follows a conversation from now on. The caller holds f.mu.
func (s *shadows) begin(f *follower) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return leftClosed
	case s.all[f.sh.route] != f.sh:
		return leftReload
	case len(s.followed) >= maxFollowed:
		return leftMemory
	}
	s.followed[f] = true
	s.work.Go(func() {
		f.follow(s.ctx)
		s.mu.Lock()
		delete(s.followed, f)
		s.mu.Unlock()
	})
	return ""
}

// hold adds bytes to those that wait, unless they are too many.
func (s *shadows) hold(n int64) bool {
	if s.held.Add(n) > maxShadowBytes && n > 0 {
		s.held.Add(-n)
		return false
	}
	return true
}

// run writes what was counted to the store until the Broker is closed.
func (s *shadows) run(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		s.flushAll(s.ctx)
	}
}

func (s *shadows) flushAll(ctx context.Context) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, sh := range all {
		s.flush(ctx, sh)
	}
}

// flush adds what was counted to the store.
func (s *shadows) flush(ctx context.Context, sh *shadow) {
	sh.mu.Lock()
	counted := sh.count
	sh.count = ShadowCounts{}
	sh.mu.Unlock()
	if counted.empty() {
		return
	}
	_, err := update(ctx, s.store, shadowPrefix+sh.route+"/"+sh.id, func(c *ShadowCounts, _ bool) bool {
		c.merge(counted)
		return true
	})
	if err != nil {
		sh.add(func(c *ShadowCounts) { c.merge(counted) })
		if ctx.Err() == nil {
			s.b.env.Logger().Warn("shadow: the session store does not answer", "route", sh.route, "error", err)
		}
	}
}

// add changes what was counted.
func (sh *shadow) add(change func(c *ShadowCounts)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change(&sh.count)
}

// close ends all repetitions and closes their backends, which removes their sandboxes. It waits no
// longer than for the backends of users.
func (s *shadows) close() error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.members))
	followed := slices.Collect(maps.Keys(s.followed))
	s.mu.Unlock()
	for _, f := range followed {
		f.leave(leftClosed, true)
	}
	s.cancel()
	errs := closeAll(all)
	s.work.Wait()
	if s.store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shadowFlush)
		defer cancel()
		s.flushAll(ctx)
	}
	return errors.Join(errs...)
}
