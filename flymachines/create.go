package flymachines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// The states of a Machine that has ended, or will not come up.
var ended = []string{"stopped", "destroyed", "destroying", "failed", "launch_failed", "replaced", "migrated"}

// settle is how long the API may not know of a Machine that it has just made.
const settle = 30 * time.Second

// errNotUp says that a Machine has ended before it could be used.
var errNotUp = errors.New("the Machine ended while it was being set up")

// Start implements runner.Transport. The runner is the main process of the Machine, and answers
// over HTTP.
func (b *backend) Start(ctx context.Context, c *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	b.sweep()
	if c.Base != "" {
		c.Spec.Limits.MemoryBytes = (builderMB - supervisorMB) * mib
	}
	in, secret, err := b.launch(c)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.make(ctx, in, c.ID)
	var e *APIError
	if errors.As(err, &e) && e.Status == http.StatusRequestEntityTooLarge && b.cfg.Runner == "" && fromImage(&in) {
		b.noFiles.Store(true)
		b.env.Logger().Warn("Fly takes no files of this size: from now on the runner is expected in the image", "path", RunnerPath, "error", err)
		m, err = b.make(ctx, in, c.ID)
	}
	s := &sandbox{b: b, id: c.ID, m: m, secret: secret}
	if err != nil {
		err = fail(ctx, err)
		if m == nil && refused(err) {
			return nil, nil, err
		}
		s.unheard.Store(errors.As(err, &e) && e.unknown)
		return s, nil, err
	}
	up, err := b.up(ctx, m)
	if up != nil {
		s.m = up
	}
	to := b.endpoint(s.m, secret, b.cfg.port())
	if err == nil {
		err = b.ready(ctx, s.m, to)
	}
	if errors.Is(err, errNotUp) || errors.Is(err, errGone) {
		return s, nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, &runner.LostError{Err: err})
	}
	if err != nil {
		return s, nil, fail(ctx, err)
	}
	s.seen.Store(lastEvent(s.m))
	if c.Info.Handle.State, err = json.Marshal(state{s.m.ID}); err != nil {
		return s, nil, err
	}
	c.Config.Rlimits["nproc"] = int64(c.Info.Limits.Processes)
	c.Config.Guest = &runner.Guest{Network: string(c.Spec.Network.Mode), Hide: []string{flyDir}}
	c.Config.AllowWeak, c.Config.CodeFilters = b.cfg.AllowWeak, true // the kernel is that of the Machine
	return s, to.Dial(), nil
}

// refused reports whether err says that nothing was made.
func refused(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.class != classLost && e.class != classMissing
}

// make makes the Machine: in the first region that has room for it, and once, however often it has
// to be asked for.
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

// makeIn makes the Machine in a region. The name is its own, so a Machine that has it was made by a
// request whose answer was lost.
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
			// It may have been made. If so, and it is seen already, that is it; else the same name
			// is asked for again. An API that does not even answer that is down.
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
		if err := remote.Pause(ctx, pause(n, e)); err != nil {
			return nil, after(err, known)
		}
	}
}

// adopt returns the Machine that has the name. The answer tells its ID; without that it is looked
// for.
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
		if err := remote.Pause(ctx, pause(n, taken)); err != nil {
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

// up waits until a Machine has started, which the pull of its image may delay, and returns it with
// its address. It also returns one that has ended instead, with errNotUp.
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
		if err := remote.Pause(ctx, pause(min(n, 2), e)); err != nil {
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
