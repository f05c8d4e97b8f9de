package rollout

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Observation is a subject that was observed for the horizon of a Plan.
type Observation struct {
	New      bool      `json:"new,omitempty"` // assigned to the new arm
	Arrived  time.Time `json:"arrived"`
	Sessions int       `json:"sessions"`
	Bad      int       `json:"bad,omitempty"`    // sessions in which the infrastructure of the assigned arm failed
	Failed   int       `json:"failed,omitempty"` // runs that ended with an exception
	Turns    []float64 `json:"turns,omitempty"`  // seconds, at most MaxRuns
	Cost     float64   `json:"cost,omitempty"`   // millionths
}

// Status says what a rollout does.
type Status string

// The statuses. Only Running changes by itself.
const (
	Running    Status = "running"
	Paused     Status = "paused"      // the shares stay
	RolledBack Status = "rolled-back" // a guard was violated: the new arm gets nothing
	Aborted    Status = "aborted"     // by hand, likewise
	Promoted   Status = "promoted"    // the new arm gets all
)

// Evidence is what is known of one guard in one step.
type Evidence struct {
	Guard    string   `json:"guard"` // "success", "p95", "cost", "code"
	Pairs    int      `json:"pairs"`
	Worse    Bet      `json:"worse"` // that the new arm is worse than the guard allows
	Fine     Bet      `json:"fine"`  // that it is not
	Harm     bool     `json:"harm"`  // Worse has been shown
	Shown    bool     `json:"shown"` // Fine has been shown
	Interval Interval `json:"interval"`
	Old      float64  `json:"old"` // sums, of which the means are reported
	New      float64  `json:"new"`
}

// Figures are what an arm has done in a step, as far as its horizon has passed.
type Figures struct {
	Subjects int     `json:"subjects"`
	Sessions int     `json:"sessions"`
	Bad      int     `json:"bad"`
	Turns    int     `json:"turns"`
	Failed   int     `json:"failed"`
	Cost     float64 `json:"cost"`
}

// State is where a rollout is. It is plain data for a store that replicas share.
type State struct {
	Status   Status           `json:"status"`
	Step     int              `json:"step"` // index of Plan.Steps
	Since    time.Time        `json:"since"`
	Evidence []Evidence       `json:"evidence"`
	Arms     [2]Figures       `json:"arms"` // the old and the new one, in this step
	Waiting  [2][]Observation `json:"waiting"`
	Slow     []int            `json:"slow"`    // turns of the old arm by bucket, of all pairs so far: see p95
	Turns    int              `json:"turns"`   // their sum
	Largest  float64          `json:"largest"` // the largest cost so far
	Log      []Decision       `json:"log"`     // the last ones
}

// Decision is a change of a State, with the figures that it was made from.
type Decision struct {
	Time   time.Time  `json:"time"`
	What   string     `json:"what"` // "begin", "advance", "hold", "roll back", "pause", "resume", "abort", "promote"
	Step   int        `json:"step"` // the share of the new arm in percent, afterwards
	Why    string     `json:"why"`
	By     string     `json:"by,omitempty"` // who, if it was by hand
	Arms   [2]Figures `json:"arms"`
	Guards []Finding  `json:"guards,omitempty"`
}

// Finding says what is known of a guard, in numbers.
type Finding struct {
	Guard  string  `json:"guard"`
	Pairs  int     `json:"pairs"`
	Old    float64 `json:"old"`
	New    float64 `json:"new"`
	Low    float64 `json:"low"`    // the interval of the difference: how much worse the new arm is
	High   float64 `json:"high"`   //
	Margin float64 `json:"margin"` // how much worse it may be
	Harm   bool    `json:"harm"`
	Shown  bool    `json:"shown"`
}

// What bounds the size of a State, which a store takes up to 64 KiB of.
const (
	maxLog     = 12
	maxWaiting = 40 // observations of an arm that wait for those of the other
	maxBlock   = 20 // observations of the larger arm in a pair
)

