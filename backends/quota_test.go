package backends_test

import (
	"context"
	"errors"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestQuotas: what two processes that share a store grant together, and how they refuse.
func TestQuotas(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := backends.WithStore(sessions.NewMemoryStore())
		var mu sync.Mutex
		var warned []backends.QuotaWarning
		warnings := backends.WithQuotaWarnings(func(q backends.QuotaWarning) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, q)
		})
		const file = `
backends: {a: {type: fake, on: a}}
guard:
  quotas:
    - {per: day, runs: 3, when: {tenant: x}}
    - {per: day, runs: 2, soft: true}
    - {per: hour, time: 1h, when: {plan: free}}
    - {by: tenant, per: month, runs: 5}`
		one, two := w.openAs("one", file, store, warnings), w.openAs("two", file, store)
		defer w.close(one)
		defer w.close(two)
		var notices []string
		run := func(b *backends.Broker, spec executor.Spec, code string) error {
			w.Helper()
			s := w.create(b, spec)
			defer s.Close()
			res, err := s.Run(w.Context(), executor.Request{Code: code}, nil)
			synctest.Wait() // the other process sees what has ended
			if res != nil {
				notices = append(notices, res.Notices...)
			}
			return err
		}
		refused := func(err error, rule executor.Rule, want executor.Denial, text string) {
			w.Helper()
			e := w.fails(err, executor.ErrDenied)
			if d := e.Denied; d.Rule != rule || d.Limit != want.Limit || d.Have != want.Have || d.Quota != want.Quota || !d.Renews.Equal(want.Renews) {
				w.Errorf("got %+v, want %+v", d, want)
			}
			if !strings.Contains(e.Error(), text) || e.RetryAfter != time.Until(want.Renews) {
				w.Errorf("got %v after %v", e, e.RetryAfter)
			}
		}
		alice := executor.Spec{Subject: "alice", Attributes: map[string]string{"tenant": "x"}}
		for _, b := range []*backends.Broker{one, two, one} {
			if err := run(b, alice, "1"); err != nil {
				w.Fatal(err)
			}
		}
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		refused(run(two, alice, "1"), executor.RuleQuotaRuns, executor.Denial{Limit: 3, Have: 3, Quota: "subject", Renews: midnight}, "quotas: subject has used or reserved 3 runs of 3 runs in this day")
		mu.Lock()
		if len(warned) != 1 || warned[0].Account != "subject=alice" || warned[0].Denial.Limit != 2 || strings.Contains(warned[0].Text, "alice") {
			w.Errorf("got %+v", warned)
		}
		mu.Unlock()
		if len(notices) != 1 || !strings.HasPrefix(notices[0], "subject has used or reserved 2 runs of 2 runs in this day") {
			w.Errorf("got %q", notices)
		}
		// A tenant is counted over its users.
		bob := executor.Spec{Subject: "bob", Attributes: map[string]string{"tenant": "x"}}
		for range 2 {
			if err := run(one, bob, "1"); err != nil {
				w.Fatal(err)
			}
		}
		month := time.Date(midnight.Year(), midnight.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		refused(run(two, bob, "1"), executor.RuleQuotaRuns, executor.Denial{Limit: 5, Have: 5, Quota: "tenant=x", Renews: month}, "quotas: tenant=x has used or reserved 5 runs")
		// What a run of another account was refused for does not count for the account
		// itself.
		if err := run(two, executor.Spec{Subject: "bob"}, "1"); err != nil {
			w.Error(err)
		}
		// Time is reserved by the wall time, and given back.
		free := executor.Spec{Subject: "carol", Attributes: map[string]string{"plan": "free"}, Run: executor.RunLimits{WallTime: 39 * time.Minute}, MaxRun: executor.RunLimits{WallTime: executor.NoLimit}}
		if err := run(one, free, "sleep(1200000)"); err != nil {
			w.Error(err)
		}
		if err := run(two, free, "1"); err != nil {
			w.Error(err)
		}
		if err := run(two, free, "sleep(60000)"); err != nil {
			w.Error(err)
		}
		hour := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
		refused(run(one, free, "1"), executor.RuleQuotaTime, executor.Denial{Limit: 3_600_000, Have: 1_260_000, Quota: "subject", Renews: hour}, "has used or reserved 21m0s of run time of 1h0m0s of run time")
		s := w.create(one, free)
		defer s.Close()
		_, err := s.Run(w.Context(), executor.Request{Code: "1", Limits: executor.RunLimits{WallTime: executor.NoLimit}}, nil)
		if e := w.fails(err, executor.ErrDenied); !strings.Contains(e.Error(), "without a wall time") {
			w.Errorf("got %v", e)
		}
	})
}

