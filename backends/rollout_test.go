package backends_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

const rolloutFile = `
backends: {a: {type: fake, on: a}, b: {type: fake, on: b, broker: {prices: {run: 0.01}}}}
routes: [{name: r, split: [{backend: a, weight: 1}, {backend: b, weight: 0}], fallback: [a]}]
rollouts:
  r: {to: b, steps: [50, 100], every: 5m, least: 50, horizon: 10s, guard: {success: -1%, p95: +30%}}
sessions: {lease_ttl: 9s}`

// rolling is a deployment of two replicas with a rollout, in a bubble.
type rolling struct {
	*world
	replicas []*backends.Broker
	store    sessions.Store
	users    int
	decided  []string
	mu       sync.Mutex
}

// Slow is by how much longer a session on b takes than one on a.
func roll(t *testing.T, slow time.Duration, file string, f func(r *rolling)) {
	t.Helper()
	bubble(t, fake.Options{CreateTime: 100 * time.Millisecond}, func(w *world) {
		w.at["b"] = fake.New(fake.Options{CreateTime: 100*time.Millisecond + slow})
		r := &rolling{world: w, store: sessions.NewMemoryStore()}
		audit := backends.WithAudit(func(a backends.Audit) {
			if a.Op == "rollout" {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.decided = append(r.decided, a.Rollout.What)
			}
		})
		for i := range 2 {
			r.replicas = append(r.replicas, w.openAs(fmt.Sprint("replica-", i), file, backends.WithStore(r.store), audit))
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		f(r)
		for _, b := range r.replicas {
			w.close(b)
		}
	})
}

// traffic lets n users arrive, one each second, at a random replica. Each has a session and runs
// code in it.
func (r *rolling) traffic(n int, code string) {
	var wg sync.WaitGroup
	for range n {
		r.users++
		spec := executor.Spec{Subject: fmt.Sprint("user-", r.users)}
		b := r.replicas[rand.IntN(2)]
		wg.Go(func() {
			s, err := b.Create(r.Context(), spec)
			if err != nil {
				return
			}
			_, _ = s.Run(r.Context(), executor.Request{Code: code}, nil)
			if err := s.Close(); err != nil {
				r.Error(err)
			}
		})
		time.Sleep(time.Second)
	}
	wg.Wait()
}

func (r *rolling) report() rollout.Report {
	r.Helper()
	all, err := r.replicas[0].Rollouts(r.Context())
	if err != nil || len(all) != 1 {
		r.Fatalf("got %+v, %v", all, err)
	}
	return all[0]
}

// split returns which part of new subjects goes to b, at each replica.
func (r *rolling) split() (parts [2]float64) {
	r.Helper()
	for i, b := range r.replicas {
		for n := range 1000 {
			d, err := b.Decide(executor.Spec{Subject: fmt.Sprint("subject-", n)})
			if err != nil {
				r.Fatal(err)
			}
			if d.Assigned == "b" {
				parts[i] += .001
			}
		}
	}
	return parts
}

// TestRolloutPromotes: a backend that is no worse gets all, in steps, at all replicas.
func TestRolloutPromotes(t *testing.T) {
	// The wider guard is shown by a fifth of the pairs.
	file := strings.NewReplacer("steps: [50, 100]", "steps: [20, 60, 100]", "success: -1%", "success: -5%").Replace(rolloutFile)
	roll(t, 0, file, func(r *rolling) {
		if got := r.split(); got[0] != got[1] || got[0] < .15 || got[0] > .25 {
			r.Errorf("got %v, want 0.2 at both", got)
		}
		seen := []int{}
		for range 60 {
			r.traffic(100, "1")
			if share := r.report().Share; !slices.Contains(seen, share) {
				seen = append(seen, share)
			}
			if r.report().Status != rollout.Running {
				break
			}
		}
		if got := r.report(); got.Status != rollout.Promoted || !slices.Equal(seen, []int{20, 60, 100}) {
			r.Errorf("got %s by %v: %+v", got.Status, seen, got.Guards)
		}
		time.Sleep(4 * time.Second)
		if got := r.split(); got != [2]float64{1, 1} && (got[0] < .999 || got[1] < .999) {
			r.Errorf("got %v, want all", got)
		}
		if want := []string{"begin", "advance", "advance"}; !slices.Equal(r.decided, want) {
			r.Errorf("audited %q, want %q", r.decided, want)
		}
		last := r.report().Log
		if d := last[len(last)-1]; d.Why != "no-worse" || d.Arms[1].Sessions < 50 || len(d.Guards) != 2 || !d.Guards[0].Shown {
			r.Errorf("got %+v", d)
		}
	})
}

// TestRolloutRollsBack: a backend that is worse loses its share, whatever is worse about it.
func TestRolloutRollsBack(t *testing.T) {
	down := func(r *rolling) { // one of six
		r.at["b"].Fail(fake.OpCreate, 1, unavailable)
	}
	for name, c := range map[string]struct {
		file, guard string
		harm        func(r *rolling)
		code        string
	}{
		"falls-back": {rolloutFile, "success", down, "1"},
		"fails":      {strings.Replace(rolloutFile, "fallback: [a]", "fallback: []", 1), "success", down, "1"},
		"dies": {rolloutFile, "success", func(r *rolling) {
			r.at["b"].Fail(fake.OpRun, 1, &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanMaybe, Err: errors.New("the machine is gone")})
		}, "1"},
		"dear": {strings.Replace(rolloutFile, "p95: +30%", "cost: +20%", 1), "cost", func(*rolling) {}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			file := c.file
			if name == "dear" { // the old one costs something too
				file = strings.Replace(file, "a: {type: fake, on: a}", "a: {type: fake, on: a, broker: {prices: {run: 0.005}}}", 1)
			}
			roll(t, 0, file, func(r *rolling) {
				for range 300 {
					c.harm(r)
					r.traffic(6, c.code)
					if r.report().Status != rollout.Running {
						break
					}
				}
				got := r.report()
				if got.Status != rollout.RolledBack || got.Share != 0 {
					r.Fatalf("got %+v", got)
				}
				if d := got.Log[len(got.Log)-1]; !strings.HasPrefix(d.Why, c.guard) {
					r.Errorf("got %q", d.Why)
				}
				time.Sleep(4 * time.Second)
				if got := r.split(); got != [2]float64{} {
					r.Errorf("got %v, want nothing", got)
				}
				r.traffic(310, c.code) // for longer than a step takes: it does not come back
				if got := r.report(); got.Status != rollout.RolledBack {
					r.Errorf("got %s", got.Status)
				}
			})
		})
	}
}

