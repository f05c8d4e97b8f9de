package backends

import (
	"context"
	"errors"
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

// meter computes what a session costs this process.
type meter struct {
	prices driver.Prices
	limits executor.Limits
	born   time.Time // when this process began to hold the session
	free   bool      // it costs nothing

	mu    sync.Mutex
	life  executor.Money // of the time that has been billed
	other executor.Money // of runs and files
	runs  int            // in progress
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
	due := max(m.at(time.Now())-m.life, 0)
	m.life += due
	return due
}

// cost returns what the session has cost so far.
func (m *meter) cost() executor.Money {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.at(time.Now()), m.life) + m.other
}

// unbilled returns what the life of the session has cost since it was billed last.
func (m *meter) unbilled() executor.Money {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.at(time.Now())-m.life, 0)
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

// most returns what a run of at most wall may come to.
func (m *meter) most(wall time.Duration) ledger.Amount {
	now := time.Now()
	return ledger.Amount{Runs: 1, Time: wall, Cost: m.prices.Runs(1) + m.between(now, now.Add(wall))}
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

// created charges the creation of the session, and keeps the next minute reserved.
func (s *session) created() {
	s.charge(s.held, false, ledger.Amount{Cost: s.meter.due()}, 0)
	s.cost.Store(int64(s.meter.cost()))
	next := s.meter.between(s.meter.born, s.meter.born.Add(ahead))
	for _, t := range s.held {
		t.Keep(ledger.Amount{Cost: next})
	}
}

// attached counts a session that exists already.
func (s *session) attached() {
	s.accounts = s.accountsNow(s.b.guard.rules())
	next := s.meter.between(s.meter.born, s.meter.born.Add(ahead))
	for _, a := range s.accounts {
		s.held = append(s.held, s.b.guard.ledger.Add(a.name, ledger.Use{Session: true, Amount: ledger.Amount{Cost: next}}))
	}
}

// bill charges what the session has cost while it idled, and reserves the next minute. A session
// that may cost no more is closed.
func (s *session) bill(ctx context.Context) {
	if s.meter.running() {
		return // what a run costs is reserved with it
	}
	due := ledger.Amount{Cost: s.meter.due()}
	if due.Cost == 0 {
		return
	}
	s.charge(s.held, false, due, 0)
	refused := s.b.guard.more(ctx, limitsOf(s.accounts, s.accountsNow(s.b.guard.rules())), s.held, due)
	if refused == nil || !errors.Is(refused, executor.ErrDenied) {
		return // a session goes on while the store does not answer
	}
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
			ctx, cancel := context.WithTimeout(b.ctx, billing/2)
			s.bill(ctx)
			cancel()
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

// dearest returns what the creation and the first minute of a sandbox of spec costs at most, on any
// of the backends.
func (b *Broker) dearest(t *table, spec executor.Spec) (most executor.Money) {
	for name := range t.members {
		most = max(most, b.prices(t, name).Life(spec.Limits, ahead))
	}
	return most
}
