package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Lease is the right to use the session of a key until Release or Discard. It is renewed in the
// background. If it is lost, the run in progress is cancelled, and every call fails with ErrClosed
// and RanNo.
//
// It is a Session, but Close, Detach and Relabel fail with ErrUnsupported: the session lives longer
// than the lease.
type Lease struct {
	executor.BaseSession
	Key   string
	Fresh bool // this Acquire created the sandbox
	// Lost says that the key had a sandbox before this one, and that its variables and files are
	// gone except those in Kept. It stays true for later leases until something has run through
	// a lease; listing files does not clear it. It is false if the key is used for the first time,
	// after Discard, and if the record of the key was forgotten, which happens a day after its
	// sandbox has ended by its idle TTL.
	Lost  bool
	Why   Loss  // why the sandbox was lost, while Lost is true; empty if not known
	Token int64 // grows with each lease of the key, across processes; given to backends with FeatureFencing

	Kept *Kept // what a Fresh session got back from the last checkpoint; nil: there was none

	m    *Manager
	l    *local
	spec *executor.Spec // of Acquire; nil for AcquireExisting

	inherited bool // the last lease was not released: its runs may go on

	ctx     context.Context // ends with the lease
	cancel  context.CancelCauseFunc
	renewal sync.WaitGroup
	record  chan *entry // contains the record while no goroutine writes it
	once    sync.Once
	ended   error // result of Release or Discard

	place sync.RWMutex // locked to read by each call that uses the session, and to write while the conversation moves

	mu        sync.Mutex
	at        executor.Session
	need      Need                // see Record.Need
	ran       []executor.Language // see Ran
	installed []executor.Packages // see Record.Installed
	behind    int                 // see Record.Behind
	wrote     bool                // files have changed since the last run
	running   int                 // runs and installations in progress
	maybe     time.Time           // until when a run may go on whose end is not known
	first     bool                // nothing has run under this lease
	noted     []string            // IDs of Once since the last run began
	begun     []string            // IDs of Once whose runs have begun
}

var _ executor.Session = (*Lease)(nil)

var (
	errLost     = errors.New("the lease was lost: another process may have the session")
	errReleased = errors.New("the lease was released")
)

// newLease starts the renewal of a lease that was just taken.
func (m *Manager) newLease(e *entry, l *local) *Lease {
	le := &Lease{Key: e.Key, Token: e.Token, m: m, l: l, record: make(chan *entry, 1), first: true, inherited: e.inherited, behind: e.Behind, need: e.Need, installed: e.Installed}
	own := *e // the caller keeps its own copy
	le.record <- &own
	le.ctx, le.cancel = context.WithCancelCause(m.ctx)
	until := e.Until
	le.renewal.Go(func() { le.renew(until) })
	return le
}

// begin gives the lease its session.
func (le *Lease) begin(s executor.Session, spec executor.Spec, existing bool) {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.at = s
	if !existing {
		le.spec = &spec
	}
}

// session returns the session that the lease has now.
func (le *Lease) session() executor.Session {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.at
}

// renew renews the lease until it ends. The lease is lost if the record belongs to another holder.
// If the Store cannot be reached, the lease is given up some time before it ends in the Store.
func (le *Lease) renew(until time.Time) {
	ttl := le.m.opts.LeaseTTL
	for {
		if !wait(le.ctx, ttl/3) {
			return
		}
		ctx, cancel := context.WithDeadline(le.ctx, until.Add(-ttl/6))
		began := time.Now()
		err := le.update(ctx, func(r *Record) { r.Used = began })
		cancel()
		switch {
		case err == nil:
			until = began.Add(ttl)
		case le.ctx.Err() != nil:
			return
		case errors.Is(err, executor.ErrClosed) || !time.Now().Before(until.Add(-ttl/3)):
			le.cancel(errLost)
			return
		}
	}
}

