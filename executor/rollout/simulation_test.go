package rollout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// arm draws the observations of the subjects of an arm.
type arm struct {
	success float64 // of a session
	spread  float64 // how much subjects differ: 0 not at all, 1 all sessions of a subject are alike
	many    bool    // subjects have 1 to 500 sessions, most of them few
	turn    float64 // median seconds; the times are log-normal
	sigma   float64
	cost    float64 // mean; the costs are exponential
}

func (a arm) draw(r *rand.Rand) (o Observation) {
	o.Sessions = 1
	if a.many {
		o.Sessions = min(500, int(math.Exp(2.1*math.Abs(r.NormFloat64()))))
	}
	fate := r.Float64() < a.success // of the sessions that are alike
	for range o.Sessions {
		good := r.Float64() < a.success
		if r.Float64() < a.spread {
			good = fate
		}
		if !good {
			o.Bad++
		}
	}
	o.Turns = make([]float64, min(o.Sessions*3, MaxRuns))
	for i := range o.Turns {
		o.Turns[i] = a.turn * math.Exp(a.sigma*r.NormFloat64())
	}
	o.Cost = a.cost * r.ExpFloat64() * float64(o.Sessions)
	return o
}

// experiment is a kind of simulated rollout.
type experiment struct {
	id, name string
	plan     Plan
	old, new arm
	most     int // sessions of the new arm after which it is given up
}

// ended is how one has ended.
type ended struct {
	status   Status
	sessions int // of the new arm, from the beginning
}

// run simulates one. A subject arrives each second; the State is looked at after every one.
func (e experiment) run(seed uint64) (end ended) {
	r := rand.New(rand.NewPCG(seed, 1))
	now := time.Unix(1_800_000_000, 0)
	p := e.plan.WithDefaults()
	p.plain = true
	s := p.Begin(now)
	for end.sessions < e.most {
		now = now.Add(time.Second)
		isNew := r.IntN(100) < p.Share(s)
		a := e.old
		if isNew {
			a = e.new
		}
		o := a.draw(r)
		o.New, o.Arrived = isNew, now
		if isNew {
			end.sessions += o.Sessions
		}
		p.Add(&s, o)
		p.Next(&s, now)
		if s.Status != Running {
			break
		}
	}
	end.status = s.Status
	return end
}

// outcome sums up the experiments of a kind.
type outcome struct {
	experiment
	n              int
	back, promoted int
	sessions       []int // of those that rolled back
}

func (e experiment) repeat(n int) (out outcome) {
	out.experiment, out.n = e, n
	ends := make([]ended, n)
	var wg sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := w; i < n; i += runtime.GOMAXPROCS(0) {
				ends[i] = e.run(uint64(i))
			}
		})
	}
	wg.Wait()
	for _, end := range ends {
		switch end.status {
		case RolledBack:
			out.back++
			out.sessions = append(out.sessions, end.sessions)
		case Promoted:
			out.promoted++
		}
	}
	slices.Sort(out.sessions)
	return out
}

// quantile returns the number of sessions at which a part of all experiments had rolled back; -1 if
// it did not.
func (o outcome) quantile(q float64) int {
	i := int(math.Ceil(q*float64(o.n))) - 1
	if i >= len(o.sessions) {
		return -1
	}
	return o.sessions[i]
}

// upper returns the upper end of a one-sided 99 % interval for a rate of which k of n were seen
// (Clopper and Pearson), by bisection.
func upper(k, n int) float64 {
	low, high := float64(k)/float64(n), 1.0
	for range 60 {
		p := (low + high) / 2
		if atMost(k, n, p) > .01 {
			low = p
		} else {
			high = p
		}
	}
	return high
}

