package flymachines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/internal/waittest"
)

// sole fails the test unless the Machine of s is the only one, by the word of the API and of the
// engine.
func (w *world) sole(t *testing.T, s executor.Session) {
	t.Helper()
	var m Machine
	if !executor.As(s, &m) {
		t.Fatal("the session has no Machine")
	}
	at, err := w.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if known := w.Machines(testApp); len(known) != 1 || known[0] != m.Machine.ID || len(at) != 1 || at[0] != testApp+"/"+m.Machine.ID {
		t.Errorf("got Machines %q, containers %q, want %s alone", known, at, m.Machine.ID)
	}
}

// empty waits until no Machine is left, whatever the API says of it.
func (w *world) empty(t testing.TB) {
	t.Helper()
	waittest.Until(t, "no Machine is left", func() error {
		at, err := w.Containers(t.Context())
		if left := w.Machines(testApp); err != nil || len(left)+len(at) > 0 {
			return fmt.Errorf("got Machines %q, containers %q, %w", left, at, err)
		}
		return nil
	})
}

// What Fly does now and then does not keep a session from being created: once, and in a region that
// has room.
func TestRecovers(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return newWorld(t) })
	for _, c := range []struct {
		sw     flytest.Switch
		region string // where it has to be; empty: in the first
	}{
		{sw: flytest.NotFoundAfterCreate(3)},
		{sw: flytest.DestroyingAfterWait(2)},
		{sw: flytest.SlowPull(time.Second)},
		{sw: flytest.CreateTimesOut().Times(1)},
		{sw: flytest.NameTaken().Times(1)},
		{sw: flytest.AppUnknown(flytest.OpCreate).Times(2)},
		{sw: flytest.NoCandidate("iad"), region: "lhr"},
		{sw: flytest.NoCapacity("iad"), region: "lhr"},
		{sw: flytest.NoAddresses("iad"), region: "lhr"},
		{sw: flytest.OverQuota("iad"), region: "lhr"},
		{sw: flytest.RateLimited(time.Second, flytest.OpCreate).Times(2)},
		{sw: flytest.RateLimited(0).Times(4)},
		{sw: flytest.BadGateway(flytest.OpCreate).Times(2)},
		{sw: flytest.BadGatewayAfter(flytest.OpCreate).Times(1)},
		{sw: flytest.BadGateway(flytest.OpWait, flytest.OpGet, flytest.OpList).Times(3)},
		{sw: flytest.Unavailable(flytest.OpCreate).Times(2)},
		{sw: flytest.UnavailableAfter(flytest.OpCreate).Times(1)},
		{sw: flytest.Cut(flytest.OpCreate).Times(1)},
		{sw: flytest.CutAfter(flytest.OpCreate).Times(1)},
		{sw: flytest.AnswerAfter(200, "", flytest.OpCreate).Times(1)},
		{sw: flytest.BadGateway(flytest.OpDestroy).Times(2)},
		{sw: flytest.BadGatewayAfter(flytest.OpDestroy).Times(1)},
		{sw: flytest.UnavailableAfter(flytest.OpDestroy).Times(1)},
		{sw: flytest.CutAfter(flytest.OpDestroy).Times(1)},
		{sw: flytest.RateLimited(0, flytest.OpDestroy).Times(2)},
		{sw: flytest.StuckDestroying()},
	} {
		t.Run(c.sw.String(), func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t)
			box := w.open(t, func(c *Config) { c.Regions = []string{"iad", "lhr"} })
			off := w.Switch(c.sw)
			defer off()
			s := create(t, box, executor.Spec{})
			w.sole(t, s)
			var m Machine
			executor.As(s, &m)
			if want := map[bool]string{true: "iad", false: c.region}[c.region == ""]; m.Machine.Region != want {
				t.Errorf("got region %s, want %s", m.Machine.Region, want)
			}
			mustRun(t, s, "6 * 7", "42")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			off()
			w.empty(t)
		})
	}
}

