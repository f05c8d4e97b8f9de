package backends

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
)

// ShadowAudit is what an Audit says about a repetition. Its Origin.Backend is where it ran.
type ShadowAudit struct {
	What     string `json:"what"`               // "create", "run" or "end"
	Original string `json:"original"`           // the session of the user
	Control  bool   `json:"control,omitempty"`  // repeated on the backend of the original
	Class    string `json:"class,omitempty"`    // of a run: how it differs; empty: not at all
	Left     string `json:"left,omitempty"`     // of the end: why the conversation left the sample
	Compared int    `json:"compared,omitempty"` // of the end: how many runs were compared
}

// repetition is a conversation that is being repeated. Only follower.follow uses it.
type repetition struct {
	f        *follower
	m        *member
	x        executor.Session // nil: not created yet
	meter    meter
	held     *ledger.Taken // the sandbox, and its next minute
	compared int
	example  example
}

// stepTime bounds a change of files, and runGrace how long the end of a run may take.
const (
	stepTime = time.Minute
	runGrace = 30 * time.Second
)

// follow repeats what the user does until the conversation leaves the sample.
func (f *follower) follow(ctx context.Context) {
	r := &repetition{f: f}
	defer r.end()
	r.example.begin(f.sh.Keep)
	bill := time.NewTicker(billing)
	defer bill.Stop()
	last := time.Now()
	for {
		st, ok, more := f.next()
		switch {
		case ok:
			if why := r.step(ctx, st); why != "" {
				if ctx.Err() != nil {
					why = leftClosed
				}
				f.leave(why, true)
				return
			}
			last = time.Now()
			continue
		case !more:
			return
		}
		select {
		case <-ctx.Done():
			f.leave(leftClosed, true)
			return
		case <-f.wake:
		case <-bill.C:
			if time.Since(last) >= shadowIdle {
				f.leave(leftIdle, true)
				return
			}
			if why := r.bill(ctx); why != "" {
				f.leave(why, true)
				return
			}
		}
	}
}

// step repeats one operation. why is not empty if the conversation leaves the sample.
func (r *repetition) step(ctx context.Context, st step) (why string) {
	if r.x == nil {
		if why := r.create(ctx, st.run); why != "" {
			return why
		}
	}
	if st.run != nil {
		return r.run(ctx, *st.run)
	}
	r.example.step(st.file)
	if cost := r.meter.passing(st.size); cost > 0 {
		taken, err := r.take(ctx, ledger.Use{Amount: ledger.Amount{Cost: cost}})
		if err != nil {
			return leftBy(err)
		}
		defer func() { taken.End(r.arm(), ledger.Amount{Cost: r.meter.traffic(st.size)}) }()
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	switch err := st.do(ctx, r.x); {
	case err == nil:
		return r.bill(ctx)
	case errors.Is(err, executor.ErrUnavailable), errors.Is(err, executor.ErrNotFound):
		return leftDown
	}
	return leftFiles
}

func (r *repetition) take(ctx context.Context, u ledger.Use) (*ledger.Taken, error) {
	t, _, err := r.f.s.b.guard.ledger.Take(ctx, r.f.sh.account.name, r.f.sh.account.limits, u)
	return t, err
}

// arm is that of the ledger for what repetitions cost.
func (r *repetition) arm() string { return armKey{r.f.sh.route, r.f.sh.To, r.f.to}.String() }

// create makes the sandbox.
func (r *repetition) create(ctx context.Context, first *pastRun) (why string) {
	f, b := r.f, r.f.s.b
	a := r.audit("create")
	prices := b.prices(b.current(), f.to)
	var err error
	if r.held, err = r.take(ctx, ledger.Use{Session: true, Amount: ledger.Amount{Cost: prices.Life(f.spec.Limits, ahead)}}); err != nil {
		return leftBy(err)
	}
	if r.m, err = f.s.member(ctx, f.to); err != nil {
		b.env.Logger().Warn("shadow: open a backend", "backend", f.to, "error", err)
		return leftDown
	}
	spec := f.spec
	if r.m.Info().Capabilities.Has(executor.FeatureKeepAlive) {
		spec.IdleTTL = shadowIdle + stepTime // for the case that this process dies
	}
	r.x, err = r.m.Create(ctx, spec)
	if err == nil {
		r.meter.prices, r.meter.limits, r.meter.grace, r.meter.born = prices, r.x.Info().Limits, r.m.Info().Grace, time.Now()
		a.Origin.Session = r.x.Info().Handle.Session
	}
	a.closing(nil, err)
	b.audit(a)
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return leftClosed
	case errors.Is(err, executor.ErrUnsupported) && first != nil:
		r.found(*first, compare.Failed(err))
		return leftDiffered
	}
	return leftDown
}

