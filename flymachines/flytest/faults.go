package flytest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// What Fly has been seen to do. Each function returns a Switch for Server.Switch.

// NotFoundAfterCreate answers the first n requests for a new Machine (Get and Wait) with 404, as
// happens until what has been created is known everywhere.
func NotFoundAfterCreate(n int) Switch {
	return Switch{name: "not-found-after-create", born: func(_ *Server, m *machine) { m.unseen = n }}
}

// DestroyingAfterWait lets the first n Gets of a destroyed Machine say that it is being destroyed,
// even after a wait has said more.
func DestroyingAfterWait(n int) Switch {
	return Switch{name: "destroying-after-wait", born: func(_ *Server, m *machine) { m.lingers = n }}
}

// SlowPull keeps new Machines in state created for a while. Zero means until the switch is turned
// off. Meanwhile a start is refused with 412, as with Fly.
func SlowPull(d time.Duration) Switch {
	return Switch{name: "slow-pull", hold: &held{at: holdPull, delay: d}}
}

// StuckStarting keeps Machines in state starting until it is turned off.
func StuckStarting() Switch { return Switch{name: "stuck-starting", hold: &held{at: holdStart}} }

// StuckStopping keeps Machines that are stopped, restarted or updated in the state before, until it
// is turned off or they are destroyed by force.
func StuckStopping() Switch { return Switch{name: "stuck-stopping", hold: &held{at: holdStop}} }

// StuckDestroying keeps Machines in state destroying until it is turned off. Their containers are
// gone by then.
func StuckDestroying() Switch { return Switch{name: "stuck-destroying", hold: &held{at: holdDestroy}} }

// CreateTimesOut answers creates with 408, although they are done.
func CreateTimesOut() Switch {
	return Switch{name: "create-times-out", ops: []Op{OpCreate}, after: true, answer: func(*call) error { return errCreateTimeout() }}
}

// NameTaken answers creates with 409 and the ID of the Machine of that name, which they have just
// made: so it looks to a client whose first attempt got through without an answer.
func NameTaken() Switch {
	return Switch{name: "name-taken", ops: []Op{OpCreate}, after: true, answer: func(c *call) error {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return errNameTaken(c.m.id, c.m.name)
	}}
}

// NoCandidate answers creates in the given regions (none: in all) with 422: no host has room.
func NoCandidate(regions ...string) Switch {
	return regional("no-candidate", regions, func(*call) error { return errRegionFull() })
}

// NoCapacity answers creates in the given regions (none: in all) with 409: no host has room, in
// other words.
func NoCapacity(regions ...string) Switch {
	return regional("no-capacity", regions, func(*call) error { return errRegionConflict() })
}

// OverQuota answers creates in the given regions (none: in all) with 403: the organization may not
// have more.
func OverQuota(regions ...string) Switch {
	return regional("over-quota", regions, func(c *call) error { return errQuota(c.app.Org, c.region, 4096) })
}

// NoAddresses answers creates in the given regions (none: in all) with 409: there are no addresses
// left.
func NoAddresses(regions ...string) Switch {
	return regional("no-addresses", regions, func(*call) error {
		return fail(http.StatusConflict, "aborted: insufficient IPs available to fulfill request")
	})
}

// VolumeHostFull answers creates with 412: the host of a volume has no room.
func VolumeHostFull(volume string) Switch {
	return Switch{name: "volume-host-full", ops: []Op{OpCreate}, answer: func(*call) error {
		return fail(http.StatusPreconditionFailed, "insufficient resources to create new machine with existing volume id '%s'", volume)
	}}
}

// NoCapacityForVolumes answers creates with 400: there is no room for volumes.
func NoCapacityForVolumes() Switch {
	return Switch{name: "no-capacity-for-volumes", ops: []Op{OpCreate}, answer: func(*call) error { return fail(http.StatusBadRequest, "no capacity") }}
}

// AppUnknown answers with 500, as happens for a while after an app was created. No operation means
// every one.
func AppUnknown(ops ...Op) Switch {
	return Switch{name: "app-unknown", ops: ops, answer: func(*call) error {
		return fail(http.StatusInternalServerError, "internal: failed to get app: sql: no rows in result set")
	}}
}

func regional(name string, regions []string, answer func(*call) error) Switch {
	return Switch{name: name, ops: []Op{OpCreate}, regions: regions, placing: true, answer: answer}
}

// HostFull answers starts with 409: the host of a Machine that was stopped or suspended has no room
// for it now. what is "CPUs" or "memory".
func HostFull(what string) Switch {
	return Switch{name: "host-full", ops: []Op{OpStart}, answer: func(*call) error { return errHostFull(what) }}
}

