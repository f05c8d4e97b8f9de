package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// window is that of Limits.RunsPerMinute.
const window = time.Minute

// maxStarts bounds the memory for the starts of runs. Up to this number they are exact. Beyond it
// those within window/maxStarts count as one time, the latest of them.
const maxStarts = 32

// maxArms bounds the arms of a day. Further ones are counted under the empty name.
const maxArms = 16

// maxOld bounds the days that are not archived, which are many only if no store is there to take
// them.
const maxOld = 40

// start says that runs started between First and Last, in Unix nanoseconds.
type start struct {
	First int64 `json:"a"`
	Last  int64 `json:"b"`
	N     int   `json:"n"`
}

// spent is what was spent in the period that begins at From, in Unix seconds.
type spent struct {
	From   int64  `json:"from"`
	Amount Amount `json:"amount"`
}

// dayUse is what a process has spent on a day, by arm.
type dayUse struct {
	Day    int64             `json:"day"`              // its beginning in Unix seconds
	Holder string            `json:"holder,omitempty"` // random; empty: of processes that are gone
	Arms   map[string]Amount `json:"arms"`
}

// totals outlive the process that counted them.
type totals struct {
	Starts []start             `json:"starts,omitempty"`
	Spent  [len(Periods)]spent `json:"spent"`
	Today  dayUse              `json:"today,omitzero"`
	Old    []dayUse            `json:"old,omitempty"` // days before, until they are archived
}

// share is what one process has of an account.
type share struct {
	totals
	Life     string `json:"life"`
	Sessions int    `json:"sessions,omitempty"`
	Running  int    `json:"running,omitempty"`
	Reserved Amount `json:"reserved,omitzero"`
}

func (t *totals) clone() totals {
	c := *t
	c.Starts, c.Old = slices.Clone(t.Starts), slices.Clone(t.Old)
	c.Today.Arms = maps.Clone(t.Today.Arms)
	return c
}

func (s *share) clone() share {
	c := *s
	c.totals = s.totals.clone()
	return c
}

// started adds the start of a run.
func (t *totals) started(now time.Time) {
	n := now.UnixNano()
	t.Starts = slices.DeleteFunc(t.Starts, func(s start) bool { return n-s.Last >= int64(window) })
	if k := len(t.Starts); k >= maxStarts && n-t.Starts[k-1].First < int64(window)/maxStarts {
		last := &t.Starts[k-1]
		last.Last, last.N = max(last.Last, n), last.N+1
		return
	}
	t.Starts = append(t.Starts, start{n, n, 1})
}

// spend adds what an arm has come to.
func (t *totals) spend(arm string, a Amount, now time.Time) {
	if a == (Amount{}) {
		return
	}
	for i, p := range Periods {
		from := p.Begin(now).Unix()
		if t.Spent[i].From != from {
			t.Spent[i] = spent{From: from}
		}
		t.Spent[i].Amount = t.Spent[i].Amount.plus(a)
	}
	if day := Day.Begin(now).Unix(); t.Today.Day != day {
		if len(t.Today.Arms) > 0 {
			t.Old = append(t.Old[max(0, len(t.Old)+1-maxOld):], t.Today)
		}
		t.Today = dayUse{Day: day, Holder: t.Today.Holder, Arms: map[string]Amount{}}
	}
	if _, known := t.Today.Arms[arm]; !known && len(t.Today.Arms) >= maxArms {
		arm = ""
	}
	t.Today.Arms[arm] = t.Today.Arms[arm].plus(a)
}

// in returns what was spent in the current period.
func (t *totals) in(i int, now time.Time) Amount {
	if t.Spent[i].From != Periods[i].Begin(now).Unix() {
		return Amount{}
	}
	return t.Spent[i].Amount
}

// absorb adds the totals of a process that is gone. Its reservations count as spent.
func (t *totals) absorb(s share, now time.Time) {
	s.spend("", s.Reserved, now)
	for i := range Periods {
		switch a, b := &t.Spent[i], s.Spent[i]; {
		case a.From == b.From:
			a.Amount = a.Amount.plus(b.Amount)
		case a.From < b.From:
			*a = b
		}
	}
	t.Starts = append(t.Starts, s.Starts...)
	slices.SortFunc(t.Starts, func(a, b start) int { return cmp.Compare(a.Last, b.Last) })
	t.Starts = t.Starts[max(0, len(t.Starts)-2*maxStarts):]
	t.Old = append(t.Old, s.Old...)
	if len(s.Today.Arms) > 0 {
		t.Old = append(t.Old, s.Today)
	}
}