// Begin returns the State of a rollout that begins.
func (p Plan) Begin(now time.Time) State {
	p = p.WithDefaults()
	s := State{Status: Running, Since: now}
	s.reset(p)
	s.note(p, now, "begin", "", "")
	return s
}

func (s *State) reset(p Plan) {
	s.Arms, s.Waiting, s.Evidence = [2]Figures{}, [2][]Observation{}, nil
	for _, g := range p.guards() {
		s.Evidence = append(s.Evidence, Evidence{Guard: g.name})
	}
}

// Share returns the share of the new arm in percent.
func (p Plan) Share(s State) int {
	switch p = p.WithDefaults(); s.Status {
	case RolledBack, Aborted:
		return 0
	case Promoted:
		return 100
	}
	return p.Steps[s.Step]
}

// block returns how many observations of each arm make a pair, so that those of the larger arm are
// not wasted: the old and the new one.
func block(share int) (sizes [2]int) {
	share = min(max(share, 1), 99)
	return [2]int{min(max(1, (100-share)/share), maxBlock), min(max(1, share/(100-share)), maxBlock)}
}

// Add adds observations of subjects that arrived in the current step.
func (p Plan) Add(s *State, all ...Observation) {
	p = p.WithDefaults()
	if s.Status != Running && s.Status != Paused {
		return
	}
	sizes := block(p.Share(*s))
	for _, o := range all {
		if o.Arrived.Before(s.Since) || o.Sessions < 1 {
			continue // of an earlier step
		}
		o.Turns = slices.Clone(o.Turns[:min(len(o.Turns), MaxRuns)])
		for i, t := range o.Turns {
			o.Turns[i] = math.Round(t*1e4) / 1e4
		}
		arm := 0
		if o.New {
			arm = 1
		}
		s.Arms[arm].add(o)
		if len(s.Waiting[arm]) >= maxWaiting { // the other arm has no subjects
			s.Waiting[arm] = s.Waiting[arm][1:]
		}
		s.Waiting[arm] = append(s.Waiting[arm], o)
		for len(s.Waiting[0]) >= sizes[0] && len(s.Waiting[1]) >= sizes[1] {
			if p.stale(s) {
				continue
			}
			p.compare(s, s.Waiting[0][:sizes[0]], s.Waiting[1][:sizes[1]])
			for i, n := range sizes {
				s.Waiting[i] = slices.Clone(s.Waiting[i][n:])
			}
		}
	}
}

// stale removes the oldest observation if it is too old for those of the other arm, and reports
// whether it has.
func (p Plan) stale(s *State) bool {
	d := s.Waiting[1][0].Arrived.Sub(s.Waiting[0][0].Arrived)
	apart := max(p.Every, 2*p.Horizon)
	switch {
	case d > apart:
		s.Waiting[0] = s.Waiting[0][1:]
	case d < -apart:
		s.Waiting[1] = s.Waiting[1][1:]
	default:
		return false
	}
	return true
}

func (f *Figures) add(o Observation) {
	f.Subjects++
	f.Sessions += o.Sessions
	f.Bad += o.Bad
	f.Turns += len(o.Turns)
	f.Failed += o.Failed
	f.Cost += o.Cost
}

// compare bets on a pair.
func (p Plan) compare(s *State, old, new []Observation) {
	guards := p.guards()
	steps := float64(len(p.Steps) - 1) // nothing is compared at 100 percent
	enoughHarm := math.Log(float64(len(guards)) * steps / p.Alpha)
	for i, g := range guards {
		e := &s.Evidence[i]
		worse, fine, ok := g.compare(s, old, new)
		if !ok {
			continue
		}
		e.Pairs++
		e.Old += worse.old
		e.New += worse.new
		e.Worse.add(worse.new-worse.old, g.margin, true)
		e.Fine.add(fine.new-fine.old, g.margin, false)
		e.Harm = e.Harm || e.Worse.reaches(enoughHarm)
		e.Shown = e.Shown || e.Fine.reaches(-math.Log(p.Alpha))
		if !p.plain {
			e.Interval.add(worse.new-worse.old, p.Alpha)
		}
	}
	for _, o := range old { // after the bets, whose stakes must not depend on this pair
		for _, t := range o.Turns {
			s.slow(t)
		}
		s.Largest = max(s.Largest, o.Cost)
	}
	for _, o := range new {
		s.Largest = max(s.Largest, o.Cost)
	}
}

