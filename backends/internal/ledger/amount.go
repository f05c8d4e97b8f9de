package ledger

import (
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Amount is what runs and sessions come to.
type Amount struct {
	Runs int64          `json:"runs,omitempty"`
	Time time.Duration  `json:"time_ns,omitempty"` // of runs
	Cost executor.Money `json:"cost,omitempty"`
}

func (a Amount) plus(b Amount) Amount {
	return Amount{a.Runs + b.Runs, a.Time + b.Time, a.Cost + b.Cost}
}

// less returns a without b, and zero where b is more than a.
func (a Amount) less(b Amount) Amount {
	return Amount{max(a.Runs-b.Runs, 0), max(a.Time-b.Time, 0), max(a.Cost-b.Cost, 0)}
}

// Least returns the lower fields of a and b.
func Least(a, b Amount) Amount {
	return Amount{min(a.Runs, b.Runs), min(a.Time, b.Time), min(a.Cost, b.Cost)}
}

// A Period is the time after which a Quota begins anew, in UTC.
type Period string

// The periods.
const (
	Hour  Period = "hour"
	Day   Period = "day"
	Month Period = "month"
)

// Periods are all of them.
var Periods = [...]Period{Hour, Day, Month}

// Begin returns the beginning of the period that contains t.
func (p Period) Begin(t time.Time) time.Time {
	t = t.UTC()
	switch p {
	case Hour:
		return t.Truncate(time.Hour)
	case Day:
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	}
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// End returns the end of the period that contains t.
func (p Period) End(t time.Time) time.Time {
	begin := p.Begin(t)
	switch p {
	case Hour:
		return begin.Add(time.Hour)
	case Day:
		return begin.AddDate(0, 0, 1)
	}
	return begin.AddDate(0, 1, 0)
}

// Limits are those of an account. Zero fields are no limits.
type Limits struct {
	RunsPerMinute int // in any 60 seconds
	RunsAtOnce    int
	Sessions      int
	Quotas        []Quota
	Shared        bool // nothing is granted without the store
}

// A Quota is the most that an account may use in a period. Zero fields of Most are no limits.
type Quota struct {
	Per  Period
	Most Amount
	Soft bool // more is granted, and reported
}

// Refused says which limit refused, and by which numbers.
type Refused struct {
	Rule        executor.Rule
	Limit, Have int64         // runs, sessions, milliseconds or millionths of the currency
	Per         Period        // of a quota
	Soft        bool          // the limit did not refuse: it was only to be told
	After       time.Duration // when the answer may be another; 0: not known
	Left        Amount        // what the quotas of the account would grant now; a field that none limits is the highest number
}

// Error implements error. The callers have better words.
func (r *Refused) Error() string { return string(r.Rule) }
