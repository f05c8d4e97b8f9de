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
	// Spec is that of the sessions to keep. It is without Subject and Attributes, and without
	// Labels unless the backend has FeatureRelabel: they would be a user's. Its MaxRun is not used:
	// warm sessions allow what the backend allows, and the Spec of Create says what its session
	// allows.
	Spec executor.Spec
	Size int // warm sessions to aim for; at least 1
	// Prelude is run in each session before it is ready, for imports that take long. What it
	// defines is there for the caller, whose first run therefore has another cell number than 1 and
	// no StateFresh. A session in which it fails is not used.
	Prelude []executor.Request
	MaxAge  time.Duration // replace a warm session after this long; default half of its IdleTTL, and at most that
	Refill  int           // creations in flight at a time; default 1. Failures back off up to a minute
	// Suspended keeps the sessions suspended until they are handed out, which then takes as long as
	// the backend takes to wake one. It needs executor.Info.Suspends. One that cannot be suspended
	// is not kept.
	Suspended bool
	Hooks     executor.Hooks
	Log       *slog.Logger // is told once of each field of Spec that keeps a Create from a warm session; nil: nothing
}

// Stats describes a pool at a moment.
type Stats struct {
	Warm     int   `json:"warm"`
	Starting int   `json:"starting"`
	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`   // created cold: nothing was warm
	Bypasses int64 `json:"bypasses"` // created cold: the Spec asks for what the warm sessions do not have
	Expired  int64 `json:"expired"`  // replaced because of their age
	Dead     int64 `json:"dead"`     // found dead when they were to be handed out
	Failed   int64 `json:"failed"`   // creations in the background
	// Differs counts the bypasses by field of Spec, as Fits names them. A bypass may have several.
	Differs map[string]int64 `json:"differs,omitempty"`
}

// The waits after creations that failed in the background, one after the other.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = time.Minute
)

// Pool is an executor.Executor that answers Create from warm sessions. All else it passes on. It
// does not own the Executor below.
type Pool struct {
	executor.Executor
	opts   Options
	ctx    context.Context // the life of the background work
	cancel context.CancelFunc
	work   sync.WaitGroup
	kick   chan struct{} // something changed that the filling loop wants to know

	mu     sync.Mutex
	warm   []warm // the oldest first
	stats  Stats  // without Warm
	failed int    // in a row
	again  time.Time
	closed bool
}

type warm struct {
	s    executor.Session
	born time.Time
}

var _ executor.Executor = (*Pool)(nil)

// New makes a Pool over x and begins to fill it. It reports every mistake in opts.
func New(x executor.Executor, opts Options) (*Pool, error) {
	if err := check(x, opts); err != nil {
		return nil, &executor.Error{Op: "pool", Backend: x.Info().Name, Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: err}
	}
	idle := opts.Spec.IdleTTL
	if idle == 0 {
		idle = executor.DefaultIdleTTL
	}
	if opts.MaxAge == 0 || opts.MaxAge > idle/2 {
		opts.MaxAge = idle / 2
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
	caps := x.Info().Capabilities
	if opts.Spec.Subject != "" || len(opts.Spec.Attributes) > 0 || len(opts.Spec.Labels) > 0 && !caps.Has(executor.FeatureRelabel) {
		errs = append(errs, errors.New("spec: subject, attributes and labels are a user's, and a warm session has none"))
	}
	if opts.Suspended && !x.Info().Suspends {
		errs = append(errs, errors.New("suspended: the backend cannot suspend sessions, or not of its usual size"))
	}
	for i, r := range opts.Prelude {
		if err := r.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("prelude[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Create hands out a warm session that Fits and that Refresh finds alive, which wakes it if it is
// suspended, with the labels, run limits and idle TTL of spec, or creates one cold.
func (p *Pool) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	return p.CreateOr(ctx, spec, p.Executor.Create)
}

// CreateOr is Create with a function of the caller's that creates cold.
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
	for range p.opts.Size { // where all are dead, so may be those that are made meanwhile
		w, ok := p.take()
		if !ok {
			break
		}
		s, err := p.adapt(ctx, w, spec)
		if err == nil {
			p.count(func(st *Stats) { st.Hits++ })
			return s, nil
		}
		w.Close() // its TTL removes it if this fails, and hooks have seen why
		if ctx.Err() != nil {
			return nil, err
		}
		p.count(func(st *Stats) { st.Dead++ })
	}
	p.count(func(st *Stats) { st.Misses++ })
	return cold(ctx, spec)
}

// bypass counts a Create that warm sessions cannot serve. A field that was not in the way before is
// worth a line in the log: who has configured a pool that serves nobody pays for it and does not
// know.
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
		p.opts.Log.Warn("a pool cannot serve a session, which is created cold; later ones that differ alike are counted and not logged",
			"backend", p.Info().Name, "differs", fields, "pool_languages", languages(p.opts.Spec), "pool_size", p.opts.Size)
	}
}

// languages are those that a Spec names.
func languages(s executor.Spec) any {
	if len(s.Languages) == 0 {
		return "the backend's first"
	}
	return s.Languages
}

// take removes the oldest warm session that is not too old.
func (p *Pool) take() (executor.Session, bool) {
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

// wake makes the filling loop look again.
func (p *Pool) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Stats returns the counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Warm, st.Differs = len(p.warm), maps.Clone(p.stats.Differs)
	return st
}

// Close stops refilling, waits for creations in flight and destroys the warm sessions. Those handed
// out live on, and the Executor below stays open. It may be called again, and after an error that
// tries again.
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
