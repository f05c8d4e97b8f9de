package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

var errStore = errors.New("the store does not answer")

// flaky is a Store whose writes fail, or succeed although the reply says that they failed.
type flaky struct {
	sessions.Store
	mu   sync.Mutex
	down bool
	dice *rand.Rand // nil: no failures
}

func (f *flaky) fail(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func (f *flaky) chance(dice *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dice = dice
}

// failure decides about a write: it is not done, or it is done and its reply is lost.
func (f *flaky) failure() (before, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return true, false
	}
	if f.dice == nil {
		return false, false
	}
	switch f.dice.IntN(12) {
	case 0:
		return true, false
	case 1:
		return false, true
	}
	return false, false
}

func (f *flaky) Get(ctx context.Context, key string) (sessions.Entry, error) {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return sessions.Entry{}, errStore
	}
	return f.Store.Get(ctx, key)
}

func (f *flaky) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	before, after := f.failure()
	if before {
		return "", errStore
	}
	rev, err := f.Store.Put(ctx, key, e)
	if after && err == nil {
		return "", errStore
	}
	return rev, err
}

func (f *flaky) Delete(ctx context.Context, key, rev string) error {
	before, after := f.failure()
	if before {
		return errStore
	}
	err := f.Store.Delete(ctx, key, rev)
	if after && err == nil {
		return errStore
	}
	return err
}

// TestModel does random things with two processes that crash, a store that loses replies and a
// backend that fails. It checks what must always be true: one holder at a time uses the session of
// a key; a session that is not Fresh has the state of its last use; tokens grow; and when every
// process has ended and Reap has run, nothing is left.
func TestModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) {
			t.Parallel()
			o := fake.Options{CreateTime: 300 * time.Millisecond}
			if seed%3 == 0 {
				o = noAttach()
			}
			bubble(t, o, func(w *world) { newModel(w, seed).play(250) })
		})
	}
}

type model struct {
	w      *world
	dice   *rand.Rand
	store  *flaky
	ps     [2]*process
	leases map[string]*held // by key
	tokens map[string]int64
	cells  map[string]int // by sandbox: how many cells have run in it
}

// held is a lease in the model.
type held struct {
	l *sessions.Lease
	p int
}

func newModel(w *world, seed uint64) *model {
	dice := rand.New(rand.NewPCG(seed, 1))
	m := &model{
		w: w, dice: dice, store: &flaky{Store: w.store},
		leases: map[string]*held{}, tokens: map[string]int64{}, cells: map[string]int{},
	}
	w.store = m.store
	m.start(0)
	m.start(1)
	m.store.chance(rand.New(rand.NewPCG(seed, 2)))
	return m
}

func (m *model) start(i int) { m.ps[i] = m.w.start([]string{"one", "two"}[i]) }

func (m *model) play(steps int) {
	keys := []string{"a", "b", "c"}
	for range steps {
		time.Sleep(time.Microsecond) // time of the bubble: clocks advance between two steps
		key, i := keys[m.dice.IntN(len(keys))], m.dice.IntN(2)
		switch n := m.dice.IntN(100); {
		case n < 40:
			m.acquire(key, i)
		case n < 65:
			m.use(key)
		case n < 80:
			m.release(key)
		case n < 84:
			m.discard(key)
		case n < 88:
			m.crash(i)
		case n < 92:
			m.fail()
		case n < 95:
			m.breakOne()
		default:
			time.Sleep(time.Duration(m.dice.IntN(40)) * time.Second) // time of the bubble
		}
	}
	m.end()
}

