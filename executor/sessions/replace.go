package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Loss says why a key has another sandbox than before.
type Loss string

// The reasons for a loss.
const (
	LossGone        Loss = "gone"        // it ended by its idle TTL, its maximum life or a crash, or it was destroyed
	LossUnavailable Loss = "unavailable" // its backend did not answer for as long as Options.Replace says
	LossAbandoned   Loss = "abandoned"   // Manager.Abandon was called
	LossEvicted     Loss = "evicted"     // it was evicted, by Options.Evict or by Manager.Evict
	LossMoved       Loss = "moved"       // Options.Move said so
	LossForked      Loss = "forked"      // the key has had none, and begins as a copy of another one
)

// DefaultReplace is how long Acquire waits for an unavailable backend if Options.Replace is nil.
const DefaultReplace = 2 * time.Minute

// lastTry bounds the last attempt to reach a backend that has been unavailable for long. A new
// sandbox takes time too, and the caller's time may be short.
const lastTry = 5 * time.Second

// reachTime bounds any other attempt. Attaching may wake a sandbox.
const reachTime = time.Minute

// forever is the end of a run without a wall time.
var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// unreachable reports whether err says that a backend did not answer, or not in time.
func unreachable(err error) bool {
	var e *executor.Error
	return errors.As(err, &e) && (errors.Is(e.Kind, executor.ErrUnavailable) || errors.Is(e.Kind, context.DeadlineExceeded))
}

// replaceable reports whether the session of r may be replaced now if its backend does not answer.
// It may not while a run may go on in it: the conversation would lose the result of that run, and
// its code would be run again.
func (m *Manager) replaceable(r *Record, now time.Time) bool {
	after := DefaultReplace
	if m.opts.Replace != nil {
		after = m.opts.Replace(r.Handle)
	}
	return after >= 0 && !r.Unavailable.IsZero() && now.Sub(r.Unavailable) >= after && !now.Before(r.Running)
}

// longestRun returns until when a run that began before begun may go on.
func longestRun(h executor.Handle, begun time.Time) time.Time {
	_, most := executor.Spec{Run: h.Run, MaxRun: h.MaxRun}.Bounds()
	return after(begun, most.WallTime)
}

// after adds a wall time to t.
func after(t time.Time, wall time.Duration) time.Time {
	if wall == executor.NoLimit {
		return forever
	}
	return t.Add(wall)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Abandon gives up the sandbox of key without asking its backend. It is for a backend that does not
// answer, where Discard fails. The next Acquire creates a new sandbox from the last checkpoint, and
// its lease says so. A lease of the old sandbox is lost. The old sandbox is left to its idle TTL
// and to Reap. If there is no record, that is not an error.
func (m *Manager) Abandon(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return m.fail("abandon", executor.ErrInvalid, err)
	}
	for {
		e, err := m.load(ctx, key)
		if err != nil {
			return err
		}
		if e.Handle.Session == "" {
			return nil // there is no sandbox, or it is being created
		}
		old, now := e.Handle, time.Now()
		e.Record = Record{
			Key: key, Subject: e.Subject, Created: e.Created, Used: now, Token: max(e.Token+1, now.UnixMicro()),
			Template: e.Template, Languages: e.Languages, Network: e.Network, Lost: true, Why: LossAbandoned,
			Behind: e.Behind, On: e.On, IDs: e.IDs, Unsure: e.Unsure,
		}
		switch err := m.save(ctx, &e); {
		case errors.Is(err, ErrConflict):
			continue
		case err != nil:
			return m.storeError(ctx, "abandon", err)
		}
		m.mu.Lock()
		if l := m.keys[key]; l != nil && l.lease != nil {
			l.lease.cancel(errLost)
		}
		m.mu.Unlock()
		return errors.Join(m.storeError(ctx, "abandon", m.fence(ctx, key, e.Subject, e.Token)), m.abandon(ctx, "abandon", key, old, LossAbandoned))
	}
}

