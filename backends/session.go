package backends

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// The keys that the broker adds to handles. A handle stays with the application, so its subject and
// attributes are still not sent to a backend.
const (
	metaSubject    = "broker.subject"
	metaAttributes = "broker.attributes" // as JSON
)

// maxMeta is how many bytes of attributes a handle carries, to leave room for the rest of the
// handle. If there are more, the handle carries none, and audits after Attach have none.
const maxMeta = 2 << 10

// attributesOf returns the attributes in a handle. They are hostile input: anything that is not a
// map of text is ignored.
func attributesOf(h executor.Handle) (m map[string]string) {
	if text := h.Meta[metaAttributes]; text != "" && len(text) <= maxMeta && json.Unmarshal([]byte(text), &m) != nil {
		return nil
	}
	return m
}

// session adds the guard, the statistics and the audit to a session of a route. Everything else
// passes through.
type session struct {
	executor.Session
	b       *Broker
	arm     *arm
	subject string
	born    time.Time
	own     bool // the session belongs to the program: its runs are not turns

	attributes atomic.Pointer[map[string]string] // from the Spec, or from the last Acquire
	spent      atomic.Int64                      // nanoseconds that already count for the next turn
	accounts   []account                         // that have granted held
	held       grant                             // the session, and what it may cost
	meter      meter
	known      atomic.Pointer[knownAccounts]
	billing    atomic.Bool // somebody bills it, or it is not ready yet
	suspect    atomic.Bool // its sandbox may have ended, and nobody has asked since
	watching   watching
	cohort     *cohort      // nil: the session is not counted
	first      atomic.Bool  // no run has begun since the session was created
	shadow     *follower    // nil: it is not repeated
	cost       atomic.Int64 // executor.Money that the session had cost at the last Refresh
	deaf       func() bool  // nil, or it ends what begin has asked for
	once       sync.Once
}

// begin adds the session to the statistics. The time to get the session is part of the first turn.
// It is billed from born on.
func (s *session) begin(a *arm, attributes map[string]string, took time.Duration, prices driver.Prices, grace time.Duration, born time.Time) {
	s.arm = a
	s.meter.prices, s.meter.limits, s.meter.grace = prices, s.Session.Info().Limits, grace
	s.meter.born, s.meter.free = born, prices == driver.Prices{}
	s.attributes.Store(&attributes)
	s.spent.Store(int64(took))
	a.began(s)
	var e executor.Ender
	if !s.meter.free && executor.As(s.Session, &e) {
		s.deaf = e.AfterEnd(func() {
			s.meter.lives(false)
			s.suspect.Store(true)
		})
	}
}

// As passes backend-specific values through.
func (s *session) As(target any) bool {
	if k, ok := target.(*sessions.Keeper); ok {
		*k = s
		return true
	}
	ok := executor.As(s.Session, target)
	switch target.(type) {
	case *executor.Suspender, *executor.Ender: // harmless
	default:
		if ok {
			s.shadow.leave(leftDirect, false)
		}
	}
	return ok
}

// KeeperFiles returns the files without the audit: see sessions.Keeper.
func (s *session) KeeperFiles() executor.Files {
	return &files{Files: s.shadow.files(s.Session.Files()), s: s, quiet: true}
}

// KeeperRun is Run, but not a turn: see sessions.Keeper.
func (s *session) KeeperRun(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	return s.running(ctx, opCheckpoint, req, emit)
}

// Files implements executor.Session.
func (s *session) Files() executor.Files {
	return &files{Files: s.shadow.files(s.Session.Files()), s: s}
}

// Info returns that of the route's session, with the subject in its handle.
func (s *session) Info() executor.SessionInfo { return s.mark(s.Session.Info()) }

// Refresh does the same as Info, after asking the backend.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	if err == nil || errors.Is(err, executor.ErrNotFound) {
		s.meter.lives(err == nil && i.State == executor.SessionRunning)
		s.suspect.Store(false)
	}
	if err != nil {
		return i, err
	}
	s.cost.Store(int64(s.meter.cost()))
	s.leftover(i.CPU)
	return s.mark(i), nil
}

// leftover charges the processor time of what runs have left running, as time of runs.
func (s *session) leftover(cpu time.Duration) {
	r := s.b.guard.rules()
	if !r.limitsTime() {
		return
	}
	a := ledger.Amount{Time: s.meter.leftover(cpu)}
	if a.Time == 0 {
		return
	}
	for _, of := range s.accountsNow(r) {
		s.b.guard.ledger.Add(of.name, ledger.Use{}).End(s.arm.name, a)
	}
}

// lastLook is how long the end of a session waits for the processor time of its sandbox.
const lastLook = 2 * time.Second

// look reads the processor time before the sandbox ends. If it does not answer, nobody knows.
func (s *session) look() {
	if !s.b.guard.rules().limitsTime() || !s.meter.used() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastLook)
	defer cancel()
	if i, err := s.Session.Refresh(ctx); err == nil {
		s.leftover(i.CPU)
	}
}

