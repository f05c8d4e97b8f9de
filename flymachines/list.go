package flymachines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

var (
	sessionID = regexp.MustCompile(`^[a-z0-9]{26}$`)
	machineID = regexp.MustCompile(`^[a-z0-9]{6,32}$`)
)

// state is Handle.State: a hint which Machine to ask for first. It is checked against the name that
// the API returns.
type state struct {
	Machine string `json:"m"`
}

// sessionInfo describes a Machine to driver.New. Whoever has a token for the app can write its
// metadata.
func sessionInfo(m *fly.Machine) (executor.SessionInfo, error) {
	id, ok := strings.CutPrefix(m.Name, machineName(""))
	if !ok || !sessionID.MatchString(id) {
		return executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("Machine %s is no session", m.ID))
	}
	hint, err := json.Marshal(state{m.ID})
	if err != nil {
		return executor.SessionInfo{}, err
	}
	info := executor.SessionInfo{Handle: executor.Handle{Session: id, State: hint}, State: executor.SessionRunning}
	switch {
	case slices.Contains(ended, m.State):
		info.State = executor.SessionDead
	case m.HostStatus != "" && m.HostStatus != fly.HostStatusOk:
		info.State = executor.SessionUnknown // the state of the Machine is that of before
	}
	if m.GetConfig() == nil {
		return info, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the host of Machine %s is %s: its configuration is not known", m.ID, m.HostStatus))
	}
	r, err := specOf(m)
	if err != nil {
		return info, driver.Fail(executor.ErrNotFound, executor.RanNo, err)
	}
	known, err := runner.Recall(id, r.Note)
	if err != nil {
		return info, err
	}
	if l := known.Labels; l[driver.LabelID] != id || l[driver.LabelOwner] != m.GetMetadataByKey(metadataOwner) {
		return info, driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("Machine %s says different things about whose it is", m.ID))
	}
	known.State, known.Handle.State = info.State, hint
	return known, nil
}

// lookup returns the Machine of a handle. The handle has only an ID as a hint, and the API says
// whose that is.
func (b *backend) lookup(ctx context.Context, h executor.Handle) (*fly.Machine, error) {
	gone := driver.Fail(executor.ErrNotFound, executor.RanNo, errNoMachine)
	if !sessionID.MatchString(h.Session) {
		return nil, gone
	}
	var hint state
	if json.Unmarshal(h.State, &hint) == nil && machineID.MatchString(hint.Machine) {
		m, err := b.api.get(ctx, hint.Machine)
		var e *APIError
		switch {
		case err == nil && m.Name == machineName(h.Session):
			if m.State == fly.MachineStateDestroyed || m.State == fly.MachineStateDestroying {
				return nil, gone
			}
			return m, nil
		case err != nil && (!errors.As(err, &e) || e.class != classMissing):
			return nil, fail(ctx, err)
		}
	}
	m, err := b.find(ctx, h.Session)
	switch {
	case errors.Is(err, errNoMachine):
		return nil, gone
	case err != nil:
		return nil, fail(ctx, err)
	case m.State == fly.MachineStateDestroying:
		return nil, gone
	}
	return m, nil
}

// Find implements runner.Finder.
func (b *backend) Find(ctx context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	m, err := b.lookup(ctx, h)
	if err != nil {
		return nil, executor.SessionInfo{}, err
	}
	info, err := sessionInfo(m)
	if err != nil {
		return nil, info, err
	}
	return &sandbox{b: b, id: h.Session, m: m}, info, nil
}

// Sessions implements driver.Lister.
func (b *backend) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		ms, err := b.api.list(ctx, metadataOwner, labels[driver.LabelOwner])
		if err != nil {
			yield(executor.SessionInfo{}, fail(ctx, err))
			return
		}
		for _, m := range ms {
			if m.State == fly.MachineStateDestroyed || m.State == fly.MachineStateDestroying || !strings.HasPrefix(m.Name, machineName("")) {
				continue
			}
			info, err := sessionInfo(m)
			if err != nil && errors.Is(err, executor.ErrNotFound) {
				continue // it carries our metadata and is not ours
			}
			if err == nil && !remote.Carries(info.Labels, labels) {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// abandonedAfter is the age at which a Machine that does not run is abandoned. One that is being
// created is younger.
const abandonedAfter = createTimeout + 5*time.Minute

// sweep removes what earlier programs of the owner have left, once for each backend. Running
// Machines end by their watchdog. Failed, stuck and suspended ones do not, and cost storage.
func (b *backend) sweep() {
	b.swept.Do(func() {
		b.sweeping.Go(func() {
			ctx, cancel := context.WithTimeout(b.life, cleanTimeout)
			defer cancel()
			if err := b.sweepNow(ctx, time.Now()); err != nil && b.life.Err() == nil {
				b.env.Logger().Warn("removing what earlier programs have left", "error", err)
			}
		})
	})
}

// abandoned reports whether nobody will use a Machine any more. A suspended one may be in the pool
// of another program, which replaces it long before its idle TTL ends.
func abandoned(m *fly.Machine, now time.Time) bool {
	since, age := m.CreatedAt, abandonedAfter
	switch {
	case m.State == fly.MachineStateStarted, m.State == fly.MachineStateDestroyed:
		return false
	case isSuspended(m):
		r, err := specOf(m)
		if err != nil {
			return false
		}
		since, age = cmp.Or(m.UpdatedAt, m.CreatedAt), max(age, cmp.Or(r.Idle, executor.DefaultIdleTTL))
	}
	at, err := time.Parse(time.RFC3339, since)
	return err == nil && now.Sub(at) >= age
}

// sweepNow removes abandoned Machines. Those on unreachable hosts are left for the next time.
func (b *backend) sweepNow(ctx context.Context, now time.Time) error {
	ms, err := b.api.list(ctx, metadataOwner, b.env.Owner)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range ms {
		if _, err := sessionInfo(m); err != nil || m.GetMetadataByKey(metadataOwner) != b.env.Owner {
			continue
		}
		if !abandoned(m, now) {
			continue
		}
		if err := b.api.destroy(ctx, m.ID); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
