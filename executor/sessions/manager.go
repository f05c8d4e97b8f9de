package sessions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Options configures New.
type Options struct {
	// Instance names this process. Other processes report it in ElsewhereError, so it should say
	// how to reach it. No two living processes have the same; a process that takes the place of
	// another may. To let Reap know whose sandboxes are whose it must be the Instance that the
	// backends were opened with. Required.
	Instance string
	// Private says that the Store ends with this Manager. Close then destroys the sessions that it
	// holds, because nobody could find them again.
	Private bool
	// LeaseTTL is how long a lease holds without renewal, and so how long a key is blocked when a
	// process dies. Default 30 s.
	LeaseTTL time.Duration
	// MaxPerSubject and MaxTotal bound the sessions in the Store. Beyond them Acquire fails with
	// ErrDenied and ErrExhausted. Zero: no bound. They are never exceeded; calls at the same moment
	// may both be refused where one would have been let in.
	MaxPerSubject int
	MaxTotal      int
	// KeepFiles is how many bytes of the files below executor.Workdir are kept in the Store when a
	// lease is released, in order of their names. A new sandbox of the key gets them back before
	// Acquire returns. Zero: none; at most MaxKeepFiles. It takes effect where the session has
	// FeatureFiles.
	KeepFiles int64
	// Replace says for how long no Acquire must have reached the backend of a session before one
	// makes a new session in its place. Zero: at once; negative: never. Nil: DefaultReplace for
	// all. A session in which a run may go on within its wall time is not replaced.
	Replace func(executor.Handle) time.Duration
	// Acquired is called after each Acquire, and its caller waits for it. Nil: nothing is.
	Acquired func(Acquisition)
	Hooks    executor.Hooks
	Log      *slog.Logger // nil: none
}

// Acquisition is an Acquire that has ended.
type Acquisition struct {
	Key     string
	Spec    executor.Spec
	Handle  executor.Handle  // of the record, also if it could not be reached; zero: the key had no sandbox
	Session executor.Session // that of the Executor of the Manager; nil with Err
	Began   time.Time
	Err     error
}

// A FileKeeper is found by executor.As in sessions whose Files are watched: the Manager keeps and
// restores files by these, since it is not a user.
type FileKeeper interface{ KeeperFiles() executor.Files }

// filesOf returns the files of s for the Manager.
func filesOf(s executor.Session) executor.Files {
	if k := FileKeeper(nil); executor.As(s, &k) {
		return k.KeeperFiles()
	}
	return s.Files()
}

// MaxKeepFiles bounds Options.KeepFiles: a Store is made for records, and every release may write
// this much.
const MaxKeepFiles = 64 << 20

// ElsewhereError says that the session lives in another process and cannot be attached to from
// here. Send the request there.
type ElsewhereError struct {
	Instance string
	Until    time.Time // when that process will be taken for dead
}

// Error implements error.
func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("the session lives in %s, and cannot be attached to from elsewhere", e.Instance)
}

// Manager maps keys to sessions. All methods are safe for concurrent use.
type Manager struct {
	x     executor.Executor
	store Store
	opts  Options
	life  string // of this Manager; an Instance may have had others before

	ctx    context.Context // of the background work
	cancel context.CancelFunc
	work   sync.WaitGroup

	leaving sync.WaitGroup // sessions that are let go of in the background

	mu     sync.Mutex
	closed bool
	seen   time.Time // until when others take this process for alive
	keys   map[string]*local
}

// local is what this process has of a key. At most one call at a time is busy with it.
type local struct {
	turn chan struct{} // holds one token while nobody is busy

	// Manager.mu guards these. Only who has the turn sets session and lease.
	users   int // calls that have the turn or wait for it
	session executor.Session
	lease   *Lease
}

