package e2b

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// OnPause says what happens to a sandbox that is paused, by its client or because its time is over,
// on a backend that cannot suspend it. A backend that can (executor.Suspender) suspends it whatever
// OnPause says.
type OnPause string

// What happens to paused sandboxes.
const (
	PauseKeep   OnPause = "keep"   // the default: it runs on, unreachable, until resumed or PausedTTL is over
	PauseKill   OnPause = "kill"   // it ends
	PauseRefuse OnPause = "refuse" // creating with autoPause and pausing fail
)

// onPause is what becomes of sandboxes that are paused.
func (s *Server) onPause() OnPause {
	if s.x.Info().Suspends {
		return PauseKeep
	}
	return s.cfg.OnPause
}

// pauseNow pauses a sandbox for its client.
func (s *Server) pauseNow(r *http.Request, b *sandbox) (int, any, error) {
	var ask struct {
		Memory *bool `json:"memory"`
	}
	if err := readJSON(r, &ask, true); err != nil {
		return 0, nil, err
	}
	if ask.Memory != nil && !*ask.Memory {
		return 0, nil, unsupported("pausing without memory")
	}
	switch s.onPause() {
	case PauseRefuse:
		return 0, nil, unsupported("pausing")
	case PauseKill:
		return s.kill(r, b)
	}
	return http.StatusNoContent, nil, s.pause(r.Context(), b)
}

// pause suspends b if possible, and lets it live for the time of paused sandboxes.
func (s *Server) pause(ctx context.Context, b *sandbox) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.isPaused() {
		return refuse(http.StatusConflict, "sandbox %q is already paused", b.id)
	}
	d := s.cfg.PausedTTL
	if !b.latest.IsZero() {
		d = min(d, time.Until(b.latest))
	}
	end := b.ends()
	b.setState(true, time.Now().Add(d)) // first, so that nobody is let in who would wake it
	if err := s.suspend(ctx, b, d); err != nil {
		b.setState(false, end)
		return b.seen(err)
	}
	b.note("sandbox paused")
	return nil
}

// suspend suspends the session of b. If this server dies, the session ends by itself after d.
func (s *Server) suspend(ctx context.Context, b *sandbox, d time.Duration) error {
	if b.session.Info().Capabilities.Has(executor.FeatureKeepAlive) {
		if _, err := b.session.KeepAlive(ctx, d+spareOf(d)); err != nil {
			return err
		}
	}
	var sus executor.Suspender
	if !s.x.Info().Suspends || !executor.As(b.session, &sus) {
		s.keeps.Do(func() {
			s.cfg.Log.Warn("the backend cannot pause: sandboxes go on until they are resumed or their time is over", "sandbox", b.id, "paused_ttl", s.cfg.PausedTTL)
		})
		return nil
	}
	err := sus.Suspend(ctx)
	// What was let in before ends in a moment, mostly.
	again := time.NewTicker(busyEvery)
	defer again.Stop()
	for end := time.Now().Add(busyTime); errors.Is(err, executor.ErrBusy) && time.Now().Before(end); err = sus.Suspend(ctx) {
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// One that is still in use, or too large for it, goes on as where nothing can be put aside.
	if errors.Is(err, executor.ErrBusy) || errors.Is(err, executor.ErrUnsupported) {
		s.cfg.Log.Warn("a sandbox could not be paused: it goes on until it is resumed or its time is over", "sandbox", b.id, "err", err)
		return nil
	}
	return err
}

// Suspending a sandbox that is in use is tried every busyEvery, for busyTime.
const busyTime, busyEvery = 5 * time.Second, 20 * time.Millisecond

// resume lets a paused sandbox go on, for d.
func (b *sandbox) resume(ctx context.Context, d time.Duration) (resumed bool, err error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	if !b.isPaused() {
		return false, nil
	}
	if err := b.setEnd(ctx, d, false); err != nil {
		return false, err
	}
	b.setState(false, b.ends())
	b.note("sandbox resumed")
	return true, nil
}

// resumeNow resumes a sandbox for its client, by a path that only old SDKs use.
func (s *Server) resumeNow(r *http.Request, b *sandbox) (int, any, error) {
	ask := struct {
		Timeout   int64 `json:"timeout"`
		Memory    *bool `json:"memory"`
		AutoPause bool  `json:"autoPause"`
	}{Timeout: 15}
	if err := readJSON(r, &ask, true); err != nil {
		return 0, nil, err
	}
	d, err := s.seconds(ask.Timeout)
	if err != nil {
		return 0, nil, err
	}
	if !b.isPaused() {
		return 0, nil, refuse(http.StatusConflict, "sandbox %q is already running", b.id)
	}
	then, err := s.then(ask.AutoPause)
	if err != nil {
		return 0, nil, err
	}
	if _, err := b.resume(r.Context(), d); err != nil {
		return 0, nil, err
	}
	b.setThen(then)
	return http.StatusCreated, s.answer(b), nil
}

func (b *sandbox) isPaused() bool { return b.state() == statePaused }

func (b *sandbox) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused {
		return statePaused
	}
	return stateRunning
}

// pauses reports whether b is paused when its time is over, instead of being ended.
func (b *sandbox) pauses() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.onTimeout == onTimeoutPause && !b.paused
}

// then says what becomes of a sandbox whose time is over.
func (s *Server) then(autoPause bool) (onTimeout string, err error) {
	switch p := s.onPause(); {
	case autoPause && p == PauseRefuse:
		return "", unsupported("autoPause")
	case autoPause && p == PauseKeep:
		return onTimeoutPause, nil
	}
	return onTimeoutKill, nil
}

// setThen says what becomes of b when its time is over.
func (b *sandbox) setThen(onTimeout string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onTimeout = onTimeout
}

// setState says that b is paused or not, and when its time is over.
func (b *sandbox) setState(paused bool, end time.Time) {
	b.mu.Lock()
	b.paused, b.end = paused, end
	if paused && b.sleep != nil {
		b.sleep(errPaused)
	}
	b.mu.Unlock()
	b.wake()
}

// The words of lifecycle.onTimeout, and of the state of a sandbox.
const (
	onTimeoutKill, onTimeoutPause = "kill", "pause"
	stateRunning, statePaused     = "running", "paused"
)