// TestRolloutOfASlowOne: turns that take longer are noticed, and no less if a session is not there
// when the observation of its subject ends.
func TestRolloutOfASlowOne(t *testing.T) {
	for name, c := range map[string]struct {
		slow   time.Duration // the horizon is 10 s
		guards []string
	}{
		"twice":        {100 * time.Millisecond, []string{"p95"}},
		"horizon":      {15 * time.Second, []string{"p95"}},
		"two-horizons": {time.Minute, []string{"success", "p95"}},
	} {
		t.Run(name, func(t *testing.T) {
			roll(t, c.slow, rolloutFile, func(r *rolling) {
				for range 300 {
					r.traffic(6, "1")
					if r.report().Status != rollout.Running {
						break
					}
				}
				got := r.report()
				why, _, _ := strings.Cut(got.Log[len(got.Log)-1].Why, " ")
				if got.Status != rollout.RolledBack || !slices.Contains(c.guards, strings.TrimSuffix(why, ":")) {
					r.Errorf("got %+v", got)
				}
			})
		})
	}
}

// TestRolloutByHand: what people decide holds at all replicas, and who they are is on record.
func TestRolloutByHand(t *testing.T) {
	roll(t, 0, strings.Replace(rolloutFile, "success: -1%", "success: -5%", 1), func(r *rolling) {
		do := func(c backends.RolloutChange, want rollout.Status, share int) {
			r.Helper()
			if err := r.replicas[1].ChangeRollout(r.Context(), "r", c, "ann"); err != nil {
				r.Fatal(err)
			}
			got := r.report()
			if d := got.Log[len(got.Log)-1]; got.Status != want || got.Share != share || c != backends.RolloutRestart && d.By != "ann" {
				r.Errorf("%s: got %+v", c, got)
			}
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got := r.split(); got[0] != got[1] || got[0] > float64(share)/100+.07 || got[0] < float64(share)/100-.07 {
				r.Errorf("%s: got %v", c, got)
			}
		}
		do(backends.RolloutPause, rollout.Paused, 50)
		r.traffic(400, "1") // after which it would advance
		shown := func(f rollout.Finding) bool { return f.Shown }
		if got := r.report(); got.Status != rollout.Paused || got.Arms[1].Sessions < 100 || len(got.Guards) != 2 || !shown(got.Guards[0]) || !shown(got.Guards[1]) {
			r.Errorf("got %+v", got)
		}
		if err := r.replicas[0].ChangeRollout(r.Context(), "r", backends.RolloutPause, ""); !errors.Is(err, executor.ErrInvalid) || !strings.Contains(err.Error(), "paused") {
			r.Errorf("got %v", err)
		}
		do(backends.RolloutAbort, rollout.Aborted, 0)
		do(backends.RolloutPromote, rollout.Promoted, 100)
		do(backends.RolloutRestart, rollout.Running, 50)
		for _, c := range []struct{ route, change string }{{"none", "pause"}, {"r", "dance"}} {
			if err := r.replicas[0].ChangeRollout(r.Context(), c.route, backends.RolloutChange(c.change), ""); !errors.Is(err, executor.ErrInvalid) {
				r.Errorf("%v: got %v", c, err)
			}
		}
	})
}

