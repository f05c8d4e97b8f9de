package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// expiry is the time at which a sandbox ends that does not count use itself. It is moved, so that
// the sandbox ends one idle TTL after its last use. The zero expiry is that of a sandbox that
// counts use. If other processes move it too, the last one wins: those that share such a sandbox
// use it in turns.
type expiry struct {
	fixed bool // does not change after adopt

	mu    sync.Mutex
	end   time.Time // as last heard
	users int       // runs, installations and transfers in progress
	until time.Time // when the last of those in progress that have a wall time must be over
}

// at returns the end, or zero if there is none but by not being used.
func (e *expiry) at() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.end
}

// learn notes what the provider says.
func (e *expiry) learn(end time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fixed && !end.IsZero() {
		e.end = end
	}
}

// enter counts a use that may last for wall, or without a bound.
func (e *expiry) enter(wall time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users++
	if until := time.Now().Add(wall); wall != executor.NoLimit && until.After(e.until) {
		e.until = until
	}
}

// leave reports whether it was the last use.
func (e *expiry) leave() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users == 0 {
		e.until = time.Time{}
	}
	return e.users == 0
}

// needed returns how long from now the uses in progress may last.
func (e *expiry) needed() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until.IsZero() {
		return 0
	}
	return max(time.Until(e.until), 0)
}

// longest is the longest time that is not unlimited. Sums with it do not overflow.
const longest time.Duration = 1 << 62

var (
	errLife = errors.New("the wall time is longer than what is left of the life of the sandbox; ask for less, or create the session with a longer MaxLife")
	errTTL  = errors.New("the wall time is longer than what is left before the sandbox expires, and the provider does not extend it")
)

// outlive makes sure that the sandbox does not end during a use of at most wall, as far as that can
// be known, and keeps it alive until done is called: a run must not end before its wall time
// because the sandbox expires. With the last use in progress the idle TTL begins anew.
func (s *session) outlive(ctx context.Context, wall time.Duration) (done func(), err error) {
	if left, ok := s.lifeLeft(); ok && wall != executor.NoLimit && wall > left {
		return nil, Fail(executor.ErrInvalid, executor.RanNo, errLife)
	}
	if !s.expiry.fixed {
		return func() {}, nil
	}
	extends := s.box.KeepAlive != nil
	slack := s.x.o.Grace + s.x.o.StopTimeout
	need := slack
	if wall != executor.NoLimit {
		need += wall
	}
	s.expiry.enter(wall)
	if extends && time.Until(s.expiry.at()) < need {
		_, err = s.keepAlive(ctx, s.idleTTL()+slack)
	}
	if wall != executor.NoLimit && time.Until(s.expiry.at()) < wall {
		s.expiry.leave()
		if err == nil {
			err = Fail(executor.ErrInvalid, executor.RanNo, errTTL)
		}
		return nil, err
	}
	if !extends {
		return func() { s.expiry.leave() }, nil
	}
	stop := func() {}
	if wall == executor.NoLimit || need > s.idleTTL()/3 {
		stop = s.extend(ctx)
	}
	return func() {
		stop()
		if s.expiry.leave() && !s.calls.isClosed() {
			s.settle(ctx)
		}
	}, nil
}

// extend moves the end again and again, since another process may have asked for a shorter time.
func (s *session) extend(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(max(s.idleTTL()/3, 100*time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if _, err := s.keepAlive(ctx, s.idleTTL()); err != nil && ctx.Err() == nil {
					s.x.log.Warn("keeping a session in use alive", "session", s.id, "error", err)
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// settle moves the end to one idle TTL from now, unless it is close to that: not every run needs a
// request.
func (s *session) settle(ctx context.Context) {
	idle := s.idleTTL()
	if off := time.Until(s.expiry.at()) - idle; off.Abs() <= idle/8 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.x.o.StopTimeout)
	defer cancel()
	if _, err := s.keepAlive(ctx, idle); err != nil {
		s.x.log.Warn("beginning the idle time of a session", "session", s.id, "error", err)
	}
}

// keepAlive moves the end to idle after all that is in progress, but not beyond the life of the
// sandbox.
func (s *session) keepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	ask := idle + s.expiry.needed()
	if left, ok := s.lifeLeft(); ok {
		ask = max(min(ask, left), time.Second)
	}
	end, err := s.box.KeepAlive(ctx, ask)
	if err != nil {
		return time.Time{}, err
	}
	s.expiry.learn(end)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Expires = end
	return end, nil
}

func (s *session) idleTTL() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.Handle.IdleTTL
}

// lifeLeft returns what is left of Spec.MaxLife; ok is false if there is no such bound.
func (s *session) lifeLeft() (left time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Handle.MaxLife == 0 {
		return 0, false
	}
	return time.Until(s.info.Created.Add(s.info.Handle.MaxLife)), true
}
