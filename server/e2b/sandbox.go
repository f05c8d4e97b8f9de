package e2b

import (
	"container/list"
	"context"
	"crypto/subtle"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// spare is how much longer than its sandbox a session may live unused, at most. So this server ends
// it before the backend does.
const spare = time.Minute

// spareOf returns the spare of a sandbox that lives for d.
func spareOf(d time.Duration) time.Duration { return min(d, spare) }

// sandbox is one sandbox of the registry. Its goroutine in live ends it when its time is over.
type sandbox struct {
	id       string
	owner    owner
	use      *list.Element // of Server.used; guarded by its mu
	template string        // as the client named it
	token    string        // for envd
	traffic  string        // for other ports; empty: they are public
	private  bool          // the code interpreter needs it too
	metadata map[string]string
	egress   executor.NetworkPolicy
	started  time.Time
	latest   time.Time     // it cannot live longer; zero: no bound
	wall     time.Duration // of runs, see wallTime; zero: the limit of the backend
	session  executor.Session
	home     string // by what clients know the working directory
	contexts *contexts
	said     *metadata // of its files
	envd     http.Handler
	forward  http.Handler // to servers in the sandbox; nil: there is none

	processes *processService
	root      func(context.Context, executor.Session, executor.Request, func(executor.Event) error) (*executor.Result, error)

	life  context.Context // ends when the sandbox is to end, with the reason as its cause
	stop  context.CancelCauseFunc
	moved chan struct{} // the end was changed; has room for one
	gone  chan struct{} // closed when the session is

	closeErr error // of the session; set before gone is closed

	jobs sync.WaitGroup // processes; begin adds to it

	resumes time.Duration // for which a request to it resumes it when it is paused; zero: none does
	turn    sync.Mutex    // held while it is paused or resumed

	mu        sync.Mutex
	end       time.Time
	awake     context.Context // ends when it is paused; nil: nobody has asked
	sleep     context.CancelCauseFunc
	over      bool   // nothing can begin
	paused    bool   // changed with turn held
	onTimeout string // one of onTimeoutKill and onTimeoutPause
	logs      []logEntry
}

// lifeMargin is the least time between the end of a run and the end of its sandbox: backends refuse
// a wall time that goes beyond the life of the sandbox.
const lifeMargin = time.Minute

// wallTime returns the wall time of a run where the configuration has none. A run keeps its sandbox
// alive even when this server was killed, so every run needs one. Zero if the end of the sandbox
// bounds the run anyway.
func (b *sandbox) wallTime() time.Duration {
	if !b.latest.IsZero() && time.Until(b.latest) < b.wall+lifeMargin {
		return 0
	}
	return b.wall
}

// begin adds one to jobs, which the end of b waits for. It reports false if b is ending.
func (b *sandbox) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.life.Err() != nil {
		return false
	}
	b.jobs.Add(1)
	return true
}

// live waits for the end of b and closes its session.
func (s *Server) live(b *sandbox) {
	defer s.lives.Done() // of reserve
	timer := time.NewTimer(time.Until(b.ends()))
	defer timer.Stop()
	for b.life.Err() == nil {
		select {
		case <-b.life.Done():
		case <-b.moved:
		case <-timer.C:
			switch {
			case time.Now().Before(b.ends()):
			case !b.pauses():
				b.stop(errExpired)
			default:
				if err := s.pause(b.life, b); err != nil && b.pauses() {
					s.cfg.Log.Warn("a sandbox was not paused", "sandbox", b.id, "err", err)
					b.stop(errExpired)
				}
			}
		}
		timer.Reset(time.Until(b.ends()))
	}
	s.mu.Lock()
	delete(s.boxes, b.id)
	s.used.Remove(b.use)
	s.release(b.owner)
	s.mu.Unlock()
	err := b.session.Close()
	for range 2 { // it may be called again; later the backend's own TTL removes what is left
		if err == nil {
			break
		}
		err = b.session.Close()
	}
	if err != nil {
		s.cfg.Log.Warn("a sandbox was not removed", "sandbox", b.id, "err", err)
	}
	s.cfg.Log.Debug("sandbox ended", "sandbox", b.id, "why", context.Cause(b.life))
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	b.jobs.Wait()
	b.closeErr = err
	close(b.gone)
}

// release gives a place among the sandboxes of o back. The caller holds s.mu.
func (s *Server) release(o owner) {
	if s.held[o]--; s.held[o] == 0 {
		delete(s.held, o)
	}
}

func (b *sandbox) ends() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end
}

// setEnd moves the end of b to d from now; with extend, only if that is later.
func (b *sandbox) setEnd(ctx context.Context, d time.Duration, extend bool) error {
	end := time.Now().Add(d)
	if !b.latest.IsZero() && end.After(b.latest) {
		return refuse(http.StatusBadRequest, "Max instance length exceeded: this sandbox cannot live beyond %s", b.latest.Format(time.RFC3339))
	}
	if extend && !end.After(b.ends()) {
		return nil
	}
	if b.session.Info().Capabilities.Has(executor.FeatureKeepAlive) {
		if _, err := b.session.KeepAlive(ctx, d+spareOf(d)); err != nil {
			return b.seen(err)
		}
	}
	b.mu.Lock()
	if !extend || end.After(b.end) {
		b.end = end
	}
	b.mu.Unlock()
	b.wake()
	return nil
}

// wake makes live look at the sandbox again.
func (b *sandbox) wake() {
	select {
	case b.moved <- struct{}{}:
	default: // it will look anyway
	}
}

// seen ends b if err, which its session gave, says that it is gone. It returns err.
func (b *sandbox) seen(err error) error {
	if errors.Is(err, executor.ErrNotFound) || errors.Is(err, executor.ErrClosed) {
		b.stop(errDied)
	}
	return err
}

// sameToken compares a client's token with the right one in constant time.
func sameToken(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func (s *Server) domain() *string {
	if s.cfg.Domain == "" {
		return nil
	}
	return &s.cfg.Domain
}

func (s *Server) answer(b *sandbox) sandboxAnswer {
	a := sandboxAnswer{TemplateID: b.template, SandboxID: b.id, ClientID: "execbroker", EnvdVersion: envdVersion, EnvdAccessToken: b.token, Domain: s.domain()}
	if b.traffic != "" {
		a.TrafficAccessToken = &b.traffic
	}
	return a
}

func (s *Server) detail(b *sandbox) sandboxDetail {
	l := b.session.Info().Limits
	return sandboxDetail{
		TemplateID: b.template, SandboxID: b.id, ClientID: "execbroker", StartedAt: b.started.UTC(), EndAt: b.ends().UTC(),
		CPUCount: max(1, int(math.Ceil(l.CPUs))), MemoryMB: l.MemoryBytes >> 20, DiskSizeMB: l.DiskBytes >> 20,
		Metadata: merged(b.metadata), State: b.state(), EnvdVersion: envdVersion, VolumeMounts: []string{},
	}
}
