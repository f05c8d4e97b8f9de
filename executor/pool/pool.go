package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Options configures New.
type Options struct {
	// Spec describes the sessions to keep. It must not have a Subject, Attributes or Labels,
	// because these belong to a user. Its MaxRun is not used: warm sessions allow all that the
	// backend allows, and the Spec of Create sets the limits of its session.
	Spec executor.Spec
	Size int // warm sessions to aim for; at least 1
	// Prelude is run in each session before it is ready, for imports that take long. The caller
	// gets what it defines. The first run of the caller therefore has a cell number greater than 1
	// and no StateFresh. A session in which the prelude fails is not used.
	Prelude []executor.Request
	MaxAge  time.Duration // replace a warm session after this long; default half of its IdleTTL, and at most that
	Refill  int           // creations in flight at a time; default 1. Failures back off up to a minute
	// Suspended keeps the sessions suspended until they are handed out. Handing out then takes as
	// long as the backend takes to wake one. It requires executor.Info.Suspends. A session that
	// cannot be suspended is not kept.
	Suspended bool
	Hooks     executor.Hooks
	Log       *slog.Logger // gets one line for each field of Spec that prevents the use of warm sessions; nil: no log
}

// Stats describes a pool at one moment. Its numbers count from New.
type Stats struct {
	Warm     int   `json:"warm"`
	Starting int   `json:"starting"`
	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`   // created cold: there was no warm session
	Bypasses int64 `json:"bypasses"` // created cold: warm sessions cannot serve the Spec
	Expired  int64 `json:"expired"`  // replaced because of their age
	Dead     int64 `json:"dead"`     // found dead when they should have been handed out
	Failed   int64 `json:"failed"`   // failed creations in the background
	// Differs counts the bypasses by the field of Spec that caused them, with the names that Fits
	// uses. One bypass may have several fields.
	Differs map[string]int64 `json:"differs,omitempty"`
}

// The waits after consecutive failed creations in the background.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = time.Minute
)

// Pool is an executor.Executor that answers Create with warm sessions. It passes everything else
// on. It does not own the Executor that it uses.
type Pool struct {
	executor.Executor
	opts   Options
	ctx    context.Context // ends the background work
	cancel context.CancelFunc
	work   sync.WaitGroup
	kick   chan struct{} // wakes the loop of fill after a change

	mu     sync.Mutex
	warm   []warm // the oldest first
	stats  Stats  // without Warm
	failed int    // consecutive failures
	again  time.Time
	closed bool
}

type warm struct {
	s    executor.Session
	born time.Time
}

var _ executor.Executor = (*Pool)(nil)

// New makes a Pool over x and begins to fill it. It returns all errors in opts, joined.
func New(x executor.Executor, opts Options) (*Pool, error) {
	if err := check(x, opts); err != nil {
		return nil, &executor.Error{Op: "pool", Backend: x.Info().Name, Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	if most := ttl(opts.Spec) / 2; opts.MaxAge == 0 || opts.MaxAge > most {
		opts.MaxAge = most
	}
	opts.Refill = max(opts.Refill, 1)
	opts.Spec.MaxRun = ceiling(x.Info().Capabilities)
	p := &Pool{Executor: x, opts: opts, kick: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.fill)
	return p, nil
}

func check(x executor.Executor, opts Options) error {
	errs := []error{opts.Spec.Validate()}
	if opts.Size < 1 {
		errs = append(errs, fmt.Errorf("size: %d, want at least 1", opts.Size))
	}
	if opts.MaxAge < 0 || opts.Refill < 0 {
		errs = append(errs, errors.New("max age or refill: negative"))
	}
	if opts.Spec.Subject != "" || len(opts.Spec.Attributes) > 0 || len(opts.Spec.Labels) > 0 {
		errs = append(errs, errors.New("spec: subject, attributes and labels are a user's, and a warm session has none"))
	}
	if opts.Suspended && !x.Info().Suspends {
		errs = append(errs, errors.New("suspended: the backend cannot suspend sessions of its usual size"))
	}
	for i, r := range opts.Prelude {
		if err := r.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("prelude[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Create hands out a warm session if one Fits and Refresh finds it alive, which also wakes a
// suspended one. The session gets the labels, run limits and idle TTL of spec. Otherwise Create
// creates a session cold.
func (p *Pool) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return p.CreateOr(ctx, spec, p.Executor.Create)
}

// CreateOr is Create with a function that creates cold sessions.
func (p *Pool) CreateOr(ctx context.Context, spec executor.Spec, cold func(context.Context, executor.Spec) (executor.Session, error)) (s executor.Session, err error) {
	info := p.Info()
	ctx, end := p.opts.Hooks.Start(ctx, executor.Op{Name: "create", Layer: "pool", Backend: info.Name, Type: info.Type})
	defer func() {
		out := executor.Outcome{Err: err}
		if err == nil {
			out.Session = s.Info().Handle.Session
		}
		end(out)
	}()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if ok, fields := p.Fits(spec); !ok {
		p.bypass(fields)
		return cold(ctx, spec)
	}
	for range p.opts.Size { // bounded: if all are dead, those that are created meanwhile may be dead too
		w, ok := p.takeWarm()
		if !ok {
			break
		}
		s, err := p.adapt(ctx, w, spec)
		if err == nil {
			p.count(func(st *Stats) { st.Hits++ })
			return s, nil
		}
		w.Close() // if this fails, hooks have seen why and the idle TTL removes it
		if ctx.Err() != nil {
			return nil, err
		}
		p.count(func(st *Stats) { st.Dead++ })
	}
	p.count(func(st *Stats) { st.Misses++ })
	return cold(ctx, spec)
}

// bypass counts a Create that warm sessions cannot serve. It logs each field once, when it first
// prevents the use of a warm session: otherwise an operator could pay for a pool that serves no
// session, without knowing it.
func (p *Pool) bypass(fields []string) {
	known := true
	p.count(func(st *Stats) {
		st.Bypasses++
		if st.Differs == nil {
			st.Differs = map[string]int64{}
		}
		for _, f := range fields {
			known = known && st.Differs[f] > 0
			st.Differs[f]++
		}
	})
	if !known && p.opts.Log != nil {
		p.opts.Log.Warn("the pool cannot serve this session, which is created cold; later ones with the same difference are only counted",
			"backend", p.Info().Name, "differs", fields, "pool_languages", languages(p.opts.Spec), "pool_size", p.opts.Size)
	}
}

// languages returns the languages of a Spec for the log.
func languages(s executor.Spec) any {
	if len(s.Languages) == 0 {
		return "the backend's first"
	}
	return s.Languages
}

// takeWarm removes the oldest warm session that is not too old.
func (p *Pool) takeWarm() (executor.Session, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.warm {
		if time.Since(w.born) < p.opts.MaxAge {
			p.warm = append(p.warm[:i:i], p.warm[i+1:]...)
			p.wake()
			return w.s, true
		}
	}
	return nil, false
}

func (p *Pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// wake makes the loop of fill look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Resize changes the number of warm sessions, which may be 0. Sessions beyond it are destroyed, the
// oldest first.
func (p *Pool) Resize(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opts.Size != size {
		p.opts.Size = max(size, 0)
		p.wake()
	}
}

// Stats returns the current numbers.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Warm, st.Differs = len(p.warm), maps.Clone(p.stats.Differs)
	return st
}

// Close stops refilling, waits for creations in progress and destroys the warm sessions. Sessions
// that were handed out live on, and the Executor that the pool uses stays open. It may be called
// again; after an error, that tries again.
func (p *Pool) Close() error {
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	p.closed = true
	left := p.warm
	p.warm = nil
	p.mu.Unlock()
	var errs []error
	for _, w := range left {
		if err := w.s.Close(); err != nil {
			errs = append(errs, err)
			p.mu.Lock()
			p.warm = append(p.warm, w)
			p.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
