package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// shop has processes that share a store, each with a Ledger.
type shop struct {
	*testing.T
	store *store
	mu    sync.Mutex
	alive map[string]string // Instance -> Life
	lives int
	all   []*ledger.Ledger
}

// store is in memory, and counts and fails on demand.
type store struct {
	sessions.Store
	gets, puts atomic.Int64
	down       atomic.Bool
	lost       atomic.Int32 // of 100 writes, how many are made and answered with an error
	held       atomic.Int32 // of 100 writes, how many are not made and answered with an error
}

var errStore = errors.New("the store is down")

func (s *store) Get(ctx context.Context, key string) (sessions.Entry, error) {
	s.gets.Add(1)
	if s.down.Load() {
		return sessions.Entry{}, errStore
	}
	return s.Store.Get(ctx, key)
}

func (s *store) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	s.puts.Add(1)
	luck := rand.Int32N(100)
	if s.down.Load() || luck < s.held.Load() {
		return "", errStore
	}
	rev, err := s.Store.Put(ctx, key, e)
	if err == nil && luck < s.held.Load()+s.lost.Load() {
		return "", errStore
	}
	return rev, err
}

func (s *store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return s.Store.Keys(ctx, prefix)
}

func bubble(t *testing.T, f func(s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{T: t, store: &store{Store: sessions.NewMemoryStore()}, alive: map[string]string{}}
		defer func() {
			for _, l := range s.all {
				l.Close(context.Background())
			}
		}()
		f(s)
	})
}

// process returns the Ledger of a process that shares the store. The test closes it.
func (s *shop) process(instance string, alone float64) *ledger.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives++
	life := fmt.Sprint("life ", s.lives)
	s.alive[instance] = life
	l := ledger.New(ledger.Options{Store: s.store, Instance: instance, Life: life, Alone: alone, Tick: 10 * time.Second,
		LifeOf: func(_ context.Context, instance string) (string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.alive[instance], nil
		}})
	s.all = append(s.all, l)
	return l
}

// bury makes an instance count as dead, and returns its life.
func (s *shop) bury(instance string) (life string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	life = s.alive[instance]
	delete(s.alive, instance)
	return life
}

// revive makes an instance say again that it lives.
func (s *shop) revive(instance, life string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[instance] = life
}

// take returns what an account grants.
func (s *shop) take(l *ledger.Ledger, limits ledger.Limits, u ledger.Use) *ledger.Taken {
	s.Helper()
	t, _, err := l.Take(s.Context(), "alice", limits, u)
	if err != nil {
		s.Fatalf("refused: %#v", err)
	}
	return t
}

// refused returns why an account refuses.
func (s *shop) refused(l *ledger.Ledger, limits ledger.Limits, u ledger.Use, want executor.Rule) *ledger.Refused {
	s.Helper()
	_, _, err := l.Take(s.Context(), "alice", limits, u)
	var r *ledger.Refused
	if !errors.As(err, &r) || r.Rule != want {
		s.Fatalf("got %#v, want a refusal by %s", err, want)
	}
	return r
}

var aRun = ledger.Use{Run: true, Amount: ledger.Amount{Runs: 1, Time: 30 * time.Second, Cost: 300}}

func quota(per ledger.Period, most ledger.Amount) ledger.Limits {
	return ledger.Limits{Quotas: []ledger.Quota{{Per: per, Most: most}}}
}

