package engine

import (
	"context"
	"sync"
	"time"
)

// Leftover is driver.Leftover.
func Leftover(err error, remove func(ctx context.Context) error) error {
	return &leftoverError{err, remove}
}

type leftoverError struct {
	err    error
	remove func(context.Context) error
}

func (e *leftoverError) Error() string { return e.err.Error() }
func (e *leftoverError) Unwrap() error { return e.err }

// The pauses between two attempts to remove what is left.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// leftovers are the sandboxes whose removal has failed. Its goroutine runs as long as there are
// any.
type leftovers struct {
	timeout time.Duration // of one attempt
	stop    chan struct{} // closed by the first drain
	work    sync.WaitGroup

	mu      sync.Mutex
	list    []func(context.Context) error
	trying  bool
	stopped bool
}

// add takes over the removal of something.
func (l *leftovers) add(remove func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, remove)
	if !l.trying && !l.stopped {
		l.trying = true
		l.work.Go(l.try)
	}
}

// try removes what there is, until there is nothing.
func (l *leftovers) try() {
	pause := firstPause
	for {
		t := time.NewTimer(pause)
		select {
		case <-l.stop:
			t.Stop()
			return
		case <-t.C:
		}
		pause = min(2*pause, lastPause)
		ctx, cancel := context.WithTimeoutCause(context.Background(), l.timeout, errAttempt)
		l.remove(ctx)
		cancel()
		l.mu.Lock()
		if len(l.list) == 0 {
			l.trying = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// remove tries everything once and keeps what is left.
func (l *leftovers) remove(ctx context.Context) error {
	l.mu.Lock()
	list := l.list
	l.list = nil
	l.mu.Unlock()
	var errs []error
	for i, remove := range list {
		if err := remove(ctx); err != nil {
			errs = append(errs, err)
			list[len(errs)-1] = list[i]
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(list[:len(errs)], l.list...)
	return joinFailures(errs...)
}

// drain ends the attempts in the background and makes a last one.
func (l *leftovers) drain(ctx context.Context) error {
	l.mu.Lock()
	if !l.stopped {
		l.stopped = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.work.Wait()
	return l.remove(ctx)
}
