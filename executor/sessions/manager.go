package sessions

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Options configures New.
type Options struct {
	// Instance names this process. Other processes get it in ElsewhereError, so it should say how
	// to reach this process. Two living processes must not have the same Instance; a process that
	// replaces another one may use its Instance. It must be the Instance that the backends were
	// opened with, so that Reap knows which process created a sandbox. Required.
	Instance string
	// Private says that the Store ends with this Manager. Close then destroys the sessions that the
	// Manager holds, because no process could find them again.
	Private bool
	// LeaseTTL is how long a lease is valid without renewal, and so how long a key is blocked when
	// a process dies. Default DefaultLeaseTTL.
	LeaseTTL time.Duration
	// MaxPerSubject and MaxTotal limit the sessions in the Store. Beyond them Acquire fails with
	// ErrDenied or ErrExhausted. Zero: no limit. The limits are never exceeded. Two calls at the
	// same moment may both be refused when there is room for one.
	MaxPerSubject int
	MaxTotal      int
	// Evict lets a subject that has MaxPerSubject sessions have another one: the session that it
	// has not used for the longest time is evicted, as by Manager.Evict. If all are leased, Acquire
	// fails with ErrDenied as without Evict. It requires Checkpoint.
	Evict bool
	// Checkpoint keeps checkpoints of the sessions in the Store. A new sandbox of a key goes on
	// from the last one: Acquire restores it before it returns. The zero value keeps nothing.
	Checkpoint Checkpoints
	// Replace returns how long a backend must have been unavailable to every Acquire before Acquire
	// replaces the session with a new one. Zero: at once; negative: never. Nil: DefaultReplace for
	// all. A session is not replaced while a run may still go on in it within its wall time.
	Replace func(executor.Handle) time.Duration
	// Move reports whether a session is to go on in a new sandbox, because its backend is to be
	// left. The next Acquire moves it: it makes a checkpoint, makes a sandbox from its Spec, and
	// restores the checkpoint there. If one of these fails, the session stays where it is, and the
	// Acquire after that tries again. Nil: none. It requires Checkpoint.
	Move func(executor.Handle) bool
	// Escalate lets conversations go on on a bigger backend. It requires Checkpoint.
	Escalate Escalation
	// Acquired is called after each Acquire, which waits for it, but not for an AcquireExisting
	// that finds nothing. It may be nil.
	Acquired func(Acquisition)
	Hooks    executor.Hooks
	Log      *slog.Logger // nil: no log
}

// DefaultLeaseTTL is the default of Options.LeaseTTL.
const DefaultLeaseTTL = 30 * time.Second

// Acquisition describes a finished Acquire.
type Acquisition struct {
	Key     string
	Spec    executor.Spec
	Handle  executor.Handle  // from the record, even if the sandbox could not be reached; zero: the key had no sandbox
	Session executor.Session // the session of the Manager's Executor; nil with Err
	Began   time.Time
	Lost    bool  // the key has lost its sandbox, and Session is a new one
	Why     Loss  // with Lost; empty: not known
	Kept    *Kept // with Lost: what Session got back; nil: nothing
	Err     error
}

// A Keeper is found by executor.As in sessions that tell what the Manager does from what a user
// does. Checkpoints are made and restored through it.
type Keeper interface {
	KeeperFiles() executor.Files // without an audit of each file
	// KeeperRun is Session.Run for a run that is no turn of the user. It counts in quotas and
	// audits like any other.
	KeeperRun(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error)
}

// ElsewhereError says that the session lives in another process and cannot be attached to from this
// one. Send the request to that process.
type ElsewhereError struct {
	Instance string
	Until    time.Time // when that process will be considered dead
}

// Error implements error.
func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("the session lives in %s and cannot be used from another process", e.Instance)
}

// Manager maps keys to sessions. All methods are safe for concurrent use.
type Manager struct {
	x     executor.Executor
	store Store
	opts  Options
	life  string // identifies this Manager; an Instance may have had others before

	ctx    context.Context // ends the background work
	cancel context.CancelFunc
	work   sync.WaitGroup

	leaving sync.WaitGroup // sessions that are released in the background

	mu     sync.Mutex
	closed bool
	seen   time.Time     // until when other processes consider this one alive
	ahead  time.Duration // ClockAhead, as of the last heartbeat
	keys   map[string]*local

	ended chan struct{} // has a value when a session may have ended that nobody uses
}