const priced = `
backends:
  a: {type: fake, on: a, broker: {prices: {creation: 0.5, second: 0.01, cpu_second: 0.02, gib_second: 0.04, run: 0.1, gib: 1024, cpus: 0.5, memory_bytes: 268435456}}}
`

// TestCosts: what results, sessions, audits and statistics say.
func TestCosts(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		var log []backends.Audit
		b := w.open(priced, backends.WithAudit(func(a backends.Audit) { log = append(log, a) }))
		defer w.close(b)
		s := w.create(b, executor.Spec{Subject: "u"})
		says := func(want string) {
			w.Helper()
			before := s.Info().Cost
			time.Sleep(time.Nanosecond)
			if got := s.Info().Cost; got != before {
				w.Errorf("the cost has changed from %s to %s without Refresh", before, got)
			}
			i, err := s.Refresh(w.Context())
			if got := s.Info().Cost.String(); err != nil || got != want || i.Cost.String() != want {
				w.Errorf("the session has cost %s, want %s: %v", got, want, err)
			}
			if got := b.Stats().Arms[0].Cost.String(); got != want {
				w.Errorf("the arm has cost %s, want %s", got, want)
			}
		}
		says("0.5")
		time.Sleep(10 * time.Second) // for 0.01 + 0.5 * 0.02 + 0.25 * 0.04 = 0.03 a second
		says("0.8")
		r, err := s.Run(w.Context(), executor.Request{Code: "sleep(2000)"}, nil)
		if err != nil || r.Usage.Cost.String() != "0.16001" { // 1,024 for 2^30 bytes, of which the code has 11
			w.Errorf("got %+v and %v", r, err)
		}
		says("0.96001")
		if err := s.Files().Write(w.Context(), "x", strings.NewReader(strings.Repeat("x", 1024)), 0o600); err != nil {
			w.Error(err)
		}
		says("0.960987")
		time.Sleep(100 * time.Second)
		says("3.960987")
		s.Close()
		time.Sleep(time.Hour)
		if got := b.Stats().Arms[0].Cost.String(); got != "3.960987" {
			w.Errorf("got %s", got)
		}
		var costs []string
		for _, a := range log {
			costs = append(costs, a.Op+" "+a.Cost.String())
		}
		if got := strings.Join(costs, ", "); got != "create 0, run 0.16001, upload 0.000977, end 3.960987" {
			w.Errorf("got %s", got)
		}
		rows, err := b.Usage(w.Context(), time.Now().Add(-24*time.Hour), time.Now())
		if err != nil || len(rows) != 1 || rows[0].Account != "subject=u" || rows[0].Route != "default" || rows[0].Backend != "a" || rows[0].Runs != 1 || rows[0].Cost.String() != "3.960987" || time.Duration(rows[0].Time) != 2*time.Second {
			w.Errorf("got %+v and %v", rows, err)
		}
	})
}

