package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// Options configures New.
type Options struct {
	// Store is shared with other processes. Nil counts in memory only.
	Store sessions.Store
	// Instance and Life name this process: see sessions.Manager. Life differs after a restart.
	Instance, Life string
	// LifeOf returns the Life of the process that has an Instance now, or "".
	LifeOf func(ctx context.Context, instance string) (string, error)
	// Alone is how much of each limit this process may grant by itself while the Store fails,
	// as a fraction. Zero: nothing; Take then fails with the error of the Store.
	Alone float64
	// Tick is how often shares of dead processes are looked for and failed writes are repeated.
	// Default 10 s.
	Tick time.Duration
	Log  *slog.Logger
}

// Ledger has the accounts that this process uses. All methods are safe for concurrent use.
type Ledger struct {
	opts   Options
	ctx    context.Context // ends the background work
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	accounts map[string]*account
	tidied   time.Time
	away     error     // why the store failed last
	until    time.Time // until then nobody asks it again

	alone int64 // how often something was granted without the store
}

// storeTime bounds one write with its repetitions. A store that is slower counts as failed.
const storeTime = 5 * time.Second

// pause is how long a store that failed is not asked again by a Take.
const pause = time.Second

// New makes a Ledger. Close ends it.
func New(o Options) *Ledger {
	if o.Tick == 0 {
		o.Tick = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{opts: o, accounts: map[string]*account{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if o.Store != nil {
		l.work.Go(l.beat)
	}
	return l
}

// Use is what a Take is about. A Use that is neither a session nor a run is only its Amount.
type Use struct {
	Session bool   // one more session
	Run     bool   // one more run at once, and one more within the minute
	Amount  Amount // the most that it may come to
}

// Taken is what an account has granted. End gives it back.
type Taken struct {
	l *Ledger
	a *account

	// account.mu guards these.
	use   Use
	ahead Amount // counted as spent already, when this process was taken for dead
	taken bool   // granted
	ended bool

	started bool // its start is noted
}

// account is one account.
type account struct {
	key, name string

	mu        sync.Mutex
	own       share            // what is true of this process, granted by the store
	others    map[string]share // by Instance, as last read
	gone      totals           // of processes that are gone
	rev       string           // of the entry in the store
	value     []byte           // of that entry, if it has fields that this program does not know
	read      bool             // others, gone and rev are known, and no write has failed since
	stored    bool             // own is in the store
	dirty     bool             // own has changed since it was stored
	writing   bool
	forgotten bool // Ledger.accounts no longer has it
	quotas    bool // it has had quotas
	queue     []*op
	held      int             // what is taken and has not ended
	live      map[*Taken]bool // the same, if there is a store
	alone     share           // what was granted without the store since it failed

	missed map[string]bool // processes that did not live at the last tick
}

// op is a Take that waits for the store.
type op struct {
	limits  Limits
	use     Use
	taken   *Taken
	done    chan struct{}
	refused *Refused
	soft    []*Refused
	err     error
	left    bool // the caller no longer waits
}

// Take grants u to the account of that name, or returns a *Refused. soft has the soft quotas that
// are exceeded now. It fails with another error if the store fails or ctx ends; then nothing is
// taken.
func (l *Ledger) Take(ctx context.Context, name string, limits Limits, u Use) (t *Taken, soft []*Refused, err error) {
	t = &Taken{l: l}
	for retry := true; retry; { // the account may be forgotten between the two calls
		t.a = l.account(name)
		soft, retry, err = l.grant(ctx, &op{limits: limits, use: u, taken: t})
	}
	if err != nil {
		return nil, nil, err
	}
	return t, soft, nil
}

// More reserves a further amount for what t stands for.
func (t *Taken) More(ctx context.Context, limits Limits, more Amount) (soft []*Refused, err error) {
	soft, _, err = t.l.grant(ctx, &op{limits: limits, use: Use{Amount: more}, taken: t})
	return soft, err
}

// grant does what o says. forgotten says that its account is no longer that of its name.
func (l *Ledger) grant(ctx context.Context, o *op) (soft []*Refused, forgotten bool, err error) {
	a := o.taken.a
	a.mu.Lock()
	if a.forgotten {
		a.mu.Unlock()
		return nil, true, nil
	}
	a.quotas = a.quotas || len(o.limits.Quotas) > 0
	if l.opts.Store == nil {
		defer a.mu.Unlock()
		soft, err = a.decide(o)
		return soft, false, err
	}
	if err := l.failed(); err != nil {
		defer a.mu.Unlock()
		soft, err = l.decideAlone(a, o, err)
		return soft, false, err
	}
	o.done = make(chan struct{})
	a.queue = append(a.queue, o)
	l.start(a)
	a.mu.Unlock()
	select {
	case <-o.done:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-o.done:
	default:
		o.left = true
		return nil, false, ctx.Err()
	}
	switch {
	case o.err != nil:
		soft, err = l.decideAlone(a, o, o.err)
		return soft, false, err
	case o.refused != nil:
		return nil, false, o.refused
	}
	return o.soft, false, nil
}

// decide grants or refuses o in memory. The caller has locked a.
func (a *account) decide(o *op) ([]*Refused, error) {
	now := time.Now()
	refused, soft := view{&a.own, a.others, &a.gone}.admit(o.limits, o.use, now)
	if refused != nil {
		return nil, refused
	}
	a.take(o, now)
	return soft, nil
}

// take adds what was granted to the share of this process. The caller has locked a.
func (a *account) take(o *op, now time.Time) {
	t := o.taken
	if t.ended { // while More was under way
		a.dirty = true
		return
	}
	a.own.take(o.use, o.limits, now)
	t.started = t.started || o.use.Run && o.limits.RunsPerMinute > 0
	t.use.Session, t.use.Run = t.use.Session || o.use.Session, t.use.Run || o.use.Run
	t.use.Amount = t.use.Amount.plus(o.use.Amount)
	if a.live != nil {
		a.live[t] = true
	}
	if !t.taken {
		t.taken = true
		a.held++
	}
}

// take adds what was granted. The start of a run is noted only where a limit asks for it.
func (s *share) take(u Use, l Limits, now time.Time) {
	if u.Session {
		s.Sessions++
	}
	if u.Run {
		s.Running++
		if l.RunsPerMinute > 0 {
			s.started(now)
		}
	}
	s.Reserved = s.Reserved.plus(u.Amount)
}

// Add counts u without asking the store or any limit: what it stands for exists already.
func (l *Ledger) Add(name string, u Use) *Taken {
	for {
		t := &Taken{l: l, a: l.account(name)}
		if t.a.add(u, t) {
			return t
		}
	}
}

// add is Add. It returns false if the account has been forgotten.
func (a *account) add(u Use, t *Taken) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forgotten {
		return false
	}
	a.take(&op{use: u, taken: t}, time.Now())
	a.dirty = true
	t.l.start(a)
	return true
}

// Void ends t as if it had not been taken.
func (t *Taken) Void() {
	t.a.mu.Lock()
	if last := len(t.a.own.Starts) - 1; t.started && !t.ended && last >= 0 {
		if s := &t.a.own.Starts[last]; s.N > 1 {
			s.N--
		} else {
			t.a.own.Starts = t.a.own.Starts[:last]
		}
	}
	t.a.mu.Unlock()
	t.End("", Amount{})
}

// Spend moves an amount from what is reserved to what is spent by an arm. What is more than the
// reservation is spent too.
func (t *Taken) Spend(arm string, a Amount) {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	if !t.ended {
		t.spend(arm, a)
		t.l.start(t.a)
	}
}

// spend is Spend. The caller has locked the account.
func (t *Taken) spend(arm string, a Amount) {
	s := &t.a.own
	s.Reserved = s.Reserved.less(Least(a, t.use.Amount))
	t.use.Amount = t.use.Amount.less(a)
	paid := Least(a, t.ahead)
	t.ahead = t.ahead.less(paid)
	s.spend(arm, a.less(paid), time.Now())
	t.a.dirty = true
}

// Keep gives back what is reserved beyond rest.
func (t *Taken) Keep(rest Amount) {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	t.giveBack(t.use.Amount.less(rest))
	t.l.start(t.a)
}

// Return gives back a part of what is reserved.
func (t *Taken) Return(a Amount) {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	t.giveBack(Least(a, t.use.Amount))
	t.l.start(t.a)
}

func (t *Taken) giveBack(a Amount) {
	if t.ended || a == (Amount{}) {
		return
	}
	t.a.own.Reserved = t.a.own.Reserved.less(a)
	t.use.Amount = t.use.Amount.less(a)
	t.a.dirty = true
}

// End settles t: a was spent by an arm, and the rest is given back. It does not wait for the store.
// A second End does nothing.
func (t *Taken) End(arm string, a Amount) {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	if t.ended {
		return
	}
	t.spend(arm, a)
	t.giveBack(t.use.Amount)
	if t.use.Session {
		t.a.own.Sessions--
	}
	if t.use.Run {
		t.a.own.Running--
	}
	t.ended = true
	t.a.dirty = true
	t.a.held--
	delete(t.a.live, t)
	t.l.start(t.a)
}

// account returns the account of a name.
func (l *Ledger) account(name string) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy()
	a := l.accounts[name]
	if a == nil {
		a = &account{name: name, own: share{Life: l.opts.Life}}
		if l.opts.Store != nil {
			a.key, a.live = key(name), map[*Taken]bool{}
			a.own.Today.Holder = rand.Text()
		}
		l.accounts[name] = a
	}
	return a
}

// The prefixes of keys in the store.
const (
	accountPrefix = "account/"
	usagePrefix   = "usage/"
)

// key returns the key of an account. A name may be any text, so its hash is used.
func key(name string) string {
	h := sha256.Sum256([]byte(name))
	return accountPrefix + hex.EncodeToString(h[:16])
}

// tidy forgets, once in a while, the accounts about which there is nothing to know. The caller
// holds the lock.
func (l *Ledger) tidy() {
	now := time.Now()
	if now.Sub(l.tidied) < window {
		return
	}
	l.tidied = now
	crowded := len(l.accounts) > maxAccounts
	for name, a := range l.accounts {
		if a.idle(now, l.opts.Store != nil, crowded) {
			delete(l.accounts, name)
		}
	}
}

// maxAccounts is how many accounts without quotas are kept in memory for reports.
const maxAccounts = 100_000

// idle reports whether the account can be forgotten: nothing is in use, and what was used is in the
// store or no longer counts. If it is crowded, what was used without a quota does not count.
func (a *account) idle(now time.Time, shared, crowded bool) bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	if a.held > 0 || len(a.queue) > 0 || a.writing || a.dirty {
		return false
	}
	if shared {
		a.forgotten = true
		return true
	}
	for i := range Periods {
		if a.own.in(i, now) != (Amount{}) && (a.quotas || !crowded) {
			return false
		}
	}
	n, _ := view{&a.own, nil, &a.gone}.starts(1, now)
	a.forgotten = n == 0
	return a.forgotten
}