// local is the state of a key in this process. At most one call at a time works on it.
type local struct {
	unlocked chan struct{} // the lock of the key: contains one token while the key is unlocked

	// Manager.mu guards these. Only the caller that has locked the key sets session and lease.
	users   int // calls that have the lock or wait for it
	session executor.Session
	lease   *Lease
	used    time.Time // when a call had the lock last
	due     time.Time // when the session is checked if nobody uses it
	heard   bool      // the session has said since then that it may have ended

	deaf  func() bool // ends what idle has asked for; nil: nothing. Only the caller that has locked the key uses it
	found struct {    // only the caller that has locked the key uses it
		session string
		modules map[string]bool // that the interpreter of that session finds
	}
}

// New makes a Manager. It owns neither x nor store.
func New(x executor.Executor, store Store, opts Options) (*Manager, error) {
	m := &Manager{x: x, store: store, opts: opts, life: rand.Text(), keys: map[string]*local{}, ended: make(chan struct{}, 1)}
	var errs []error
	if opts.Instance == "" {
		errs = append(errs, errors.New("instance: empty; it must name this process"))
	}
	if opts.LeaseTTL < 0 || opts.MaxPerSubject < 0 || opts.MaxTotal < 0 {
		errs = append(errs, errors.New("lease ttl, max per subject or max total: negative"))
	}
	if (opts.Evict || opts.Move != nil || opts.Escalate.To != nil) && opts.Checkpoint.Every == 0 {
		errs = append(errs, errors.New("evict, move, escalate: want checkpoints, or conversations would be lost"))
	}
	errs = append(errs, m.opts.Checkpoint.check())
	if err := errors.Join(errs...); err != nil {
		return nil, m.fail("sessions", executor.ErrInvalid, err)
	}
	m.opts.LeaseTTL = cmp.Or(opts.LeaseTTL, DefaultLeaseTTL)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.beat)
	m.work.Go(m.sweeps)
	return m, nil
}

// SetLimits changes Options.MaxPerSubject and Options.MaxTotal. Existing sessions stay. Negative
// numbers count as zero.
func (m *Manager) SetLimits(perSubject, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.MaxPerSubject, m.opts.MaxTotal = max(perSubject, 0), max(total, 0)
}

// SetEvict changes Options.Evict. Without checkpoints it changes nothing: conversations would be
// lost.
func (m *Manager) SetEvict(evict bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.Evict = evict && m.opts.Checkpoint.Every > 0
}

func (m *Manager) evicts() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opts.Evict
}

// limits returns the values of SetLimits or, without it, of Options.
func (m *Manager) limits() (perSubject, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opts.MaxPerSubject, m.opts.MaxTotal
}

// lock waits for the lock of a key.
func (m *Manager) lock(ctx context.Context, op, key string) (*local, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, m.fail(op, executor.ErrClosed, nil)
	}
	l := m.keys[key]
	if l == nil {
		l = &local{unlocked: make(chan struct{}, 1)}
		l.unlocked <- struct{}{}
		m.keys[key] = l
	}
	l.users++
	m.mu.Unlock()
	select {
	case <-l.unlocked:
		if m.ctx.Err() == nil {
			return l, nil
		}
		m.unlock(key, l)
		return nil, m.fail(op, executor.ErrClosed, nil)
	case <-ctx.Done():
		m.leave(key, l)
		return nil, m.fail(op, ctx.Err(), context.Cause(ctx))
	case <-m.ctx.Done():
		m.leave(key, l)
		return nil, m.fail(op, executor.ErrClosed, nil)
	}
}

// unlock releases the lock of a key.
func (m *Manager) unlock(key string, l *local) {
	m.idle(key, l)
	l.unlocked <- struct{}{}
	m.leave(key, l)
}

// leave forgets a key that is not in use and has no session.
func (m *Manager) leave(key string, l *local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	select {
	case <-l.unlocked: // the key is unlocked
		if l.session == nil {
			delete(m.keys, key)
		}
		l.unlocked <- struct{}{}
	default: // a lease has the lock
	}
}

