package engine

import (
	"errors"

	"github.com/execbroker/execbroker/executor"
)

// use counts what uses a session. It is guarded by session.mu.
type use struct {
	busy       map[executor.Interpreter]int // how many run in a slot; each language has another slot for Install
	running    int                          // runs and installations
	transfers  int                          // calls of Files, and files that are being read
	forwards   int                          // connections of Dial
	suspending bool
}

// installing is the context of the slot of Install. No request can name it.
const installing = "\x00install"

// everything is the slot of all that runs in a session without FeatureParallelRuns.
var everything = executor.Interpreter{}

var (
	errRunning      = errors.New("something is running; wait for it, or reset the interpreter")
	errSuspending   = errors.New("the sandbox is being suspended")
	errForwarding   = errors.New("a connection to a port is open; close it")
	errTransferring = errors.New("a file is being transferred; close what Files().Read has returned")
)

// commands is the context of the slot of commands, of which any number may run. No request can name
// it.
const commands = "\x00commands"

// acquire takes the slot of what is about to run, and returns it. Without FeatureParallelRuns there
// is one slot for everything.
func (s *session) acquire(slot executor.Interpreter) (executor.Interpreter, error) {
	if !s.caps.Has(executor.FeatureParallelRuns) {
		slot = everything
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspending {
		return slot, Fail(executor.ErrBusy, executor.RanNo, errSuspending)
	}
	if s.busy[slot] > 0 && slot.Context != commands {
		return slot, Fail(executor.ErrBusy, executor.RanNo, errRunning)
	}
	if s.transfers > 0 && !s.caps.Has(executor.FeatureFilesDuringRun) {
		return slot, Fail(executor.ErrBusy, executor.RanNo, errTransferring)
	}
	s.busy[slot]++
	s.running++
	return slot, nil
}

func (s *session) release(slot executor.Interpreter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[slot]--
	if s.busy[slot] == 0 {
		delete(s.busy, slot)
	}
	s.running--
}

// acquireTransfer is acquire for a call of Files.
func (s *session) acquireTransfer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspending {
		return Fail(executor.ErrBusy, executor.RanNo, errSuspending)
	}
	if s.running > 0 && !s.caps.Has(executor.FeatureFilesDuringRun) {
		return Fail(executor.ErrBusy, executor.RanNo, errRunning)
	}
	s.transfers++
	return nil
}

func (s *session) releaseTransfer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfers--
}

// acquireForward is acquire for a connection to a port.
func (s *session) acquireForward() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspending {
		return Fail(executor.ErrBusy, executor.RanNo, errSuspending)
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

// beginSuspend keeps new uses out until endSuspend. It fails if this session has a use that cannot
// be suspended.
func (s *session) beginSuspend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.suspending:
		return Fail(executor.ErrBusy, executor.RanNo, errSuspending)
	case s.running > 0 && !s.x.o.SuspendsRuns:
		return Fail(executor.ErrBusy, executor.RanNo, errRunning)
	case s.transfers > 0:
		return Fail(executor.ErrBusy, executor.RanNo, errTransferring)
	case s.forwards > 0:
		return Fail(executor.ErrBusy, executor.RanNo, errForwarding)
	}
	s.suspending = true
	return nil
}

func (s *session) endSuspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspending = false
}
