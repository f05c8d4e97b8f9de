package pyodide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/wire"
	"github.com/execbroker/execbroker/pyodide/internal/wheels"
)

// session is a sandbox: at most one process, and the files that survive if the process must be
// killed.
//
// Its clocks run both here and in the process, so that it also ends if one of the two is gone.
type session struct {
	d    *Driver
	p    *prepared
	id   string
	dir  string // directory of this session; removed with it
	lang executor.Language
	opts sandboxOptions
	made time.Time
	life context.Context // ends with the session
	die  context.CancelFunc

	locked chan struct{}  // a lock for starting a process, running code and changing files: contains an element while it is held
	spool  *spool         // guarded by lock
	spare  *host          // a process that was started before the session; guarded by lock
	wheels []wheels.Wheel // loaded wheels; guarded by lock

	mu        sync.Mutex
	h         *host  // nil before the first start
	fresh     bool   // no code has run in h
	run       *run   // the run in progress
	ended     string // why no further process can be started; empty: one can
	destroyed bool   // its files must be removed
	users     int    // operations in progress; the session is idle if there are none
	idle      *time.Timer
	lifetime  *time.Timer
}

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Refresher = (*session)(nil)
	_ driver.Resetter  = (*session)(nil)
	_ driver.Filer     = (*session)(nil)
	_ driver.Installer = (*session)(nil)
	_ driver.Aser      = (*session)(nil)
)

// sandboxOptions are the options of a session, after rounding.
type sandboxOptions struct {
	memory int64
	disk   int64
	idle   time.Duration
	life   time.Duration // 0: no limit
	env    map[string]string
	alias  []string
}

// nodes returns how many files and directories a quota allows. Each takes memory of the engine,
// however small it is.
func (o sandboxOptions) nodes() int { return int(min(max(o.disk/4096, 1000), 50_000)) }

// environment is the environment of every interpreter. It is the same on every backend.
var environment = map[string]string{
	"HOME": executor.Home,
	"LANG": "C.UTF-8",
	"PATH": "/usr/local/bin:/usr/bin:/bin",
	"TZ":   "UTC",
	"USER": "user", "LOGNAME": "user",
}

// options returns the options of a session.
func (d *Driver) options(spec executor.Spec) sandboxOptions {
	l := spec.Limits.Or(executor.Limits{MemoryBytes: d.cfg.Memory, DiskBytes: d.cfg.Disk})
	o := sandboxOptions{idle: spec.IdleTTL, life: spec.MaxLife, env: maps.Clone(environment), alias: spec.Aliases}
	o.memory, o.disk = (max(l.MemoryBytes, minMemory)+wasmPage-1)/wasmPage*wasmPage, max(l.DiskBytes, minDisk)
	maps.Copy(o.env, spec.Env)
	return o
}

func newSession(d *Driver, p *prepared, dir string, c *driver.Create) *session {
	o := d.options(c.Spec)
	s := &session{d: d, p: p, id: c.ID, dir: dir, lang: c.Spec.Languages[0], opts: o, made: time.Now(), locked: make(chan struct{}, 1)}
	s.life, s.die = context.WithCancel(context.Background())
	s.spool = newSpool(dir, o.disk, o.nodes())
	s.idle = time.AfterFunc(o.idle, func() { s.end("idle for "+o.idle.String(), false) })
	if o.life > 0 {
		s.lifetime = time.AfterFunc(o.life, func() { s.end("its life of "+o.life.String()+" is over", true) })
	}
	return s
}

// As implements driver.Aser: it finds the executor.Ender.
func (s *session) As(target any) bool {
	t, ok := target.(*executor.Ender)
	if ok {
		*t = s
	}
	return ok
}

// AfterEnd implements executor.Ender.
func (s *session) AfterEnd(f func()) (stop func() bool) { return context.AfterFunc(s.life, f) }

// Info implements driver.Session.
func (s *session) Info() executor.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := executor.SessionInfo{
		Handle:  executor.Handle{Session: s.id},
		State:   executor.SessionRunning,
		Created: s.made,
		Limits:  executor.Limits{MemoryBytes: s.opts.memory, DiskBytes: s.opts.disk},
	}
	if s.ended != "" {
		i.State = executor.SessionDead
	}
	return i
}

// Refresh implements driver.Refresher.
func (s *session) Refresh(context.Context) (executor.SessionInfo, error) {
	s.expire()
	s.mu.Lock()
	err := s.gone()
	s.mu.Unlock()
	return s.Info(), err
}

// gone returns an error if the session has ended. The caller holds mu.
func (s *session) gone() error {
	if s.ended == "" {
		return nil
	}
	return driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New(s.ended))
}

// end ends the session. If it is in use and force is not set, it does nothing.
func (s *session) end(why string, force bool) {
	s.mu.Lock()
	if s.ended != "" || !force && s.users > 0 {
		s.mu.Unlock()
		return
	}
	s.ended = why
	h := s.h
	s.mu.Unlock()
	s.die()
	if h != nil {
		h.kill()
	}
}

// expire ends the session if the clocks of the process have ended the process before ours.
func (s *session) expire() {
	s.mu.Lock()
	h := s.h
	s.mu.Unlock()
	if h == nil {
		return
	}
	select {
	case <-h.dead:
	default:
		return
	}
	switch h.exitCode() {
	case exitIdle:
		s.end("idle for "+s.opts.idle.String(), true)
	case exitLife:
		s.end("its life of "+s.opts.life.String()+" is over", true)
	}
}