// failed returns why the store has just failed, or nil.
func (l *Ledger) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		return l.away
	}
	return nil
}

// observe notes how the store answered.
func (l *Ledger) observe(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		if l.away != nil {
			l.opts.Log.Info("the store answers again")
		}
		l.away, l.until = nil, time.Time{}
	default:
		if l.away == nil {
			l.opts.Log.Warn("limits: the store failed", "error", err)
		}
		l.away, l.until = err, time.Now().Add(pause)
	}
}

// State says how the ledger does.
type State struct {
	Away  error // why the store cannot be reached; nil: it can, or there is none
	Alone int64 // how many times something was granted without the store
}

// State returns how the ledger does.
func (l *Ledger) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{l.away, l.alone}
}

// SetAlone changes Options.Alone.
func (l *Ledger) SetAlone(part float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opts.Alone = part
}

// decideAlone decides without the store, which failed with err, by the share of the limits that
// this process may use up. The caller has locked a.
func (l *Ledger) decideAlone(a *account, o *op, err error) ([]*Refused, error) {
	l.mu.Lock()
	part := l.opts.Alone
	l.mu.Unlock()
	if part <= 0 || o.limits.Shared {
		return nil, fmt.Errorf("the store of the limits: %w", err)
	}
	now := time.Now()
	refused, soft := view{&a.own, a.others, &a.gone}.admit(o.limits, o.use, now)
	if refused == nil {
		refused, _ = view{own: &a.alone, gone: &totals{}}.admit(o.limits.part(part), o.use, now)
	}
	if refused != nil {
		return nil, refused
	}
	a.alone.take(o.use, o.limits, now) // stays taken until the store is back
	a.take(o, now)
	a.dirty = true
	l.mu.Lock()
	l.alone++
	l.mu.Unlock()
	return soft, nil
}

