package backends_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

const experimentFile = `
backends: {a: {type: fake, on: a}, b: {type: fake, on: b, broker: {prices: {run: 0.5}}}}
routes: [{name: r, split: [{backend: a, weight: 1}, {backend: b, weight: 1}], fallback: [a]}]
guard: {code_bytes: 100, packages: {python: [numpy]}, quotas: [{when: {plan: free}, per: hour, runs: 1}]}
sessions: {lease_ttl: 9s}`

// subjectOf returns a new subject of an arm.
func subjectOf(t *testing.T, b *backends.Broker, arm string, used map[string]bool) string {
	t.Helper()
	for n := range 10_000 {
		s := fmt.Sprint("user-", n)
		if d, err := b.Decide(executor.Spec{Subject: s}); err != nil {
			t.Fatal(err)
		} else if d.Assigned == arm && !used[s] {
			used[s] = true
			return s
		}
	}
	t.Fatal("no subject")
	return ""
}

func experiment(t *testing.T, b *backends.Broker) (x rollout.Experiment, a map[string]rollout.Arm) {
	t.Helper()
	all, err := b.Experiments(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Arms) != 2 {
		t.Fatalf("got %+v, %v", all, err)
	}
	a = map[string]rollout.Arm{}
	for _, arm := range all[0].Arms {
		a[arm.Backend] = arm
	}
	return all[0], a
}

// TestExperimentAttribution: each turn counts for the arm that was assigned, with who is to blame.
func TestExperimentAttribution(t *testing.T) {
	bubble(t, fake.Options{CreateTime: 100 * time.Millisecond}, func(w *world) {
		b := w.openAs("one", experimentFile)
		defer w.close(b)
		used := map[string]bool{}
		create := func(spec executor.Spec) executor.Session {
			if spec.Subject == "" {
				spec.Subject = subjectOf(w.T, b, "b", used)
			}
			s, err := b.Create(w.Context(), spec)
			if err != nil {
				return nil
			}
			return s
		}
		run := func(s executor.Session, code string) {
			if s != nil {
				_, _ = s.Run(w.Context(), executor.Request{Code: code}, nil)
			}
		}
		end := func(s executor.Session) {
			if s != nil {
				if err := s.Close(); err != nil {
					w.Error(err)
				}
			}
		}
		fail := func(op fake.Op, kind error, at ...string) {
			for _, name := range at {
				w.at[name].Fail(op, 1, driver.Fail(kind, executor.RanMaybe, errors.New("planned")))
			}
		}

		s := create(executor.Spec{}) // ok, cold; then ok and code, warm
		run(s, "1")
		run(s, "1")
		run(s, "raise ValueError()")
		run(s, fmt.Sprintf("%200d", 1)) // refused: too much code
		end(s)

		fail(fake.OpCreate, executor.ErrUnavailable, "b") // served by a
		s = create(executor.Spec{})
		run(s, "1")
		run(s, "1")
		end(s)

		fail(fake.OpCreate, executor.ErrExhausted, "a", "b") // by none
		end(create(executor.Spec{}))

		s = create(executor.Spec{})
		fail(fake.OpRun, executor.ErrUnavailable, "b")
		run(s, "1")
		end(s)

		// The cause of a failure is not what it is.
		w.at["b"].Fail(fake.OpCreate, 1, driver.Fail(executor.ErrInternal, executor.RanMaybe, context.Canceled))
		end(create(executor.Spec{}))

		create(executor.Spec{Packages: []executor.Packages{{Names: []string{"evil"}}}}) // refused by a rule
		free := executor.Spec{Attributes: map[string]string{"plan": "free"}}
		s = create(free)
		run(s, "1")
		run(s, "1") // its quota is used up
		end(s)
		canceled, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := b.Create(canceled, executor.Spec{Subject: subjectOf(w.T, b, "b", used)}); err == nil {
			w.Error("want an error")
		}

		// A conversation that gets no sandbox counts for the arm that its Create was assigned to.
		fail(fake.OpCreate, executor.ErrUnavailable, "a", "b")
		if _, err := b.Manager().Acquire(w.Context(), "chat", executor.Spec{Subject: subjectOf(w.T, b, "b", used)}); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v", err)
		}

		// The other arm is judged by its own subjects only.
		s = create(executor.Spec{Subject: subjectOf(w.T, b, "a", used)})
		run(s, "1")
		end(s)

		x, arms := experiment(w.T, b)
		if x.Replica != "one" || x.Verdict.Word != "" || x.Rollout != nil || x.Horizon != 600 {
			w.Errorf("got %+v", x)
		}
		if a := arms["a"]; a.Turns != 1 || a.Outcomes[rollout.OK] != 1 || a.Sessions != 1 || a.Pending != 1 || a.Cost != 0 {
			w.Errorf("a: got %+v", a)
		}
		got := arms["b"]
		want := map[rollout.Outcome]int64{
			rollout.OK: 3, rollout.Code: 1, rollout.Fallback: 2, rollout.Outage: 3, rollout.Capacity: 1, rollout.Refused: 2, rollout.Quota: 1, rollout.Caller: 1,
		}
		if !maps.Equal(got.Outcomes, want) || got.Turns != 14 {
			w.Errorf("got %v of %d turns, want %v", got.Outcomes, got.Turns, want)
		}
		if want := map[string]int64{"unavailable": 2, "exhausted": 1, "internal": 1, "denied": 3, "canceled": 1}; !maps.Equal(got.Errors, want) {
			w.Errorf("got %v, want %v", got.Errors, want)
		}
		if got.Answered.Part != 4 || got.Answered.Of != 10 || got.Code.Part != 3 || got.Code.Of != 4 {
			w.Errorf("got %+v and %+v", got.Answered, got.Code)
		}
		// Good ones are the first and the one with the quota.
		if got.Sessions != 7 || got.Pending != 7 || got.Success.Of != 0 {
			w.Errorf("nothing is at its horizon, and got %+v", got)
		}
		// Three first turns had a result, one of them on a, and three later ones.
		if got.Cold.Count != 3 || math.Abs(got.Cold.P50.Seconds-.1) > .004 || got.Warm.Count != 3 || got.Warm.P95.Seconds > .01 {
			w.Errorf("got %+v and %+v", got.Cold, got.Warm)
		}
		if got.Cost.String() != "2.5" || got.SessionCost.Count != 4 || got.SessionCost.Mean != .625 {
			w.Errorf("cost: got %v, %+v", got.Cost, got.SessionCost)
		}
		time.Sleep(11 * time.Minute)
		_, arms = experiment(w.T, b)
		if got := arms["b"]; got.Pending != 0 || got.Success.Part != 2 || got.Success.Of != 7 || got.Unobserved != 0 {
			w.Errorf("got %+v", got)
		}
	})
}