// run repeats a run and compares.
func (r *repetition) run(ctx context.Context, past pastRun) (why string) {
	f, b := r.f, r.f.s.b
	a := r.audit("run")
	a.Language = past.language
	a.CodeSHA256, a.CodeBytes = code(past.req)
	passed := int64(a.CodeBytes + len(past.stdin))
	most := r.meter.mostBytes(past.req, int(passed), past.req.Limits.Or(r.x.Info().Run))
	taken, err := r.take(ctx, ledger.Use{Run: true, Amount: r.meter.most(r.meter.stopped(past.wall), most)})
	if err != nil {
		return leftBy(err)
	}
	req := past.req
	req.Language = past.language
	if len(req.Command) > 0 {
		req.Language = ""
	}
	if past.req.Limits.WallTime == 0 {
		req.Limits.WallTime = past.wall // that of the original, whatever the backend's own is
	}
	if past.stdin != nil {
		req.Stdin = bytes.NewReader(past.stdin)
	}
	r.example.run(past)
	bounded, cancel := context.WithTimeout(ctx, past.wall+runGrace)
	defer cancel()
	began := time.Now()
	res, err := r.x.Run(bounded, req, r.meter.counted(nil, &passed))
	took := time.Since(began)
	price := executor.Money(0)
	if res != nil || ran(err) != executor.RanNo {
		price = r.meter.prices.Runs(1) + r.meter.traffic(passed)
	}
	a.Cost = r.meter.between(began, began.Add(took)) + price
	taken.End(r.arm(), ledger.Amount{Runs: 1, Time: took, Cost: r.meter.due() + price})
	defer func() {
		a.closing(res, err)
		a.Run = past.result.ID
		b.audit(a)
	}()
	switch {
	case ctx.Err() != nil:
		return leftClosed
	case err != nil && (errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrUnavailable) || errors.Is(err, executor.ErrExhausted)):
		return leftDown
	}
	var got compare.Fields
	if err != nil {
		got = compare.Failed(err)
	} else {
		got = compare.Describe(past.language, res)
		took = res.Duration
	}
	a.Shadow.Class = r.found(past, got)
	f.sh.add(func(c *ShadowCounts) { c.ran(f.control, past.result.Duration, took) })
	if a.Shadow.Class != "" {
		return leftDiffered
	}
	return ""
}

// found compares a run with its original, and counts. It returns the class of the difference, or
// "".
func (r *repetition) found(past pastRun, got compare.Fields) (class string) {
	f := r.f
	r.compared++
	want := compare.Describe(past.language, &past.result)
	differences := compare.Differences([]compare.Fields{want}, []compare.Fields{got})
	if len(differences) > 0 {
		why := compare.Explain(r.m.typ, r.m.Info().Capabilities, past.language, []compare.Fields{got}, differences)
		switch {
		case why != "":
			class = "explained: " + why
		case f.sh.Keep.Output:
			class = compare.Signature(differences)
		default:
			class = compare.Class(differences) // without text of the user
		}
	}
	first := r.compared == 1
	f.sh.add(func(c *ShadowCounts) { c.compared(f.control, first, class) })
	if class != "" && !f.control {
		for i := range differences {
			differences[i].Cell = r.compared
		}
		r.keep(class, differences)
	}
	return class
}

// bill counts what the sandbox has cost, and reserves the next minute.
func (r *repetition) bill(ctx context.Context) (why string) {
	if r.x == nil {
		return ""
	}
	due := ledger.Amount{Cost: r.meter.due()}
	if due.Cost == 0 {
		return ""
	}
	r.held.Spend(r.arm(), due)
	if _, err := r.held.More(ctx, r.f.sh.account.limits, due); err != nil {
		return leftBy(err)
	}
	return ""
}

// end closes the sandbox and settles what it has cost.
func (r *repetition) end() {
	a := r.audit("end")
	if r.x != nil {
		a.Origin.Session = r.x.Info().Handle.Session
		if err := r.x.Close(); err != nil && r.f.s.ctx.Err() == nil {
			r.f.s.b.env.Logger().Warn("shadow: close", "backend", r.f.to, "error", err)
		}
	}
	if r.held != nil {
		r.held.End(r.arm(), ledger.Amount{Cost: r.meter.due()})
	}
	r.f.mu.Lock()
	a.Shadow.Left = r.f.left
	r.f.drop()
	r.f.mu.Unlock()
	a.Shadow.Compared, a.Cost = r.compared, r.meter.cost()
	a.closing(nil, nil)
	r.f.s.b.audit(a)
}

func (r *repetition) audit(what string) Audit {
	f := r.f
	a := Audit{Op: "shadow", Time: time.Now(), Subject: f.subject, Attributes: f.attributes}
	a.Origin = executor.Origin{Route: f.sh.route, Assigned: f.sh.To, Backend: f.to}
	if r.x != nil {
		a.Origin.Session = r.x.Info().Handle.Session
	}
	a.Shadow = &ShadowAudit{What: what, Original: f.original, Control: f.control}
	return a
}