// wait waits for d and reports whether ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// update changes the record and renews the lease. It fails with ErrClosed if the record is no
// longer ours.
func (le *Lease) update(ctx context.Context, change func(*Record)) error {
	var e *entry
	select {
	case e = <-le.record:
	case <-ctx.Done():
		return le.m.fail("lease", ctx.Err(), nil)
	}
	defer func() { le.record <- e }()
	next := *e
	next.Until = time.Now().Add(le.m.opts.LeaseTTL)
	change(&next.Record)
	le.mu.Lock()
	if !le.first {
		next.Lost, next.Why, next.Ran = false, "", le.ran
	}
	next.Behind, next.Need, next.Installed = le.behind, le.need, le.installed
	next.Unsure = slices.DeleteFunc(slices.Clone(next.Unsure), func(id string) bool { return slices.Contains(le.begun, id) })
	le.mu.Unlock()
	if err := le.m.note(ctx, &next.Record); err != nil {
		return le.m.storeError(ctx, "lease", err)
	}
	switch err := le.m.save(ctx, &next); {
	case errors.Is(err, ErrConflict):
		// A write of ours whose reply was lost looks the same.
		now, err := le.m.load(ctx, le.Key)
		if err != nil || now.Life != le.m.life || now.Token != le.Token {
			return le.m.fail("lease", executor.ErrClosed, errLost)
		}
		next.rev, next.value = now.rev, now.value
		if err := le.m.save(ctx, &next); err != nil {
			return le.m.fail("lease", executor.ErrClosed, errLost)
		}
	case err != nil:
		return le.m.storeError(ctx, "lease", err)
	}
	*e = next
	return nil
}

// finish bounds how long the end of a lease waits for the Store. If the Store is not reached, the
// lease expires by itself.
const finish = 15 * time.Second

// Release ends the lease. The session lives on for its idle TTL and stays attached here. Release
// may be called again. An error means that the checkpoint was not saved, or that the Store was
// not updated and the key is blocked for other processes until the lease expires.
func (le *Lease) Release() error {
	le.once.Do(func() {
		lost := le.stop()
		if lost {
			if attachable(le.session()) {
				le.m.setSession(le.l, nil)
				le.session().Detach()
			}
		} else {
			le.ended = le.keep()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), finish)
			defer cancel()
			now := time.Now()
			le.mu.Lock()
			maybe := le.maybe
			le.mu.Unlock()
			err := le.update(ctx, func(r *Record) { r.Until, r.Used, r.Running = time.Time{}, now, later(r.Running, maybe) })
			if err != nil && !errors.Is(err, executor.ErrClosed) {
				le.ended = errors.Join(le.ended, err)
			}
		}
		le.done()
	})
	return le.ended
}

// keep makes a checkpoint if one is due, for a holder that still has the lease in the Store. If the
// sandbox is gone, there is nothing to keep.
func (le *Lease) keep() error {
	// The lease is no longer renewed, but stays valid until it is released.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), le.m.opts.LeaseTTL/2)
	defer cancel()
	e := <-le.record
	defer func() { le.record <- e }()
	le.mu.Lock()
	if le.wrote {
		le.behind++
	}
	e.Behind, e.Ran, e.Installed = le.behind, le.ran, le.installed
	le.mu.Unlock()
	due, err := le.m.due(ctx, &e.Record, le.session())
	if err == nil && due {
		err = le.m.keep(ctx, &e.Record, le.session())
		if err == nil {
			e.Behind, e.Tried = 0, 0
		} else {
			e.Tried = e.Behind
		}
		le.mu.Lock()
		le.behind = e.Behind
		le.mu.Unlock()
	}
	return le.m.unkept(&e.Record, err)
}

// unkept returns why a checkpoint was not saved. It is no error that the sandbox is gone, or that
// the checkpoint cannot be made: the last one stays, and who goes on from it is told how much came
// after it.
func (m *Manager) unkept(r *Record, err error) error {
	switch {
	case err == nil || gone(err):
		return nil
	case unsuited(err) || errors.Is(err, executor.ErrDenied) || errors.Is(err, executor.ErrBusy):
		if m.opts.Log != nil {
			m.opts.Log.Warn("no checkpoint was made", "key", r.Key, "error", err)
		}
		return nil
	}
	return m.fail("keep", executor.ErrUnavailable, fmt.Errorf("the checkpoint of this session was not saved: %w", err))
}

// Discard ends the lease, destroys the sandbox and forgets the key.
func (le *Lease) Discard() error {
	return le.destroy(func(ctx context.Context, e *entry, closed error) error {
		return errors.Join(closed, le.m.storeError(ctx, "discard", unlessConflict(le.m.remove(ctx, e))), le.m.discardKept(ctx, le.Key))
	})
}

// destroy ends the lease and destroys the sandbox. Unless the lease was lost, it then calls after
// with the record and the error of that.
func (le *Lease) destroy(after func(ctx context.Context, e *entry, closed error) error) error {
	le.once.Do(func() {
		lost := le.stop()
		le.m.setSession(le.l, nil)
		if lost && attachable(le.session()) {
			le.session().Detach() // another process has it now
			le.done()
			return
		}
		le.ended = le.session().Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), finish) // separate from the time that the provider takes
		defer cancel()
		if e := <-le.record; !lost {
			le.ended = after(ctx, e, le.ended)
		}
		le.done()
	})
	return le.ended
}