// abandonedKey is the key of the note that a sandbox is not wanted any more, even if the process
// that created it is alive.
func abandonedKey(h executor.Handle) string {
	sum := sha256.Sum256([]byte(h.Backend + "\x00" + h.Session))
	return abandonedPrefix + hex.EncodeToString(sum[:16])
}

// abandon notes and logs that the key uses another sandbox from now on.
func (m *Manager) abandon(ctx context.Context, op, key string, h executor.Handle, why Loss) error {
	if m.opts.Log != nil {
		m.opts.Log.WarnContext(ctx, "a session is abandoned", "key", key, "backend", h.Backend, "session", h.Session, "why", why)
	}
	r := Record{Handle: h, Used: time.Now()}
	return m.storeError(ctx, op, m.mark(ctx, abandonedKey(h), r.expires()))
}

func (m *Manager) abandoned(ctx context.Context, h executor.Handle) (bool, error) {
	e, err := m.store.Get(ctx, abandonedKey(h))
	return e.Rev != "", m.storeError(ctx, "reap", err)
}

// releaseLater releases a session in the background, because its backend may not answer.
func (m *Manager) releaseLater(s executor.Session) {
	m.leaving.Go(func() {
		if attachable(s) {
			s.Detach() // its idle TTL or Reap removes the sandbox
		} else {
			s.Close() // the sandbox lives in this process
		}
	})
}

// takeoverWait is how long a run waits for a run of a holder that has died. Backends notice within
// seconds that a holder died, and end its runs.
const takeoverWait = 10 * time.Second

// resetTarget returns the interpreters that must be reset so that a job can begin.
func (le *Lease) resetTarget(l executor.Language, context string) executor.Interpreter {
	caps := le.Info().Capabilities
	if !caps.Has(executor.FeatureParallelRuns) {
		return executor.Interpreter{} // everything that runs prevents it
	}
	return executor.Interpreter{Language: caps.Interpreter(languageOf(l, caps)), Context: context}
}

// A job is a run or an installation in a session.
type job func(ctx context.Context, emit func(executor.Event) error) (*executor.Result, error)

// inTurn runs a job in an interpreter. While something else runs there, the job waits or fails with
// ErrBusy, as the backend does. If that may be a run of a holder that died with its lease, nobody
// waits for the result of that run any more. The run gets some time to end by itself, so that
// variables stay, and is then ended by Reset.
func (le *Lease) inTurn(ctx context.Context, which executor.Interpreter, emit func(executor.Event) error, do job) (*executor.Result, error) {
	le.mu.Lock()
	alone := le.running == 0
	le.running++
	le.mu.Unlock()
	defer func() {
		le.mu.Lock()
		defer le.mu.Unlock()
		le.running--
	}()
	if !le.inherited || !alone || !le.Info().Capabilities.Has(executor.FeatureState) {
		return do(ctx, emit)
	}
	for until := time.Now().Add(takeoverWait); ; {
		res, begun, err := startWithin(ctx, until, emit, do)
		switch {
		case begun || !blocked(err) || ctx.Err() != nil:
			return res, err
		case time.Now().Before(until):
			if !wait(ctx, poll) {
				return res, err
			}
			continue
		}
		if err := le.session().Reset(ctx, which); err != nil {
			return nil, err
		}
		return do(ctx, emit)
	}
}

// blocked reports whether err says that another job prevented this one from starting, as far as can
// be told: it was refused, or given up while it waited, and nothing of it has run.
func blocked(err error) bool {
	var e *executor.Error
	return errors.As(err, &e) && e.Ran == executor.RanNo && (e.Kind == executor.ErrBusy || e.Kind == context.Canceled)
}

// startWithin runs a job that must start before a given time, and reports whether it has started.
func startWithin(ctx context.Context, until time.Time, emit func(executor.Event) error, do job) (res *executor.Result, begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(time.Until(until), cancel)
	defer late.Stop()
	res, err = do(ctx, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted {
			late.Stop()
			begun = true
		}
		if emit == nil {
			return nil
		}
		return emit(ev)
	})
	return res, begun, err
}