// Next returns what the State says at a time, and changes it. It reports whether anything has
// changed.
func (p Plan) Next(s *State, now time.Time) (Decision, bool) {
	p = p.WithDefaults()
	if s.Status != Running {
		return Decision{}, false
	}
	for i := range s.Evidence { // which are large
		if e := &s.Evidence[i]; e.Harm {
			s.Status = RolledBack
			return s.note(p, now, "roll back", e.Guard+": the new arm is worse than the guard allows", ""), true
		}
	}
	if now.Sub(s.Since) < p.Every || s.Arms[1].Sessions < p.Least {
		return Decision{}, false
	}
	why := string(NoHarmSeen)
	if p.Advance == NoWorse {
		why = string(NoWorse)
		for i := range s.Evidence {
			if !s.Evidence[i].Shown {
				return Decision{}, false
			}
		}
	}
	d := s.advance(p, now, "advance", why, "")
	return d, true
}

// advance takes the next step.
func (s *State) advance(p Plan, now time.Time, what, why, by string) Decision {
	d := s.finding(p, now, what, why, by)
	s.Step++
	if s.Since = now; s.Step == len(p.Steps)-1 {
		s.Status = Promoted
	}
	s.reset(p)
	d.Step = p.Share(*s)
	s.log(d)
	return d
}

// finding makes a Decision from the figures of now.
func (s *State) finding(p Plan, now time.Time, what, why, by string) Decision {
	d := Decision{Time: now, What: what, Why: why, By: by, Arms: s.Arms, Step: p.Share(*s)}
	d.Guards = p.Findings(*s)
	return d
}

// Findings returns what is known of each guard in the current step.
func (p Plan) Findings(s State) (all []Finding) {
	for i, g := range p.guards() {
		e := &s.Evidence[i]
		f := Finding{Guard: e.Guard, Pairs: e.Pairs, Margin: g.margin, Harm: e.Harm, Shown: e.Shown}
		if e.Pairs > 0 {
			f.Old, f.New = e.Old/float64(e.Pairs), e.New/float64(e.Pairs)
		}
		f.Low, f.High = e.Interval.Bounds()
		all = append(all, f)
	}
	return all
}

func (s *State) note(p Plan, now time.Time, what, why, by string) Decision {
	d := s.finding(p, now, what, why, by)
	s.log(d)
	return d
}

func (s *State) log(d Decision) {
	s.Log = append(s.Log, d)
	s.Log = s.Log[max(0, len(s.Log)-maxLog):]
}

// slots are the buckets of State.Slow: 8 for each doubling, from a millisecond to four hours.
const slots = 8 * 24

func slot(seconds float64) int {
	return min(max(int(math.Round(8*math.Log2(max(seconds, .001)/.001))), 0), slots-1)
}

func (s *State) slow(seconds float64) {
	i := slot(seconds)
	for len(s.Slow) <= i {
		s.Slow = append(s.Slow, 0)
	}
	s.Slow[i]++
	s.Turns++
}

// p95 returns bounds of the 95th percentile of the turns of the old arm in earlier pairs, and
// whether there were enough.
func (s *State) p95() (low, high float64, ok bool) {
	if s.Turns < 40 {
		return 0, 0, false
	}
	above := 0
	for i := len(s.Slow) - 1; i >= 0; i-- {
		if above += s.Slow[i]; float64(above) > .05*float64(s.Turns) {
			return .001 * math.Exp2((float64(i)-.501)/8), .001 * math.Exp2((float64(i)+.501)/8), true
		}
	}
	return 0, 0, false
}