// stop ends the renewal and reports whether the lease had been lost.
func (le *Lease) stop() (lost bool) {
	le.cancel(errReleased)
	le.renewal.Wait()
	return errors.Is(context.Cause(le.ctx), errLost)
}

// done unlocks the key for the next caller.
func (le *Lease) done() {
	le.m.mu.Lock()
	le.l.lease = nil
	le.m.mu.Unlock()
	le.m.unlock(le.Key, le.l)
}

// abandon ends a lease whose Acquire failed. The caller keeps the lock of the key. A record without
// a sandbox is removed, unless it says that there was one. unavailable is the time since which the
// backend has been unavailable, or zero.
func (le *Lease) abandon(ctx context.Context, unavailable time.Time) {
	le.giveUp(ctx, func(ctx context.Context, e *entry) {
		if e.Handle.Session == "" && !e.Lost {
			le.m.remove(ctx, e) // if this fails, the reservation expires by itself
			return
		}
		e.Until, e.Unavailable = time.Time{}, unavailable
		le.m.save(ctx, e) // if this fails, the lease expires by itself
	})
}

// forget ends a lease and removes its record and what the Store has kept of the key. The caller
// keeps the lock of the key.
func (le *Lease) forget(ctx context.Context) (err error) {
	le.giveUp(ctx, func(ctx context.Context, e *entry) {
		// The record last: a process that waits for it must not find half of the rest.
		err = errors.Join(le.m.discardKept(ctx, le.Key), le.m.storeError(ctx, "forget", unlessConflict(le.m.remove(ctx, e))))
	})
	return err
}

// giveUp ends a lease whose key the caller keeps locked. Unless the lease was lost, it then calls
// after with the record.
func (le *Lease) giveUp(ctx context.Context, after func(ctx context.Context, e *entry)) {
	le.once.Do(func() {
		lost := le.stop()
		le.m.mu.Lock()
		le.l.lease = nil
		le.m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
		defer cancel()
		if e := <-le.record; !lost {
			after(ctx, e)
		}
	})
}

// Close refuses: use Release or Discard.
func (le *Lease) Close() error {
	return le.m.fail("close", executor.ErrUnsupported, errors.New("a lease is ended by Release or Discard"))
}

// use returns a context for one call, which also ends with the lease, and a function that converts
// the call's error if the end of the lease caused it.
func (le *Lease) use(ctx context.Context, op string) (context.Context, func(error) error, error) {
	if le.ctx.Err() != nil {
		e := le.m.fail(op, executor.ErrClosed, context.Cause(le.ctx))
		return nil, nil, e
	}
	le.place.RLock()
	leave := sync.OnceFunc(le.place.RUnlock)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })
	return ctx, func(err error) error {
		leave()
		stop()
		cancel(nil)
		var e *executor.Error
		if le.ctx.Err() == nil || !errors.As(err, &e) || e.Kind != context.Canceled {
			return err
		}
		c := *e
		c.Kind, c.Err = executor.ErrClosed, context.Cause(le.ctx)
		return &c
	}, nil
}

// during calls f while the lease is valid.
func during[T any](ctx context.Context, le *Lease, op string, f func(context.Context) (T, error)) (v T, err error) {
	ctx, end, err := le.use(ctx, op)
	if err != nil {
		return v, err
	}
	v, err = f(ctx)
	return v, end(err)
}

// Info implements executor.Session.
func (le *Lease) Info() executor.SessionInfo { return le.session().Info() }

// As passes backend-specific values through.
func (le *Lease) As(target any) bool { return executor.As(le.session(), target) }

// Refresh implements executor.Session.
func (le *Lease) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	return during(ctx, le, "refresh", func(ctx context.Context) (executor.SessionInfo, error) { return le.session().Refresh(ctx) })
}

// Run implements executor.Session.
func (le *Lease) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	notices := []string{le.escalate(ctx, req)}
	var res *executor.Result
	var err error
	if before := le.repeatable(ctx, req); before != nil {
		var notice string
		res, notice, err = le.runTwice(ctx, req, emit, before)
		notices = append(notices, notice)
	} else {
		res, err = le.run(ctx, req, emit)
	}
	if need, to := le.wants(res); need != "" {
		notices = append(notices, le.later(need, to))
	}
	for _, notice := range notices {
		if res != nil && notice != "" {
			res.Notices = append(res.Notices, notice)
		}
	}
	return res, err
}

