package engine

import (
	"errors"

	"github.com/execbroker/execbroker/executor"
)

// use says what of a session is in use. It is guarded by session.mu.
type use struct {
	busy      map[executor.Interpreter]int // how many run in it; Install has a place of its own for each language
	running   int                          // runs and installations
	transfers int                          // calls of Files, and files that are being read
	forwards  int                          // connections of Dial
	aside     bool                         // being suspended
}

// installing is the place of an installer. No request can name this context.
const installing = "\x00install"

// everything is the place of all that runs in a session without FeatureParallelRuns.
var everything = executor.Interpreter{}

var (
	errRunning      = errors.New("something is running; wait for it, or reset the interpreter")
	errAside        = errors.New("the sandbox is being suspended")
	errForwarding   = errors.New("a connection to a port is open; close it")
	errTransferring = errors.New("a file is being transferred; close what Files().Read has returned")
)

// commands is the place of commands, of which any number may run. No request can name this context
// either.
const commands = "\x00commands"

// hold takes the place of what is about to run. Without FeatureParallelRuns there is one place for
// all.
func (s *session) hold(place executor.Interpreter) (executor.Interpreter, error) {
	if !s.caps.Has(executor.FeatureParallelRuns) {
		place = everything
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside {
		return place, Fail(executor.ErrBusy, executor.RanNo, errAside)
	}
	if s.busy[place] > 0 && place.Context != commands {
		return place, Fail(executor.ErrBusy, executor.RanNo, errRunning)
	}
	if s.transfers > 0 && !s.caps.Has(executor.FeatureFilesDuringRun) {
		return place, Fail(executor.ErrBusy, executor.RanNo, errTransferring)
	}
	s.busy[place]++
	s.running++
	return place, nil
}

func (s *session) release(place executor.Interpreter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[place]--
	if s.busy[place] == 0 {
		delete(s.busy, place)
	}
	s.running--
}

// holdFiles is hold for a transfer.
func (s *session) holdFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside {
		return Fail(executor.ErrBusy, executor.RanNo, errAside)
	}
	if s.running > 0 && !s.caps.Has(executor.FeatureFilesDuringRun) {
		return Fail(executor.ErrBusy, executor.RanNo, errRunning)
	}
	s.transfers++
	return nil
}

func (s *session) releaseFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfers--
}

// holdForward is hold for a connection to a port.
func (s *session) holdForward() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside {
		return Fail(executor.ErrBusy, executor.RanNo, errAside)
	}
	if s.forwards >= executor.MaxForwards {
		return Fail(executor.ErrExhausted, executor.RanNo, errForwards)
	}
	s.forwards++
	return nil
}

func (s *session) releaseForward() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwards--
}

// setAside takes the whole sandbox, if nothing of this holder uses it but what can be suspended
// with it.
func (s *session) setAside() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.aside:
		return Fail(executor.ErrBusy, executor.RanNo, errAside)
	case s.running > 0 && !s.x.o.SuspendsRuns:
		return Fail(executor.ErrBusy, executor.RanNo, errRunning)
	case s.transfers > 0:
		return Fail(executor.ErrBusy, executor.RanNo, errTransferring)
	case s.forwards > 0:
		return Fail(executor.ErrBusy, executor.RanNo, errForwarding)
	}
	s.aside = true
	return nil
}

func (s *session) takeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = false
}
