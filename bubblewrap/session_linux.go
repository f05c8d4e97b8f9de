package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/runner"
)

const (
	// python runs the runner and the Python of sessions. The root says where it is.
	python = "python3"
	// socket is where further holders find the runner: an abstract name, in the network namespace of the
	// sandbox. Code can connect to it and is sent away by its uid.
	socket = "@execbroker"
	// codeOOMScore makes the kernel choose code before the supervisor.
	codeOOMScore = 1000
)

// backend is a driver.Driver over this machine.
type backend struct {
	cfg     Config
	env     driver.Env
	groups  *groups // nil: there are none, because of
	noGroup error
	first   sync.Once
}

var (
	_ driver.Driver   = (*backend)(nil)
	_ driver.Attacher = (*backend)(nil)
	_ driver.Lister   = (*backend)(nil)
)

func newDriver(env driver.Env, cfg Config) (*backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &backend{cfg: cfg, env: env}
	g, err := findGroups(cfg.Cgroup)
	if err != nil {
		g, b.noGroup = nil, err
	}
	b.groups = g
	return b, nil
}

// Capabilities implements driver.Driver.
func (b *backend) Capabilities() executor.Capabilities { return b.cfg.capabilities(b.groups != nil) }

// Close implements driver.Driver.
func (b *backend) Close() error { return nil }

// begin says once what every session lacks, and removes what earlier programs have left.
func (b *backend) begin() {
	b.first.Do(func() {
		if b.groups == nil {
			b.env.Logger().Warn("memory, processes and CPU of sandboxes are not limited: there is no control group for them", "why", b.noGroup)
		} else if err := b.groups.sweep(time.Now()); err != nil {
			b.env.Logger().Warn("removing control groups that earlier programs have left", "error", err)
		}
	})
}

// Create implements driver.Driver.
func (b *backend) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	b.begin()
	x, err := b.box(c)
	if err != nil {
		return nil, err
	}
	n := note{ID: c.ID, Created: time.Now().Round(0), Template: c.Spec.Template, Limits: x.limits(), Labels: c.Labels, Same: x.who.same}
	if b.groups != nil {
		if x.group, err = b.groups.make(c.ID, n.Limits, x.want.Processes+supervisorProcesses); err != nil {
			return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("control group: %w", err))
		}
		n.Version, n.Groups = x.group.version, x.group.dirs
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	x.note = string(text)
	p, conn, err := start(ctx, x, runner.Command(python))
	if err != nil {
		if x.group != nil {
			err = errors.Join(err, x.group.remove())
		}
		return nil, err
	}
	s, err := b.setUp(ctx, x, p, conn, &c.Spec, n.info())
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return s, nil
}

// box says what a session gets, and refuses what it cannot have.
func (b *backend) box(c *driver.Create) (*box, error) {
	who, err := identify(b.cfg.AllowWeak)
	if err != nil {
		return nil, unsupported(err, "users")
	}
	limited, cpus := b.groups != nil, runtime.NumCPU()
	if !limited && (b.cfg.Limits.counted() || b.cfg.Templates[c.Spec.Template].Limits.counted()) {
		return nil, unsupported(fmt.Errorf("the configuration has limits that need a control group: %w", b.noGroup), "cgroup")
	}
	if who.same {
		b.env.Logger().Warn("code has the user of this program, and of its supervisor", "why", errOneUser)
		if len(c.Spec.Aliases) > 0 {
			return nil, unsupported(errors.New("aliases need a user of their own for the code"), string(executor.FeatureAliases))
		}
	}
	x := &box{
		id: c.ID, root: b.cfg.root(c.Spec.Template), want: b.cfg.limits(&c.Spec, limited, cpus), limited: limited,
		aliases: c.Spec.Aliases, who: who,
	}
	var m unix.Sysinfo_t
	if err := unix.Sysinfo(&m); err != nil {
		return nil, err
	}
	total := int64(m.Totalram) * int64(m.Unit)
	if missing := x.missing(cpus, total); len(missing) > 0 {
		return nil, unsupported(fmt.Errorf("this machine has %d processors and %d bytes of memory", cpus, total), missing...)
	}
	return x, x.covered()
}

// setUp makes the session of a sandbox that has started.
func (b *backend) setUp(ctx context.Context, x *box, p *process, conn io.ReadWriteCloser, spec *executor.Spec, info executor.SessionInfo) (*session, error) {
	r, err := runner.Start(ctx, conn, runner.Config{
		UID: codeID, GID: codeID, SameUser: x.who.same, OwnWorkdir: !x.who.same,
		Workdir: executor.Workdir, Home: executor.Home, Temp: tempDir, Aliases: spec.Aliases, Ports: spec.Ports,
		Env: spec.Env, Languages: spec.Languages, MaxRun: spec.MaxRun, IdleTTL: spec.IdleTTL, MaxLife: spec.MaxLife,
		Rlimits: x.rlimits(), OOMScore: codeOOMScore, Socket: socket, Filtered: true,
	})
	if lost := (*runner.LostError)(nil); errors.As(err, &lost) && p.ended(endTime) {
		return nil, unsupported(fmt.Errorf("the sandbox ended while it was being set up (exit code %d): %s%s", p.code, p.said, forbidden()), python+">=3.9")
	}
	if err != nil {
		return nil, err
	}
	for _, l := range spec.Languages {
		if !slices.Contains(r.Info().Languages, l) {
			r.Detach()
			return nil, unsupported(fmt.Errorf("the root has no interpreter of %s", l), "language:"+string(l))
		}
	}
	if d := r.Info().Degraded; len(d) > 0 {
		b.env.Logger().Warn("the machine weakens sandboxes", "how", d)
	}
	return newSession(p, r, info, 0, x.who.same), nil
}