// guard is one of a Plan.
type guard struct {
	name         string
	margin, rise float64
}

// guards returns those that the Plan has.
func (p Plan) guards() []guard {
	g := p.Guard
	return slices.DeleteFunc([]guard{
		{"success", g.Success, 0}, {"code", g.Code, 0}, {"p95", 0, g.P95}, {"cost", 0, g.Cost},
	}, func(g guard) bool { return g.margin == 0 && g.rise == 0 })
}

// pair is a number of each arm from 0 to 1. More is worse.
type pair struct{ old, new float64 }

func means(old, new []Observation, f func(Observation) float64) pair {
	return pair{mean(old, f), mean(new, f)}
}

func mean(all []Observation, f func(Observation) float64) float64 {
	sum := 0.0
	for _, o := range all {
		sum += f(o)
	}
	return sum / float64(len(all))
}

func share(n, of int) float64 { return float64(min(n, of)) / float64(max(of, 1)) }

func bad(o Observation) float64    { return share(o.Bad, o.Sessions) }
func failed(o Observation) float64 { return share(o.Failed, len(o.Turns)) }

// over returns the share of turns that take longer than a limit.
func over(limit float64) func(Observation) float64 {
	return func(o Observation) float64 {
		n := 0
		for _, t := range o.Turns {
			if t > limit {
				n++
			}
		}
		return share(n, len(o.Turns))
	}
}

// compare returns what the two bets of a guard are about, and whether there is a bet.
func (g guard) compare(s *State, old, new []Observation) (worse, fine pair, ok bool) {
	switch g.name {
	case "success":
		worse = means(old, new, bad)
	case "code":
		worse = means(old, new, failed)
	case "p95":
		// If times were multiplied by less than the guard allows, fewer turns of the new arm would
		// be above the multiplied limit, whatever the limit is. Times that are all alike show harm
		// only above them, and none only below.
		low, high, ok := s.p95()
		if !ok {
			return worse, fine, false
		}
		at := func(limit float64) pair { return pair{mean(old, over(limit)), mean(new, over(limit*(1+g.rise)))} }
		return at(high), at(low), true
	case "cost":
		// Costs have no bound, but a bet needs one. What is more than twice as dear as all before
		// counts as that.
		bound := 2 * s.Largest
		if bound == 0 {
			return worse, fine, false
		}
		worse = means(old, new, func(o Observation) float64 { return min(o.Cost/float64(o.Sessions), bound) / bound })
		worse.new /= 1 + g.rise
	}
	return worse, worse, true
}

// Pause, Resume, Abort and Promote are decisions by hand. They report whether the State allows
// them.

// Pause keeps the shares as they are until Resume.
func (p Plan) Pause(s *State, now time.Time, by string) (Decision, bool) {
	return p.hand(s, now, "pause", by, Paused, Running)
}

// Resume ends a pause.
func (p Plan) Resume(s *State, now time.Time, by string) (Decision, bool) {
	return p.hand(s, now, "resume", by, Running, Paused)
}

// Abort gives all to the old arm.
func (p Plan) Abort(s *State, now time.Time, by string) (Decision, bool) {
	return p.hand(s, now, "abort", by, Aborted, Running, Paused, Promoted, RolledBack)
}

// Promote gives all to the new arm.
func (p Plan) Promote(s *State, now time.Time, by string) (Decision, bool) {
	return p.hand(s, now, "promote", by, Promoted, Running, Paused, RolledBack, Aborted)
}

func (p Plan) hand(s *State, now time.Time, what, by string, to Status, from ...Status) (Decision, bool) {
	if !slices.Contains(from, s.Status) {
		return Decision{}, false
	}
	s.Status = to
	return s.note(p.WithDefaults(), now, what, "by hand", cmp.Or(by, "unknown")), true
}
