package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
)

// guard is a Guard at work. What is counted is in the ledger.
type guard struct {
	warn   func(QuotaWarning)
	ledger *ledger.Ledger
	now    atomic.Pointer[rules]
}

// rules are a Guard as it was set once.
type rules struct {
	Guard
	allowed map[executor.Language][]string // normalized names
}

func (g *guard) set(cfg Guard) {
	r := &rules{Guard: cfg}
	if cfg.Packages != nil {
		r.allowed = map[executor.Language][]string{}
	}
	for l, names := range cfg.Packages {
		for _, n := range names {
			if name, err := packageName(l, n); err == nil { // check has refused other names
				r.allowed[l] = append(r.allowed[l], name)
			}
		}
	}
	g.now.Store(r)
	if g.ledger == nil {
		return // the Broker is being opened
	}
	var alone float64
	if cfg.OnStoreFailure == Local {
		alone = cmp.Or(cfg.LocalShare, defaultShare)
	}
	g.ledger.SetAlone(alone)
}

// rules returns what is in force now.
func (g *guard) rules() *rules { return g.now.Load() }

func denied(d executor.Denial, format string, args ...any) *executor.Error {
	return &executor.Error{Kind: executor.ErrDenied, Ran: executor.RanNo, Denied: d, Err: fmt.Errorf("guard: "+format, args...)}
}

// account is what a session counts for, with the limits that hold there.
type account struct {
	name   string // in the ledger
	limits ledger.Limits
}

// accounts returns those of a session: that of its subject, and those of its attributes. Without
// limits there are none.
func (r *rules) accounts(subject string, attributes map[string]string) []account {
	own := account{name: bySubject + "=" + subject, limits: ledger.Limits{RunsPerMinute: r.RunsPerMinute, RunsAtOnce: r.RunsAtOnce, Sessions: r.SessionsPerSubject}}
	var others []account
	for _, q := range r.Quotas {
		if !has(attributes, q.When) {
			continue
		}
		limit := ledger.Quota{Per: ledger.Period(q.Per), Most: ledger.Amount{Runs: q.Runs, Time: time.Duration(q.Time), Cost: q.Cost}, Soft: q.Soft}
		if q.By == "" || q.By == bySubject {
			own.limits.Quotas = append(own.limits.Quotas, limit)
			continue
		}
		value, ok := attributes[q.By]
		if !ok {
			continue
		}
		name := q.By + "=" + value
		i := slices.IndexFunc(others, func(a account) bool { return a.name == name })
		if i < 0 {
			i, others = len(others), append(others, account{name: name})
		}
		others[i].limits.Quotas = append(others[i].limits.Quotas, limit)
	}
	if own.limits.RunsPerMinute == 0 && own.limits.RunsAtOnce == 0 && own.limits.Sessions == 0 && len(r.Quotas) == 0 {
		return nil
	}
	return append([]account{own}, others...)
}