// atMost is the probability of at most k successes of n.
func atMost(k, n int, p float64) float64 {
	sum := 0.0
	for i := range k + 1 {
		l, _ := math.Lgamma(float64(n + 1))
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(l - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

// fixed is how many sessions of each arm a test of a fixed size needs, one-sided with the level
// alpha and the given power, to see that a share of successes has fallen from a to b by more than
// the margin (normal approximation).
func fixed(a, b, margin, alpha, power float64) int {
	z := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
	v := a*(1-a) + b*(1-b)
	n := math.Pow((z(1-alpha)+z(power))/(a-b-margin), 2) * v
	return int(math.Ceil(n))
}

// The plans of the simulations. Half and half is where a comparison is fastest.
var (
	half  = Plan{To: "new", Steps: []int{50, 100}, Every: 1000 * time.Hour, Guard: Guard{Success: .01}}
	three = Guard{Success: .01, P95: .3, Cost: .2}
)

// kinds are the simulated rollouts, in the order of the table. most is the number of sessions of
// the new arm after which an arm without a difference is given up, and mostSteps that of the plan
// with the default steps, in which there are a hundred subjects for each session of the new arm.
func kinds(most, mostSteps int) []experiment {
	halfThree, standard := half, Plan{To: "new", Guard: three}
	halfThree.Guard = three
	good := arm{success: .99, turn: .2, sigma: .5, cost: 1000}
	with := func(edit func(*arm)) arm {
		a := good
		edit(&a)
		return a
	}
	ninety := with(func(a *arm) { a.success = .9 })
	clustered := with(func(a *arm) { a.many, a.spread = true, .5 })
	const long = 20_000
	return []experiment{
		{"equal", "none, one guard", half, good, good, most},
		{"equal3", "none, three guards", halfThree, good, good, most},
		{"equal90", "none, at a success of 90 %, three guards", halfThree, ninety, ninety, most},
		{"clusters", "none, subjects with 1 to 500 sessions that are alike", halfThree, clustered, clustered, 2 * most},
		{"margin", "99 % to 98 %, which the guard just allows", half, good, with(func(a *arm) { a.success = .98 }), most},
		{"default", "none, default steps, three guards", standard, good, good, mostSteps},
		{"95", "99 % to 95 %, one guard", half, good, with(func(a *arm) { a.success = .95 }), long},
		{"95of3", "99 % to 95 %, three guards", halfThree, good, with(func(a *arm) { a.success = .95 }), long},
		{"95default", "99 % to 95 %, default steps, three guards", standard, good, with(func(a *arm) { a.success = .95 }), long},
		{"80", "99 % to 80 %, three guards", halfThree, good, with(func(a *arm) { a.success = .80 }), long},
		{"80default", "99 % to 80 %, default steps, three guards", standard, good, with(func(a *arm) { a.success = .80 }), long},
		{"slow", "turns take twice as long, three guards", halfThree, good, with(func(a *arm) { a.turn *= 2 }), long},
		{"dear", "twice as dear, three guards", halfThree, good, with(func(a *arm) { a.cost *= 2 }), long},
	}
}

// check compares outcomes with what the package promises. n is how many of each kind there were;
// same is how many of those without a difference.
func check(t *testing.T, all map[string]outcome) {
	t.Helper()
	for name, o := range all {
		if slices.Contains([]string{"equal", "equal3", "equal90", "clusters", "margin", "default"}, name) && upper(o.back, o.n) > DefaultAlpha {
			t.Errorf("%s: %d of %d were rolled back, so the rate may be %.1f %%, want at most 5 %%", o.name, o.back, o.n, 100*upper(o.back, o.n))
		}
	}
	size := fixed(.99, .95, .01, DefaultAlpha, .95)
	for name, most := range map[string]struct{ p50, p95 int }{
		"95": {size * 5 / 2, 2000}, "95of3": {size * 5 / 2, 2000}, "95default": {size * 5 / 2, 2000},
		"80": {300, 300}, "80default": {300, 300}, "slow": {100, 200}, "dear": {300, 500},
	} {
		o, ok := all[name]
		if p50, p95 := o.quantile(.5), o.quantile(.95); ok && (p50 < 0 || p95 < 0 || p50 > most.p50 || p95 > most.p95) {
			t.Errorf("%s: the median is %d sessions, and 95 %% take %d; want at most %d and %d", o.name, p50, p95, most.p50, most.p95)
		}
	}
	if o, ok := all["default"]; ok && o.most >= 10_000 && o.promoted < o.n*9/10 {
		t.Errorf("%s: %d of %d were promoted", o.name, o.promoted, o.n)
	}
}

// table is that of the guide.
func table(all []outcome) string {
	var b strings.Builder
	b.WriteString("| Difference | Rolled back | at most, with 99 % confidence | Sessions of the new backend until then: 5 %, median, 95 % | Promoted |\n|---|---|---|---|---|\n")
	for _, o := range all {
		sessions := "–"
		if o.back > o.n/2 {
			sessions = fmt.Sprintf("%d, %d, %d", o.quantile(.05), o.quantile(.5), o.quantile(.95))
		}
		fmt.Fprintf(&b, "| %s | %.2f %% of %d | %.2f %% | %s | %d |\n", o.name, 100*float64(o.back)/float64(o.n), o.n, 100*upper(o.back, o.n), sessions, o.promoted)
	}
	return b.String()
}

// simulate makes n experiments of each kind, and as many without a difference as same.
func simulate(t *testing.T, n, same, most, mostSteps int) {
	t.Helper()
	all := map[string]outcome{}
	var rows []outcome
	for _, e := range kinds(most, mostSteps) {
		times := n
		switch {
		case e.id == "default": // it takes long
			times = max(n, 100)
		case e.old == e.new || e.id == "margin":
			times = same
		}
		o := e.repeat(times)
		all[e.id], rows = o, append(rows, o)
	}
	check(t, all)
	t.Logf("a test of a fixed size needs %d sessions of each arm\n%s", fixed(.99, .95, .01, DefaultAlpha, .95), table(rows))
}

// TestSimulation: arms that are no worse are not rolled back, and worse ones are, soon. Every State
// is looked at after every subject.
func TestSimulation(t *testing.T) { simulate(t, 40, 200, 400, 800) }

// TestTenThousand is TestSimulation for the table of the guide.
func TestTenThousand(t *testing.T) { simulate(t, 500, 2000, 2000, 10_000) }