func (m *model) acquire(key string, i int) {
	ctx, cancel := context.WithTimeout(m.w.Context(), 45*time.Second)
	defer cancel()
	l, err := m.ps[i].m.Acquire(ctx, key, executor.Spec{})
	if err != nil {
		m.explain("acquire", err)
		return
	}
	if h := m.leases[key]; h != nil {
		// The other process may have lost its lease meanwhile, but then it must know that.
		if _, err := h.l.Refresh(m.w.Context()); !errors.Is(err, executor.ErrClosed) {
			m.w.Fatalf("key %s: two have the lease, the first finds %v", key, err)
		}
		h.l.Release()
	}
	if l.Token <= m.tokens[key] {
		m.w.Fatalf("key %s: token %d after %d", key, l.Token, m.tokens[key])
	}
	m.tokens[key] = l.Token
	id := l.Info().Handle.Session
	if _, known := m.cells[id]; known == l.Fresh {
		m.w.Fatalf("key %s: sandbox %s known %v, fresh %v", key, id, known, l.Fresh)
	}
	if l.Fresh {
		m.cells[id] = 0
	}
	m.leases[key] = &held{l, i}
}

func (m *model) use(key string) {
	h := m.leases[key]
	if h == nil {
		return
	}
	id := h.l.Info().Handle.Session
	r, err := h.l.Run(m.w.Context(), executor.Request{Language: executor.Python, Code: `print("x")`}, nil)
	if err != nil {
		m.explain("run", err)
		return
	}
	if m.cells[id]++; r.Cell != m.cells[id] {
		m.w.Fatalf("key %s: cell %d in a sandbox that should be at %d", key, r.Cell, m.cells[id])
	}
}

func (m *model) release(key string) {
	if h := m.leases[key]; h != nil {
		h.l.Release() // an error means that the key is blocked for a while
		delete(m.leases, key)
	}
}

func (m *model) discard(key string) {
	if h := m.leases[key]; h != nil {
		h.l.Discard()
		delete(m.leases, key)
		return
	}
	if err := m.ps[m.dice.IntN(2)].m.Discard(m.w.Context(), key); err != nil {
		m.explain("discard", err)
	}
}

func (m *model) crash(i int) {
	m.ps[i].kill()
	for key, h := range m.leases {
		if h.p == i {
			delete(m.leases, key)
		}
	}
	m.start(i)
}

func (m *model) fail() {
	op := []fake.Op{fake.OpCreate, fake.OpAttach, fake.OpLookup, fake.OpRefresh}[m.dice.IntN(4)]
	m.w.b.Fail(op, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("down")))
}

func (m *model) breakOne() {
	if ids := m.w.b.Sandboxes(); len(ids) > 0 {
		m.w.b.Break(ids[m.dice.IntN(len(ids))])
	}
}

// explain fails the test unless the failures of the model explain err.
func (m *model) explain(op string, err error) {
	var elsewhere *sessions.ElsewhereError
	for _, ok := range []error{
		executor.ErrUnavailable, executor.ErrNotFound, executor.ErrClosed, context.DeadlineExceeded, errStore,
	} {
		if errors.Is(err, ok) {
			return
		}
	}
	if !errors.As(err, &elsewhere) {
		m.w.Fatalf("%s: %v", op, err)
	}
}

// end stops everything regularly and reaps what crashes have left.
func (m *model) end() {
	m.store.chance(nil)
	for _, op := range []fake.Op{fake.OpCreate, fake.OpAttach, fake.OpLookup, fake.OpRefresh} {
		m.w.b.Fail(op, 0, nil)
	}
	for key := range m.leases {
		m.release(key)
	}
	for _, p := range m.ps {
		p.stop()
	}
	p := m.w.start("reaper")
	if !p.x.Info().Capabilities.Has(executor.FeatureList) {
		return // the idle TTL removes the rest: see bubble
	}
	time.Sleep(time.Minute)
	for i, err := range p.m.Reap(m.w.Context(), 30*time.Second, false) {
		if err != nil {
			m.w.Errorf("%+v: %v", i, err)
		}
	}
	named := 0
	for _, err := range p.m.Records(m.w.Context(), "") {
		if err != nil {
			m.w.Error(err)
		}
		named++
	}
	if left := m.w.b.Sandboxes(); len(left) > named {
		m.w.Errorf("%d sandboxes left, %d records", len(left), named)
	}
}
