package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// A session that costs something while it idles has the next minute reserved, and is billed more
// often than that.
const (
	ahead   = time.Minute
	billing = ahead / 3
)

// useful is how many bytes a session has to be able to pass. One that costs only what it passes is
// closed when its quota has no room for them.
const useful = 1 << 10

// meter computes what a session costs this process.
type meter struct {
	prices driver.Prices
	limits executor.Limits
	grace  time.Duration // of runs, after their wall time
	born   time.Time     // when this process began to hold the session
	free   bool          // it costs nothing

	mu    sync.Mutex
	life  executor.Money // of the time that has been billed
	other executor.Money // of runs and traffic
	ahead executor.Money // reserved for the time that comes
	bytes int64          // that have passed
	runs  int            // in progress
	ended time.Time      // when the sandbox has ended, or may have; zero: it lives

	before bool          // the processor time until the first Refresh is not of this holder
	timed  time.Duration // what of the processor time needs no charge: see leftover
}

// at returns what the life of the session costs until a moment.
func (m *meter) at(t time.Time) executor.Money {
	if m.free {
		return 0
	}
	return m.prices.Life(m.limits, t.Sub(m.born))
}

// between returns what the life of the session costs from one moment to another.
func (m *meter) between(from, to time.Time) executor.Money { return m.at(to) - m.at(from) }

// due returns what the life of the session has cost since it was billed last.
func (m *meter) due() executor.Money {
	if m.free {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	due := max(m.now()-m.life, 0)
	m.life += due
	return due
}

// now returns what the life of the sandbox costs until now, or until it has ended. The caller holds
// mu.
func (m *meter) now() executor.Money {
	t := time.Now()
	if !m.ended.IsZero() {
		t = m.ended
	}
	return m.at(t)
}

// lives notes whether the sandbox lives. If it does after all, the time since it was said to have
// ended costs something, too.
func (m *meter) lives(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case yes:
		m.ended = time.Time{}
	case m.ended.IsZero():
		m.ended = time.Now()
	}
}

// cost returns what the session has cost so far.
func (m *meter) cost() executor.Money {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.now(), m.life) + m.other
}

// unbilled returns what the life of the session has cost since it was billed last.
func (m *meter) unbilled() executor.Money {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.now()-m.life, 0)
}

// ran notes the time that a run was charged.
func (m *meter) ran(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timed += d
}

// used reports whether something may have been left running.
func (m *meter) used() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.timed > 0
}

// leftover returns which time is to be charged when the sandbox has used so much processor time:
// what exceeds the time that its runs, and leftover itself, were charged. That is of what code has
// left running.
func (m *meter) leftover(cpu time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.before && cpu > 0 {
		m.before, m.timed = false, max(m.timed, cpu)
	}
	if m.runs > 0 {
		return 0 // it is not known what of it is theirs
	}
	more := max(cpu-m.timed, 0)
	m.timed += more
	return more
}

// run begins or ends a run.
func (m *meter) run(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs += n
}

func (m *meter) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs > 0
}

// most returns what a run that takes up to d, and passes up to n bytes, may come to.
func (m *meter) most(d time.Duration, n int64) ledger.Amount {
	now := time.Now()
	return ledger.Amount{Runs: 1, Time: d, Cost: m.prices.Runs(1) + m.between(now, now.Add(d)) + m.passing(n)}
}

// stopped returns how long a run of at most wall may take until it is stopped.
func (m *meter) stopped(wall time.Duration) time.Duration {
	if wall < 0 {
		return wall
	}
	return min(wall, math.MaxInt64-m.grace) + m.grace
}

// mostBytes returns how many bytes a run may pass, but for its input, which is reserved as it
// comes.
func (m *meter) mostBytes(req executor.Request, code int, limits executor.RunLimits) int64 {
	if m.prices.GiB == 0 {
		return 0
	}
	n := int64(code) + limits.OutputBytes
	if a := req.Artifacts; a != nil && a.Contents {
		n += cmp.Or(a.MaxBytes, executor.DefaultArtifactBytes)
	}
	return n
}

// counted returns emit, or what does nothing in its place, with the bytes of the events added to n.
func (m *meter) counted(emit func(executor.Event) error, n *int64) func(executor.Event) error {
	if m.prices.GiB == 0 {
		return emit
	}
	return func(ev executor.Event) error {
		*n += int64(len(ev.Data))
		if ev.Output != nil {
			for _, data := range ev.Output.Data {
				*n += int64(len(data))
			}
		}
		if emit == nil {
			return nil
		}
		return emit(ev)
	}
}

