package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// document is an account in the store.
type document struct {
	Name   string           `json:"name"`
	Shares map[string]share `json:"shares"` // by Instance
	Gone   totals           `json:"gone,omitzero"`
}

// keep is how long an account stays in the store after its last write. The longest period is a
// month.
const keep = 40 * 24 * time.Hour

// start writes the account in the background, if there is something to write and nobody does it
// already. The caller has locked a.
func (l *Ledger) start(a *account) {
	if a.writing || l.opts.Store == nil || len(a.queue) == 0 && !a.dirty || l.ctx.Err() != nil {
		return
	}
	a.writing = true
	l.work.Go(func() { l.write(a) })
}

// write grants what is queued until there is nothing left to write.
func (l *Ledger) write(a *account) {
	for {
		a.mu.Lock()
		ops := a.queue
		a.queue = nil
		if len(ops) == 0 && !a.dirty {
			a.writing = false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.ctx, storeTime)
		err := l.round(ctx, a, ops)
		cancel()
		if err == nil {
			continue
		}
		a.mu.Lock()
		a.writing = false // the tick tries again
		ops, a.queue = a.queue, nil
		a.mu.Unlock()
		a.answer(ops, err)
		return
	}
}

// answer ends ops with an error of the store.
func (a *account) answer(ops []*op, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range ops {
		o.err = err
		close(o.done)
	}
}

// round grants ops, by one write if nobody else has written meanwhile, and stores the share of this
// process. How the store answered is noted before the callers go on, so that State agrees with what
// they were told.
func (l *Ledger) round(ctx context.Context, a *account, ops []*op) error {
	fresh := false
	for {
		a.mu.Lock()
		read := a.read
		a.mu.Unlock()
		if !read {
			if err := l.load(ctx, a); err != nil {
				l.observe(err)
				a.answer(ops, err)
				return err
			}
			fresh = true
		}
		a.mu.Lock()
		now := time.Now()
		own := a.own.clone()
		granted, refused := a.weigh(ops, &own, now)
		if refused > 0 && !fresh {
			a.read = false // nothing is refused by numbers that another process may have changed
			a.mu.Unlock()
			continue
		}
		if granted == 0 && !a.dirty {
			l.observe(nil)
			a.finish(ops)
			a.mu.Unlock()
			return nil
		}
		a.dirty = false
		e, err := a.encode(own, l.opts.Instance, now)
		a.mu.Unlock()
		var rev string
		if err == nil {
			rev, err = l.opts.Store.Put(ctx, a.key, e)
		}
		a.mu.Lock()
		switch {
		case err == nil:
			a.rev, a.stored = rev, true
			if len(a.value) > 0 {
				a.value = e.Value
			}
			a.alone = share{}
			l.observe(nil)
			a.finish(ops)
			a.mu.Unlock()
			return nil
		case errors.Is(err, sessions.ErrConflict):
			a.read, a.dirty = false, true
			a.mu.Unlock()
			fresh = false
		default: // it may have been written, so what is true is written again
			a.read, a.dirty = false, true
			a.mu.Unlock()
			l.observe(err)
			a.answer(ops, err)
			return err
		}
	}
}

// weigh decides ops one after the other, each with those before it, and adds what it grants to own.
// The caller has locked a.
func (a *account) weigh(ops []*op, own *share, now time.Time) (granted, refused int) {
	for _, o := range ops {
		if o.refused, o.soft = (view{own, a.others, &a.gone}).admit(o.limits, o.use, now); o.refused != nil {
			refused++
			continue
		}
		own.take(o.use, o.limits, now)
		granted++
	}
	return granted, refused
}

// finish tells the callers of ops. What is granted to one that has left is given back. The caller
// has locked a.
func (a *account) finish(ops []*op) {
	for _, o := range ops {
		if o.refused == nil {
			if o.left {
				a.dirty = true // the store has it, and this process does not
			} else {
				a.take(o, time.Now())
			}
		}
		close(o.done)
	}
}

// encode returns the entry of the account with own as the share of this process. The caller has
// locked a.
func (a *account) encode(own share, instance string, now time.Time) (sessions.Entry, error) {
	d := document{Name: a.name, Shares: maps.Clone(a.others), Gone: a.gone}
	if d.Shares == nil {
		d.Shares = map[string]share{}
	}
	d.Shares[instance] = own
	e := sessions.Entry{Value: a.value, Rev: a.rev, Expires: now.Add(keep)}
	err := e.Encode(d)
	return e, err
}

