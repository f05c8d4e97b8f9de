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
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// machine is a runner.Transport to sandboxes on this machine.
type machine struct {
	cfg     Config
	env     driver.Env
	groups  *groups // nil: there are none, because of
	noGroup error
	first   sync.Once
}

var (
	_ runner.Transport = (*machine)(nil)
	_ runner.Finder    = (*machine)(nil)
	_ driver.Lister    = (*machine)(nil)
	_ runner.Sandbox   = (*process)(nil)
	_ runner.Base      = (*process)(nil)
	_ runner.Observer  = (*process)(nil)
	_ driver.Aser      = (*process)(nil)
)

func newMachine(env driver.Env, cfg Config) (*machine, error) {
	m := &machine{cfg: cfg, env: env}
	if !env.Elsewhere {
		m.groups, m.noGroup = findGroups(cfg.Cgroup)
	}
	return m, nil
}

func (m *machine) limits() bool { return m.groups != nil }

// begin says once what every sandbox lacks, and removes what earlier programs have left.
func (m *machine) begin() {
	m.first.Do(func() {
		if m.groups == nil {
			m.env.Logger().Warn("memory, processes and CPU of sandboxes are not limited: there is no control group for them", "why", m.noGroup)
		} else if err := m.groups.sweep(time.Now()); err != nil {
			m.env.Logger().Warn("removing control groups that earlier programs have left", "error", err)
		}
	})
}

// Start implements runner.Transport.
func (m *machine) Start(ctx context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	m.begin()
	b, err := m.box(s)
	if err != nil {
		return nil, nil, err
	}
	s.Info.Limits = b.limits()
	n := note{ID: s.ID, Session: s.Note(), Same: b.who.same}
	if m.groups != nil {
		if b.group, err = m.groups.make(s.ID, s.Info.Limits, b.want.Processes+supervisorProcesses); err != nil {
			return nil, nil, fmt.Errorf("control group: %w", err)
		}
		n.Version, n.Groups = b.group.version, b.group.dirs
	}
	text, err := json.Marshal(n)
	if err != nil {
		return nil, nil, err
	}
	b.note = string(text)
	c := &s.Config
	c.UID, c.GID, c.SameUser, c.OwnWorkdir = codeID, codeID, b.who.same, !b.who.same
	c.Rlimits, c.Filtered, c.CodeFilters = b.rlimits(), true, b.codeFilters
	p, conn, err := start(ctx, b, s.Command)
	if err != nil && b.group != nil {
		err = errors.Join(err, b.group.remove())
	}
	if err != nil {
		return nil, nil, err
	}
	if here, err := namespace(); err == nil { // otherwise a handle is found in the whole table
		s.Info.Handle.State = state(p.monitor, here)
	}
	return p, conn, nil
}

// box says what a session gets, and refuses what it cannot have.
func (m *machine) box(s *runner.Start) (*box, error) {
	who, err := identify(m.cfg.AllowWeak)
	if err != nil {
		return nil, unsupported(err, "users")
	}
	limited, cpus := m.limits(), runtime.NumCPU()
	if !limited && (needsCgroup(m.cfg.Limits) || needsCgroup(m.cfg.Templates[s.Spec.Template].Limits)) {
		return nil, unsupported(fmt.Errorf("the configuration has limits that need a control group: %w", m.noGroup), "cgroup")
	}
	if who.same {
		m.env.Logger().Warn("code has the user of this program, and of its supervisor", "why", errOneUser)
		if len(s.Spec.Aliases) > 0 {
			return nil, unsupported(errors.New("aliases need a user of their own for the code"), string(executor.FeatureAliases))
		}
	}
	b := &box{root: m.cfg.root(s.Spec.Template), want: m.cfg.limits(&s.Spec, limited, cpus), limited: limited, aliases: s.Spec.Aliases, codeFilters: m.cfg.AllowCodeFilters, who: who}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if missing := b.missing(cpus, total); len(missing) > 0 {
		return nil, unsupported(fmt.Errorf("this machine has %d processors and %d bytes of memory", cpus, total), missing...)
	}
	return b, b.covered()
}

// Find implements runner.Finder.
func (m *machine) Find(_ context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	f, ok, err := find(h)
	switch {
	case err != nil:
		return nil, executor.SessionInfo{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	case !ok:
		return nil, executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("no such sandbox"))
	}
	return f.process(), f.info, nil
}

// Sessions implements driver.Lister.
func (m *machine) Sessions(_ context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		all, err := running()
		if err != nil {
			yield(executor.SessionInfo{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, err))
			return
		}
		for _, f := range all {
			has := maps.Clone(f.info.Labels)
			maps.DeleteFunc(has, func(k, v string) bool { want, ok := labels[k]; return !ok || want != v })
			if len(has) == len(labels) && !yield(f.info, nil) {
				return
			}
		}
	}
}

// Base implements runner.Base.
func (p *process) Base() string { return p.root }

// Connect implements runner.Sandbox. The process is in the namespaces of the sandbox but for that
// of its processes, so code does not see it.
func (p *process) Connect(_ context.Context, command []string) (io.ReadWriteCloser, error) {
	args := []string{"--target", strconv.Itoa(p.pid), "--user", "--mount", "--net"}
	if p.same {
		args = append(args, "--preserve-credentials", "--")
	} else {
		args = append(args, "--setuid", "0", "--setgid", "0", "--")
	}
	c := exec.Command("nsenter", append(args, command...)...) //nolint:noctx // it ends with its connection
	c.Env = []string{"PATH=" + searched}
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
	return &bridge{in, out, c}, nil
}

// Observe implements runner.Observer. Code that has the user of the supervisor could answer in its
// place.
func (p *process) Observe(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	if p.same {
		return nil, driver.Fail(executor.ErrUnsupported, executor.RanNo, errOneUser)
	}
	return p.Connect(ctx, command)
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

// endTime is how long the end of a sandbox may follow that of its connection.
const endTime = 2 * time.Second

// Termination implements runner.Sandbox. Who kills a supervisor is its owner, or root.
func (p *process) Termination(ctx context.Context) (runner.Termination, error) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	t := runner.Termination{Ended: p.ended(ctx)}
	if !t.Ended {
		return t, nil
	}
	t.Reason = executor.ReasonLifetime
	switch {
	case p.oom:
		t.Reason = executor.ReasonMemory
	case p.code > 0 && p.code != killed:
		t.Reason, t.Code = executor.ReasonSandbox, p.code
	}
	if p.said != nil {
		t.Stderr = p.said.String()
	}
	return t, nil
}

// Remove implements runner.Sandbox.
func (p *process) Remove(ctx context.Context) error { return p.kill(ctx) }

// As implements driver.Aser.
func (p *process) As(target any) bool {
	t, ok := target.(*Process)
	if ok {
		*t = Process{PID: p.pid}
	}
	return ok
}