// part returns a fraction of the limits, at least one of what is counted.
func (l Limits) part(f float64) Limits {
	n := func(x int) int {
		if x == 0 {
			return 0
		}
		return max(1, int(float64(x)*f))
	}
	p := Limits{RunsPerMinute: n(l.RunsPerMinute), RunsAtOnce: n(l.RunsAtOnce), Sessions: n(l.Sessions)}
	for _, q := range l.Quotas {
		if q.Soft {
			continue
		}
		m := &q.Most
		m.Runs, m.Time, m.Cost = scale(m.Runs, f), scale(m.Time, f), scale(m.Cost, f)
		p.Quotas = append(p.Quotas, q)
	}
	return p
}

func scale[N ~int64](n N, f float64) N {
	if n == 0 {
		return 0
	}
	return max(1, N(float64(n)*f))
}

// Close writes what is still to be written and ends the background work. What is taken then stays
// reserved until another process finds this one gone.
func (l *Ledger) Close(ctx context.Context) error {
	l.cancel()
	l.work.Wait()
	if l.opts.Store == nil {
		return nil
	}
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.accounts))
	l.mu.Unlock()
	var errs []error
	for _, a := range all {
		a.mu.Lock()
		dirty := a.dirty
		a.mu.Unlock()
		if dirty {
			errs = append(errs, l.round(ctx, a, nil))
		}
	}
	return errors.Join(errs...)
}