// TestLimits holds for one process without a store and for two that share one.
func TestLimits(t *testing.T) {
	both := func(name string, f func(s *shop, a, b *ledger.Ledger)) {
		t.Run(name+"/memory", func(t *testing.T) {
			bubble(t, func(s *shop) {
				l := ledger.New(ledger.Options{})
				f(s, l, l)
				l.Close(context.Background())
			})
		})
		t.Run(name+"/shared", func(t *testing.T) {
			bubble(t, func(s *shop) { f(s, s.process("a", 0), s.process("b", 0)) })
		})
	}
	both("at once", func(s *shop, a, b *ledger.Ledger) {
		limits := ledger.Limits{RunsAtOnce: 2}
		first, second := s.take(a, limits, ledger.Use{Run: true}), s.take(b, limits, ledger.Use{Run: true})
		if r := s.refused(a, limits, ledger.Use{Run: true}, executor.RuleRunsAtOnce); r.Limit != 2 || r.Have != 2 {
			s.Errorf("got %+v", r)
		}
		second.End("", ledger.Amount{})
		second.End("", ledger.Amount{}) // once
		synctest.Wait()
		third := s.take(a, limits, ledger.Use{Run: true})
		s.refused(b, limits, ledger.Use{Run: true}, executor.RuleRunsAtOnce)
		first.End("", ledger.Amount{})
		third.End("", ledger.Amount{})
	})
	both("sessions", func(s *shop, a, b *ledger.Ledger) {
		limits := ledger.Limits{Sessions: 1}
		one := s.take(a, limits, ledger.Use{Session: true})
		s.refused(b, limits, ledger.Use{Session: true}, executor.RuleSessions)
		s.take(b, limits, ledger.Use{Run: true}).End("", ledger.Amount{}) // that is no session
		one.End("", ledger.Amount{})
		synctest.Wait()
		s.take(b, limits, ledger.Use{Session: true}).End("", ledger.Amount{})
	})
	both("rate", func(s *shop, a, b *ledger.Ledger) {
		limits := ledger.Limits{RunsPerMinute: 3}
		for i := range 3 {
			s.take([]*ledger.Ledger{a, b}[i%2], limits, ledger.Use{Run: true}).End("", ledger.Amount{})
			time.Sleep(time.Second)
		}
		if r := s.refused(b, limits, ledger.Use{Run: true}, executor.RuleRate); r.After != 57*time.Second || r.Have != 3 {
			s.Errorf("got %+v", r)
		}
		time.Sleep(57*time.Second - time.Nanosecond)
		s.refused(b, limits, ledger.Use{Run: true}, executor.RuleRate)
		time.Sleep(time.Nanosecond)
		s.take(b, limits, ledger.Use{Run: true}).End("", ledger.Amount{})
		if r := s.refused(a, limits, ledger.Use{Run: true}, executor.RuleRate); r.After != time.Second {
			s.Errorf("got %+v", r)
		}
	})
	both("high rate", func(s *shop, a, b *ledger.Ledger) { // bounded memory, and never more than the limit
		limits := ledger.Limits{RunsPerMinute: 100}
		var at []time.Time
		refused := 0
		for i := range 1200 {
			taken, _, err := []*ledger.Ledger{a, b}[i%2].Take(s.Context(), "alice", limits, ledger.Use{Run: true})
			if err != nil {
				refused++
			} else {
				taken.End("", ledger.Amount{})
				at = append(at, time.Now())
			}
			time.Sleep(300 * time.Millisecond)
		}
		for i := 100; i < len(at); i++ {
			if at[i].Sub(at[i-100]) < time.Minute {
				s.Fatalf("101 runs within %v", at[i].Sub(at[i-100]))
			}
		}
		if len(at) < 100*5 {
			s.Errorf("granted %d and refused %d in 6 minutes", len(at), refused)
		}
	})
	both("quotas", func(s *shop, a, b *ledger.Ledger) {
		time.Sleep(time.Until(ledger.Hour.End(time.Now()).Add(-10 * time.Minute)))
		limits := quota(ledger.Hour, ledger.Amount{Runs: 3, Time: 70 * time.Second, Cost: 800})
		one := s.take(a, limits, aRun)
		two := s.take(b, limits, aRun)
		if r := s.refused(a, limits, aRun, executor.RuleQuotaTime); r.Limit != 70_000 || r.Have != 60_000 || r.Per != ledger.Hour || r.After != 10*time.Minute {
			s.Errorf("got %+v", r)
		}
		one.End("x", ledger.Amount{Runs: 1, Time: time.Second, Cost: 10}) // what was not used is given back
		synctest.Wait()
		three := s.take(a, limits, aRun)
		s.refused(b, limits, aRun, executor.RuleQuotaRuns)
		two.End("x", ledger.Amount{Runs: 1, Time: 30 * time.Second, Cost: 300})
		three.End("x", ledger.Amount{Runs: 1, Time: 35 * time.Second, Cost: 490}) // more than was reserved counts
		synctest.Wait()
		if r := s.refused(b, limits, ledger.Use{Amount: ledger.Amount{Cost: 1}}, executor.RuleQuotaCost); r.Have != 800 {
			s.Errorf("got %+v", r)
		}
		soft := limits.Quotas[0]
		soft.Soft = true
		taken, warned, err := b.Take(s.Context(), "alice", ledger.Limits{Quotas: []ledger.Quota{soft}}, aRun)
		if err != nil || len(warned) != 3 || !warned[0].Soft {
			s.Errorf("got %v and %v", warned, err)
		}
		taken.End("x", ledger.Amount{})
		time.Sleep(10 * time.Minute)
		s.take(b, limits, aRun).End("x", ledger.Amount{}) // it begins anew
		rows, err := a.Report(s.Context(), time.Now().Add(-time.Hour), time.Now())
		var sum ledger.Amount
		for _, r := range rows {
			if r.Account != "alice" || r.Arm != "x" {
				s.Errorf("got %+v", r)
			}
			sum.Runs, sum.Time, sum.Cost = sum.Runs+r.Runs, sum.Time+r.Time, sum.Cost+r.Cost
		}
		if want := (ledger.Amount{Runs: 3, Time: 66 * time.Second, Cost: 800}); err != nil || sum != want {
			s.Errorf("got %+v and %v", sum, err)
		}
	})
	both("void", func(s *shop, a, b *ledger.Ledger) { // as if it had never been
		limits := ledger.Limits{RunsPerMinute: 2}
		s.take(a, limits, aRun).End("", ledger.Amount{})
		s.take(a, ledger.Limits{}, aRun).Void() // its start was not noted
		s.take(a, limits, aRun).Void()
		synctest.Wait()
		s.take(b, limits, aRun).End("", ledger.Amount{})
		synctest.Wait()
		s.refused(a, limits, aRun, executor.RuleRate)
	})
	both("more of what has ended", func(s *shop, a, b *ledger.Ledger) {
		limits := quota(ledger.Month, ledger.Amount{Cost: 100})
		one := s.take(a, limits, ledger.Use{Session: true, Amount: ledger.Amount{Cost: 60}})
		one.End("", ledger.Amount{})
		if _, err := one.More(s.Context(), limits, ledger.Amount{Cost: 90}); err != nil {
			s.Error(err)
		}
		synctest.Wait()
		s.take(b, limits, ledger.Use{Amount: ledger.Amount{Cost: 100}}).End("", ledger.Amount{})
	})
	both("more", func(s *shop, a, b *ledger.Ledger) { // of a session that costs something while it idles
		limits := quota(ledger.Month, ledger.Amount{Cost: 100})
		one := s.take(a, limits, ledger.Use{Session: true, Amount: ledger.Amount{Cost: 60}})
		one.Spend("x", ledger.Amount{Cost: 50})
		if _, err := one.More(s.Context(), limits, ledger.Amount{Cost: 40}); err != nil {
			s.Fatal(err)
		}
		var r *ledger.Refused
		if _, err := one.More(s.Context(), limits, ledger.Amount{Cost: 1}); !errors.As(err, &r) || r.Have != 100 {
			s.Errorf("got %v", err)
		}
		one.Keep(ledger.Amount{Cost: 10})
		synctest.Wait()
		s.take(b, limits, ledger.Use{Amount: ledger.Amount{Cost: 40}}).End("", ledger.Amount{})
		one.End("x", ledger.Amount{Cost: 5})
		synctest.Wait()
		s.take(b, limits, ledger.Use{Amount: ledger.Amount{Cost: 45}}).End("", ledger.Amount{})
	})
}