// flaky is a store that answers some writes of experiments with an error: of four writes it makes
// one and loses the answer, and it does not make another.
type flaky struct {
	sessions.Store
	writes atomic.Int64
	well   atomic.Bool // it does so no longer
}

func (f *flaky) Put(ctx context.Context, key string, e sessions.Entry) (string, error) {
	if f.well.Load() || !strings.HasPrefix(key, "experiment/") {
		return f.Store.Put(ctx, key, e)
	}
	switch f.writes.Add(1) % 4 {
	case 0:
		return "", errors.New("not written")
	case 1:
		if _, err := f.Store.Put(ctx, key, e); err != nil {
			return "", err
		}
		return "", errors.New("the answer is lost")
	}
	return f.Store.Put(ctx, key, e)
}

// TestExperimentOfReplicas: the figures are those of all processes, each once, also of those that
// have ended and when answers of the store are lost.
func TestExperimentOfReplicas(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		store := &flaky{Store: sessions.NewMemoryStore()}
		var replicas []*backends.Broker
		for i := range 3 {
			replicas = append(replicas, w.openAs(fmt.Sprint("replica-", i), experimentFile, backends.WithStore(store)))
		}
		for i := range 90 {
			b := replicas[i%3]
			s := w.create(b, executor.Spec{Subject: fmt.Sprint("user-", i)})
			w.says(s, "print(1)", "1\n")
			if i%3 > 0 {
				if err := s.Close(); err != nil {
					w.Error(err)
				}
			} else {
				defer s.Close()
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		x, arms := experiment(w.T, replicas[0])
		total := func() (sessions, turns, pending, warm int64) {
			for _, a := range arms {
				sessions, turns, pending, warm = sessions+a.Sessions, turns+a.Turns, pending+a.Pending, warm+a.Warm.Count+a.Cold.Count
			}
			return
		}
		if s, turns, pending, timed := total(); s != 90 || turns != 90 || pending != 90 || timed != 90 || x.Replica != "" {
			w.Errorf("got %d sessions, %d turns, %d pending, %d times of %q", s, turns, pending, timed, x.Replica)
		}
		store.well.Store(true)
		w.close(replicas[2]) // its sessions are not observed until their horizon
		time.Sleep(12 * time.Minute)
		_, arms = experiment(w.T, replicas[1])
		settled, unobserved := int64(0), int64(0)
		for _, a := range arms {
			settled, unobserved = settled+a.Success.Of, unobserved+a.Unobserved
		}
		if s, _, pending, _ := total(); s != 90 || settled != 60 || unobserved != 30 || pending != 0 {
			w.Errorf("got %d sessions, %d settled, %d unobserved, %d pending", s, settled, unobserved, pending)
		}
		// Another salt is another experiment.
		cfg := parse(w.T, experimentFile)
		cfg.Routes[0].Salt = "another"
		if err := replicas[1].Reload(w.Context(), cfg); err != nil {
			w.Error(err)
		}
		if _, arms = experiment(w.T, replicas[1]); arms["a"].Sessions+arms["b"].Sessions != 0 {
			w.Errorf("got %+v", arms)
		}
		if _, arms = experiment(w.T, replicas[0]); arms["a"].Sessions+arms["b"].Sessions != 90 {
			w.Errorf("got %+v", arms)
		}
		synctest.Wait()
		w.close(replicas[0])
		w.close(replicas[1])
	})
}