func (s *session) mark(i executor.SessionInfo) executor.SessionInfo {
	attributes := ""
	if p := s.attributes.Load(); p != nil && len(*p) > 0 {
		if raw, err := json.Marshal(*p); err == nil && len(raw) <= maxMeta {
			attributes = string(raw)
		}
	}
	i.Cost = executor.Money(s.cost.Load())
	if s.subject == "" && attributes == "" {
		return i
	}
	meta := i.Handle.Meta
	i.Handle.Meta = map[string]string{}
	maps.Copy(i.Handle.Meta, meta)
	for key, value := range map[string]string{metaSubject: s.subject, metaAttributes: attributes} {
		if value != "" {
			i.Handle.Meta[key] = value
		}
	}
	return i
}

// Run implements executor.Session.
func (s *session) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	return s.running(ctx, "run", req, emit)
}

// opCheckpoint is the operation of a run that makes or restores a checkpoint.
const opCheckpoint = "checkpoint"

// running is Run for an operation.
func (s *session) running(ctx context.Context, op string, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	a := Audit{Op: op, Run: req.ID, Language: s.language(req.Language)}
	a.CodeSHA256, a.CodeBytes = code(req)
	limits := req.Limits.Or(s.Session.Info().Run)
	return s.run(ctx, a, s.meter.stopped(limits.WallTime), s.meter.mostBytes(req, a.CodeBytes, limits), func() (*executor.Result, int64, error) {
		req, seen := s.shadow.running(s, req, limits.WallTime)
		res, n, err := s.passing(ctx, req, emit)
		seen.ended(res, err)
		return res, n + int64(a.CodeBytes), err
	})
}

// Reset implements executor.Session.
func (s *session) Reset(ctx context.Context, which executor.Interpreter) error {
	return s.shadow.operation(leftError, func() error { return s.Session.Reset(ctx, which) }, func() (*step, string) {
		return &step{do: func(ctx context.Context, x executor.Session) error { return x.Reset(ctx, which) }}, ""
	})
}

// Install implements executor.Session.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	named := p
	named.Language = s.Session.Info().Capabilities.Interpreter(s.language(p.Language))
	a := Audit{Op: "install", Language: named.Language, Packages: []executor.Packages{named}}
	n := int64(0)
	emit = s.meter.counted(emit, &n)
	return s.run(ctx, a, installTime, executor.DefaultOutputBytes, func() (res *executor.Result, _ int64, err error) {
		err = s.shadow.operation(leftError, func() error {
			res, err = s.Session.Install(ctx, p, emit)
			return err
		}, func() (*step, string) {
			if !s.b.guard.rules().lists(named) {
				return nil, leftPackages
			}
			return &step{do: func(ctx context.Context, x executor.Session) error {
				_, err := x.Install(ctx, named, nil)
				return err
			}}, ""
		})
		return res, n, err
	})
}

// Dial implements executor.Session.
func (s *session) Dial(ctx context.Context, port int) (executor.Conn, error) {
	a := Audit{Op: "dial", Port: port}
	s.opening(&a)
	c, err := s.Session.Dial(ctx, port)
	a.closing(nil, err)
	s.b.audit(a)
	if err != nil || s.meter.prices.GiB == 0 {
		return c, err
	}
	ctx = context.WithoutCancel(ctx) // its end does not end the connection
	return &conn{c, s.transfer(ctx, "dial"), s.transfer(ctx, "dial")}, nil
}

// language returns the language that an empty Language of a request means.
func (s *session) language(l executor.Language) executor.Language {
	if ls := s.Session.Info().Capabilities.Languages; l == "" && len(ls) > 0 {
		return ls[0].Language
	}
	return l
}

// installTime is what is reserved for an installation: the most that adapters grant it by default.
const installTime = 10 * time.Minute

// run admits, counts and audits a run that takes at most so long and passes at most so many bytes.
// do returns how many it has passed.
func (s *session) run(ctx context.Context, a Audit, most time.Duration, bytes int64, do func() (*executor.Result, int64, error)) (res *executor.Result, err error) {
	h := s.Session.Info().Handle
	s.opening(&a)
	turn := !s.own && a.Op != opCheckpoint
	var spent time.Duration
	var first bool
	if a.Op != opCheckpoint {
		spent, first = time.Duration(s.spent.Swap(0)), s.first.Swap(false)
	}
	observed := turn && s.watching.asked(&s.b.rollouts)
	defer func() {
		took := time.Since(a.Time)
		s.arm.ran(res, err, took)
		if turn {
			s.arm.turn(res, err, spent+took)
			if s.watching.ran(&s.b.rollouts, observed, res, err, spent+took, a.Cost) {
				s.arm.spoiled(s.cohort)
			}
			if err == nil && a.Op == "run" {
				s.arm.timed(first, spent, took)
			}
		}
		a.closing(res, err)
		s.b.audit(a)
	}()
	taken, notices, refused := s.admit(ctx, a, most, bytes)
	if refused != nil {
		refused.Op, refused.Backend, refused.Session = a.Op, h.Backend, h.Session
		return nil, refused
	}
	s.meter.run(1)
	began := time.Now()
	res, n, err := do()
	s.meter.run(-1)
	if res != nil && err == nil && !res.FilesLost {
		s.meter.lives(true)
	}
	a.Cost = s.settle(taken, began, n, res, err)
	if res != nil {
		res.Notices = append(res.Notices, notices...)
	}
	return res, err
}

