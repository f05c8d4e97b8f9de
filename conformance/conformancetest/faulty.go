package conformancetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

type (
	emitFunc = func(executor.Event) error
	runFunc  = func(ctx context.Context, req *executor.Request, emit emitFunc) (driver.Exit, error)
)

// tamper says what a faulty driver does differently. A nil field leaves the driver below as it is.
type tamper struct {
	capabilities func(executor.Capabilities) executor.Capabilities
	create       func(c *driver.Create) // changes what the driver below is asked for
	created      func(s *faultySession) // sees each session that was created
	info         func(executor.SessionInfo) executor.SessionInfo
	asAsked      bool // sessions claim the limits that they were asked for
	run          func(s *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error)
	install      func(s *faultySession, ctx context.Context, p executor.Packages, emit emitFunc) (driver.Exit, error)
	destroy      func(s *faultySession, ctx context.Context) error
	reset        func(s *faultySession, ctx context.Context, which executor.Interpreter) error
	keepAlive    func(s *faultySession, ctx context.Context, idle time.Duration) (time.Time, error)
	files        func(s *faultySession, f driver.Files) driver.Files
	dial         func(s *faultySession, ctx context.Context, port int, next dialFunc) (executor.Conn, error)
	attach       func(h executor.Handle) executor.Handle
	destroyByID  func(ctx context.Context, h executor.Handle, next func(context.Context, executor.Handle) error) error
	sessions     func(labels map[string]string, next func(map[string]string) iter.Seq2[executor.SessionInfo, error]) iter.Seq2[executor.SessionInfo, error]
}

// plant returns a function that wraps drivers. A wrapped driver has the optional interfaces that go
// with what it declares, as far as the driver below has them, so that driver.New finds it as
// consistent as that one.
func plant(t tamper) func(driver.Driver) driver.Driver {
	return func(d driver.Driver) driver.Driver {
		f := &faultyDriver{Driver: d, t: t, caps: d.Capabilities()}
		if t.capabilities != nil {
			f.caps = t.capabilities(cloneCapabilities(f.caps))
		}
		a, attach := d.(driver.Attacher)
		l, list := d.(driver.Lister)
		attach, list = attach && f.caps.Has(executor.FeatureAttach), list && f.caps.Has(executor.FeatureList)
		fa, fl := &faultyAttacher{a, f}, &faultyLister{l, f}
		switch {
		case attach && list:
			return struct {
				driver.Driver
				driver.Attacher
				driver.Lister
			}{f, fa, fl}
		case attach:
			return struct {
				driver.Driver
				driver.Attacher
			}{f, fa}
		case list:
			return struct {
				driver.Driver
				driver.Lister
			}{f, fl}
		}
		return f
	}
}

// faultyDriver wraps a driver.
type faultyDriver struct {
	driver.Driver
	t    tamper
	caps executor.Capabilities

	mu       sync.Mutex
	sessions []*faultySession
}

func (d *faultyDriver) Capabilities() executor.Capabilities { return d.caps }

func (d *faultyDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	asked := c.Spec.Limits
	if d.t.create != nil {
		changed := *c
		d.t.create(&changed)
		c = &changed
	}
	s, err := d.Driver.Create(ctx, c)
	if err != nil {
		return nil, err
	}
	f := d.session(s)
	f.asked = asked
	if err := check(s, d.caps.For(c.Spec.Languages...)); err != nil {
		return nil, errors.Join(err, s.Destroy(ctx))
	}
	if d.t.created != nil {
		d.t.created(f)
	}
	return f.composed(), nil
}

// session wraps a session.
func (d *faultyDriver) session(s driver.Session) *faultySession {
	f := &faultySession{Session: s, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions = append(d.sessions, f)
	return f
}

// check is the one that driver.New can no longer make of a new session: that it implements what is
// declared.
func check(s driver.Session, caps executor.Capabilities) error {
	declares := func(f executor.Feature) bool {
		some := caps.Has(f)
		for _, r := range caps.Languages {
			some = some || caps.HasFor(r.Language, f)
		}
		return some
	}
	for f, has := range map[executor.Feature]bool{
		executor.FeatureAttach: is[driver.Detacher](s), executor.FeatureKeepAlive: is[driver.KeepAliver](s),
		executor.FeatureState: is[driver.Resetter](s), executor.FeaturePackages: is[driver.Installer](s),
		executor.FeatureFiles: is[driver.Filer](s), executor.FeaturePorts: is[driver.Dialer](s),
	} {
		if declares(f) && !has {
			return driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("%T declares %s and does not implement it", s, f))
		}
	}
	return nil
}

// is reports whether s implements an interface.
func is[I any](s driver.Session) bool {
	_, ok := s.(I)
	return ok
}

// others returns the sessions of d besides s.
func (d *faultyDriver) others(s *faultySession) (all []*faultySession) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.sessions {
		if o != s {
			all = append(all, o)
		}
	}
	return all
}

type faultyAttacher struct {
	driver.Attacher
	d *faultyDriver
}

func (a *faultyAttacher) Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error) {
	i, err := a.Attacher.Lookup(ctx, h)
	return a.d.tampered(i), err
}

func (a *faultyAttacher) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	if a.d.t.attach != nil {
		h = a.d.t.attach(h)
	}
	s, err := a.Attacher.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	return a.d.session(s).composed(), nil
}

