package flymachines

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/runner"
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
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout/2)
	defer cancel()
	remove := func(ctx context.Context) error { return b.remove(ctx, m, c.ID) }
	if rerr := remove(cctx); rerr != nil {
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
			// It may have been made. If so, and it is seen already, that is it; else the same name is asked for again.
			if found, ferr := b.find(ctx, id); ferr == nil {
				return found, nil
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
	if s := secretOf(m); s != "" {
		secret = s // that of an earlier request whose answer was lost is the same; this is what the provider has
	}
	m, err := b.up(ctx, m)
	if err != nil {
		return nil, err
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
	s := b.session(info, m, r, 0)
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
		Env: env, Paths: paths, Languages: c.Spec.Languages, MaxRun: c.Spec.MaxRun, IdleTTL: c.Spec.IdleTTL, MaxLife: life,
		Rlimits: map[string]int64{"nproc": int64(limits.Processes), "nofile": 4096, "core": 0}, OOMScore: 1000, AllowWeak: b.cfg.AllowWeak,
	}, runner.Guest{Network: string(c.Spec.Network.Mode), Hide: []string{flyDir}})
}

// up waits until a Machine has started, which the pull of its image may delay, and returns it with its address.
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
			return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%w: %s", errNotUp, lastWords(got)))
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

// Pauses between questions to a runner that is starting, and between those to the API about it.
const (
	readyPause = 20 * time.Millisecond
	fatePause  = 2 * time.Second
)

// ready waits until the runner of a started Machine answers.
func (b *backend) ready(ctx context.Context, m *fly.Machine, e runner.Endpoint) error {
	wait, asked := readyPause, time.Now()
	for {
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := e.Ready(actx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(asked) > fatePause {
			asked = time.Now()
			if gone := e.Gone(ctx); gone != nil {
				return b.notSetUp(ctx, m, gone)
			}
		}
		if hopeless(err) || sleep(ctx, wait) != nil {
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, b.unreached(m, e, err))
		}
		wait = min(wait*3/2, time.Second)
	}
}

// hopeless reports whether an error of a connection stays as it is for as long as this program runs where it does.
func hopeless(err error) bool {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	return errors.Is(err, syscall.ENETUNREACH) || errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate)
}

// unreached says that a runner does not answer, and what the configuration needs for it.
func (b *backend) unreached(m *fly.Machine, e runner.Endpoint, err error) error {
	advice := "this program has to be in the private network of the app, or use proxy"
	if b.cfg.Proxy != "" {
		advice = "proxy has to lead to the app " + b.cfg.App + ", and to the Machine that Fly-Force-Instance-Id names"
	}
	var status *runner.StatusError
	if errors.As(err, &status) && status.Status == 401 {
		advice = "another program listens there"
	}
	return fmt.Errorf("Machine %s has started and its runner is not reached at %s: %w; %s", m.ID, e.URL, err, advice)
}

// notSetUp finds out why a runner did not come up.
func (b *backend) notSetUp(ctx context.Context, m *fly.Machine, err error) error {
	var lost *runner.LostError
	var gone *goneError
	if !errors.As(err, &lost) && !errors.As(err, &gone) {
		return err
	}
	f, ferr := b.fate(ctx, m.ID)
	switch {
	case ferr != nil || !f.gone:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	case f.oom:
		return driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("the memory of the sandbox did not suffice for its interpreter"))
	case f.code > 0 && f.code < 128:
		// It is the program of the image that has ended by itself: too old, broken, or none.
		return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{python + ">=3.9"},
			Err: fmt.Errorf("the %s of the image cannot run the supervisor (exit code %d); what it said is in fly logs", python, f.code)}
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%w with exit code %d", errNotUp, f.code))
}

// endpoint is where the runner of a Machine is reached.
func (b *backend) endpoint(m *fly.Machine, secret string, port int) runner.Endpoint {
	e := runner.Endpoint{Token: secret, Transport: b.data, Gone: func(ctx context.Context) error { return b.gone(ctx, m.ID) }}
	if b.cfg.Proxy != "" {
		e.URL = strings.TrimSuffix(b.cfg.Proxy, "/")
		e.Header = map[string][]string{"Fly-Force-Instance-Id": {m.ID}}
	} else {
		e.URL = fmt.Sprintf("http://[%s]:%d", m.PrivateIP, port)
	}
	return e
}