// TestCostLimit: a subject that has reached its limit gets no run and no session, and its idle
// sessions are ended before they exceed it.
func TestCostLimit(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		b := w.open(strings.Replace(priced, "gib: 1024", "gib: 1", 1) + "guard: {quotas: [{per: month, cost: 20}]}")
		defer w.close(b)
		s := w.create(b, executor.Spec{Subject: "u", MaxRun: executor.RunLimits{WallTime: time.Hour}})
		if _, err := s.Run(w.Context(), executor.Request{Code: "sleep(1000)", Limits: executor.RunLimits{WallTime: 2 * time.Minute}}, nil); err != nil {
			w.Error(err)
		}
		_, err := s.Run(w.Context(), executor.Request{Code: "1", Limits: executor.RunLimits{WallTime: 20 * time.Minute}}, nil)
		if e := w.fails(err, executor.ErrDenied); e.Denied.Rule != executor.RuleQuotaCost || e.Denied.Limit != 20_000_000 || e.Denied.Have < 630_000 {
			w.Errorf("got %+v", e.Denied)
		}
		time.Sleep(15 * time.Minute) // 20 are spent after eleven minutes
		if n := len(w.at["a"].Sandboxes()); n != 0 {
			w.Errorf("%d sandboxes", n)
		}
		spent := b.Stats().Arms[0].Cost
		if spent > 20_000_000 || spent < 17_000_000 {
			w.Errorf("spent %s", spent)
		}
		if _, err := s.Run(w.Context(), executor.Request{Code: "1"}, nil); !errors.Is(err, executor.ErrClosed) && !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v", err)
		}
		s.Close()
		_, err = b.Create(w.Context(), executor.Spec{Subject: "u"})
		if e := w.fails(err, executor.ErrDenied); e.Denied.Rule != executor.RuleQuotaCost || e.RetryAfter <= 0 {
			w.Errorf("got %+v", e)
		}
		w.create(b, executor.Spec{Subject: "other"}).Close()
	})
}

// TestCostsAgree: the costs of an hour of traffic over three processes, which do not die, are
// those of an independent calculation, to the cent.
func TestCostsAgree(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := backends.WithStore(sessions.NewMemoryStore())
		const file = `
backends:
  a: {type: fake, on: a, broker: {prices: {creation: 0.000123, cpu_second: 0.000014, gib_second: 0.0000045, cpus: 2, memory_bytes: 536870912}}}
  b: {type: fake, on: b, broker: {prices: {second: 0.00000077, run: 0.0000031}}}
routes: [{name: r, split: [{backend: a, weight: 1}, {backend: b, weight: 1}]}]
guard: {quotas: [{per: month, cost: 1000000}]}`
		var mu sync.Mutex
		want := map[string]*big.Rat{}
		add := func(subject string, price string, times *big.Rat) {
			p, _ := new(big.Rat).SetString(price)
			mu.Lock()
			defer mu.Unlock()
			if want[subject] == nil {
				want[subject] = new(big.Rat)
			}
			want[subject].Add(want[subject], p.Mul(p, times))
		}
		seconds := func(d time.Duration) *big.Rat { return big.NewRat(int64(d), int64(time.Second)) }
		time.Sleep(23*time.Hour + 30*time.Minute) // usage is kept by the day: the replicas work over midnight
		begin := time.Now()
		all := make([]*backends.Broker, 3)
		var wg sync.WaitGroup
		for i := range all {
			all[i] = w.openAs(string(rune('a'+i)), file, store)
			for u := range 5 {
				subject := string(rune('u' + u))
				wg.Go(func() {
					for time.Since(begin) < time.Hour {
						time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Minute))))
						s := w.create(all[i], executor.Spec{Subject: subject})
						born := time.Now()
						runs := rand.IntN(5)
						for range runs {
							time.Sleep(time.Duration(rand.Int64N(int64(5 * time.Minute))))
							if _, err := s.Run(w.Context(), executor.Request{Code: "sleep(777)"}, nil); err != nil {
								w.Error(err)
							}
						}
						time.Sleep(time.Duration(rand.Int64N(int64(time.Minute))))
						s.Close()
						lived := seconds(time.Since(born))
						if s.Info().Handle.Backend == "a" {
							add(subject, "0.000123", big.NewRat(1, 1))
							add(subject, "0.000028", lived)
							add(subject, "0.00000225", lived)
						} else {
							add(subject, "0.00000077", lived)
							add(subject, "0.0000031", big.NewRat(int64(runs), 1))
						}
					}
				})
			}
		}
		wg.Wait()
		synctest.Wait()
		rows, err := all[0].Usage(context.Background(), begin, time.Now())
		if err != nil {
			w.Fatal(err)
		}
		got := map[string]executor.Money{}
		for _, r := range rows {
			got[strings.TrimPrefix(r.Account, "subject=")] += r.Cost
		}
		for subject, sum := range want {
			exact, _ := sum.Float64()
			if diff := float64(got[subject])/1e6 - exact; diff > 0.005 || diff < -0.005 {
				w.Errorf("%s: got %s, want %.6f", subject, got[subject], exact)
			}
		}
		if len(got) != 5 {
			w.Errorf("got %v", got)
		}
		for _, b := range all {
			w.close(b)
		}
	})
}

