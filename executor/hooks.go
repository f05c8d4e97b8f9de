package executor

import (
	"context"
	"sync"
	"time"
)

// Hooks lets a program observe what the library does. Hooks never see code, output, environment
// variables or file contents.
type Hooks struct {
	// Begin is called before each operation, and the function that it returns is called after the
	// operation. The operation continues with the returned context, so that spans nest: sessions >
	// router > pool > backend. Begin may be nil, and so may the function that it returns.
	Begin func(ctx context.Context, op Op) (context.Context, func(Outcome))
}

// Start calls Begin. The context and the function that it returns are never nil, even if those of
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

// Op describes an operation that begins.
type Op struct {
	Name     string // as Error.Op: "create", "run", "close", ...
	Layer    string // "sessions", "router", "pool", "backend"
	Backend  string
	Type     string
	Session  string
	Run      string // Request.ID
	Language Language
}

// Outcome describes how an operation ended.
type Outcome struct {
	Err              error
	Status           Status // for runs
	Queued, Duration time.Duration
	Origin           Origin
	Session          string // for create
	// Assignment says how a router chose Origin.Assigned among several arms, in the words of the
	// semantic conventions for feature flags: "split", "targeting_match", "error". Empty: there was
	// nothing to choose.
	Assignment string
}

// Progress is a step of a long operation before or between runs of code: "pulling image",
// "installing numpy".
type Progress struct {
	What        string
	Done, Total int64 // in any unit; Total 0: not known
}

type progressKey struct{}

// A progress holds the function of WithProgress, or one scope of it.
type progress struct {
	mu   sync.Mutex
	done bool // f is not called any more
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
// at a time, and none comes after the operation has returned. f must not block for long, and must
// not start operations with this context.
func WithProgress(ctx context.Context, f func(Progress)) context.Context {
	return context.WithValue(ctx, progressKey{}, &progress{f: f})
}

// ReportProgress calls the function of WithProgress, if ctx has one. It is for implementations.
func ReportProgress(ctx context.Context, p Progress) {
	if f, ok := ctx.Value(progressKey{}).(*progress); ok {
		f.report(p)
	}
}

// ScopeProgress returns a context whose reports are dropped once end has been called. Work that
// continues after an operation then cannot report any more. If ctx has no function of WithProgress,
// ScopeProgress returns ctx. end is never nil. It is for implementations.
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
