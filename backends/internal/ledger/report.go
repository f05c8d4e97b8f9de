package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// Row is what an account has spent by one arm on one day.
type Row struct {
	Account string
	Day     time.Time // its beginning, in UTC
	Arm     string    // as given to Spend and End; empty: not known, or beyond the number of arms
	Amount
}

// archived is a day in the store.
type archived struct {
	Account string `json:"account"`
	dayUse
}

// keepUsage is how long days are archived: a year, and time to write the bill.
const keepUsage = 400 * 24 * time.Hour

const dayForm = "2006-01-02"

// archive stores a day. A day that is there already is the same.
func (l *Ledger) archive(ctx context.Context, account string, u dayUse) error {
	day := time.Unix(u.Day, 0).UTC()
	e := sessions.Entry{Expires: day.Add(keepUsage)}
	if err := e.Encode(archived{account, u}); err != nil {
		return err
	}
	name := usagePrefix + day.Format(dayForm) + "/" + strings.TrimPrefix(key(account), accountPrefix) + "/" + u.Holder
	_, err := l.opts.Store.Put(ctx, name, e)
	if errors.Is(err, sessions.ErrConflict) {
		return nil
	}
	return err
}

// days are what processes have spent, each once.
type days map[holding]map[string]Amount

type holding struct {
	account string
	day     int64
	holder  string
}

func (d days) add(account string, list ...dayUse) {
	for _, u := range list {
		d[holding{account, u.Day, u.Holder}] = u.Arms
	}
}

func (d days) addTotals(account string, t totals) {
	d.add(account, t.Old...)
	d.add(account, t.Today)
}

// Report returns what was spent from one day to another, both included, sorted by day, account and
// arm.
func (l *Ledger) Report(ctx context.Context, from, to time.Time) ([]Row, error) {
	if l.opts.Store != nil {
		return Report(ctx, l.opts.Store, from, to)
	}
	l.mu.Lock()
	all := maps.Clone(l.accounts)
	l.mu.Unlock()
	d := days{}
	for name, a := range all {
		a.mu.Lock()
		d.addTotals(name, a.own.clone().totals)
		a.mu.Unlock()
	}
	return d.rows(from, to), nil
}

// Report is Ledger.Report for all processes that share a store. It reads all accounts.
func Report(ctx context.Context, store sessions.Store, from, to time.Time) ([]Row, error) {
	d := days{}
	if err := d.scan(ctx, store, from, to); err != nil {
		return nil, err
	}
	return d.rows(from, to), nil
}

// rows adds up what was spent in days from one to another.
func (d days) rows(from, to time.Time) []Row {
	from, to = Day.Begin(from), Day.Begin(to)
	sums := map[Row]Amount{}
	for h, arms := range d {
		day := time.Unix(h.day, 0).UTC()
		if day.Before(from) || day.After(to) {
			continue
		}
		for arm, a := range arms {
			r := Row{Account: h.account, Day: day, Arm: arm}
			sums[r] = sums[r].plus(a)
		}
	}
	rows := make([]Row, 0, len(sums))
	for r, a := range sums {
		r.Amount = a
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Arm, b.Arm))
	})
	return rows
}

// scan reads the days that accounts have, and then those that are archived: one that is archived
// meanwhile is read twice rather than not at all.
func (d days) scan(ctx context.Context, store sessions.Store, from, to time.Time) error {
	each := func(prefix string, f func(sessions.Entry) error) error {
		for k, err := range store.Keys(ctx, prefix) {
			if err != nil {
				return err
			}
			e, err := store.Get(ctx, k)
			if err == nil && e.Rev != "" {
				err = f(e)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		return nil
	}
	err := each(accountPrefix, func(e sessions.Entry) error {
		doc, err := decode(&e)
		d.addTotals(doc.Name, doc.Gone)
		for _, s := range doc.Shares {
			d.addTotals(doc.Name, s.totals)
		}
		return err
	})
	for day := Day.Begin(from); err == nil && !day.After(to); day = day.AddDate(0, 0, 1) {
		err = each(usagePrefix+day.Format(dayForm)+"/", func(e sessions.Entry) error {
			var u archived
			err := e.Decode(&u)
			d.add(u.Account, u.dayUse)
			return err
		})
	}
	return err
}
