package conformance

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// watch returns x as a case sees it: sessions are labelled, counted and closed at the end of the
// case, and an error of kind ErrInternal fails the case that meets it, whether or not the case
// looks at the error.
func watch(t *T, x executor.Executor) executor.Executor { return &watched{Executor: x, t: t} }

type watched struct {
	executor.Executor
	t *T
}

// met looks at an error that the implementation returned, and returns it.
func (t *T) met(op string, err error) error {
	if errors.Is(err, executor.ErrInternal) {
		t.Errorf("%s: an internal error: %v", op, err)
	}
	return err
}

func (w *watched) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := w.create(ctx, w.t.label(spec))
	return w.adopt("create", s, err)
}

// create creates a session that the budget of the suite has room for.
func (w *watched) create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	if !w.t.s.spend(w.t) {
		return nil, &executor.Error{Op: "create", Kind: executor.ErrExhausted, Ran: executor.RanNo, Err: errBudget}
	}
	s, err := w.Executor.Create(ctx, spec)
	if errors.Is(err, executor.ErrUnsupported) || errors.Is(err, executor.ErrInvalid) {
		w.t.s.created.Add(-1) // it was refused, and cost nothing
	}
	return s, err
}

func (w *watched) Attach(ctx context.Context, h executor.Handle) (executor.Session, error) {
	s, err := w.Executor.Attach(ctx, h)
	return w.adopt("attach", s, err)
}

// adopt takes a session into the books of the case.
func (w *watched) adopt(op string, s executor.Session, err error) (executor.Session, error) {
	if s, err = w.examined(op, s, err); err != nil {
		return nil, err
	}
	ws := &watchedSession{Session: s, t: w.t, x: w.Executor}
	w.t.cleanup(ws.end)
	return ws, nil
}

// examined looks at what the implementation returned as a session.
func (w *watched) examined(op string, s executor.Session, err error) (executor.Session, error) {
	w.t.met(op, err)
	if err != nil {
		if s != nil {
			w.t.Errorf("%s: a session and an error: %v", op, err)
		}
		return nil, err
	}
	if s == nil {
		w.t.Errorf("%s: neither a session nor an error", op)
		return nil, errors.New("neither a session nor an error")
	}
	return s, nil
}

func (w *watched) Destroy(ctx context.Context, h executor.Handle) error {
	return w.t.met("destroy", w.Executor.Destroy(ctx, h))
}

func (w *watched) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		for i, err := range w.Executor.Sessions(ctx, labels) {
			w.t.met("sessions", err)
			if !yield(i, err) {
				return
			}
		}
	}
}

func (w *watched) Close() error {
	return w.t.met("close", w.Executor.Close())
}

// watchedSession is a session of a case.
type watchedSession struct {
	executor.Session
	t      *T
	x      executor.Executor
	shared bool // of T.Shared

	mu       sync.Mutex
	detached bool
}

// changes notes that the session is no longer what T.Shared promises.
func (s *watchedSession) changes() {
	if s.shared {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		s.t.changed = true
	}
}

// end removes the sandbox at the end of the case: one that was let go of by its handle, since the
// Session is closed.
func (s *watchedSession) end() {
	s.mu.Lock()
	detached := s.detached
	s.mu.Unlock()
	if !detached {
		// A holder that a later one has shut out cannot close; the sandbox is then the later one's.
		if err := s.Session.Close(); err != nil && !errors.Is(err, executor.ErrClosed) {
			s.t.Errorf("close at the end of the case: %v", err)
		}
		return
	}
	if s.t.child != nil {
		return // it is the parent's to attach or destroy
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.ctx), s.t.s.cleanupBound())
	defer cancel()
	if err := s.x.Destroy(ctx, s.Session.Info().Handle); err != nil && !errors.Is(err, executor.ErrClosed) {
		s.t.Errorf("destroy at the end of the case of a session that was detached: %v", err)
	}
}

func (s *watchedSession) As(target any) bool { return executor.As(s.Session, target) }

func (s *watchedSession) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	return i, s.t.met("refresh", err)
}

func (s *watchedSession) Run(ctx context.Context, r executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	res, err := s.Session.Run(ctx, r, emit)
	return res, s.t.met("run", err)
}

func (s *watchedSession) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	res, err := s.Session.Install(ctx, p, emit)
	if err == nil {
		s.changes()
	}
	return res, s.t.met("install", err)
}

func (s *watchedSession) Reset(ctx context.Context, which executor.Interpreter) error {
	return s.t.met("reset", s.Session.Reset(ctx, which))
}

func (s *watchedSession) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	at, err := s.Session.KeepAlive(ctx, idle)
	if err == nil {
		s.changes()
	}
	return at, s.t.met("keep-alive", err)
}

func (s *watchedSession) Detach() error {
	err := s.Session.Detach()
	s.t.met("detach", err)
	if err == nil {
		s.mu.Lock()
		s.detached = true
		s.mu.Unlock()
		s.changes()
	}
	return err
}

func (s *watchedSession) Close() error {
	s.changes()
	return s.t.met("close", s.Session.Close())
}

func (s *watchedSession) Files() executor.Files { return watchedFiles{s.Session.Files(), s.t} }

// watchedFiles are the files of a session of a case.
type watchedFiles struct {
	executor.Files
	t *T
}

func (f watchedFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := f.Files.Read(ctx, name)
	f.t.met("files.read", err)
	if err != nil {
		return nil, err
	}
	return &watchedReader{r, f.t}, nil
}

// watchedReader is an open file of a case.
type watchedReader struct {
	io.ReadCloser
	t *T
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.t.met("files.read", err)
}

func (f watchedFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	return f.t.met("files.write", f.Files.Write(ctx, name, r, mode))
}

func (f watchedFiles) Stat(ctx context.Context, name string) (executor.FileInfo, error) {
	i, err := f.Files.Stat(ctx, name)
	return i, f.t.met("files.stat", err)
}

func (f watchedFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		for i, err := range f.Files.List(ctx, dir) {
			f.t.met("files.list", err)
			if !yield(i, err) {
				return
			}
		}
	}
}

func (f watchedFiles) Mkdir(ctx context.Context, name string) error {
	return f.t.met("files.mkdir", f.Files.Mkdir(ctx, name))
}

func (f watchedFiles) Rename(ctx context.Context, from, to string) error {
	return f.t.met("files.rename", f.Files.Rename(ctx, from, to))
}

func (f watchedFiles) Remove(ctx context.Context, name string) error {
	return f.t.met("files.remove", f.Files.Remove(ctx, name))
}