// TestPoolsOfAll: processes that share a store share the size of a pool, and take over the part of
// one that dies.
func TestPoolsOfAll(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := backends.WithStore(sessions.NewMemoryStore())
		const file = "backends: {a: {type: fake, on: a, broker: {pools: [{size_total: 8}]}}}"
		warm := func(b *backends.Broker) int { return b.Stats().Backends[0].Pools[0].Warm }
		one := w.openAs("one", file, store)
		time.Sleep(time.Minute)
		if got := warm(one); got != 8 {
			w.Errorf("alone: got %d", got)
		}
		two, three := w.openAs("two", file, store), w.openAs("three", file, store)
		time.Sleep(time.Minute)
		if got := [3]int{warm(one), warm(three), warm(two)}; got != [3]int{3, 3, 2} {
			w.Errorf("three: got %v", got)
		}
		if got := len(w.at["a"].Sandboxes()); got != 8 {
			w.Errorf("got %d sandboxes", got)
		}
		w.close(three)
		time.Sleep(time.Minute)
		if got := [2]int{warm(one), warm(two)}; got != [2]int{4, 4} {
			w.Errorf("two: got %v", got)
		}
		w.reload(one, "backends: {a: {type: fake, on: a, broker: {pools: [{size_total: 2}]}}}")
		time.Sleep(time.Minute)
		if got := warm(one); got != 1 {
			w.Errorf("reloaded: got %d", got)
		}
		w.close(one)
		w.close(two)
	})
}

// downStore is a store that does not answer while down is set.
type downStore struct {
	sessions.Store
	down atomic.Bool
}

func (s *downStore) Get(ctx context.Context, key string) (sessions.Entry, error) {
	if s.down.Load() {
		return sessions.Entry{}, errors.New("no route to the store")
	}
	return s.Store.Get(ctx, key)
}

func (s *downStore) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if s.down.Load() {
		return "", errors.New("no route to the store")
	}
	return s.Store.Put(ctx, key, e)
}

// TestOnStoreFailure: while the store does not answer, what is limited is refused, or a part of
// each limit is granted; what exists goes on, and what is not limited needs no store.
func TestOnStoreFailure(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := &downStore{Store: sessions.NewMemoryStore()}
		const backend = "backends: {a: {type: fake, on: a}}\n"
		strict := w.openAs("strict", backend+"guard: {runs_per_minute: 10}", backends.WithStore(store))
		defer w.close(strict)
		local := w.openAs("local", backend+"guard: {runs_per_minute: 10, on_store_failure: local, local_share: 0.3}", backends.WithStore(store))
		defer w.close(local)
		free := w.openAs("free", backend, backends.WithStore(store))
		defer w.close(free)
		var all [3]executor.Session
		for i, b := range []*backends.Broker{strict, local, free} {
			all[i] = w.create(b, executor.Spec{Subject: "u"})
			defer all[i].Close()
		}
		run := func(s executor.Session) error {
			_, err := s.Run(w.Context(), executor.Request{Code: "1"}, nil)
			return err
		}
		store.down.Store(true)
		if e := w.fails(run(all[0]), executor.ErrUnavailable); !strings.Contains(e.Error(), "guard: the store of the limits: no route to the store") {
			w.Errorf("got %v", e)
		}
		for range 3 {
			if err := run(all[1]); err != nil {
				w.Error(err)
			}
		}
		w.fails(run(all[1]), executor.ErrDenied)
		for range 20 {
			if err := run(all[2]); err != nil {
				w.Error(err)
			}
		}
		store.down.Store(false)
		time.Sleep(time.Minute + 10*time.Second)
		for _, s := range all {
			if err := run(s); err != nil {
				w.Error(err)
			}
		}
	})
}