// run is a run in the sandbox that the lease has now.
func (le *Lease) run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	ctx, end, err := le.use(ctx, "run")
	if err != nil {
		return nil, err
	}
	which := le.resetTarget(req.Language, req.Context)
	res, err := le.inTurn(ctx, which, emit, func(ctx context.Context, emit func(executor.Event) error) (*executor.Result, error) {
		return le.session().Run(ctx, req, emit)
	})
	var e *executor.Error
	if res != nil || errors.As(err, &e) && e.Ran == executor.RanYes {
		le.began()
	}
	if res != nil {
		le.note(req)
	}
	le.unknown(res, err, req.Limits.Or(le.Info().Run).WallTime)
	return res, end(err)
}

// began stores for the record that the runs of the IDs that were noted have begun.
func (le *Lease) began() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.begun, le.noted = append(le.begun, le.noted...), nil
}

// unknown stores for the record that the end of a run is not known.
func (le *Lease) unknown(res *executor.Result, err error, wall time.Duration) {
	var e *executor.Error
	if !errors.As(err, &e) || e.Ran == executor.RanNo || res != nil && res.Status != executor.StatusLost {
		return
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	le.maybe = later(le.maybe, after(time.Now(), wall))
}

// note stores for the record that something has run.
func (le *Lease) note(req executor.Request) {
	caps := le.Info().Capabilities
	l := caps.Interpreter(languageOf(req.Language, caps))
	le.mu.Lock()
	defer le.mu.Unlock()
	le.first, le.wrote = false, false
	le.behind++
	if req.Command == nil && req.Context == "" && !slices.Contains(le.ran, l) {
		le.ran = append(slices.Clone(le.ran), l) // the record may share the old slice
	}
}

// Ran reports whether code in l has run in the default interpreter of this sandbox, under this or
// an earlier lease. If it has not, a run with StateFresh has lost nothing.
func (le *Lease) Ran(l executor.Language) bool {
	l = le.Info().Capabilities.Interpreter(l)
	le.mu.Lock()
	defer le.mu.Unlock()
	return slices.Contains(le.ran, l)
}

// Install implements executor.Session.
func (le *Lease) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	return during(ctx, le, "install", func(ctx context.Context) (*executor.Result, error) {
		res, err := le.inTurn(ctx, le.resetTarget(p.Language, ""), emit, func(ctx context.Context, emit func(executor.Event) error) (*executor.Result, error) {
			return le.session().Install(ctx, p, emit)
		})
		if err == nil && res.Status == executor.StatusOK {
			le.noteInstalled(p)
		}
		return res, err
	})
}

// mostInstalled bounds the different installations of a sandbox that are repeated in the next one.
const mostInstalled = 100

// noteInstalled stores for the record what the next sandbox has to install.
func (le *Lease) noteInstalled(p executor.Packages) {
	p.Language = languageOf(p.Language, le.Info().Capabilities)
	le.mu.Lock()
	defer le.mu.Unlock()
	le.wrote = true
	again := slices.ContainsFunc(le.installed, func(q executor.Packages) bool { return q.Language == p.Language && slices.Equal(q.Names, p.Names) })
	if !again && len(le.installed) < mostInstalled {
		le.installed = append(slices.Clone(le.installed), p) // the record may share the old slice
	}
}

// Reset implements executor.Session.
func (le *Lease) Reset(ctx context.Context, which executor.Interpreter) error {
	ctx, end, err := le.use(ctx, "reset")
	if err != nil {
		return err
	}
	return end(le.session().Reset(ctx, which))
}

// Dial implements executor.Session. The connection ends with the lease.
func (le *Lease) Dial(ctx context.Context, port int) (executor.Conn, error) {
	ctx, end, err := le.use(ctx, "dial")
	if err != nil {
		return nil, err
	}
	c, err := le.session().Dial(ctx, port)
	if err != nil {
		return nil, end(err)
	}
	_ = end(nil) // ends the connecting, not the connection
	return &leased{c, context.AfterFunc(le.ctx, func() { c.Close() })}, nil
}

// leased is a connection that ends with its lease.
type leased struct {
	executor.Conn
	forget func() bool
}

func (c *leased) Close() error {
	c.forget()
	return c.Conn.Close()
}

// KeepAlive implements executor.Session.
func (le *Lease) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	return during(ctx, le, "keep-alive", func(ctx context.Context) (time.Time, error) { return le.session().KeepAlive(ctx, idle) })
}