func (a *faultyAttacher) Destroy(ctx context.Context, h executor.Handle) error {
	if a.d.t.destroyByID != nil {
		return a.d.t.destroyByID(ctx, h, a.Attacher.Destroy)
	}
	return a.Attacher.Destroy(ctx, h)
}

type faultyLister struct {
	driver.Lister
	d *faultyDriver
}

func (l *faultyLister) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	next := func(labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
		return l.Lister.Sessions(ctx, labels)
	}
	if l.d.t.sessions != nil {
		return l.d.t.sessions(labels, next)
	}
	return next(labels)
}

func (d *faultyDriver) tampered(i executor.SessionInfo) executor.SessionInfo {
	if d.t.info != nil {
		return d.t.info(i)
	}
	return i
}

// faultySession wraps a session. It implements every optional interface but KeepAliver; what the
// session below does not implement, nobody calls, because it is not declared. Refresher and Aser
// have an answer that means the same as their absence.
type faultySession struct {
	driver.Session
	d     *faultyDriver
	asked executor.Limits

	mu    sync.Mutex
	notes map[string]string // of the fault
}

var (
	_ driver.Detacher  = (*faultySession)(nil)
	_ driver.Refresher = (*faultySession)(nil)
	_ driver.Resetter  = (*faultySession)(nil)
	_ driver.Installer = (*faultySession)(nil)
	_ driver.Filer     = (*faultySession)(nil)
	_ driver.Dialer    = (*faultySession)(nil)
	_ driver.Aser      = (*faultySession)(nil)
)

// composed returns s with KeepAliver if the session below has it: driver.New does more with one
// that has, declared or not.
func (s *faultySession) composed() driver.Session {
	k, ok := s.Session.(driver.KeepAliver)
	if !ok {
		return s
	}
	return &faultyKeepAliver{s, k}
}

type faultyKeepAliver struct {
	*faultySession
	k driver.KeepAliver
}

func (s *faultyKeepAliver) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	if s.d.t.keepAlive != nil {
		return s.d.t.keepAlive(s.faultySession, ctx, idle)
	}
	return s.k.KeepAlive(ctx, idle)
}

// errNone is for calls that cannot come.
var errNone = errors.New("the driver below does not implement this")

func (s *faultySession) Info() executor.SessionInfo {
	i := s.d.tampered(s.Session.Info())
	if s.d.t.asAsked {
		i.Limits = s.asked
	}
	return i
}

func (s *faultySession) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	if r, ok := s.Session.(driver.Refresher); ok {
		i, err := r.Refresh(ctx)
		return s.d.tampered(i), err
	}
	return s.Info(), nil
}

func (s *faultySession) As(target any) bool {
	a, ok := s.Session.(driver.Aser)
	return ok && a.As(target)
}

func (s *faultySession) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if s.d.t.run != nil {
		return s.d.t.run(s, ctx, req, emit, s.Session.Run)
	}
	return s.Session.Run(ctx, req, emit)
}

func (s *faultySession) Dial(ctx context.Context, port int) (executor.Conn, error) {
	d, ok := s.Session.(driver.Dialer)
	switch {
	case !ok:
		return nil, errNone
	case s.d.t.dial != nil:
		return s.d.t.dial(s, ctx, port, d.Dial)
	}
	return d.Dial(ctx, port)
}

func (s *faultySession) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	if s.d.t.install != nil {
		return s.d.t.install(s, ctx, p, emit)
	}
	if i, ok := s.Session.(driver.Installer); ok {
		return i.Install(ctx, p, emit)
	}
	return driver.Exit{}, errNone
}

func (s *faultySession) Destroy(ctx context.Context) error {
	if s.d.t.destroy != nil {
		return s.d.t.destroy(s, ctx)
	}
	return s.Session.Destroy(ctx)
}

func (s *faultySession) Reset(ctx context.Context, which executor.Interpreter) error {
	if s.d.t.reset != nil {
		return s.d.t.reset(s, ctx, which)
	}
	if r, ok := s.Session.(driver.Resetter); ok {
		return r.Reset(ctx, which)
	}
	return errNone
}

func (s *faultySession) Detach() error {
	if d, ok := s.Session.(driver.Detacher); ok {
		return d.Detach()
	}
	return errNone
}

func (s *faultySession) Files() driver.Files {
	f, ok := s.Session.(driver.Filer)
	if !ok {
		return nil
	}
	if s.d.t.files != nil {
		return s.d.t.files(s, f.Files())
	}
	return f.Files()
}

// note remembers something about a session, and returns what it was before.
func (s *faultySession) note(key, value string) (before string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.notes[key]
	if s.notes == nil {
		s.notes = map[string]string{}
	}
	s.notes[key] = value
	return before
}

// remains are undone when the suite has ended, so that a planted leak does not cost anybody money.
var remains struct {
	mu   sync.Mutex
	undo []func()
}

// remain registers how to undo what a fault leaves.
func remain(undo func()) {
	remains.mu.Lock()
	defer remains.mu.Unlock()
	remains.undo = append(remains.undo, undo)
}

func undoRemains() {
	remains.mu.Lock()
	undo := remains.undo
	remains.undo = nil
	remains.mu.Unlock()
	for _, f := range undo {
		f()
	}
}