// Records yields the records whose key begins with prefix.
func (m *Manager) Records(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for k, err := range m.store.Keys(ctx, sessionPrefix+prefix) {
			if err != nil {
				yield(Record{}, m.storeError(ctx, "records", err))
				return
			}
			e, err := m.load(ctx, k[len(sessionPrefix):])
			if err == nil && e.rev == "" {
				continue // the record was removed meanwhile
			}
			if !yield(e.Record, err) {
				return
			}
		}
	}
}

// Stays reports whether this process holds the session of a key, and Options.Move lets it stay. It
// does no I/O.
func (m *Manager) Stays(key string) bool {
	var s executor.Session
	m.mu.Lock()
	if l := m.keys[key]; l != nil {
		s = l.session
	}
	m.mu.Unlock()
	return s != nil && !m.Leaves(s.Info().Handle)
}

// Known returns the keys that begin with prefix and that the Store knows something of: a session,
// one that ended within the last day, or a checkpoint. They are sorted.
func (m *Manager) Known(ctx context.Context, prefix string) ([]string, error) {
	var known []string
	for _, dir := range []string{sessionPrefix, lostPrefix, headPrefix} {
		for k, err := range m.store.Keys(ctx, dir+prefix) {
			if err != nil {
				return nil, m.storeError(ctx, "known", err)
			}
			known = append(known, k[len(dir):])
		}
	}
	slices.Sort(known)
	return slices.Compact(known), nil
}

// Close ends the leases. It detaches from sessions that can be attached to again, unless the Store
// is Private, and destroys the others. Later calls fail with ErrClosed. ctx bounds the wait for the
// Store.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	held := maps.Clone(m.keys)
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
	var (
		wg    sync.WaitGroup
		errs  = make([]error, len(held), len(held)+1)
		slots = make(chan struct{}, closeAtOnce)
		n     int
	)
	for key, l := range held {
		err := &errs[n]
		n++
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			*err = m.closeKey(ctx, key, l)
		})
	}
	wg.Wait()
	m.leaving.Wait()
	return errors.Join(append(errs, m.removeHeartbeat(ctx))...)
}

// closeAtOnce is how many keys Close releases at a time. Each may take as long as its backend
// takes.
const closeAtOnce = 256

// closeKey ends the lease of a key and releases its session.
func (m *Manager) closeKey(ctx context.Context, key string, l *local) error {
	m.mu.Lock()
	lease := l.lease
	m.mu.Unlock()
	var released error
	if lease != nil {
		released = lease.Release()
	}
	select {
	case <-l.unlocked:
		err := m.releaseSession(ctx, key, l)
		l.unlocked <- struct{}{}
		return errors.Join(released, err)
	case <-ctx.Done():
		return errors.Join(released, m.fail("close", ctx.Err(), fmt.Errorf("key %q is in use", key)))
	}
}

// releaseSession releases the session of a key, for a caller that has locked the key. A session
// that no other process can attach to is destroyed, and its record is removed.
func (m *Manager) releaseSession(ctx context.Context, key string, l *local) error {
	s := l.session
	if s == nil {
		return nil
	}
	m.setSession(l, nil)
	if attachable(s) && !m.opts.Private {
		if err := s.Detach(); err != nil && !gone(err) {
			return err
		}
		return nil
	}
	e, err := m.load(ctx, key)
	ours := err == nil && e.Handle.Session == s.Info().Handle.Session
	var unkept error
	if ours && !m.opts.Private {
		unkept = m.keepLast(ctx, &e.Record, s)
	}
	if cerr := s.Close(); cerr != nil || !ours {
		return errors.Join(unkept, err, cerr)
	}
	if m.opts.Private {
		return m.storeError(ctx, "close", unlessConflict(m.remove(ctx, &e)))
	}
	return errors.Join(unkept, m.removeLost(ctx, "close", &e, ""))
}

// gone reports whether err says that the sandbox no longer exists, or that this holder no longer
// has it.
func gone(err error) bool {
	return errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed)
}

// attachable reports whether another process could attach to s.
func attachable(s executor.Session) bool { return s.Info().Capabilities.Has(executor.FeatureAttach) }