// advise adds to a refusal what the run may come to, and which wall time would fit.
func (m *meter) advise(refused *executor.Error, op string, most time.Duration, bytes int64) {
	x, rule, sum := (*exceededError)(nil), refused.Denied.Rule, most.Milliseconds()
	if !errors.As(refused.Err, &x) || rule == executor.RuleQuotaRuns {
		return
	}
	if rule == executor.RuleQuotaCost {
		sum = int64(m.most(most, bytes).Cost)
	}
	if op == "install" { // nobody chooses how long it may take
		refused.Err = fmt.Errorf("%w; the installation may come to %s", refused.Err, amount(rule, sum))
		return
	}
	wall := most - m.grace
	n := sort.Search(int(min(wall/time.Millisecond, math.MaxInt)), func(n int) bool {
		a := m.most(m.stopped(time.Duration(n)*time.Millisecond), bytes)
		return a.Time > x.left.Time || a.Cost > x.left.Cost
	})
	fits := "no wall time fits"
	if n > 1 {
		fits = fmt.Sprintf("a wall time of up to %v fits", time.Duration(n-1)*time.Millisecond)
	}
	refused.Err = fmt.Errorf("%w; the run may come to %s, with its wall time of %v and up to %v to stop it; %s", refused.Err, amount(rule, sum), wall, m.grace, fits)
}

// passing returns what n bytes may cost at most, in any session: costs are rounded.
func (m *meter) passing(n int64) executor.Money {
	if n == 0 || m.prices.GiB == 0 {
		return 0
	}
	return m.prices.Bytes(n) + 1
}

// traffic counts n bytes that have passed, and returns what they cost. It is rounded over the whole
// session, so that many small files cost as much as a big one.
func (m *meter) traffic(n int64) executor.Money {
	if n == 0 || m.prices.GiB == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.prices.Bytes(m.bytes)
	m.bytes += n
	return m.prices.Bytes(m.bytes) - before
}

// minute returns what the next minute costs.
func (m *meter) minute() executor.Money { return m.between(m.born, m.born.Add(ahead)) }

// spent takes what the life of the session has cost off what is reserved for it.
func (m *meter) spent(due executor.Money) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = max(m.ahead-due, 0)
}

// needs returns how much more has to be reserved for the next minute.
func (m *meter) needs() executor.Money {
	minute := m.minute()
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(minute-m.ahead, 0)
}

// reserved notes that so much more is reserved for the time that comes.
func (m *meter) reserved(more executor.Money) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += more
}

// charge counts an amount for the accounts of the session, of which taken has granted it, and for
// its arm.
func (s *session) charge(taken grant, end bool, a ledger.Amount, other executor.Money) {
	if a.Cost != 0 {
		s.arm.cost(a.Cost)
		s.meter.mu.Lock()
		s.meter.other += other
		s.meter.mu.Unlock()
	}
	switch {
	case taken == nil && s.meter.free:
	case taken == nil: // nothing is limited, and costs are reported all the same
		s.b.guard.ledger.Add(bySubject+"="+s.subject, ledger.Use{}).End(s.arm.name, a)
	case end:
		taken.end(s.arm.name, a)
	default:
		taken.spend(s.arm.name, a)
	}
}

// accountsNow returns the accounts of the session by r.
func (s *session) accountsNow(r *rules) []account {
	attributes := s.attributes.Load()
	if k := s.known.Load(); k != nil && k.rules == r && k.attributes == attributes {
		return k.accounts
	}
	k := &knownAccounts{r, attributes, r.accounts(s.subject, *attributes)}
	s.known.Store(k)
	return k.accounts
}

// knownAccounts are the accounts of a session as long as the rules and its attributes stay.
type knownAccounts struct {
	rules      *rules
	attributes *map[string]string
	accounts   []account
}

// created charges what the creation of the session has cost and taken, of which most was reserved,
// and keeps the next minute reserved. It returns why that is refused: the sandbox may be bigger
// than was asked for.
func (s *session) created(ctx context.Context, most ledger.Amount) *executor.Error {
	due := ledger.Amount{Cost: s.meter.due()}
	if most.Time > 0 { // packages were installed
		due.Time = time.Since(s.meter.born)
	}
	s.charge(s.held, false, due, 0)
	s.cost.Store(int64(s.meter.cost()))
	s.meter.reserved(min(max(most.Cost-due.Cost, 0), s.meter.minute()))
	for _, t := range s.held {
		t.Keep(ledger.Amount{Cost: s.meter.ahead})
	}
	return s.ahead(ctx)
}