// TestExperimentVerdict: the report says what the rollout says, in the words of the audit.
func TestExperimentVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		down         bool
		advance      rollout.Advance
		word, before string
	}{
		"no-worse":     {false, rollout.NoWorse, "no-worse", "Promoted: no-worse."},
		"no-harm-seen": {false, rollout.NoHarmSeen, "no-harm-seen", "Promoted: no-harm-seen."},
		"worse":        {true, rollout.NoWorse, "worse", "Rolled back: success: the new arm is worse than the guard allows."},
	} {
		t.Run(name, func(t *testing.T) {
			roll(t, 0, rolloutFile, func(r *rolling) {
				cfg := parse(r.T, rolloutFile)
				plan := cfg.Rollouts["r"]
				plan.Advance, plan.Least, plan.Every = c.advance, 10, driver.Duration(time.Minute)
				plan.Guard = backends.RolloutGuard{Success: -.05}
				cfg.Rollouts["r"] = plan
				for _, b := range r.replicas {
					if err := b.Reload(r.Context(), cfg); err != nil {
						r.Fatal(err)
					}
				}
				time.Sleep(4 * time.Second)
				x, _ := experiment(r.T, r.replicas[0])
				if x.Verdict.Word != "" || x.Rollout == nil || x.Arms[1].Backend != "b" || x.Arms[1].Share != .5 {
					r.Fatalf("got %+v", x)
				}
				words := map[string]bool{}
				for range 400 {
					if c.down {
						r.at["b"].Fail(fake.OpCreate, 1, unavailable)
					}
					r.traffic(6, "1")
					x, _ = experiment(r.T, r.replicas[0])
					words[x.Verdict.Word] = true
					if x.Rollout.Status != rollout.Running {
						break
					}
				}
				got := x.Verdict
				last := x.Rollout.Log[len(x.Rollout.Log)-1]
				if got.Word != c.word || len(got.Text) < len(c.before) || got.Text[:len(c.before)] != c.before || !words["no-harm-seen"] && !c.down {
					r.Errorf("got %+v after %v, decided %+v", got, words, last)
				}
			})
		})
	}
}