// What cannot be helped is an error that says what it is, and leaves nothing.
func TestRefuses(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return newWorld(t) })
	// For creates that do not come to an end by themselves, and for those that do.
	const some, most = 5 * time.Second, time.Minute
	for _, c := range []struct {
		sw    flytest.Switch
		kind  error
		scope Scope
	}{
		{flytest.NoCandidate(), executor.ErrExhausted, ScopeRegion},
		{flytest.NoCapacity(), executor.ErrExhausted, ScopeRegion},
		{flytest.OverQuota(), executor.ErrExhausted, ScopeQuota},
		{flytest.VolumeHostFull("vol_1"), executor.ErrExhausted, ScopeHost},
		{flytest.NoCapacityForVolumes(), executor.ErrExhausted, ScopeRegion},
		{flytest.RateLimited(0, flytest.OpCreate), executor.ErrExhausted, ScopeRate},
		{flytest.Unavailable(flytest.OpCreate), executor.ErrUnavailable, ""},
		{flytest.Cut(flytest.OpCreate), executor.ErrUnavailable, ""},
		{flytest.Answer(401, `{"error":"Authenticate: token validation error"}`, flytest.OpCreate), executor.ErrAuth, ""},
		{flytest.Answer(403, `{"error":"unauthorized"}`, flytest.OpCreate), executor.ErrAuth, ""},
		{flytest.Answer(400, `{"error":"invalid_argument: something"}`, flytest.OpCreate), executor.ErrInvalid, ""},
		{flytest.Answer(404, `{"error":"app not found"}`, flytest.OpCreate), executor.ErrUnavailable, ""},
		{flytest.StuckStarting(), executor.ErrUnavailable, ""},
		{flytest.SlowPull(0), executor.ErrUnavailable, ""},
	} {
		t.Run(c.sw.String(), func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t)
			limit := most
			if strings.HasPrefix(c.sw.String(), "stuck") || strings.HasPrefix(c.sw.String(), "slow") {
				limit = some
			}
			box := w.open(t, func(c *Config) {
				c.Regions = []string{"iad", "lhr"}
				c.Timeout = driver.Duration(limit)
			})
			off := w.Switch(c.sw)
			defer off()
			s, err := box.Create(t.Context(), executor.Spec{})
			if s != nil {
				s.Close()
			}
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Ran != executor.RanNo {
				t.Fatalf("got %v, want %v", err, c.kind)
			}
			var a *APIError
			if c.scope != "" && (!errors.As(err, &a) || a.Scope != c.scope) {
				t.Errorf("got %v, want scope %s", err, c.scope)
			}
			if limit == some && !strings.Contains(err.Error(), "in region iad, with the image ") {
				t.Errorf("got %v, want what was known of the Machine", err)
			}
			if strings.Contains(err.Error(), w.Token()) {
				t.Errorf("the error has the token: %v", err)
			}
			w.empty(t)
		})
	}
}

// A Machine that ends in the middle of a run, from outside or because its memory ran out, ends the
// run with the reason.
func TestTerminations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t)
	for name, c := range map[string]struct {
		end    func(ctx context.Context, app, machine string) error
		reason executor.Reason
	}{
		"killed":        {w.Kill, executor.ReasonSandbox},
		"out-of-memory": {w.OutOfMemory, executor.ReasonMemory},
	} {
		t.Run(name, func(t *testing.T) {
			s := create(t, box, executor.Spec{})
			var m Machine
			executor.As(s, &m)
			r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					return c.end(t.Context(), testApp, m.Machine.ID)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != executor.StatusKilled || r.Reason != c.reason || !r.StateLost || !r.FilesLost || r.Stdout.String() != "on\n" {
				t.Errorf("got %s, %s, state lost %t, files lost %t, output %q", r.Status, r.Reason, r.StateLost, r.FilesLost, r.Stdout.String())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			w.empty(t)
		})
	}
}

