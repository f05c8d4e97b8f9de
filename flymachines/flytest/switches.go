package flytest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Switch makes the emulator do what Fly does now and then and clients must live with. Clients
// cannot turn switches: they belong to tests. The functions of this package that return a Switch
// say what it does.
type Switch struct {
	name string
	ops  []Op // none: every operation
	// app, region and machine narrow it. Empty: any.
	machine string
	regions []string
	times   int // how often; 0: until it is turned off
	after   bool
	placing bool // it concerns the choice of a region
	answer  func(c *call) error
	hold    *held
	born    func(s *Server, m *machine)
	forget  bool // what a Machine held
}

// held keeps Machines from going on.
type held struct {
	at      holdPoint
	state   string
	release <-chan struct{}
	delay   time.Duration
}

// holdPoint is where the goroutine of a Machine can be held.
type holdPoint int

const (
	holdPull holdPoint = iota
	holdStart
	holdStop
	holdDestroy
)

// armed is a switch that is on.
type armed struct {
	Switch
	left int // 0: no bound
}

// errCut ends a connection without an answer.
var errCut = errors.New("the connection is cut")

// Switch turns a switch on. It is off when off is called, or when it has happened as often as it
// says.
func (s *Server) Switch(sw Switch) (off func()) {
	a := &armed{Switch: sw, left: sw.times}
	done := make(chan struct{})
	if sw.hold != nil && sw.hold.delay == 0 {
		a.hold = &held{at: sw.hold.at, state: sw.hold.state, release: done}
	}
	s.mu.Lock()
	s.switches = append(s.switches, a)
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.switches = slices.DeleteFunc(s.switches, func(x *armed) bool { return x == a })
		close(done)
	})
}

// fires reports whether a switch concerns something, and counts. The caller holds Server.mu.
func (s *Server) fires(a *armed, op Op, machine, region string) bool {
	if len(a.ops) > 0 && !slices.Contains(a.ops, op) || a.machine != "" && a.machine != machine || len(a.regions) > 0 && !slices.Contains(a.regions, region) {
		return false
	}
	if a.left == 0 && a.times > 0 {
		return false
	}
	if a.left > 0 {
		a.left--
	}
	return true
}

// action is what a switch does to a request.
type action struct {
	c  *call
	do func(c *call) error
}

func (a *action) apply() error { return a.do(a.c) }

// tripped returns what switches do to a request: instead of it, or instead of its answer.
func (s *Server) tripped(c *call) (before, after *action) {
	id := ""
	if c.m != nil {
		id = c.m.id
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.m != nil && c.m.unseen > 0 && (c.op == OpGet || c.op == OpWait) {
		c.m.unseen--
		return &action{c, func(*call) error { return errMachineNotFound() }}, nil
	}
	for _, a := range s.switches {
		if a.answer == nil || a.placing || !s.fires(a, c.op, id, "") {
			continue
		}
		act := &action{c, a.answer}
		if a.after {
			return nil, act
		}
		return act, nil
	}
	return nil, nil
}

// capacity asks the switches whether a region has room.
func (s *Server) capacity(c *call, region string) error {
	c.region = region
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.switches {
		if a.placing && s.fires(a, c.op, "", region) {
			return a.answer(c)
		}
	}
	return nil
}

// born tells the switches of a new Machine. The caller holds Server.mu.
func (s *Server) born(m *machine) {
	for _, a := range s.switches {
		if a.born != nil && s.fires(a, OpCreate, m.id, m.region) {
			a.born(s, m)
		}
	}
}

// hold lets a Machine wait where switches say so, until they let go of it or ctx ends.
func (s *Server) hold(ctx context.Context, m *machine, at holdPoint) error {
	for {
		var h *held
		s.mu.Lock()
		for _, a := range s.switches {
			if a.hold != nil && a.hold.at == at && s.fires(a, "", m.id, m.region) {
				h = a.hold
				break
			}
		}
		s.mu.Unlock()
		if h == nil {
			return ctx.Err()
		}
		var late <-chan time.Time
		if h.delay > 0 {
			t := time.NewTimer(h.delay)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.release:
		case <-late:
			return nil
		}
	}
}

// forgets reports whether what a suspended Machine held is lost.
func (s *Server) forgets(m *machine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.switches, func(a *armed) bool { return a.forget && s.fires(a, OpStart, m.id, m.region) })
}

// spentOOM reports whether a test has said that a Machine ran out of memory. The caller holds
// Server.mu.
func (s *Server) spentOOM(m *machine) bool {
	oom := m.oom
	m.oom = false
	return oom
}

// Times returns sw for n requests only.
func (sw Switch) Times(n int) Switch {
	sw.times = n
	return sw
}

// Of narrows sw to one Machine.
func (sw Switch) Of(machine string) Switch {
	sw.machine = machine
	return sw
}

// String names the switch.
func (sw Switch) String() string { return sw.name }
