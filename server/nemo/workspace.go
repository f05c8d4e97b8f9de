package nemo

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// resetTime is how long it may take to end an interpreter, and closeTime how long to end all
// workspaces.
const (
	resetTime = 30 * time.Second
	closeTime = time.Minute
)

// workspace is the sandbox of a key. Its calls share only files: each call has a separate
// interpreter. Calls run at the same time if the backend supports that, and otherwise one after the
// other.
type workspace struct {
	key       string
	leasing   chan struct{} // a lock: held while the session is leased or released
	exclusive chan struct{} // a lock: held by a call that excludes others
	used      bool          // the interpreter may have variables of a call; guarded by exclusive

	mu   sync.Mutex
	open *lease // nil: no call uses the session
}

// lease is what simultaneous calls share.
type lease struct {
	*sessions.Lease
	users int // guarded by workspace.mu
}

// workspace returns the workspace of a key. The number of keys bounds the number of workspaces.
func (s *Server) workspace(key string) *workspace {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workspaces[key]
	if w == nil {
		w = &workspace{key: key, leasing: make(chan struct{}, 1), exclusive: make(chan struct{}, 1)}
		s.workspaces[key] = w
	}
	return w
}

// lock takes the lock c, which is a channel with a capacity of one.
func lock(ctx context.Context, c chan struct{}) (give func(), err error) {
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, &executor.Error{Op: "nemo", Kind: ctx.Err(), Ran: executor.RanNo}
	}
}

// enter opens the workspace for a call, or joins the calls that have opened it.
func (s *Server) enter(ctx context.Context, w *workspace, spec executor.Spec) (*lease, error) {
	give, err := lock(ctx, w.leasing)
	if err != nil {
		return nil, err
	}
	defer give()
	if l := w.join(); l != nil {
		return l, nil
	}
	le, err := s.sessions.Acquire(ctx, w.key, spec)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = &lease{le, 1}
	return w.open, nil
}

// join adds a call if the workspace is open.
func (w *workspace) join() *lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil {
		w.open.users++
	}
	return w.open
}

// leave removes a call. If gone is set, no later call joins this lease, and the next call acquires
// a session again.
func (s *Server) leave(w *workspace, l *lease, gone bool) {
	w.mu.Lock()
	l.users--
	last := l.users == 0
	if w.open == l && (last || gone) {
		w.open = nil
	}
	w.mu.Unlock()
	if !last {
		return
	}
	if err := l.Release(); err != nil {
		s.cfg.Log.Warn("releasing a workspace", "err", err)
	}
}

// run runs a call in the workspace of a key. lost says that the files of earlier calls were gone
// before it began.
func (s *Server) run(ctx context.Context, key string, spec executor.Spec, req executor.Request) (res *executor.Result, lost bool, err error) {
	w := s.workspace(key)
	for again := false; ; again = true {
		l, err := s.enter(ctx, w, spec)
		if err != nil {
			return nil, false, err
		}
		lost := l.Lost
		res, err := s.runIn(ctx, w, l, req)
		gone := errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed)
		s.leave(w, l, gone || res != nil && res.FilesLost)
		// The sandbox may end between two calls, by its idle TTL or by itself.
		if e := (*executor.Error)(nil); gone && !again && errors.As(err, &e) && e.Ran == executor.RanNo {
			continue
		}
		return res, lost, err
	}
}

// runIn runs a call in a new interpreter. The interpreter ends with the call, and so does
// everything that the call has started.
func (s *Server) runIn(ctx context.Context, w *workspace, l *lease, req executor.Request) (*executor.Result, error) {
	caps := l.Info().Capabilities
	keeps := caps.HasFor(executor.Python, executor.FeatureState)
	if keeps && caps.Has(executor.FeatureParallelRuns) && caps.HasFor(executor.Python, executor.FeatureContexts) {
		req.Context = "call-" + strings.ToLower(rand.Text())
		res, err := l.Run(ctx, req, nil)
		if reset := s.reset(ctx, l, req.Context); reset != nil && err == nil {
			s.cfg.Log.WarnContext(ctx, "ending the interpreter of a call", "err", reset)
		}
		return res, err
	}
	give, err := lock(ctx, w.exclusive)
	if err != nil {
		return nil, err
	}
	defer give()
	if keeps && w.used {
		if err := s.reset(ctx, l, ""); err != nil {
			return nil, err
		}
	}
	w.used = true
	res, err := l.Run(ctx, req, nil)
	if keeps {
		w.used = s.reset(ctx, l, "") != nil // the next call tries again, and runs only after that succeeds
	}
	return res, err
}

// reset ends an interpreter, even if the client has disconnected.
func (s *Server) reset(ctx context.Context, l *lease, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	return l.Reset(ctx, executor.Interpreter{Language: executor.Python, Context: name})
}

// Close ends every workspace, with its files and everything that runs in it. It may be called
// again.
func (s *Server) Close() error {
	s.runs.Shut()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return s.sessions.Close(ctx)
}
