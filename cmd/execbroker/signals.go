package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is the cause of a context that a signal has ended.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("stopped by %v", e.sig) }

func (e *signalError) code() int {
	if n, ok := e.sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 128 + int(syscall.SIGINT)
}

// signals turns the first signal into the end of a context, so that code is stopped and sandboxes
// are removed, and ends the program at the second. A sandbox whose holder is gone like that ends by
// itself.
type signals struct {
	stop func()

	mu     sync.Mutex
	prompt bool                    // between runs somebody sits at a prompt, to whom an interrupt means nothing
	run    context.CancelCauseFunc // takes the first interrupt in place of the program; nil: there is no run
	used   bool                    // it has
}

// watchSignals returns a context that ends at the first signal, with a *signalError as its cause.
func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{}
	ch := make(chan os.Signal, 2)
	for _, sig := range endSignals {
		if !signal.Ignored(sig) { // nohup means it
			signal.Notify(ch, sig)
		}
	}
	// Without this, writing to a pipe that nobody reads kills the program before it has cleaned up.
	// As it is, the write fails.
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

// softly keeps an interrupt from ending the program if it is meant for a run, or comes between two.
func (s *signals) softly(sig os.Signal, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sig != os.Interrupt || s.used:
		return false
	case s.run == nil:
		return s.prompt
	}
	s.run(err)
	s.used = true
	return true
}

// atPrompt makes interrupts between runs mean nothing.
func (s *signals) atPrompt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompt = true
}

// interruptible returns a context that an interrupt ends instead of the program's, for as long as
// done has not been called.
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