// has reports whether attributes include those of want.
func has(attributes, want map[string]string) bool {
	for k, v := range want {
		if got, ok := attributes[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// grant is what the accounts of a session have granted, in their order.
type grant []*ledger.Taken

// take asks all accounts, at the same time, and takes from all or none. notices say which soft
// quotas are exceeded.
func (g *guard) take(ctx context.Context, accounts []account, u ledger.Use) (_ grant, notices []string, _ *executor.Error) {
	taken := make(grant, len(accounts))
	errs := make([]error, len(accounts))
	soft := make([][]*ledger.Refused, len(accounts))
	ask := func(i int, a account) { taken[i], soft[i], errs[i] = g.ledger.Take(ctx, a.name, a.limits, u) }
	if len(accounts) == 1 {
		ask(0, accounts[0])
	} else {
		var wg sync.WaitGroup
		for i, a := range accounts {
			wg.Go(func() { ask(i, a) })
		}
		wg.Wait()
	}
	for i, err := range errs {
		if err != nil {
			for _, t := range taken {
				if t != nil {
					t.Void()
				}
			}
			return nil, nil, g.refusal(ctx, accounts[i], err, errs[i+1:]...)
		}
	}
	for i, a := range accounts {
		notices = append(notices, g.warned(a, soft[i])...)
	}
	return taken, notices, nil
}

// more reserves a further amount for what has been granted, for all accounts or none.
func (g *guard) more(ctx context.Context, accounts []account, have grant, amount ledger.Amount) *executor.Error {
	for i, t := range have {
		soft, err := t.More(ctx, accounts[i].limits, amount)
		g.warned(accounts[i], soft)
		if err != nil {
			for _, t := range have[:i] {
				t.Return(amount)
			}
			return g.refusal(ctx, accounts[i], err)
		}
	}
	return nil
}

// end settles g: amount was spent by an arm.
func (g grant) end(arm string, amount ledger.Amount) {
	for _, t := range g {
		t.End(arm, amount)
	}
}

// spend settles a part of g.
func (g grant) spend(arm string, amount ledger.Amount) {
	for _, t := range g {
		t.Spend(arm, amount)
	}
}

// refusal returns the error of an account that did not grant something. Other accounts may have
// refused it too.
func (g *guard) refusal(ctx context.Context, a account, err error, others ...error) *executor.Error {
	var r *ledger.Refused
	switch {
	case errors.As(err, &r):
	case ctx.Err() != nil:
		return &executor.Error{Kind: ctx.Err(), Ran: executor.RanNo}
	default:
		return &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: fmt.Errorf("guard: %w", err)}
	}
	d := executor.Denial{Rule: r.Rule, Limit: r.Limit, Have: r.Have}
	var e *executor.Error
	switch r.Rule {
	case executor.RuleSessions:
		e = denied(d, "sessions_per_subject: the subject has %d sessions already", r.Have)
	case executor.RuleRunsAtOnce:
		e = denied(d, "runs_at_once: the subject has %d runs in progress", r.Have)
	case executor.RuleRate:
		e = denied(d, "runs_per_minute: the subject has had %d runs within a minute; the next is possible in %v", r.Have, r.After.Round(time.Second))
	default:
		d.Quota, d.Renews = a.owner(), time.Now().Add(r.After)
		x := &exceededError{text: exceeded(a, r), left: r.Left}
		for _, err := range others {
			if o := (*ledger.Refused)(nil); errors.As(err, &o) && strings.HasPrefix(string(o.Rule), "quota-") {
				x.left = ledger.Least(x.left, o.Left)
			}
		}
		e = denied(d, "quotas: %w", x)
	}
	e.RetryAfter = r.After
	return e
}

// exceededError says which quota is exceeded.
type exceededError struct {
	text string
	left ledger.Amount // what the quotas that have refused would grant
}

func (e *exceededError) Error() string { return e.text }

// owner says who has the quotas of an account, without naming a user.
func (a account) owner() string {
	if strings.HasPrefix(a.name, bySubject+"=") {
		return bySubject
	}
	return a.name
}

// exceeded says which quota is exceeded, and when it begins anew.
func exceeded(a account, r *ledger.Refused) string {
	return fmt.Sprintf("%s has used or reserved %s of %s in this %s; the next %s begins in %v",
		a.owner(), amount(r.Rule, r.Have), amount(r.Rule, r.Limit), r.Per, r.Per, r.After.Round(time.Second))
}

// amount says n in the unit of a quota.
func amount(rule executor.Rule, n int64) string {
	switch rule {
	case executor.RuleQuotaTime:
		return fmt.Sprint(time.Duration(n)*time.Millisecond, " of run time")
	case executor.RuleQuotaCost:
		return "a cost of " + executor.Money(n).String()
	}
	return fmt.Sprint(n, " runs")
}

// QuotaWarning says that something was granted beyond a soft quota.
type QuotaWarning struct {
	Account string // "subject=alice", or an attribute with its value
	Denial  executor.Denial
	Text    string // for people; does not name the subject
}

// warned tells the program which soft quotas are exceeded, and returns it in words.
func (g *guard) warned(a account, soft []*ledger.Refused) (notices []string) {
	for _, r := range soft {
		notices = append(notices, exceeded(a, r))
		if g.warn == nil {
			continue
		}
		g.warn(QuotaWarning{
			Account: a.name,
			Denial:  executor.Denial{Rule: r.Rule, Limit: r.Limit, Have: r.Have, Quota: a.owner(), Renews: time.Now().Add(r.After)},
			Text:    exceeded(a, r),
		})
	}
	return notices
}

// code refuses a run of too many bytes.
func (r *rules) code(size int) *executor.Error {
	if most := r.CodeBytes; most > 0 && size > most {
		return denied(executor.Denial{Rule: executor.RuleCodeSize, Limit: int64(most), Have: int64(size)}, "code_bytes: the code has %d bytes, and %d are allowed", size, most)
	}
	return nil
}

// packages refuses packages that are not on the list.
func (r *rules) packages(ps ...executor.Packages) *executor.Error {
	if r.allowed == nil {
		return nil
	}
	for _, p := range ps {
		for _, text := range p.Names {
			name, err := packageName(p.Language, text)
			if err != nil {
				return &executor.Error{Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf("packages: %w", err)} // every backend would refuse it
			}
			if !slices.Contains(r.allowed[p.Language], name) {
				return denied(executor.Denial{Rule: executor.RulePackage, Package: name}, "packages: %s is not on the list of %s packages; allowed are: %s",
					name, p.Language, strings.Join(r.allowed[p.Language], ", "))
			}
		}
	}
	return nil
}

// arms of the ledger.
func (k armKey) String() string { return strings.Join([]string{k.route, k.assigned, k.backend}, " ") }
