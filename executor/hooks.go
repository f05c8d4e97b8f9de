package executor

import (
	"context"
	"sync"
	"time"
)

// Hooks lets a program see what the library does. Code, output, environment and file contents are
// never shown.
type Hooks struct {
	// Begin is called before each operation, and what it returns after it. The context is the one
	// the operation goes on with, so that spans nest: sessions > router > pool > backend. A nil
	// Begin, and a nil function from it, are allowed.
	Begin func(ctx context.Context, op Op) (context.Context, func(Outcome))
}

// Start calls Begin. The context and the function that it returns are never nil, also if those of
// Begin are. It is for implementations.
func (h Hooks) Start(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	if h.Begin == nil {
		return ctx, func(Outcome) {}
	}
	spanned, end := h.Begin(ctx, op)
	if spanned == nil {
		spanned = ctx
	}
	if end == nil {
		end = func(Outcome) {}
	}
	return spanned, end
}

// Op is an operation that begins.
type Op struct {
	Name     string // as Error.Op: "create", "run", "close", ...
	Layer    string // "sessions", "router", "pool", "backend"
	Backend  string
	Type     string
	Session  string
	Run      string // Request.ID
	Language Language
}

// Outcome is how it ended.
type Outcome struct {
	Err              error
	Status           Status // of runs
	Queued, Duration time.Duration
	Origin           Origin
	Session          string // of create
}

// Progress is a step of long work that is not the code: "pulling image", "installing numpy".
type Progress struct {
	What        string
	Done, Total int64 // in the unit of the work; Total 0: not known
}

type progressKey struct{}

// A progress is the function of WithProgress, or a scope of it.
type progress struct {
	mu   sync.Mutex
	done bool // no call goes out any more
	f    func(Progress)
}

func (p *progress) report(s Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.f(s)
	}
}

// WithProgress returns a context that makes Create, Attach, Run and Install call f. Calls come one
// at a time and none after the operation has returned. f must not block for long, and must not
// start operations with this context.
func WithProgress(ctx context.Context, f func(Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, &progress{f: f})
}

// ReportProgress tells the function of WithProgress, if there is one. It is for implementations.
func ReportProgress(ctx context.Context, p Progress) {
	if f, ok := ctx.Value(progressKey{}).(*progress); ok {
		f.report(p)
	}
}

// ScopeProgress returns a context whose reports are dropped once end has been called, so that work
// that an operation leaves behind cannot report after it. Without a function of WithProgress it
// returns ctx. It is for implementations; end is never nil.
func ScopeProgress(ctx context.Context) (scoped context.Context, end func()) {
	outer, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return ctx, func() {}
	}
	p := &progress{f: outer.report}
	return context.WithValue(ctx, progressKey{}, p), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done = true
	}
}
