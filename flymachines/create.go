package flymachines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

// The states of a Machine that has ended, or will not come up.
var ended = []string{"stopped", "destroyed", "destroying", "failed", "launch_failed", "replaced", "migrated"}

// settle is how long the API may not know of a Machine that it has just made.
const settle = 30 * time.Second

// errNotUp says that a Machine has ended before it could be used.
var errNotUp = errors.New("the Machine ended while it was being set up")

// Create implements driver.Driver.
func (b *backend) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	b.sweep()
	in, secret, limits, err := b.launch(c, b.cfg.image(c.Spec.Template), false)
	if err != nil {
		return nil, err
	}
	s, err := b.obtain(ctx, in, secret, limits, c)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// obtain makes a Machine and sets it up. If that fails nothing is left, or the error is a driver.Leftover.
func (b *backend) obtain(ctx context.Context, in fly.LaunchMachineInput, secret string, limits executor.Limits, c *driver.Create) (*session, error) {
	m, err := b.make(ctx, in, c.ID)
	var e *APIError
	if errors.As(err, &e) && e.Status == http.StatusRequestEntityTooLarge && b.cfg.Runner == "" && fromImage(&in) {
		b.noFiles.Store(true)
		b.env.Logger().Warn("Fly takes no files of this size: from now on the runner is expected in the image", "path", RunnerPath, "error", err)
		m, err = b.make(ctx, in, c.ID)
	}
	if err == nil {
		var s *session
		if s, err = b.setUp(ctx, m, secret, limits, c); err == nil {
			return s, nil
		}
	}
	err = fail(ctx, err)
	if m == nil && refused(err) {
		return nil, err
	}
	// Whatever the API did before it failed to say so is found by the name.
	remove := func(ctx context.Context) error {
		if err := b.remove(ctx, m, c.ID); err != nil {
			return fail(ctx, err)
		}
		return nil
	}
	rerr := err
	if e := (*APIError)(nil); !errors.As(err, &e) || !e.unknown { // else it has just been asked, in vain
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout/2)
		defer cancel()
		rerr = remove(cctx)
	}
	if rerr != nil {
		b.env.Logger().Warn("a Machine may be left, and is removed when the API answers; it ends by itself", "machine", in.Name, "error", rerr)
		return nil, driver.Leftover(err, remove)
	}
	return nil, err
}

// refused reports whether err says that nothing was made.
func refused(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.class != classLost && e.class != classMissing
}

// make makes the Machine: in the first region that has room for it, and once, however often it has to be asked for.
func (b *backend) make(ctx context.Context, in fly.LaunchMachineInput, id string) (*fly.Machine, error) {
	regions := b.cfg.Regions
	if len(regions) == 0 {
		regions = []string{""}
	}
	var full []error
	for _, r := range regions {
		in.Region = r
		m, err := b.makeIn(ctx, in, id)
		var e *APIError
		if !errors.As(err, &e) || e.class != classCapacity {
			return m, err
		}
		full = append(full, fmt.Errorf("%s: %w", r, err))
	}
	if len(full) == 1 {
		return nil, errors.Unwrap(full[0])
	}
	return nil, errors.Join(full...)
}

// makeIn makes the Machine in a region. The name is its own, so a Machine that has it was made by a request whose answer was lost.
func (b *backend) makeIn(ctx context.Context, in fly.LaunchMachineInput, id string) (m *fly.Machine, err error) {
	begin, known, lost := time.Now(), "", false
	for n := 0; ; n++ {
		m = nil
		err := b.api.call(ctx, actionCreate, b.api.app, callTimeout, func(ctx context.Context) (err error) {
			m, err = b.api.flaps.Launch(ctx, b.api.app, in)
			return err
		})
		var e *APIError
		switch {
		case err == nil && m != nil && m.ID != "":
			return m, nil
		case err == nil:
			err = driver.Fail(executor.ErrInternal, executor.RanNo, errors.New("machines API: create: an answer without an id"))
			if found, ferr := b.find(ctx, id); ferr == nil {
				return found, nil
			}
			return nil, err
		case !errors.As(err, &e):
			return nil, after(err, known)
		}
		known = e.Error()
		switch e.class {
		case classTaken:
			return b.adopt(ctx, e, id)
		case classUnsent:
			if lost {
				e.class = classLost // by an earlier attempt
			}
		case classLost:
			lost = true
			// It may have been made. If so, and it is seen already, that is it; else the same name is asked for again. An API that does
			// not even answer that is down.
			sctx, cancel := context.WithTimeout(ctx, seekTimeout)
			found, ferr := b.find(sctx, id)
			cancel()
			if ferr == nil {
				return found, nil
			}
			if !errors.Is(ferr, errNoMachine) {
				e.unknown = true
				return nil, err
			}
		case classMissing: // of an app that was only just made
			if time.Since(begin) > settle {
				return nil, err
			}
		case classRate, classNotYet:
		default:
			return nil, err
		}
		if n+1 >= attempts && e.class != classMissing || n+1 >= dials && e.class == classUnsent || e.tooLong() {
			return nil, err
		}
		if err := sleep(ctx, pause(n, e)); err != nil {
			return nil, after(err, known)
		}
	}
}