// TestRolloutCountsSubjectsOnce: the sessions of a subject at several replicas are one observation.
func TestRolloutCountsSubjectsOnce(t *testing.T) {
	roll(t, 0, rolloutFile, func(r *rolling) {
		for range 50 {
			for _, b := range r.replicas {
				s := r.create(b, executor.Spec{Subject: "the same"})
				r.says(s, "print(1)", "1\n")
				if err := s.Close(); err != nil {
					r.Error(err)
				}
			}
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		got := r.report()
		if n := got.Arms[0].Subjects + got.Arms[1].Subjects; n != 1 {
			r.Errorf("got %d subjects: %+v", n, got.Arms)
		}
	})
}

func TestRolloutConfig(t *testing.T) {
	w := newWorld(t, fake.Options{})
	base := `{backends: {a: {type: fake, on: a}, b: {type: fake, on: b}, c: {type: fake, on: c}}, routes: [{name: s, match: {labels: {x: y}}, split: [{backend: a, weight: 1}]}, {name: r, split: [{backend: a, weight: 1}, {backend: b, weight: 0}]}], rollouts: {%s}}`
	for rollouts, want := range map[string]string{
		`q: {to: b, guard: {success: -1%}}`:                `unknown route "q"`,
		`r: {to: c, guard: {success: -1%}}`:                "rollouts.r.to",
		`s: {to: a, guard: {success: -1%}}`:                "rollouts.s.to",
		`r: {guard: {success: -1%}}`:                       "rollouts.r.to",
		`r: {to: b}`:                                       "rollouts.r.guard",
		`r: {to: b, guard: {success: +1%}}`:                "rollouts.r.guard.success",
		`r: {to: b, guard: {success: 1}}`:                  "want a string",
		`r: {to: b, guard: {p95: "-3%"}}`:                  "rollouts.r.guard.p95",
		`r: {to: b, guard: {success: -1%}, steps: [5, 1]}`: "rollouts.r.steps",
		`r: {to: b, guard: {success: -1%}, steps: [100]}`:  "rollouts.r.steps",
		`r: {to: b, guard: {success: -1%}, steps: []}`:     "rollouts.r.steps",
		`r: {to: b, guard: {success: -1%}, advance: soon}`: "rollouts.r.advance",
		`r: {to: b, guard: {success: -1%}, alpha: 90%}`:    "rollouts.r.alpha",
		`r: {to: b, guard: {success: -1%}, horizon: 10ms}`: "rollouts.r.horizon",
		`r: {to: b, guard: {success: -1%}, least: -5}`:     "rollouts.r.least",
		`r: {to: b, guard: {success: -1%, surprise: +1%}}`: "surprise",
	} {
		_, err := backends.Parse(fmt.Appendf(nil, base, rollouts))
		if err == nil {
			var cfg backends.Config
			if cfg, err = backends.Parse(fmt.Appendf(nil, base, rollouts)); err == nil {
				err = cfg.Check(w.reg)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", rollouts, err, want)
		}
	}
}

// TestRolloutReload: a reload keeps a rollout with the same plan, begins another one anew, and
// changes nothing if it fails.
func TestRolloutReload(t *testing.T) {
	roll(t, 0, rolloutFile, func(r *rolling) {
		b := r.replicas[0]
		if err := b.ChangeRollout(r.Context(), "r", backends.RolloutPromote, "ann"); err != nil {
			r.Fatal(err)
		}
		near := func(want float64) {
			r.Helper()
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got := r.split()[0]; got < want-.07 || got > want+.07 {
				r.Errorf("got %v, want %v", got, want)
			}
		}
		near(1)
		another := strings.Replace(rolloutFile, "steps: [50, 100]", "steps: [20, 100]", 1)
		broken := strings.Replace(another, "on: b,", "on: nowhere,", 1)
		if err := b.Reload(r.Context(), parse(r.T, broken)); err == nil {
			r.Error("want an error")
		}
		near(1)
		if err := b.Reload(r.Context(), parse(r.T, rolloutFile+"\nguard: {code_bytes: 1000}")); err != nil {
			r.Error(err)
		}
		near(1)
		if err := b.Reload(r.Context(), parse(r.T, another)); err != nil {
			r.Error(err)
		}
		near(.2)
		without := rolloutFile[:strings.Index(rolloutFile, "rollouts:")] + "sessions: {lease_ttl: 9s}"
		if err := b.Reload(r.Context(), parse(r.T, without)); err != nil {
			r.Error(err)
		}
		near(0) // the weights of the file
	})
}