// load reads the account.
func (l *Ledger) load(ctx context.Context, a *account) error {
	e, err := l.opts.Store.Get(ctx, a.key)
	if err != nil {
		return err
	}
	d, err := decode(&e)
	if err != nil {
		return fmt.Errorf("account %q: %w", a.name, err)
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	mine, found := d.Shares[l.opts.Instance]
	delete(d.Shares, l.opts.Instance)
	a.others, a.gone, a.rev, a.value, a.read = d.Shares, d.Gone, e.Rev, e.Value, true
	switch {
	case found && mine.Life != l.opts.Life: // of the process whose place this one has taken
		a.gone.absorb(mine, now)
		a.dirty = true
	case found && !a.stored: // this process has used the account before and forgotten it
		a.own.adopt(mine)
		a.stored = true
	case !found && a.stored:
		a.buried()
	}
	return nil
}

// adopt adds what the store knows of this process to a share that was begun without it.
func (s *share) adopt(old share) {
	began := s.totals
	s.totals = old.totals
	s.Starts = append(s.Starts, began.Starts...)
	s.Old = append(s.Old, began.Old...)
	for i, b := range began.Spent {
		switch o := &s.Spent[i]; {
		case o.From == b.From:
			o.Amount = o.Amount.plus(b.Amount)
		case o.From < b.From:
			*o = b
		}
	}
	if len(began.Today.Arms) == 0 {
		return
	}
	if s.Today.Day != began.Today.Day {
		if len(s.Today.Arms) > 0 {
			s.Old = append(s.Old, s.Today)
		}
		s.Today = began.Today
		return
	}
	for arm, n := range began.Today.Arms {
		s.Today.Arms[arm] = s.Today.Arms[arm].plus(n)
	}
}

// buried is for a process that was taken for dead: what it had spent and reserved is among what the
// dead have spent, and does not count again. The caller has locked a.
func (a *account) buried() {
	a.own.totals = totals{Today: dayUse{Holder: rand.Text()}}
	a.own.Reserved = Amount{}
	for t := range a.live {
		t.ahead = t.ahead.plus(t.use.Amount)
		t.use.Amount = Amount{}
	}
	a.dirty = true
}

// decode returns the account of an entry, and leaves in it what Encode needs.
func decode(e *sessions.Entry) (d document, err error) {
	if e.Rev == "" {
		return document{Shares: map[string]share{}}, nil
	}
	if err := e.DecodeForUpdate(&d); err != nil {
		return document{}, fmt.Errorf("an account cannot be read: %w", err)
	}
	if d.Shares == nil {
		d.Shares = map[string]share{}
	}
	return d, nil
}

// beat repeats failed writes, archives what is of earlier days, and takes out the shares of
// processes that are gone.
func (l *Ledger) beat() {
	t := time.NewTicker(l.opts.Tick)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		all := slices.Collect(maps.Values(l.accounts))
		l.tidy()
		l.mu.Unlock()
		lives := map[string]string{}
		for _, a := range all {
			if err := l.visit(a, lives); err != nil {
				l.opts.Log.Warn("limits", "account", a.name, "error", err)
				break // the next tick tries again
			}
		}
	}
}

// visit does for one account what beat is for. lives are the answers about processes so far.
func (l *Ledger) visit(a *account, lives map[string]string) error {
	ctx, cancel := context.WithTimeout(l.ctx, storeTime)
	defer cancel()
	a.mu.Lock()
	others := maps.Clone(a.others)
	old := slices.Clone(a.own.Old)
	if a.read && !a.dirty && !a.writing {
		// Only what the store has among the dead is archived. A process whose share was taken over
		// here but not there may live on, and spend more on the same day.
		old = append(old, a.gone.Old...)
	}
	a.mu.Unlock()
	dead := map[string]bool{}
	for instance, s := range others {
		life, asked := lives[instance]
		if !asked {
			var err error
			if life, err = l.opts.LifeOf(ctx, instance); err != nil {
				return err
			}
			lives[instance] = life
		}
		if life != s.Life {
			dead[instance] = true
		}
	}
	for _, u := range old {
		if err := l.archive(ctx, a.name, u); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for instance := range dead {
		// A process that has just begun may not have said yet that it lives.
		if s, there := a.others[instance]; there && a.missed[instance] {
			a.gone.absorb(s, time.Now())
			delete(a.others, instance)
			a.dirty = true
		}
	}
	a.missed = dead
	archived := func(u dayUse) bool {
		return slices.ContainsFunc(old, func(o dayUse) bool { return o.Day == u.Day && o.Holder == u.Holder })
	}
	if len(old) > 0 {
		a.own.Old, a.gone.Old = slices.DeleteFunc(a.own.Old, archived), slices.DeleteFunc(slices.Clone(a.gone.Old), archived)
		a.dirty = true
	}
	l.start(a)
	return nil
}