// admit asks the guard for a run. notices are for the user.
func (s *session) admit(ctx context.Context, a Audit, most time.Duration, bytes int64) (taken grant, notices []string, refused *executor.Error) {
	r := s.b.guard.rules()
	if err := r.code(a.CodeBytes); err != nil {
		return nil, nil, err
	}
	if err := r.packages(a.Packages...); err != nil {
		return nil, nil, err
	}
	accounts := s.accountsNow(r)
	switch {
	case len(accounts) == 0:
		return nil, nil, nil
	case s.meter.free && len(r.Quotas) == 0: // only the numbers of runs are limited
		return s.b.guard.take(ctx, accounts, ledger.Use{Run: true})
	}
	if most < 0 {
		if r.needsWallTime() {
			return nil, nil, denied(executor.Denial{Rule: executor.RuleQuotaTime}, "quotas: a run without a wall time cannot be granted, because its time or cost has no bound")
		}
		most = 0
	}
	taken, notices, refused = s.b.guard.take(ctx, accounts, ledger.Use{Run: true, Amount: s.meter.most(most, bytes)})
	if refused != nil {
		s.meter.advise(refused, a.Op, most, bytes)
	}
	return taken, notices, refused
}

// settle counts what a run has come to, and returns its cost. It has passed n bytes.
func (s *session) settle(taken grant, began time.Time, n int64, res *executor.Result, err error) executor.Money {
	if s.meter.free && len(s.b.guard.rules().Quotas) == 0 {
		taken.end(s.arm.name, ledger.Amount{})
		return 0
	}
	now := time.Now()
	due := ledger.Amount{Cost: s.meter.due()}
	cost := s.meter.between(began, now)
	if idle := due.Cost - cost; idle > 0 && len(s.held) > 0 { // before the run, which has its own reservation
		s.charge(s.held, false, ledger.Amount{Cost: idle}, 0)
		s.meter.spent(idle)
		due.Cost = cost
	}
	var price executor.Money
	if res != nil || ran(err) != executor.RanNo {
		due.Runs, due.Time = 1, now.Sub(began)
		if res != nil {
			due.Time = min(due.Time, res.Duration)
		}
		price = s.meter.prices.Runs(1) + s.meter.traffic(n)
		s.meter.ran(due.Time)
	}
	due.Cost += price
	s.charge(taken, true, due, price)
	if res != nil {
		res.Usage.Cost = cost + price
	}
	return cost + price
}

// opening fills in what is known when an operation begins.
func (s *session) opening(a *Audit) {
	a.Time, a.Subject, a.Attributes = time.Now(), s.subject, *s.attributes.Load()
	a.Origin = origin(s.arm, s.Session.Info().Handle.Session)
}

// Detach implements executor.Session.
func (s *session) Detach() error {
	s.look()
	err := s.Session.Detach()
	if err == nil || errors.Is(err, executor.ErrClosed) {
		s.end()
	}
	return err
}

// Close implements executor.Session.
func (s *session) Close() error {
	s.look()
	defer s.end()
	return s.Session.Close()
}

// end ends the session in the guard and the statistics.
func (s *session) end() {
	s.once.Do(func() {
		s.shadow.ended()
		if s.deaf != nil {
			s.deaf()
		}
		s.charge(s.held, true, ledger.Amount{Cost: s.meter.due()}, 0)
		s.arm.ended(s)
		a := Audit{Op: "end"}
		s.opening(&a)
		a.closing(nil, nil)
		a.Time, a.Duration, a.Cost = s.born, time.Since(s.born), s.meter.cost()
		s.b.audit(a)
	})
}

func origin(a *arm, session string) executor.Origin {
	return executor.Origin{Backend: a.s.Backend, Session: session, Route: a.s.Route, Assigned: a.s.Assigned}
}

// ran returns what err says about whether code has run.
func ran(err error) executor.Ran {
	if e := (*executor.Error)(nil); errors.As(err, &e) {
		return e.Ran
	}
	return executor.RanMaybe
}

// named returns packages with an explicit language, if the Spec has one, and with the language
// whose list applies.
func named(spec executor.Spec) []executor.Packages {
	out := slices.Clone(spec.Packages)
	first := executor.Python
	if len(spec.Languages) > 0 {
		first = spec.Languages[0]
	}
	for i := range out {
		out[i].Language = cmp.Or(out[i].Language, first)
		if out[i].Language == executor.TypeScript { // TypeScript uses the list of JavaScript
			out[i].Language = executor.JavaScript
		}
	}
	return out
}
