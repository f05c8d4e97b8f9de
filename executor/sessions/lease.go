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
// background. If it is lost, the run in progress is cancelled and every call fails with ErrClosed
// and RanNo.
//
// It is a Session, but Close, Detach and Relabel are refused with ErrUnsupported: the session is
// not the lease holder's to end.
type Lease struct {
	executor.BaseSession
	Key   string
	Fresh bool // the sandbox was made by this Acquire
	// Lost says that the key had a sandbox before this one, with variables and files that are gone
	// but for those in Restored. It stays true until something has run through a lease: who only
	// lists files does not take the news away. It is false for a key that is used for the first
	// time, again after Discard, or that was forgotten: a day after its sandbox has ended for want
	// of use.
	Lost  bool
	Why   Loss  // why, while Lost is true; empty if that is no longer known
	Token int64 // grows with each lease of the key, across processes; given to backends with FeatureFencing

	Restored []string // the files that a Fresh session got back: see Options.KeepFiles
	Omitted  int      // and how many that were there before it did not, because of the bounds

	m       *Manager
	l       *local
	session executor.Session
	subject string

	inherited bool // the lease before was not given back: what it ran may go on

	ctx     context.Context // ends with the lease
	cancel  context.CancelCauseFunc
	renewal sync.WaitGroup
	record  chan *entry // holds the record while nobody writes it
	once    sync.Once
	ended   error // of Release or Discard

	mu      sync.Mutex
	ran     []executor.Language // see Ran
	running int                 // runs and installations in progress
	maybe   time.Time           // until when a run may go on of which only the beginning is known
	first   bool                // nothing has run under this lease
}

var _ executor.Session = (*Lease)(nil)

var (
	errLost     = errors.New("the lease was lost: another process may have the session")
	errReleased = errors.New("the lease was released")
)

// newLease begins to renew a lease that was just taken.
func (m *Manager) newLease(e *entry, l *local) *Lease {
	le := &Lease{Key: e.Key, Token: e.Token, m: m, l: l, record: make(chan *entry, 1), first: true, inherited: e.inherited}
	own := *e // the caller goes on with its own
	le.record <- &own
	le.ctx, le.cancel = context.WithCancelCause(m.ctx)
	until := e.Until
	le.renewal.Go(func() { le.renew(until) })
	return le
}

// renew keeps the lease until it is ended. It is lost if the record is somebody else's, and in good
// time before it ends in the Store if the Store cannot be reached.
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

// wait lets time pass and reports whether ctx still lives.
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
	le.mu.Unlock()
	switch err := le.m.save(ctx, &next); {
	case errors.Is(err, ErrConflict):
		// A write of ours whose reply was lost looks like this too.
		now, err := le.m.load(ctx, le.Key)
		if err != nil || now.Life != le.m.life || now.Token != le.Token {
			return le.m.fail("lease", executor.ErrClosed, errLost)
		}
		next.rev = now.rev
		if err := le.m.save(ctx, &next); err != nil {
			return le.m.fail("lease", executor.ErrClosed, errLost)
		}
	case err != nil:
		return le.m.storeError(ctx, "lease", err)
	}
	*e = next
	if err := le.m.note(ctx, &e.Record); err != nil {
		return le.m.storeError(ctx, "lease", err)
	}
	return nil
}

// finish is how long the end of a lease may wait for the Store. The lease ends by itself if it is
// not reached.
const finish = 15 * time.Second