// A Machine that somebody restarts is another sandbox: a run in it ends, and nobody finds the
// session again.
func TestRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain)
	s := create(t, box, executor.Spec{})
	var m Machine
	executor.As(s, &m)
	restart := func() error {
		if err := m.Client.Restart(t.Context(), testApp, fly.RestartMachineInput{ID: m.Machine.ID, ForceStop: true}, ""); err != nil {
			return err
		}
		return m.Client.Wait(t.Context(), testApp, m.Machine.ID, flaps.WithWaitStates(fly.MachineStateStarted), flaps.WithWaitTimeout(time.Minute))
	}
	mustRun(t, s, "x = 1\nx", "1")
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), executor.Request{Code: "x"}, nil); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("Run: got %+v, %v, want not found", r, err)
	}
	if again, err := box.Attach(t.Context(), s.Info().Handle); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("Attach: got %v, %v, want not found", again, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = create(t, box, executor.Spec{})
	executor.As(s, &m)
	r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			return restart()
		}
		return nil
	})
	if err != nil || r.Status != executor.StatusKilled || !r.StateLost || !r.FilesLost || r.Stdout.String() != "on\n" {
		t.Errorf("got %+v, %v, want that the run was killed", r, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// mute is a way to Machines that does not tell of the end of one: connections stay open, and new
// ones do not come about.
type mute struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	on   atomic.Bool
	late atomic.Int64 // attempts to connect since
}

func (m *mute) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if m.on.Load() {
		m.late.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := m.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &muteConn{Conn: c, m: m, closed: make(chan struct{})}, nil
}

type muteConn struct {
	net.Conn
	m      *mute
	once   sync.Once
	closed chan struct{}
}

func (c *muteConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.m.on.Load() {
		<-c.closed
	}
	return n, err
}

func (c *muteConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A Machine that ends without a word to those who are connected to it is soon known to have ended,
// by the word of the API.
func TestSilentTermination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	way := &mute{dial: w.DialContext}
	s := create(t, w.open(t, func(c *Config) { c.Dial = way.DialContext }), executor.Spec{})
	var m Machine
	executor.As(s, &m)
	r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
		if ev.Kind != executor.EventStdout {
			return nil
		}
		way.on.Store(true)
		return w.Kill(t.Context(), testApp, m.Machine.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != executor.StatusKilled || r.Reason != executor.ReasonSandbox || r.Stdout.String() != "on\n" {
		t.Errorf("got %s, %s, output %q", r.Status, r.Reason, r.Stdout.String())
	}
	if n := way.late.Load(); n != 0 {
		t.Errorf("got %d attempts to connect, want none: its end was to be known before", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// A host that cannot be reached is tolerated: what is on it is listed as far as it is known, and
// removed when it is back.
func TestDeadHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t)
	lost, kept := create(t, box, executor.Spec{}), create(t, box, executor.Spec{})
	var m Machine
	executor.As(lost, &m)
	revive, err := w.DeadHost(testApp, m.Machine.ID)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]executor.SessionState{}
	for info, err := range box.Sessions(t.Context(), nil) {
		if err != nil {
			t.Errorf("list: %v", err)
		}
		listed[info.Handle.Session] = info.State
	}
	want := map[string]executor.SessionState{kept.Info().Handle.Session: executor.SessionRunning, lost.Info().Handle.Session: executor.SessionUnknown}
	if !maps.Equal(listed, want) {
		t.Errorf("got %v, want %v", listed, want)
	}
	if again, err := box.Attach(t.Context(), lost.Info().Handle); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("Attach: got %v, %v, want unavailable", again, err)
	}
	if err := lost.Close(); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("Close: got %v, want unavailable", err)
	}
	revive()
	if err := lost.Close(); err != nil {
		t.Errorf("Close when the host is back: %v", err)
	}
	mustRun(t, kept, "1 + 1", "2")
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
	w.empty(t)
}