// adopt returns the Machine that has the name. The answer tells its ID; without that it is looked for.
func (b *backend) adopt(ctx context.Context, taken *APIError, id string) (*fly.Machine, error) {
	begin := time.Now()
	for n := 0; ; n++ {
		var m *fly.Machine
		var err error
		if taken.id != "" {
			m, err = b.api.get(ctx, taken.id)
		} else {
			m, err = b.find(ctx, id)
		}
		if err == nil && m.Name == machineName(id) {
			return m, nil
		}
		if err == nil {
			return nil, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("Machine %s has another name than %s", m.ID, machineName(id)))
		}
		var e *APIError
		if errors.As(err, &e) && e.class != classMissing || time.Since(begin) > settle {
			return nil, err
		}
		if err := sleep(ctx, pause(n, taken)); err != nil {
			return nil, err
		}
	}
}

// errNoMachine says that there is no Machine of a session.
var errNoMachine = errors.New("no such Machine")

// find returns the Machine of a session. It fails with errNoMachine if the API knows of none.
func (b *backend) find(ctx context.Context, id string) (*fly.Machine, error) {
	ms, err := b.api.list(ctx, metadataID, id)
	var e *APIError
	if errors.As(err, &e) && e.class == classMissing {
		return nil, errNoMachine // nor an app
	}
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if m.Name == machineName(id) && m.State != fly.MachineStateDestroyed {
			return m, nil
		}
	}
	return nil, errNoMachine
}

// remove destroys what there is of a session, if anything.
func (b *backend) remove(ctx context.Context, m *fly.Machine, id string) error {
	if m != nil {
		return b.api.destroy(ctx, m.ID)
	}
	m, err := b.find(ctx, id)
	if errors.Is(err, errNoMachine) {
		return nil // what comes into being only now ends by itself: nobody sets it up
	}
	if err != nil {
		return err
	}
	return b.api.destroy(ctx, m.ID)
}

// setUp waits until the runner of a new Machine answers, and sets it up.
func (b *backend) setUp(ctx context.Context, m *fly.Machine, secret string, limits executor.Limits, c *driver.Create) (*session, error) {
	m, err := b.up(ctx, m)
	if err != nil {
		return nil, b.notSetUp(ctx, m, err)
	}
	e := b.endpoint(m, secret, b.cfg.port())
	if err := b.ready(ctx, m, e); err != nil {
		return nil, err
	}
	r, err := b.start(ctx, e.Dial(), c, limits, 0)
	if err != nil {
		return nil, b.notSetUp(ctx, m, err)
	}
	for _, l := range c.Spec.Languages {
		if !slices.Contains(r.Info().Languages, l) {
			r.Detach()
			return nil, &executor.Error{
				Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"language:" + string(l)},
				Err: fmt.Errorf("the image has no interpreter of %s", l),
			}
		}
	}
	info, err := sessionInfo(m)
	if err != nil {
		r.Detach()
		return nil, err
	}
	if d := r.Info().Degraded; len(d) > 0 {
		b.env.Logger().Warn("the image weakens sandboxes", "image", m.GetConfig().Image, "how", d)
	}
	s := b.session(info, m, r, secret, 0)
	s.made = c
	return s, nil
}

// start sets up the runner of a session, which is age old by now. One that is set up it leaves as it is.
func (b *backend) start(ctx context.Context, to io.ReadWriteCloser, c *driver.Create, limits executor.Limits, age time.Duration) (*runner.Client, error) {
	uid, life := userID(c.ID), c.Spec.MaxLife
	if life > 0 {
		life = max(life-age, time.Second)
	}
	env, paths := c.Spec.Env, map[executor.Language][]string(nil)
	if !b.installer.None(executor.Python) {
		env, paths = packages.Env(env), map[executor.Language][]string{executor.Python: {packages.Dirs[executor.Python]}}
	}
	return runner.StartGuest(ctx, to, runner.Config{
		UID: uid, GID: uid, Workdir: executor.Workdir, Home: executor.Home, Temp: "/tmp",
		Aliases: c.Spec.Aliases, Ports: c.Spec.Ports, Env: env, Paths: paths, Languages: c.Spec.Languages, MaxRun: c.Spec.MaxRun, IdleTTL: c.Spec.IdleTTL, MaxLife: life,
		Rlimits: map[string]int64{"nproc": int64(limits.Processes), "nofile": 4096, "core": 0}, OOMScore: 1000, AllowWeak: b.cfg.AllowWeak,
	}, runner.Guest{Network: string(c.Spec.Network.Mode), Hide: []string{flyDir}})
}

