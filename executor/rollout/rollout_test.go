package rollout

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration, isNew bool) Observation {
	return Observation{New: isNew, Arrived: start.Add(d), Sessions: 1}
}

// TestBetsAreFair: no stake wins on average if its hypothesis is wrong, or only just right.
func TestBetsAreFair(t *testing.T) {
	for _, margin := range []float64{0, .01, .3, -.2} {
		for _, up := range []bool{true, false} {
			for low := -1.0; low < margin; low += .1 {
				for high := 1.0; high > margin; high -= .1 {
					p := (margin - low) / (high - low) // of high, so that the mean is the margin
					var a, b Bet
					a.add(low, margin, up)
					b.add(high, margin, up)
					for i := range stakes {
						if mean := (1-p)*math.Exp(a.Log[i]) + p*math.Exp(b.Log[i]); mean > 1+1e-9 || math.IsNaN(mean) {
							t.Fatalf("margin %v, up %v, %v or %v: the stake %v becomes %v on average", margin, up, low, high, stakes[i], mean)
						}
					}
				}
			}
		}
	}
}

// TestBetInJSON: a bet is read like any list of numbers, and what is written is read exactly.
func TestBetInJSON(t *testing.T) {
	for text, ok := range map[string]bool{
		`[0,-1.5,1e-7,2.25,30,-0]`: true, `[ 0, -1.5, 1e-7, 2.25, 30, 7 ]`: true, `[1,2]`: true, `[]`: true, `[1,2,3,4,5,6,7]`: true, `null`: true,
		`[1,2,3,4,5,"6"]`: false, `[1,2,3,4,5,[6]]`: false, `{}`: false, `"x"`: false, `[1,2,3,4,5,1e999]`: false,
	} {
		var want [len(stakes)]float64
		got := Bet{}
		if err := json.Unmarshal([]byte(text), &want); (err == nil) != ok {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal([]byte(text), &got); (err == nil) != ok || ok && got.Log != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	var b Bet
	for range 100 {
		b.add(rand.Float64(), .3, true)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	again := Bet{}
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if twice, err := json.Marshal(again); err != nil || string(twice) != string(text) {
		t.Errorf("got %s, %v, want %s", twice, err, text)
	}
}

func TestInterval(t *testing.T) {
	var v Interval
	if low, high := v.Bounds(); low != -1 || high != 1 {
		t.Errorf("got %v to %v before anything is known", low, high)
	}
	for i := range 4000 {
		v.add([]float64{0, 0, 0, .4}[i%4], .05)
	}
	if low, high := v.Bounds(); low < .05 || low > .1 || high < .1 || high > .15 {
		t.Errorf("got %v to %v for a mean of 0.1", low, high)
	}
}

// TestPairs: one of the smaller arm is compared with the mean of several of the larger one that
// arrived at about the same time.
func TestPairs(t *testing.T) {
	for share, want := range map[int][2]int{1: {20, 1}, 5: {19, 1}, 25: {3, 1}, 50: {1, 1}, 75: {1, 3}, 99: {1, 20}} {
		if got := block(share); got != want {
			t.Errorf("%d %%: got %v, want %v", share, got, want)
		}
	}
	p := Plan{To: "b", Steps: []int{25, 100}, Guard: Guard{Success: .01}}
	s := p.Begin(start)
	p.Add(&s, at(-time.Minute, false), Observation{Arrived: start}) // of an earlier step; without a session
	for i := range 3 {
		p.Add(&s, at(time.Duration(i)*time.Minute, false))
	}
	if s.Evidence[0].Pairs != 0 || s.Arms[0].Subjects != 3 {
		t.Errorf("got %+v", s)
	}
	bad := at(3*time.Hour, true)
	bad.Bad = 1
	p.Add(&s, bad)
	if s.Evidence[0].Pairs != 0 || len(s.Waiting[0]) != 2 {
		t.Errorf("it was compared with what arrived hours before: %+v", s)
	}
	for range 3 {
		p.Add(&s, at(3*time.Hour, false))
	}
	if e := s.Evidence[0]; e.Pairs != 1 || e.New != 1 || e.Old != 0 || len(s.Waiting[0])+len(s.Waiting[1]) != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestSteps: a step takes its time, its sessions and what its advance asks for.
func TestSteps(t *testing.T) {
	p := Plan{To: "b", Steps: []int{50, 100}, Every: time.Hour, Least: 100, Guard: Guard{Success: .05}}
	add := func(s *State, n int) {
		for range n {
			p.Add(s, at(0, false), at(0, true))
		}
	}
	s := p.Begin(start)
	add(&s, 1000)
	if _, moved := p.Next(&s, start.Add(59*time.Minute)); moved {
		t.Error("it moved before its time")
	}
	if d, moved := p.Next(&s, start.Add(time.Hour)); !moved || d.What != "advance" || d.Why != "no-worse" || d.Step != 100 || s.Status != Promoted || d.Arms[1].Sessions != 1000 {
		t.Errorf("got %+v", d)
	}
	s = p.Begin(start)
	if add(&s, 50); s.Evidence[0].Shown {
		t.Fatal("50 pairs show nothing")
	}
	if _, moved := p.Next(&s, start.Add(2*time.Hour)); moved {
		t.Error("it moved with too few sessions")
	}
	p.Least = 10
	if _, moved := p.Next(&s, start.Add(2*time.Hour)); moved {
		t.Error("it moved although nothing is shown")
	}
	p.Advance = NoHarmSeen
	if d, moved := p.Next(&s, start.Add(2*time.Hour)); !moved || d.Why != "no-harm-seen" {
		t.Errorf("got %+v", d)
	}
	if _, moved := p.Next(&s, start.Add(20*time.Hour)); moved {
		t.Error("it moved after the end")
	}
}

func TestByHand(t *testing.T) {
	p := Plan{To: "b", Guard: Guard{Code: .05}}
	s := p.Begin(start)
	for i, c := range []struct {
		do      func(*State, time.Time, string) (Decision, bool)
		allowed bool
		want    Status
		share   int
	}{
		{p.Resume, false, Running, 1}, {p.Pause, true, Paused, 1}, {p.Pause, false, Paused, 1}, {p.Resume, true, Running, 1},
		{p.Abort, true, Aborted, 0}, {p.Resume, false, Aborted, 0}, {p.Promote, true, Promoted, 100}, {p.Promote, false, Promoted, 100}, {p.Abort, true, Aborted, 0},
	} {
		d, ok := c.do(&s, start, "")
		if ok != c.allowed || s.Status != c.want || p.Share(s) != c.share || ok && d.By != "unknown" {
			t.Errorf("%d: got %v, %+v, %+v", i, ok, d, s.Status)
		}
		if _, moved := p.Next(&s, start.Add(time.Hour)); moved {
			t.Errorf("%d: it moved", i)
		}
	}
}

// TestStateFits: a store takes values of 64 KiB.
func TestStateFits(t *testing.T) {
	p := Plan{To: "b", Steps: []int{1, 100}, Guard: Guard{Success: .01, P95: .3, Cost: .2, Code: .02}}
	s := p.Begin(start)
	seconds := 0.0
	for i := range 3000 {
		o := at(time.Duration(i)*time.Second+123456789, i%21 == 0)
		o.Cost, o.Bad, o.Failed = 1234567.891*float64(i), i%3, i%5
		for range 25 {
			seconds += 1.0 / 3
			o.Turns = append(o.Turns, seconds)
		}
		p.Add(&s, o)
	}
	for range 10 {
		p.Pause(&s, start, "somebody with a long name")
		p.Resume(&s, start, "somebody with a long name")
	}
	text, err := json.Marshal(s)
	if err != nil || len(text) > 60_000 {
		t.Errorf("got %d bytes, %v", len(text), err)
	}
	var back State
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(back); err != nil || string(again) != string(text) {
		t.Errorf("it is another one after reading: %v", err)
	}
	if back.Evidence[0].Pairs == 0 || len(back.Waiting[0]) > maxWaiting || len(back.Log) > maxLog {
		t.Errorf("got %d pairs, %d waiting, %d decisions", back.Evidence[0].Pairs, len(back.Waiting[0]), len(back.Log))
	}
}

func TestCheck(t *testing.T) {
	good := Plan{To: "b", Guard: Guard{Success: .01}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, edit := range map[string]func(*Plan){
		"to": func(p *Plan) { p.To = "" }, "steps": func(p *Plan) { p.Steps = []int{5, 5, 100} }, "every": func(p *Plan) { p.Every = -1 },
		"horizon": func(p *Plan) { p.Horizon = 2 * time.Hour }, "least": func(p *Plan) { p.Least = -1 }, "alpha": func(p *Plan) { p.Alpha = .9 },
		"advance": func(p *Plan) { p.Advance = "x" }, "guard": func(p *Plan) { p.Guard = Guard{} }, "guard.success": func(p *Plan) { p.Guard.Success = 1 },
		"guard.code": func(p *Plan) { p.Guard.Code = math.NaN() }, "guard.p95": func(p *Plan) { p.Guard.P95 = -.1 }, "guard.cost": func(p *Plan) { p.Guard.Cost = 11 },
	} {
		p := good
		edit(&p)
		found := executor.FieldErrors(p.Check())
		if !slices.ContainsFunc(found, func(e *executor.FieldError) bool { return e.Path == want }) {
			t.Errorf("%s: got %v", want, errors.Join(p.Check()))
		}
	}
}