// New makes a Manager. It owns neither x nor store.
func New(x executor.Executor, store Store, opts Options) (*Manager, error) {
	m := &Manager{x: x, store: store, opts: opts, life: rand.Text(), keys: map[string]*local{}}
	var errs []error
	if opts.Instance == "" {
		errs = append(errs, errors.New("instance: empty; it names this process to others"))
	}
	if opts.LeaseTTL < 0 || opts.MaxPerSubject < 0 || opts.MaxTotal < 0 {
		errs = append(errs, errors.New("lease ttl, max per subject or max total: negative"))
	}
	if opts.KeepFiles < 0 || opts.KeepFiles > MaxKeepFiles {
		errs = append(errs, fmt.Errorf("keep files: want 0 to %d bytes", int64(MaxKeepFiles)))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, m.fail("sessions", executor.ErrInvalid, err)
	}
	if opts.LeaseTTL == 0 {
		m.opts.LeaseTTL = 30 * time.Second
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.beat)
	return m, nil
}

// SetLimits changes Options.MaxPerSubject and Options.MaxTotal. Sessions that exist stay. Negative
// numbers count as zero.
func (m *Manager) SetLimits(perSubject, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts.MaxPerSubject, m.opts.MaxTotal = max(perSubject, 0), max(total, 0)
}

// limits returns what SetLimits or Options say.
func (m *Manager) limits() (perSubject, total int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opts.MaxPerSubject, m.opts.MaxTotal
}

// take waits for the turn on a key.
func (m *Manager) take(ctx context.Context, op, key string) (*local, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, m.fail(op, executor.ErrClosed, nil)
	}
	l := m.keys[key]
	if l == nil {
		l = &local{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		m.keys[key] = l
	}
	l.users++
	m.mu.Unlock()
	select {
	case <-l.turn:
		if m.ctx.Err() == nil {
			return l, nil
		}
		m.give(key, l)
		return nil, m.fail(op, executor.ErrClosed, nil)
	case <-ctx.Done():
		m.leave(key, l)
		return nil, m.fail(op, ctx.Err(), context.Cause(ctx))
	case <-m.ctx.Done():
		m.leave(key, l)
		return nil, m.fail(op, executor.ErrClosed, nil)
	}
}

// give ends the turn.
func (m *Manager) give(key string, l *local) {
	l.turn <- struct{}{}
	m.leave(key, l)
}

// leave forgets a key that nobody is busy with and that holds nothing.
func (m *Manager) leave(key string, l *local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	select {
	case <-l.turn: // nobody has it
		if l.session == nil {
			delete(m.keys, key)
		}
		l.turn <- struct{}{}
	default: // a lease has it
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
				continue // it has gone meanwhile
			}
			if !yield(e.Record, err) {
				return
			}
		}
	}
}

// Close ends the leases, detaches from what can be attached to again, unless the Store is Private,
// and destroys the rest. Later calls fail with ErrClosed. ctx bounds the wait for the Store.
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
	return errors.Join(append(errs, m.silence(ctx))...)
}

// closeAtOnce is how many keys Close gives up at a time. Each may take as long as its backend.
const closeAtOnce = 256

// closeKey ends the lease of a key and gives up what is held of it.
func (m *Manager) closeKey(ctx context.Context, key string, l *local) error {
	m.mu.Lock()
	lease := l.lease
	m.mu.Unlock()
	var released error
	if lease != nil {
		released = lease.Release()
	}
	select {
	case <-l.turn:
		err := m.letGo(ctx, key, l)
		l.turn <- struct{}{}
		return errors.Join(released, err)
	case <-ctx.Done():
		return errors.Join(released, m.fail("close", ctx.Err(), fmt.Errorf("key %q is in use", key)))
	}
}

// letGo gives up what this process holds of a key, for who has the turn. What nobody could attach
// to is destroyed, and its record too.
func (m *Manager) letGo(ctx context.Context, key string, l *local) error {
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
	if err := s.Close(); err != nil {
		return err
	}
	e, err := m.load(ctx, key)
	if err != nil || e.Handle.Session != s.Info().Handle.Session {
		return err
	}
	if !m.opts.Private {
		if err := m.noteLost(ctx, &e.Record); err != nil {
			return m.storeError(ctx, "close", err)
		}
	}
	if err := m.remove(ctx, &e); err != nil && !errors.Is(err, ErrConflict) {
		return m.storeError(ctx, "close", err)
	}
	return nil
}

// gone reports whether err says that the sandbox is no longer there, or no longer this holder's.
func gone(err error) bool {
	return errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed)
}

// attachable reports whether another process could attach to s.
func attachable(s executor.Session) bool { return s.Info().Capabilities.Has(executor.FeatureAttach) }