// view is an account as one process sees it.
type view struct {
	own    *share
	others map[string]share
	gone   *totals
}

// sum adds up what f returns for each share.
func (v view) sum(f func(*share) int) (n int) {
	n = f(v.own)
	for _, s := range v.others {
		n += f(&s)
	}
	return n
}

// used returns what is spent or reserved in a period.
func (v view) used(i int, now time.Time) Amount {
	a := v.gone.in(i, now).plus(v.own.in(i, now)).plus(v.own.Reserved)
	for _, s := range v.others {
		a = a.plus(s.in(i, now)).plus(s.Reserved)
	}
	return a
}

// starts returns how many runs started within the window and, if there are at least most, when that
// will no longer be so.
func (v view) starts(most int, now time.Time) (n int, wait time.Duration) {
	var all []start
	add := func(list []start) {
		for _, s := range list {
			if now.UnixNano()-s.Last < int64(window) {
				n += s.N
				all = append(all, s)
			}
		}
	}
	add(v.gone.Starts)
	add(v.own.Starts)
	for _, s := range v.others {
		add(s.Starts)
	}
	if n < most {
		return n, 0
	}
	slices.SortFunc(all, func(a, b start) int { return cmp.Compare(a.Last, b.Last) })
	left := n
	for _, s := range all {
		if left -= s.N; left < most {
			return n, time.Duration(s.Last + int64(window) - now.UnixNano())
		}
	}
	return n, window
}

// admit returns why u is refused, or nil and the soft quotas that it exceeds.
func (v view) admit(l Limits, u Use, now time.Time) (refused *Refused, soft []*Refused) {
	if have := v.sum(func(s *share) int { return s.Sessions }); u.Session && l.Sessions > 0 && have >= l.Sessions {
		return &Refused{Rule: executor.RuleSessions, Limit: int64(l.Sessions), Have: int64(have)}, nil
	}
	if have := v.sum(func(s *share) int { return s.Running }); u.Run && l.RunsAtOnce > 0 && have >= l.RunsAtOnce {
		return &Refused{Rule: executor.RuleRunsAtOnce, Limit: int64(l.RunsAtOnce), Have: int64(have)}, nil
	}
	if u.Run && l.RunsPerMinute > 0 {
		if have, wait := v.starts(l.RunsPerMinute, now); have >= l.RunsPerMinute {
			return &Refused{Rule: executor.RuleRate, Limit: int64(l.RunsPerMinute), Have: int64(have), After: wait}, nil
		}
	}
	for _, q := range l.Quotas {
		i := slices.Index(Periods[:], q.Per)
		used := v.used(i, now)
		for _, c := range []struct {
			rule                   executor.Rule
			most, have, more, unit int64
		}{
			{executor.RuleQuotaRuns, q.Most.Runs, used.Runs, u.Amount.Runs, 1},
			{executor.RuleQuotaTime, int64(q.Most.Time), int64(used.Time), int64(u.Amount.Time), int64(time.Millisecond)},
			{executor.RuleQuotaCost, int64(q.Most.Cost), int64(used.Cost), int64(u.Amount.Cost), 1},
		} {
			if c.most == 0 || c.more == 0 || c.more <= c.most-c.have {
				continue
			}
			r := &Refused{Rule: c.rule, Limit: c.most / c.unit, Have: c.have / c.unit, Per: q.Per, Soft: q.Soft, After: q.Per.End(now).Sub(now)}
			if !q.Soft {
				r.Left = v.left(l, now)
				return r, nil
			}
			soft = append(soft, r)
		}
	}
	return nil, soft
}

// left returns what all quotas that are not soft would grant.
func (v view) left(l Limits, now time.Time) Amount {
	left := Amount{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for _, q := range l.Quotas {
		if q.Soft {
			continue
		}
		rest := q.Most.less(v.used(slices.Index(Periods[:], q.Per), now))
		if q.Most.Runs > 0 {
			left.Runs = min(left.Runs, rest.Runs)
		}
		if q.Most.Time > 0 {
			left.Time = min(left.Time, rest.Time)
		}
		if q.Most.Cost > 0 {
			left.Cost = min(left.Cost, rest.Cost)
		}
	}
	return left
}