// session is a sandbox as this process holds it.
type session struct {
	info executor.SessionInfo
	p    *process

	*runner.Holder // Run, Reset, KeepAlive, Suspend, Files, Dial, Destroy
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Detacher   = (*session)(nil)
	_ driver.Refresher  = (*session)(nil)
	_ driver.Resetter   = (*session)(nil)
	_ driver.KeepAliver = (*session)(nil)
	_ driver.Suspender  = (*session)(nil)
	_ driver.Filer      = (*session)(nil)
	_ driver.Dialer     = (*session)(nil)
	_ driver.Aser       = (*session)(nil)
	_ runner.Place      = (*place)(nil)
)

func newSession(p *process, r *runner.Client, info executor.SessionInfo, fence int64, same bool) *session {
	return &session{info: info, p: p, Holder: runner.NewHolder(r, &place{p, fence, same})}
}

// Info implements driver.Session. Expires is empty: the runner counts use.
func (s *session) Info() executor.SessionInfo { return s.info }

// As implements driver.Aser.
func (s *session) As(target any) bool {
	p, ok := target.(*Process)
	if ok {
		*p = Process{PID: s.p.pid}
	}
	return ok
}

// Detach implements driver.Detacher.
func (s *session) Detach() error {
	defer s.p.handle.Close()
	return s.Holder.Detach()
}

// Refresh implements driver.Refresher.
func (s *session) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	return s.Refreshed(ctx, s.info)
}

// place is what is known of the sandbox of a session.
type place struct {
	p     *process
	fence int64
	same  bool
}

// Bridge implements runner.Place. It starts a process in the namespaces of the sandbox but for that of
// its processes, so that code does not see it.
func (l *place) Bridge(ctx context.Context) (*runner.Client, error) {
	args := []string{"--target", strconv.Itoa(l.p.pid), "--user", "--mount", "--net", "--setuid", "0", "--setgid", "0", "--"}
	if l.same {
		args = append(args[:5], "--preserve-credentials", "--")
	}
	c := exec.Command("nsenter", append(args, runner.BridgeCommand(python, socket)...)...) //nolint:noctx // it ends with its connection
	said := &tail{}
	c.Env, c.Stderr = []string{"PATH=" + searched}, said
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, unsupported(fmt.Errorf("%w; install nsenter (package util-linux)", err), string(executor.FeatureAttach))
	}
	r, err := runner.Attach(ctx, &bridge{in, out, c}, l.fence)
	if lost := (*runner.LostError)(nil); errors.As(err, &lost) {
		if l.p.ended(0) {
			return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
		}
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%w: %s", lost, said))
	}
	return r, err
}

// bridge is the connection of a further holder.
type bridge struct {
	io.WriteCloser
	io.Reader
	c *exec.Cmd
}

// Close also ends the process, which has nothing to do any more.
func (b *bridge) Close() error {
	err := b.WriteCloser.Close()
	_ = b.c.Process.Kill() // it may have ended
	_ = b.c.Wait()
	return err
}

// fateTime is how long the end of a sandbox may follow that of its connection.
const fateTime = 2 * time.Second

// Fate implements runner.Place. Who kills a supervisor is its owner, or root.
func (l *place) Fate(context.Context) (runner.Fate, error) {
	p := l.p
	switch {
	case !p.ended(fateTime):
		return runner.Fate{}, nil
	case p.oom && (p.code == 137 || p.code == -1):
		return runner.Fate{Gone: true, Reason: executor.ReasonMemory}, nil
	case p.code > 0 && p.code != 137:
		return runner.Fate{Gone: true, Reason: executor.ReasonSandbox}, nil
	}
	return runner.Fate{Gone: true, Reason: executor.ReasonLifetime}, nil
}

// Remove implements runner.Place.
func (l *place) Remove(context.Context) error { return l.p.kill() }

// Lookup implements driver.Attacher.
func (b *backend) Lookup(_ context.Context, h executor.Handle) (executor.SessionInfo, error) {
	f, err := find(h.Session)
	if err != nil {
		return executor.SessionInfo{}, err
	}
	return f.info(), nil
}

// Attach implements driver.Attacher. Nothing in the handle is an address but the name of the session.
func (b *backend) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	f, err := find(h.Session)
	if err != nil {
		return nil, err
	}
	p, err := f.process()
	if err != nil {
		return nil, err
	}
	r, err := (&place{p, h.Fence, f.Same}).Bridge(ctx)
	if err != nil {
		p.handle.Close()
		return nil, err
	}
	return newSession(p, r, f.info(), h.Fence, f.Same), nil
}

// Destroy implements driver.Attacher.
func (b *backend) Destroy(_ context.Context, h executor.Handle) error {
	f, err := find(h.Session)
	if err == nil {
		var p *process
		if p, err = f.process(); err == nil {
			defer p.handle.Close()
			return p.kill()
		}
	}
	if errors.Is(err, executor.ErrNotFound) {
		return nil
	}
	return err
}

// Sessions implements driver.Lister.
func (b *backend) Sessions(_ context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		all, err := sandboxesNow()
		if err != nil {
			yield(executor.SessionInfo{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, err))
			return
		}
		for _, f := range all {
			has := maps.Clone(f.Labels)
			maps.DeleteFunc(has, func(k, v string) bool { want, ok := labels[k]; return !ok || want != v })
			if len(has) == len(labels) && !yield(f.info(), nil) {
				return
			}
		}
	}
}