// attached counts a session that exists already.
func (s *session) attached() {
	s.accounts = s.accountsNow(s.b.guard.rules())
	next := s.meter.minute()
	s.meter.reserved(next)
	for _, a := range s.accounts {
		s.held = append(s.held, s.b.guard.ledger.Add(a.name, ledger.Use{Session: true, Amount: ledger.Amount{Cost: next}}))
	}
}

// ahead reserves what the next minute needs. Of a session whose time costs nothing it asks whether
// it may pass a little more, and reserves nothing.
func (s *session) ahead(ctx context.Context) *executor.Error {
	more, pass := s.meter.needs(), executor.Money(0)
	if s.meter.minute() == 0 {
		pass = s.meter.passing(useful)
	}
	if more+pass == 0 || len(s.held) == 0 {
		return nil
	}
	refused := s.b.guard.more(ctx, limitsOf(s.accounts, s.accountsNow(s.b.guard.rules())), s.held, ledger.Amount{Cost: more + pass})
	if refused != nil {
		return refused
	}
	s.meter.reserved(more)
	if pass > 0 {
		for _, t := range s.held {
			t.Return(ledger.Amount{Cost: pass})
		}
	}
	return nil
}

// bill charges what the session has cost while it idled, and reserves the next minute. A session
// that may cost no more is closed.
func (s *session) bill(ctx context.Context) {
	if s.meter.running() {
		return // what a run costs is reserved with it
	}
	if s.suspect.CompareAndSwap(true, false) {
		if _, err := s.Refresh(ctx); err != nil && !errors.Is(err, executor.ErrNotFound) {
			s.suspect.Store(true) // it is asked again
		}
	}
	due := s.meter.due()
	if due > 0 {
		s.charge(s.held, false, ledger.Amount{Cost: due}, 0)
		s.meter.spent(due)
	}
	if refused := s.ahead(ctx); refused != nil && errors.Is(refused, executor.ErrDenied) { // it goes on while the store does not answer
		s.over(refused)
	}
}

// over closes a session that may cost no more.
func (s *session) over(refused error) {
	h := s.Session.Info().Handle
	s.b.env.Logger().Warn("a session is closed, because it may cost no more", "backend", h.Backend, "session", h.Session, "reason", refused)
	if err := s.Close(); err != nil {
		s.b.env.Logger().Warn("close", "backend", h.Backend, "session", h.Session, "error", err)
	}
}

// limitsOf returns accounts with the limits that hold for them now.
func limitsOf(accounts, now []account) []account {
	out := make([]account, len(accounts))
	for i, a := range accounts {
		out[i].name = a.name
		for _, n := range now {
			if n.name == a.name {
				out[i] = n
			}
		}
	}
	return out
}

// bill bills the sessions of this process until the Broker is closed.
func (b *Broker) bill() {
	t := time.NewTicker(billing)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		for _, s := range b.collector.live() {
			if !s.billing.CompareAndSwap(false, true) {
				continue // it is being closed
			}
			// One that takes long to be closed must not keep others, which go on to cost.
			b.work.Go(func() {
				defer s.billing.Store(false)
				ctx, cancel := context.WithTimeout(b.ctx, billing/2)
				defer cancel()
				s.bill(ctx)
			})
		}
	}
}

// prices returns those of a backend.
func (b *Broker) prices(t *table, name string) driver.Prices {
	c := t.cfg.Backends[name]
	if c.Broker.Prices != nil {
		return *c.Broker.Prices
	}
	f, err := b.reg.factory(c.Type)
	if err != nil {
		return driver.Prices{}
	}
	return f.Prices()
}

// dearest returns what the creation of a sandbox of spec and its first minute come to at most, on
// any of the backends. An installation of its packages counts like those of Install.
func (b *Broker) dearest(t *table, spec executor.Spec) (most ledger.Amount) {
	most.Time = time.Duration(len(spec.Packages)) * installTime
	for name := range t.members {
		most.Cost = max(most.Cost, b.prices(t, name).Life(spec.Limits, ahead+most.Time))
	}
	return most
}
