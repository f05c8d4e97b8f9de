package fake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// sandbox is a sandbox at the provider.
type sandbox struct {
	b       *Backend
	id      string
	created time.Time
	spec    executor.Spec // from driver.Create
	caps    executor.Capabilities
	disk    *disk
	life    context.Context // ends with the sandbox
	die     context.CancelFunc

	mu       sync.Mutex
	labels   map[string]string
	idle     time.Duration
	used     time.Time // the end of the last use
	active   int       // uses in progress
	expiry   *time.Timer
	dead     bool // cannot be used any more, but still exists
	gone     bool
	fence    int64
	interps  map[executor.Interpreter]*interpreter
	all      []*interpreter // including those of commands, to end them
	packages map[string]bool

	contact time.Time        // with a holder, the last
	holders map[*holder]bool // connected

	ports     int               // number of ports that were given to servers
	listeners map[int]*listener // servers that Dial can reach
}

func newSandbox(b *Backend, c *driver.Create) *sandbox {
	c.Spec.Limits = c.Spec.Limits.Or(b.caps.DefaultLimits)
	s := &sandbox{
		b: b, id: c.ID, created: time.Now(), spec: c.Spec, caps: b.caps.For(c.Spec.Languages...), disk: newDisk(c.Spec.Limits.DiskBytes),
		labels: maps.Clone(c.Labels), idle: c.Spec.IdleTTL, used: time.Now(),
		interps: map[executor.Interpreter]*interpreter{}, packages: map[string]bool{}, holders: map[*holder]bool{},
	}
	s.life, s.die = context.WithCancel(context.Background())
	s.expiry = time.AfterFunc(time.Until(s.expires()), s.expire)
	return s
}

// expires returns when the sandbox ends if it is not used from now on. The caller holds mu, or s is
// not shared yet.
func (s *sandbox) expires() time.Time {
	end := s.used.Add(s.idle)
	if s.active > 0 {
		end = time.Now().Add(s.idle)
	}
	if life := s.created.Add(s.spec.MaxLife); s.spec.MaxLife > 0 && life.Before(end) {
		end = life
	}
	return end
}

// expire ends the sandbox if its time is over.
func (s *sandbox) expire() {
	s.mu.Lock()
	end := s.expires()
	if left := time.Until(end); left > 0 && !s.gone {
		s.expiry.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.b.remove(s)
}

// use begins a use of the sandbox by a holder. done ends it.
func (s *sandbox) use(fence int64) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone, s.dead:
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	case fence < s.fence:
		return nil, driver.Fail(executor.ErrClosed, executor.RanNo, errors.New("a later holder has taken over"))
	}
	s.active++
	s.contact = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.active--
		s.used, s.contact = time.Now(), time.Now()
		if !s.gone {
			s.expiry.Reset(time.Until(s.expires()))
		}
	}, nil
}

// end ends everything in the sandbox, because it is destroyed (then the backend has already
// forgotten it) or broken.
func (s *sandbox) end(cause error) {
	s.mu.Lock()
	s.gone, s.dead = s.gone || cause == errDestroyed, true
	all := s.all
	s.all, s.interps = nil, map[executor.Interpreter]*interpreter{}
	if s.gone {
		s.expiry.Stop()
	}
	s.mu.Unlock()
	s.die()
	for _, in := range all {
		in.end(cause)
	}
	for _, in := range all {
		in.left.Wait()
	}
}

// interpreter returns the interpreter for key, and creates it if necessary, once it is free.
func (s *sandbox) interpreter(ctx context.Context, key executor.Interpreter, private bool) (*interpreter, error) {
	for {
		if ctx.Err() != nil {
			return nil, driver.Fail(ctx.Err(), executor.RanNo, context.Cause(ctx))
		}
		s.mu.Lock()
		if s.dead {
			s.mu.Unlock()
			return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
		}
		in := s.interps[key]
		if in == nil || private {
			in = newInterpreter()
			s.all = append(s.all, in)
			if !private {
				s.interps[key] = in
			}
		}
		s.mu.Unlock()
		select {
		case in.busy <- struct{}{}:
			select {
			case <-in.ended:
				continue // another one has replaced it
			default:
				return in, nil
			}
		case <-in.ended:
		case <-ctx.Done():
		}
	}
}

// discard ends an interpreter: the next use starts another one.
func (s *sandbox) discard(in *interpreter, cause error) {
	s.mu.Lock()
	maps.DeleteFunc(s.interps, func(_ executor.Interpreter, i *interpreter) bool { return i == in })
	s.all = slices.DeleteFunc(s.all, func(i *interpreter) bool { return i == in })
	s.mu.Unlock()
	in.end(cause)
}