// TestOneRoundTrip: what is granted to an account that is known costs one write and no read, and
// calls that arrive meanwhile share the next one.
func TestOneRoundTrip(t *testing.T) {
	bubble(t, func(s *shop) {
		l := s.process("a", 0)
		limits := ledger.Limits{RunsAtOnce: 1000}
		s.take(l, limits, aRun)
		synctest.Wait()
		gets, puts := s.store.gets.Load(), s.store.puts.Load()
		one := s.take(l, limits, aRun)
		if g, p := s.store.gets.Load()-gets, s.store.puts.Load()-puts; g != 0 || p != 1 {
			t.Errorf("%d reads and %d writes before a run", g, p)
		}
		one.End("", ledger.Amount{Runs: 1})
		synctest.Wait()
		if g, p := s.store.gets.Load()-gets, s.store.puts.Load()-puts; g != 0 || p != 2 {
			t.Errorf("%d reads and %d writes for a run", g, p)
		}
	})
}

// TestNeverMore has processes that compete for one account over a store that loses answers. At no
// moment is more granted than the limit, and in the end the store has what was spent, once.
func TestNeverMore(t *testing.T) {
	bubble(t, func(s *shop) {
		s.store.lost.Store(10)
		s.store.held.Store(10)
		const most, price = 6, 7
		limits := ledger.Limits{RunsAtOnce: most, Quotas: []ledger.Quota{{Per: ledger.Month, Most: ledger.Amount{Cost: 9000}}}}
		var running, highest, granted, denied, failed, spent atomic.Int64
		var wg sync.WaitGroup
		all := make([]*ledger.Ledger, 3)
		for i := range all {
			all[i] = s.process(fmt.Sprint("p", i), 0)
			for range 8 {
				wg.Go(func() {
					for range 60 {
						ctx, cancel := context.WithTimeout(s.Context(), time.Duration(1+rand.IntN(20))*time.Second)
						taken, _, err := all[i].Take(ctx, "alice", limits, ledger.Use{Run: true, Amount: ledger.Amount{Runs: 1, Cost: 2 * price}})
						cancel()
						switch r := (*ledger.Refused)(nil); {
						case errors.As(err, &r):
							denied.Add(1)
						case err != nil:
							failed.Add(1)
						default:
							granted.Add(1)
							n := running.Add(1)
							for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
							}
							time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
							running.Add(-1)
							spent.Add(price)
							taken.End("x", ledger.Amount{Runs: 1, Cost: price})
						}
						time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		if highest.Load() != most || spent.Load() > 9000 {
			t.Errorf("%d runs at once, %d spent", highest.Load(), spent.Load())
		}
		t.Logf("granted %d, denied %d, failed %d, spent %d", granted.Load(), denied.Load(), failed.Load(), spent.Load())
		s.store.lost.Store(0)
		s.store.held.Store(0)
		time.Sleep(time.Minute)
		rows, err := all[0].Report(s.Context(), time.Now().AddDate(0, 0, -1), time.Now())
		var sum ledger.Amount
		for _, r := range rows {
			sum.Runs, sum.Cost = sum.Runs+r.Runs, sum.Cost+r.Cost
		}
		if err != nil || sum != (ledger.Amount{Runs: granted.Load(), Cost: executor.Money(spent.Load())}) {
			t.Errorf("the store has %+v of %d runs: %v", sum, granted.Load(), err)
		}
		if granted.Load() < 100 || denied.Load() < 10 || failed.Load() < 10 {
			t.Error("the test has not met what it is about")
		}
		// Nothing is reserved any more.
		left := quota(ledger.Month, ledger.Amount{Cost: executor.Money(spent.Load()) + 5})
		s.take(all[1], left, ledger.Use{Amount: ledger.Amount{Cost: 5}}).End("", ledger.Amount{})
	})
}

// TestDeath: what a dead process had is free again, and what it had reserved counts as spent. If it
// wakes up, nothing counts twice.
func TestDeath(t *testing.T) {
	bubble(t, func(s *shop) {
		a, b := s.process("a", 0), s.process("b", 0)
		limits := ledger.Limits{RunsAtOnce: 1, Quotas: []ledger.Quota{{Per: ledger.Month, Most: ledger.Amount{Cost: 1000}}}}
		s.take(a, limits, aRun).End("x", ledger.Amount{Runs: 1, Time: time.Second, Cost: 10})
		synctest.Wait()
		sleeper := s.take(a, limits, aRun)
		s.refused(b, limits, aRun, executor.RuleRunsAtOnce)
		s.bury("a")
		time.Sleep(25 * time.Second)
		s.take(b, limits, aRun).End("x", ledger.Amount{Runs: 1, Time: time.Second, Cost: 20})
		synctest.Wait()
		spent := func(want executor.Money) {
			t.Helper()
			rows, err := b.Report(s.Context(), time.Now().AddDate(0, 0, -1), time.Now())
			var sum executor.Money
			for _, r := range rows {
				sum += r.Cost
			}
			if err != nil || sum != want {
				t.Errorf("spent %d, want %d: %+v %v", sum, want, rows, err)
			}
		}
		spent(10 + 300 + 20)
		sleeper.End("x", ledger.Amount{Runs: 1, Time: 2 * time.Second, Cost: 200}) // of which 300 are paid
		time.Sleep(20 * time.Second)
		spent(330)
		s.revive("a", "life 1")
		s.take(a, limits, aRun).End("x", ledger.Amount{Runs: 1, Cost: 30})
		time.Sleep(time.Minute)
		spent(360)
		again := s.process("a", 0) // it is replaced by a process of the same name
		s.take(again, limits, aRun).End("x", ledger.Amount{Runs: 1, Cost: 40})
		time.Sleep(time.Minute)
		spent(400)
		if r := s.refused(again, quota(ledger.Month, ledger.Amount{Cost: 401}), aRun, executor.RuleQuotaCost); r.Have != 400 {
			t.Errorf("got %+v", r)
		}
	})
}

// TestAway: while the store fails, a process grants nothing, or a part of the limits.
func TestAway(t *testing.T) {
	bubble(t, func(s *shop) {
		strict, a, b := s.process("strict", 0), s.process("a", 0.25), s.process("b", 0.25)
		limits := ledger.Limits{RunsAtOnce: 8, Quotas: []ledger.Quota{{Per: ledger.Month, Most: ledger.Amount{Cost: 4000}}}}
		s.take(a, limits, aRun).End("x", ledger.Amount{Runs: 1, Cost: 100})
		s.take(b, limits, aRun).End("x", ledger.Amount{Runs: 1, Cost: 100})
		synctest.Wait()
		s.store.down.Store(true)
		if _, _, err := strict.Take(s.Context(), "alice", limits, aRun); !errors.Is(err, errStore) {
			t.Errorf("got %v", err)
		}
		if state := strict.State(); !errors.Is(state.Away, errStore) || state.Alone != 0 {
			t.Errorf("got %+v", state)
		}
		for _, l := range []*ledger.Ledger{a, b} {
			for range 2 { // of 8
				s.take(l, limits, aRun).End("x", ledger.Amount{Runs: 1, Cost: 50})
			}
			s.refused(l, limits, aRun, executor.RuleRunsAtOnce)
			if state := l.State(); state.Alone != 2 {
				t.Errorf("got %+v", state)
			}
		}
		s.store.down.Store(false)
		time.Sleep(30 * time.Second)
		rows, err := strict.Report(s.Context(), time.Now(), time.Now())
		if err != nil || len(rows) != 1 || rows[0].Amount != (ledger.Amount{Runs: 6, Cost: 400}) {
			t.Errorf("got %+v and %v", rows, err)
		}
		s.take(strict, limits, aRun).End("x", ledger.Amount{})
		if state := strict.State(); state.Away != nil {
			t.Errorf("got %+v", state)
		}
	})
}

// TestDays: what is of earlier days is kept apart, and reported once.
func TestDays(t *testing.T) {
	bubble(t, func(s *shop) {
		a := s.process("a", 0)
		begin := time.Now()
		for day := range 5 {
			for i := range 20 { // more arms than are kept
				s.take(a, ledger.Limits{}, aRun).End(fmt.Sprint("arm ", i), ledger.Amount{Runs: 1, Cost: executor.Money(day)})
			}
			time.Sleep(24 * time.Hour)
		}
		b := s.process("b", 0)
		rows, err := b.Report(s.Context(), begin, time.Now())
		if err != nil || len(rows) != 5*17 {
			t.Fatalf("got %d rows: %v", len(rows), err)
		}
		for _, r := range rows {
			day := int64(r.Day.Sub(ledger.Day.Begin(begin)) / (24 * time.Hour))
			if want := int64(1); r.Arm == "" && r.Runs != 4 || r.Arm != "" && r.Runs != want || int64(r.Cost) != r.Runs*day {
				t.Errorf("got %+v", r)
			}
		}
		archived := 0
		for name, err := range s.store.Keys(s.Context(), "usage/") {
			if err != nil {
				t.Fatal(err)
			}
			e, err := s.store.Get(s.Context(), name)
			var record struct{ V int }
			if err := errors.Join(err, json.Unmarshal(e.Value, &record)); err != nil || record.V != sessions.Schema {
				t.Errorf("%s: got version %d, %v", name, record.V, err)
			}
			archived++
		}
		if archived == 0 {
			t.Error("no day was archived")
		}
	})
}

// TestLaterVersion: an account of a later program is refused, and not overwritten.
func TestLaterVersion(t *testing.T) {
	const later = `{"v": 2, "name": "alice"}`
	bubble(t, func(s *shop) {
		s.take(s.process("a", 0), ledger.Limits{}, aRun)
		synctest.Wait()
		for key, err := range s.store.Keys(s.Context(), "account/") {
			if err != nil {
				t.Fatal(err)
			}
			e, _ := s.store.Get(s.Context(), key)
			if _, err := s.store.Put(s.Context(), key, sessions.Entry{Rev: e.Rev, Value: []byte(later)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.process("b", 0).Take(s.Context(), "alice", ledger.Limits{}, aRun); !errors.As(err, new(*sessions.SchemaError)) || !strings.Contains(err.Error(), `"alice"`) {
			t.Errorf("got %v", err)
		}
		for key := range s.store.Keys(s.Context(), "account/") {
			if e, _ := s.store.Get(s.Context(), key); string(e.Value) != later {
				t.Errorf("got %s", e.Value)
			}
		}
	})
}