// Release ends the lease. The session lives on for its IdleTTL and stays attached here. It may be
// called again. An error says that the files were not kept, or that the Store was not told and the
// key is blocked for others until the lease has run out.
func (le *Lease) Release() error {
	le.once.Do(func() {
		lost := le.stop()
		if lost {
			if attachable(le.session) {
				le.m.setSession(le.l, nil)
				le.session.Detach()
			}
		} else {
			le.ended = le.keepFiles()
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

// keepFiles keeps the files, for who still has the lease in the Store. A sandbox that is gone has
// none.
func (le *Lease) keepFiles() error {
	// The lease is not renewed any more, and holds until it is given back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), le.m.opts.LeaseTTL/2)
	defer cancel()
	if err := le.m.keep(ctx, le.Key, le.subject, le.Token, le.session); err != nil && !gone(err) {
		return le.m.fail("keep", executor.ErrUnavailable, fmt.Errorf("the files of this session are not kept: %w", err))
	}
	return nil
}

// Discard ends the lease, destroys the sandbox and forgets the key.
func (le *Lease) Discard() error {
	le.once.Do(func() {
		lost := le.stop()
		le.m.setSession(le.l, nil)
		if lost && attachable(le.session) {
			le.session.Detach() // it is another's now
			le.done()
			return
		}
		var errs []error
		errs = append(errs, le.session.Close())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(le.ctx), finish) // what the provider takes for its part is not the Store's
		defer cancel()
		if e := <-le.record; !lost {
			if err := le.m.remove(ctx, e); err != nil && !errors.Is(err, ErrConflict) {
				errs = append(errs, le.m.storeError(ctx, "discard", err))
			}
			if err := le.m.forgetFiles(ctx, le.Key); err != nil {
				errs = append(errs, le.m.storeError(ctx, "discard", err))
			}
		}
		le.ended = errors.Join(errs...)
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

// done gives the key to the next.
func (le *Lease) done() {
	le.m.mu.Lock()
	le.l.lease = nil
	le.m.mu.Unlock()
	le.m.give(le.Key, le.l)
}

// abandon ends a lease that came to nothing. The turn stays with the caller. A record without a
// sandbox is removed, unless it says that there was one. unavailable is since when the backend is,
// or zero.
func (le *Lease) abandon(ctx context.Context, unavailable time.Time) {
	le.once.Do(func() {
		lost := le.stop()
		le.m.mu.Lock()
		le.l.lease = nil
		le.m.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
		defer cancel()
		e := <-le.record
		if lost {
			return
		}
		if e.Handle.Session == "" && !e.Lost {
			le.m.remove(ctx, e) // the reservation ends by itself if this fails
			return
		}
		e.Until, e.Unavailable = time.Time{}, unavailable
		le.m.save(ctx, e) // likewise
	})
}

// Close refuses: Release or Discard is meant.
func (le *Lease) Close() error {
	return le.m.fail("close", executor.ErrUnsupported, errors.New("a lease is ended by Release or Discard"))
}

// use returns a context for one call that ends with the lease as well, and a function that says of
// an error whether that was why.
func (le *Lease) use(ctx context.Context, op string) (context.Context, func(error) error, error) {
	if le.ctx.Err() != nil {
		e := le.m.fail(op, executor.ErrClosed, context.Cause(le.ctx))
		return nil, nil, e
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })
	return ctx, func(err error) error {
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

// Info implements executor.Session.
func (le *Lease) Info() executor.SessionInfo { return le.session.Info() }

// As lets backend-specific values through.
func (le *Lease) As(target any) bool { return executor.As(le.session, target) }

// Refresh implements executor.Session.
func (le *Lease) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	ctx, end, err := le.use(ctx, "refresh")
	if err != nil {
		return executor.SessionInfo{}, err
	}
	i, err := le.session.Refresh(ctx)
	return i, end(err)
}

// Run implements executor.Session.
func (le *Lease) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	ctx, end, err := le.use(ctx, "run")
	if err != nil {
		return nil, err
	}
	which := le.place(req.Language, req.Context)
	res, err := le.inTurn(ctx, which, emit, func(ctx context.Context, emit func(executor.Event) error) (*executor.Result, error) {
		return le.session.Run(ctx, req, emit)
	})
	if res != nil {
		le.note(req)
	}
	le.unknown(res, err, req.Limits.Or(le.Info().Run).WallTime)
	return res, end(err)
}

// unknown keeps for the record that the end of a run is not known.
func (le *Lease) unknown(res *executor.Result, err error, wall time.Duration) {
	var e *executor.Error
	if !errors.As(err, &e) || e.Ran == executor.RanNo || res != nil && res.Status != executor.StatusLost {
		return
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	le.maybe = later(le.maybe, after(time.Now(), wall))
}

// note keeps for the record that something has run.
func (le *Lease) note(req executor.Request) {
	l, caps := req.Language, le.session.Info().Capabilities
	if l == "" && len(caps.Languages) > 0 {
		l = caps.Languages[0].Language
	}
	l = caps.Interpreter(l)
	le.mu.Lock()
	defer le.mu.Unlock()
	le.first = false
	if req.Command == nil && req.Context == "" && !slices.Contains(le.ran, l) {
		le.ran = append(slices.Clone(le.ran), l) // the record may have the old one
	}
}

// Ran reports whether code in l has run in the default interpreter of this sandbox, under this
// lease or an earlier one. If it has not, a run with StateFresh has lost nothing.
func (le *Lease) Ran(l executor.Language) bool {
	l = le.Info().Capabilities.Interpreter(l)
	le.mu.Lock()
	defer le.mu.Unlock()
	return slices.Contains(le.ran, l)
}

// Install implements executor.Session.
func (le *Lease) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	ctx, end, err := le.use(ctx, "install")
	if err != nil {
		return nil, err
	}
	which := le.place(p.Language, "")
	res, err := le.inTurn(ctx, which, emit, func(ctx context.Context, emit func(executor.Event) error) (*executor.Result, error) {
		return le.session.Install(ctx, p, emit)
	})
	return res, end(err)
}

// Reset implements executor.Session.
func (le *Lease) Reset(ctx context.Context, which executor.Interpreter) error {
	ctx, end, err := le.use(ctx, "reset")
	if err != nil {
		return err
	}
	return end(le.session.Reset(ctx, which))
}

// Dial implements executor.Session. The connection ends with the lease.
func (le *Lease) Dial(ctx context.Context, port int) (executor.Conn, error) {
	ctx, end, err := le.use(ctx, "dial")
	if err != nil {
		return nil, err
	}
	c, err := le.session.Dial(ctx, port)
	if err != nil {
		return nil, end(err)
	}
	_ = end(nil) // of connecting
	return &leased{c, context.AfterFunc(le.ctx, func() { c.Close() })}, nil
}

// leased is a connection that ends with the lease.
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
	ctx, end, err := le.use(ctx, "keep-alive")
	if err != nil {
		return time.Time{}, err
	}
	t, err := le.session.KeepAlive(ctx, idle)
	return t, end(err)
}
