package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("stopped by %v", e.sig) }

func (e *signalError) code() int {
	if n, ok := e.sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 128 + int(syscall.SIGINT)
}

// signals ends a context at the first signal, so that code is stopped and sandboxes are removed,
// and ends the program at the second. If a program ends like that, its sandboxes end by themselves.
type signals struct {
	stop func()

	mu     sync.Mutex
	prompt bool                    // a person is at a prompt between runs, so that an interrupt does nothing there
	run    context.CancelCauseFunc // handles the first interrupt instead of the program; nil: no run is in progress
	used   bool                    // run has handled it
	hangup func()                  // handles hangups instead of the program; nil: they end it
}

// watchSignals returns a context that ends at the first signal, with a *signalError as its cause.
func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{}
	ch := make(chan os.Signal, 2)
	for _, sig := range endSignals {
		if !signal.Ignored(sig) { // nohup ignores a signal
			signal.Notify(ch, sig)
		}
	}
	// Without this, writing to a pipe without a reader would kill the program before it has cleaned
	// up. With it, the write fails.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case sig := <-ch:
				err := &signalError{sig}
				switch {
				case s.softly(sig, err):
				case ctx.Err() != nil:
					exit(err.code())
				default:
					cancel(err)
				}
			case <-done:
				return
			}
		}
	})
	s.stop = func() {
		signal.Stop(ch)
		signal.Stop(pipe)
		close(done)
		wg.Wait()
		cancel(nil)
	}
	return ctx, s
}

// softly handles a signal without ending the program: an interrupt that is for a run or comes
// between two runs, or a hangup that onHangup handles.
func (s *signals) softly(sig os.Signal, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sig == syscall.SIGHUP && s.hangup != nil:
		s.hangup()
		return true
	case sig != os.Interrupt || s.used:
		return false
	case s.run == nil:
		return s.prompt
	}
	s.run(err)
	s.used = true
	return true
}

// onHangup makes hangups call f instead of ending the program.
func (s *signals) onHangup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangup = f
}

// atPrompt makes interrupts between runs do nothing.
func (s *signals) atPrompt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompt = true
}

// interruptible returns a context that an interrupt ends instead of the program's context, until
// done is called.
func (s *signals) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.used = cancel, false
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run, s.used = nil, false
		cancel(nil)
	}
}