// run executes a request.
func (s *sandbox) run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	command := len(req.Command) > 0
	in, err := s.interpreter(ctx, executor.Interpreter{Language: s.caps.Interpreter(req.Language), Context: req.Context}, command)
	if err != nil {
		return driver.Exit{}, err
	}
	defer func() { <-in.busy }()
	e := &execution{
		box: s, in: in, req: req, emit: emit, env: environment(s.spec.Env, req.Env), dir: s.directory(in, req),
		soft: make(chan struct{}), hard: make(chan struct{}),
	}
	if req.Terminal != nil {
		e.size = req.Terminal.Size()
	}
	in.begin(e)
	defer in.begin(nil)
	lost := command
	defer func() { // even if emit panics
		if lost {
			s.discard(in, errReset)
			in.left.Wait()
		}
	}()
	in.cell++
	start := executor.Event{Kind: executor.EventStarted, Cell: in.cell}
	fresh := in.cell == 1
	if command {
		start.Cell, fresh = 0, false
	}
	if err := emit(start); err != nil {
		return driver.Exit{StateFresh: fresh}, err
	}
	src := req.Code
	if command {
		if src, e.args, err = script(req.Command); err != nil {
			emit(executor.Event{Kind: executor.EventStderr, Data: executor.Bytes(err.Error() + "\n")}) // the error of emit is returned below
			return driver.Exit{Code: 127}, ctx.Err()
		}
	}
	exit, err := e.run(ctx, src)
	exit.StateFresh = fresh
	lost = lost || exit.StateLost || !e.has(executor.FeatureState)
	return exit, err
}

// scriptCommand is the only program in sandboxes. Its first argument is the text of a script.
const scriptCommand = "script"

func script(argv []string) (src string, args []string, err error) {
	if argv[0] != scriptCommand || len(argv) < 2 {
		return "", nil, fmt.Errorf("%s: not found", argv[0])
	}
	return argv[1], argv[2:], nil
}

// directory returns the directory in which the code of a request starts. A named interpreter keeps
// the directory of its first run.
func (s *sandbox) directory(in *interpreter, req *executor.Request) string {
	if req.Context != "" && in.cell == 0 {
		in.dir = req.Dir
	}
	dir := cmp.Or(req.Dir, in.dir)
	switch {
	case dir != "" && !path.IsAbs(dir):
		return path.Join(executor.Workdir, dir)
	case dir != "":
		return path.Clean(dir)
	case len(req.Command) > 0 || s.caps.HasFor(req.Language, executor.FeatureWorkdir):
		return executor.Workdir
	}
	return home
}

// reset ends interpreters.
func (s *sandbox) reset(which executor.Interpreter) {
	s.mu.Lock()
	var ins []*interpreter
	for k, in := range s.interps {
		if (which.Language == "" || k.Language == which.Language) && (which.Context == "" || k.Context == which.Context) {
			ins = append(ins, in)
		}
	}
	s.mu.Unlock()
	for _, in := range ins {
		s.discard(in, errReset)
	}
	for _, in := range ins {
		in.left.Wait()
		for _, f := range in.exits {
			f()
		}
	}
}

// install makes packages importable.
func (s *sandbox) install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	if err := emit(executor.Event{Kind: executor.EventStarted}); err != nil {
		return driver.Exit{}, err
	}
	for _, name := range p.Names {
		if ctx.Err() != nil {
			return driver.Exit{}, context.Cause(ctx)
		}
		if !slices.Contains(s.b.opts.Packages, requirement.FindString(name)) {
			err := emit(executor.Event{Kind: executor.EventStderr, Data: executor.Bytes("no package fits " + name + "\n")})
			return driver.Exit{Code: 1}, err
		}
		executor.ReportProgress(ctx, executor.Progress{What: "installing " + name})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range p.Names {
		s.packages[string(p.Language)+" "+requirement.FindString(name)] = true
	}
	return driver.Exit{}, nil
}

func (s *sandbox) installed(l executor.Language, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packages[string(l)+" "+name]
}

// state is the State of handles, so that it is not empty.
type state struct{ Disk string }

// info describes the sandbox.
func (s *sandbox) info() executor.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	hint, _ := json.Marshal(state{"memory"})
	i := executor.SessionInfo{
		Handle:   executor.Handle{Session: s.id, State: hint},
		State:    executor.SessionRunning,
		Template: s.spec.Template,
		Labels:   maps.Clone(s.labels),
		Created:  s.created,
		Expires:  s.expires(),
		Limits:   s.spec.Limits,
	}
	if s.dead {
		i.State = executor.SessionDead
	}
	return i
}

// matches reports whether the sandbox has all of the labels.
func (s *sandbox) matches(labels map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range labels {
		if s.labels[k] != v {
			return false
		}
	}
	return true
}

// keepAlive sets the idle TTL and restarts it.
func (s *sandbox) keepAlive(idle time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle, s.used = idle, time.Now()
	end := s.expires()
	s.expiry.Reset(time.Until(end))
	return end
}

// hold makes a holder, which is connected.
func (s *sandbox) hold(fence int64) *holder {
	h := &holder{box: s, fence: fence}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[h], s.contact = true, time.Now()
	return h
}

// leave ends the connection of a holder.
func (s *sandbox) leave(h *holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[h] {
		s.contact = time.Now()
	}
	delete(s.holders, h)
}

// lastContact returns when a holder was last in contact: now, if one is connected.
func (s *sandbox) lastContact() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) > 0 {
		return time.Now()
	}
	return s.contact
}

// raise shuts out holders with a lower fence.
func (s *sandbox) raise(fence int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fence < s.fence {
		return driver.Fail(executor.ErrClosed, executor.RanNo, errors.New("a later holder has taken over"))
	}
	s.fence = fence
	maps.DeleteFunc(s.holders, func(h *holder, _ bool) bool { return h.fence < fence })
	return nil
}
