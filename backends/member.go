package backends

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
)

// member is a backend of the configuration with what the broker adds: pools that use a limiter that
// uses the adapter's Executor. It survives a reload if its type and settings stay the same.
type member struct {
	*limiter
	name     string
	typ      string
	settings []byte
	env      driver.Env

	mu    sync.Mutex
	pools []memberPool
}

type memberPool struct {
	cfg Pool
	*pool.Pool
}

var _ executor.Executor = (*member)(nil)

// openMember opens the adapter. The member has no pools yet.
func openMember(ctx context.Context, env driver.Env, name string, reg *Registry, b Backend) (*member, error) {
	f, err := reg.factory(b.Type)
	if err != nil {
		return nil, err
	}
	raw, err := b.settings()
	if err != nil {
		return nil, err
	}
	env.Name = name
	x, err := f.Open(ctx, env, raw)
	if err != nil {
		return nil, err
	}
	return &member{limiter: newLimiter(x, env.Logger()), name: name, typ: b.Type, settings: raw, env: env}, nil
}

// same reports whether b has the type and settings that m was opened with.
func (m *member) same(b Backend) bool {
	raw, err := b.settings()
	return err == nil && m.typ == b.Type && bytes.Equal(raw, m.settings)
}

// check reports what the backend lacks for its pools.
func (m *member) check(s Settings) error {
	var errs []error
	caps := m.Info().Capabilities
	for i, p := range s.Pools {
		missing := caps.MissingFor(p.spec(caps))
		if p.Suspended && !m.Info().Suspends {
			missing = append(missing, "suspend")
		}
		if len(missing) > 0 {
			errs = append(errs, driver.At(index("broker.pools", i), &executor.Error{Kind: executor.ErrUnsupported, Missing: missing}))
		}
	}
	return errors.Join(errs...)
}

// apply sets the broker's settings of the backend. Unchanged pools keep their sessions. apply
// returns the pools that s no longer has; the caller closes them.
func (m *member) apply(s Settings) (removed []*pool.Pool, err error) {
	m.queue.set(s.Queue)
	m.setBreaker(s.Breaker)
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.pools
	var next []memberPool
	for i, cfg := range s.Pools {
		at := slices.IndexFunc(left, func(p memberPool) bool { return reflect.DeepEqual(p.cfg, cfg) })
		if at >= 0 {
			next = append(next, left[at])
			left = append(left[:at:at], left[at+1:]...)
			continue
		}
		p, perr := pool.New(m.limiter, cfg.options(m.env, m.Info().Capabilities))
		if perr != nil {
			err = errors.Join(err, driver.At(index("broker.pools", i), reason(perr)))
			continue
		}
		next = append(next, memberPool{cfg, p})
	}
	for _, p := range left {
		removed = append(removed, p.Pool)
	}
	m.pools = next
	return removed, err
}

// share sizes the pools with a total for one of n processes, which has the number i from 0.
func (m *member) share(i, n int) {
	for _, p := range m.warm() {
		if total := p.cfg.SizeTotal; total > 0 {
			size := total / n
			if i < total%n {
				size++
			}
			p.Resize(size)
		}
	}
}

// warm returns the pools.
func (m *member) warm() []memberPool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools
}

// Create implements executor.Executor.
func (m *member) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return m.create(ctx, spec, new(time.Duration))
}

// create hands out a warm session or creates a sandbox, and adds the time that it waited for a slot
// to waited. While the breaker is open it fails at once, even if there are warm sessions: they are
// at a provider that does not answer.
func (m *member) create(ctx context.Context, spec executor.Spec, waited *time.Duration) (executor.Session, error) {
	if err := m.breaker.Load().check(); err != nil {
		return nil, m.refuse("create", err)
	}
	cold := func(ctx context.Context, spec executor.Spec) (executor.Session, error) {
		return m.limiter.create(ctx, spec, waited)
	}
	pools := m.warm()
	i, _ := nearest(pools, func(p memberPool) []string { _, fields := p.Fits(spec); return fields })
	if i < 0 {
		return cold(ctx, spec)
	}
	return pools[i].CreateOr(ctx, spec, cold) // also if the Spec does not fit: the pool counts the bypass
}

// drain destroys the warm sessions.
func (m *member) drain() error {
	removed, _ := m.apply(Settings{})
	return closePools(removed)
}

// Close destroys the warm sessions and closes the adapter's Executor.
func (m *member) Close() error {
	err := m.drain()
	return errors.Join(err, m.limiter.Close())
}

func closePools(ps []*pool.Pool) error { return errors.Join(closeAll(ps)...) }

// closeAll closes all at once. It returns the error of each.
func closeAll[C io.Closer](all []C) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { errs[i] = c.Close() })
	}
	wg.Wait()
	return errs
}