// up waits until a Machine has started, which the pull of its image may delay, and returns it with its address. It also returns one that
// has ended instead, with errNotUp.
func (b *backend) up(ctx context.Context, m *fly.Machine) (*fly.Machine, error) {
	begin, said := time.Now(), error(nil)
	for n := 0; ; n++ {
		err := b.api.waitFor(ctx, m.ID, fly.MachineStateStarted)
		if err == nil && m.PrivateIP != "" {
			return m, nil
		}
		var e *APIError
		switch {
		case err == nil:
		case !errors.As(err, &e):
			return nil, after(err, progress(m, said))
		case e.class == classAuth, e.class == classInvalid, e.tooLong():
			return nil, err
		default:
			said = err
		}
		got, gerr := b.api.get(ctx, m.ID)
		var ge *APIError
		switch {
		case gerr == nil && slices.Contains(ended, got.State):
			return got, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%w: %s", errNotUp, lastWords(got)))
		case gerr == nil && got.State == fly.MachineStateStarted && got.PrivateIP != "":
			return got, nil
		case gerr == nil:
			m = got // it is on its way
		case !errors.As(gerr, &ge):
			return nil, after(gerr, progress(m, said))
		case ge.class != classMissing, time.Since(begin) > settle:
			return nil, gerr
		}
		if e == nil {
			e = &APIError{}
		}
		if err := sleep(ctx, pause(min(n, 2), e)); err != nil {
			return nil, after(err, progress(m, said))
		}
	}
}

// progress tells what was last known of a Machine that has not come up, for people.
func progress(m *fly.Machine, said error) string {
	s := fmt.Sprintf("Machine %s is %s in region %s", m.ID, cmp.Or(m.State, "in no state that is known"), cmp.Or(m.Region, "unknown"))
	if c := m.GetConfig(); c != nil && c.Image != "" {
		s += ", with the image " + c.Image
	}
	if said != nil {
		s += ": " + said.Error()
	}
	return s
}

// lastWords tells how a Machine has ended, for people.
func lastWords(m *fly.Machine) string {
	for _, ev := range m.Events {
		if ev == nil || ev.Request == nil {
			continue
		}
		x := ev.Request.ExitEvent
		if x == nil && ev.Request.MonitorEvent != nil {
			x = ev.Request.MonitorEvent.ExitEvent
		}
		if x != nil {
			return fmt.Sprintf("%s, exit code %d, out of memory: %t; what it said is in fly logs", m.State, x.ExitCode, x.OOMKilled)
		}
	}
	return m.State
}

// notSetUp finds out why a runner did not come up.
func (b *backend) notSetUp(ctx context.Context, m *fly.Machine, err error) error {
	var lost *runner.LostError
	var gone *goneError
	ended := errors.Is(err, errNotUp)
	if !ended && !errors.As(err, &lost) && !errors.As(err, &gone) {
		return err
	}
	f, ferr := b.fate(ctx, m.ID, 0)
	switch {
	case ended && (ferr != nil || !f.known):
		return err
	case ferr != nil || !f.gone:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	case f.oom:
		return driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("the memory of the sandbox did not suffice for its interpreter"))
	case f.code == runner.ExitNotRoot:
		return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"root"}, Err: fmt.Errorf(
			"the image %s has a USER, and the runner has to be root to give code a user of its own: make one of it with the line USER root",
			m.GetConfig().Image)}
	case f.code == runner.ExitNoProgram:
		return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"runner"}, Err: fmt.Errorf(
			"the image %s has no runner at %s, and the files of a Machine have no room for it: make one of it with flymachines/image/Dockerfile",
			m.GetConfig().Image, RunnerPath)}
	case f.code > 0 && f.code < 128:
		// It is the program of the image that has ended by itself: too old, broken, or none.
		return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{python + ">=3.9"},
			Err: fmt.Errorf("the %s of the image cannot run the supervisor (exit code %d); what it said is in fly logs", python, f.code)}
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%w with exit code %d", errNotUp, f.code))
}