// use counts an operation. The session is not idle while there is one.
func (s *session) use() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.idle.Stop()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 && s.ended == "" {
			s.idle.Reset(s.opts.idle)
		}
	}
}

// lock waits for the lock of the process.
func (s *session) lock(ctx context.Context) (release func(), err error) {
	select {
	case s.locked <- struct{}{}:
		return func() {
			if err := s.remove(); err != nil && s.d.env.Log != nil {
				s.d.env.Log.Warn("pyodide: removing the files of a session", "session", s.id, "error", err)
			}
			<-s.locked
		}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// remove removes the files of a destroyed session. The caller has the lock.
func (s *session) remove() error {
	s.mu.Lock()
	destroyed := s.destroyed
	s.mu.Unlock()
	if !destroyed {
		return nil
	}
	if s.spare != nil {
		s.spare.end()
	}
	s.spool.close()
	return os.RemoveAll(s.dir)
}

// up returns the process. If there is none, it starts one and restores the files of the session in
// it. The caller has the lock.
func (s *session) up(ctx context.Context) (*host, error) {
	s.expire()
	s.mu.Lock()
	h, err := s.h, s.gone()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if h != nil {
		select {
		case <-h.dead:
		default:
			return h, nil
		}
	}
	if h, err = s.start(ctx); err != nil {
		return nil, unavailable(ctx, err)
	}
	if err := s.alias(ctx, h); err != nil {
		h.end()
		return nil, err
	}
	if err := s.spool.restore(ctx, h); err != nil {
		h.end()
		return nil, unavailable(ctx, fmt.Errorf("restoring the files of the session: %w", err))
	}
	if len(s.wheels) > 0 {
		if err := s.give(ctx, h, s.wheels); err != nil {
			h.end()
			return nil, fmt.Errorf("packages of the session: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.gone(); err != nil { // the session ended while the process started
		h.kill()
		return nil, err
	}
	s.h, s.fresh = h, true
	return h, nil
}

// alias creates the aliases in a new process, before any code runs in it.
func (s *session) alias(ctx context.Context, h *host) error {
	if len(s.opts.alias) == 0 {
		return nil
	}
	_, err := h.call(ctx, wire.Map{"op": "aliases", "names": wire.List(s.opts.alias), "to": executor.Workdir}, nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLost), ctx.Err() != nil:
		return unavailable(ctx, err)
	}
	return driver.Fail(executor.ErrUnsupported, executor.RanNo, err)
}

// start starts a process and begins the session in it. The first time it uses the spare, if there
// is one that answers.
func (s *session) start(ctx context.Context) (*host, error) {
	h, err := s.spare, error(nil)
	s.spare = nil
	if h != nil {
		soon, cancel := context.WithTimeout(ctx, s.d.patience.spare)
		err = h.begin(soon, s.remaining())
		cancel()
		s.d.spares.warn("using a spare process", err)
	}
	if h == nil || err != nil {
		h, err = s.d.launch(ctx, s.p, s.lang, s.dir, s.opts)
		if err == nil {
			err = h.begin(ctx, s.remaining())
		}
	}
	return h, err
}

// remaining returns the options for a process that begins now.
func (s *session) remaining() sandboxOptions {
	o := s.opts
	if o.life > 0 {
		o.life = max(o.life-time.Since(s.made), time.Millisecond)
	}
	return o
}

// Reset implements driver.Resetter. The process is ended. Another one is started when it is needed.
func (s *session) Reset(ctx context.Context, which executor.Interpreter) error {
	if which.Language != "" && which.Language != s.lang || which.Context != "" {
		return nil
	}
	defer s.use()()
	s.mu.Lock()
	run := s.run
	s.mu.Unlock()
	if run != nil {
		return run.reset(ctx)
	}
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	h := s.h
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.dead:
		return nil
	default:
	}
	// Code that was left running may have changed files since its run. It gets a moment to release
	// the interpreter.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	op := "sync"
	if s.lang == executor.Python {
		op = "leave" // also calls the exit handlers of the code
	}
	s.change(ctx, h, wire.Map{"op": op}) //nolint:errcheck // after an error the files are those of the last run
	h.end()
	return nil
}

// change makes a call that changes files, and saves the changes. The caller has the lock.
func (s *session) change(ctx context.Context, h *host, req wire.Map) (wire.Map, error) {
	r, err := h.call(ctx, req, s.spool.frame)
	if errors.Is(err, errLost) {
		s.spool.abort()
		return r, err
	}
	if cerr := s.spool.commit(); cerr != nil {
		return r, h.lost(cerr)
	}
	return r, err
}

// Destroy implements driver.Session. It does not wait for a run in progress, whose emit may have
// called it. The rest is done when that run returns, which happens soon because its process is
// gone.
func (s *session) Destroy(ctx context.Context) error {
	s.end("destroyed", true)
	s.mu.Lock()
	h := s.h
	s.destroyed = true
	s.idle.Stop()
	if s.lifetime != nil {
		s.lifetime.Stop()
	}
	s.mu.Unlock()
	if h != nil {
		select {
		case <-h.dead:
		case <-ctx.Done():
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, context.Cause(ctx))
		}
	}
	select {
	case s.locked <- struct{}{}:
		defer func() { <-s.locked }()
		return s.remove()
	default:
		return nil
	}
}