// SnapshotLost makes starts of suspended Machines boot them anew, with the root file system that
// they began with: Fly does not promise to keep what it has suspended.
func SnapshotLost() Switch { return Switch{name: "snapshot-lost", forget: true} }

// StillActive answers starts with 412: the Machine has just been stopped.
func StillActive() Switch {
	return Switch{name: "still-active", ops: []Op{OpStart}, answer: func(*call) error { return errStillActive() }}
}

// RateLimited answers with 429, and with Retry-After in whole seconds if that is not zero. No
// operation means every one.
func RateLimited(retryAfter time.Duration, ops ...Op) Switch {
	return Switch{name: "rate-limited", ops: ops, answer: func(*call) error {
		e := errRate()
		if retryAfter > 0 {
			e.header = http.Header{"Retry-After": {fmt.Sprint(int(retryAfter.Seconds()))}}
		}
		return e
	}}
}

// BadGateway answers with 502 and a page in HTML, before anything is done.
func BadGateway(ops ...Op) Switch { return Answer(http.StatusBadGateway, badGateway, ops...) }

// BadGatewayAfter answers with 502 although the operation is done.
func BadGatewayAfter(ops ...Op) Switch { return AnswerAfter(http.StatusBadGateway, badGateway, ops...) }

const badGateway = "<html><body><h1>502 Bad Gateway</h1></body></html>\n"

// Unavailable answers with 503, before anything is done.
func Unavailable(ops ...Op) Switch {
	return Switch{name: "unavailable", ops: ops, answer: func(*call) error { return errHostDisabled() }}
}

// UnavailableAfter answers with 503 although the operation is done.
func UnavailableAfter(ops ...Op) Switch {
	sw := Unavailable(ops...)
	sw.name, sw.after = "unavailable-after", true
	return sw
}

// Cut ends the connection without an answer, before anything is done.
func Cut(ops ...Op) Switch {
	return Switch{name: "cut", ops: ops, answer: func(*call) error { return errCut }}
}

// CutAfter ends the connection without an answer although the operation is done.
func CutAfter(ops ...Op) Switch {
	sw := Cut(ops...)
	sw.name, sw.after = "cut-after", true
	return sw
}

// Answer makes operations be answered by a status and a body, without being done. No operation
// means every one.
func Answer(status int, body string, ops ...Op) Switch {
	return Switch{name: fmt.Sprintf("answer-%d", status), ops: ops, answer: func(*call) error { return &apiError{status: status, text: body} }}
}

// AnswerAfter makes operations be done, and then be answered by a status and a body all the same.
func AnswerAfter(status int, body string, ops ...Op) Switch {
	sw := Answer(status, body, ops...)
	sw.name, sw.after = sw.name+"-after", true
	return sw
}

// DeadHost makes the host of a Machine unreachable: its configuration is null, and nothing can be
// done with it. What it runs runs on. revive ends that.
func (s *Server) DeadHost(app, machine string) (revive func(), err error) {
	m, err := s.machine(app, machine)
	if err != nil {
		return nil, err
	}
	set := func(dead bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.dead = dead
	}
	set(true)
	return func() { set(false) }, nil
}

// Kill ends the container of a Machine from outside, as a host that crashes does.
func (s *Server) Kill(ctx context.Context, app, machine string) error {
	return s.kill(ctx, app, machine, false)
}

// OutOfMemory ends a Machine as the kernel of its guest does when its memory runs out.
func (s *Server) OutOfMemory(ctx context.Context, app, machine string) error {
	return s.kill(ctx, app, machine, true)
}

func (s *Server) kill(ctx context.Context, app, machine string, oom bool) error {
	m, err := s.machine(app, machine)
	if err != nil {
		return err
	}
	s.mu.Lock()
	id := m.container
	m.oom = oom && id != ""
	s.mu.Unlock()
	if id == "" {
		return fmt.Errorf("%s/%s: %w", app, machine, errDown)
	}
	if _, err := s.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// Machines returns the IDs of the Machines of an app that are not destroyed, whatever its clients
// think.
func (s *Server) Machines(app string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	if a := s.apps[app]; a != nil {
		for _, m := range a.machines {
			if m.state != stateDestroyed {
				ids = append(ids, m.id)
			}
		}
	}
	return ids
}

func (s *Server) machine(app, id string) (*machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.apps[app]; a != nil && a.machines[id] != nil {
		return a.machines[id], nil
	}
	return nil, fmt.Errorf("%s/%s: there is no such Machine", app, id)
}
