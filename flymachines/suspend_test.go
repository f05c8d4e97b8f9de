package flymachines

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/contacttest"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/internal/waittest"
)

// filled makes a pool of one Machine and waits until it is in a state. Nothing is left of it by
// drain.
func filled(t *testing.T, w *world, box executor.Executor, state string, o pool.Options) (p *pool.Pool, drain func()) {
	t.Helper()
	o.Size = 1
	p, err := pool.New(box, o)
	if err != nil {
		t.Fatal(err)
	}
	full(t, w, p, state)
	return p, func() {
		t.Helper()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		w.none(t)
	}
}

// full waits until the pool has its Machine, and that is in a state.
func full(t *testing.T, w *world, p *pool.Pool, state string) {
	t.Helper()
	waittest.Until(t, "a warm Machine that is "+state, func() error {
		if st := p.Stats(); st.Warm != 1 || !strings.HasSuffix(strings.Join(w.machines(t), "\n"), " "+state) {
			return fmt.Errorf("got %+v, %q", st, w.machines(t))
		}
		return nil
	})
}

// A pool of running and one of suspended Machines hand out what they have, and make another one.
func TestPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain)
	for _, c := range []struct {
		state string
		opts  pool.Options
	}{
		{fly.MachineStateStarted, pool.Options{}},
		{fly.MachineStateSuspended, pool.Options{Suspended: true, Prelude: []executor.Request{{Language: executor.Python, Code: "x = 41"}}}},
	} {
		t.Run(c.state, func(t *testing.T) {
			p, drain := filled(t, w, box, c.state, c.opts)
			defer drain()
			id := w.machines(t)[0]
			s, err := p.Create(t.Context(), executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			var m *fly.Machine
			if !executor.As(s, &m) || !strings.HasPrefix(id, m.ID+" ") || p.Stats().Hits != 1 {
				t.Errorf("got %+v and %+v, want %s", m, p.Stats(), id)
			}
			code := "x = 41\nx + 1"
			if c.opts.Prelude != nil {
				code = "x + 1" // what it held it still holds
			}
			mustRun(t, s, code, "42")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			full(t, w, p, c.state)
		})
	}
}

// What Fly does not keep, or has no room for, nobody gets: a Machine that was never used is set up
// anew, another one is replaced.
func TestWakesBadly(t *testing.T) {
	t.Parallel()
	worlds := sharetest.New(func() *world { return newWorld(t) })
	prelude := []executor.Request{{Language: executor.Python, Code: "x = 41"}}
	for name, c := range map[string]struct {
		sw      flytest.Switch
		prelude []executor.Request
		hits    int64
	}{
		"lost":                   {flytest.SnapshotLost(), nil, 1},
		"lost, used":             {flytest.SnapshotLost(), prelude, 0},
		"host full":              {flytest.HostFull("memory"), nil, 0},
		"still active":           {flytest.StillActive(), nil, 0},
		"still active, at first": {flytest.StillActive().Times(2), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worlds.Take(t)
			p, drain := filled(t, w, w.open(t, plain), fly.MachineStateSuspended, pool.Options{Suspended: true, Prelude: c.prelude})
			defer drain()
			off := w.Switch(c.sw)
			s, err := p.Create(t.Context(), executor.Spec{})
			off()
			if err != nil {
				t.Fatal(err)
			}
			if st := p.Stats(); st.Hits != c.hits || st.Dead > 0 != (c.hits == 0) {
				t.Errorf("got %+v, want %d hits", st, c.hits)
			}
			mustRun(t, s, "'x' in globals()", "False")
			mustRun(t, s, "import os\nos.getuid() > 0, os.getcwd(), os.listdir('.'), len(open('/proc/net/dev').readlines())", "(True, '/workspace', [], 3)") // lo alone
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLastContact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	contacttest.Check(t, create(t, w.open(t, plain), executor.Spec{}), w.open(t, plain))
}

// A suspended Machine is listed, found and removed like any other, and by whoever looks for what is
// left when its time is over.
func TestSuspendedIsReaped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain)
	s := create(t, box, executor.Spec{IdleTTL: 40 * time.Minute})
	var sus executor.Suspender
	if !executor.As(s, &sus) {
		t.Fatal("not to be suspended")
	}
	mustRun(t, s, "x = 41", "")
	suspended := func() {
		t.Helper()
		if err := sus.Suspend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.machines(t); len(got) != 1 || !strings.HasSuffix(got[0], " suspended") {
			t.Fatalf("got %q", got)
		}
	}
	suspended()
	mustRun(t, s, "x + 1", "42")
	suspended()
	other := w.open(t, plain)
	h := s.Info().Handle
	for i, err := range other.Sessions(t.Context(), nil) {
		if err != nil || i.Handle.Session != h.Session || i.State != executor.SessionRunning {
			t.Errorf("got %+v, %v", i, err)
		}
	}
	if _, err := other.LastContact(t.Context(), h); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v, want that nobody can be asked who holds a suspended Machine", err)
	}
	if got := w.machines(t); len(got) != 1 || !strings.HasSuffix(got[0], " suspended") {
		t.Fatalf("the look-up has woken it: got %q", got)
	}
	a, err := other.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, a, "x + 1", "42")
	if err := a.Detach(); err != nil {
		t.Error(err)
	}
	suspended()
	b, err := newBackend(t.Context(), driverEnv(w), w.config())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.sweepNow(t.Context(), time.Now().Add(39*time.Minute)); err != nil || len(w.machines(t)) != 1 {
		t.Fatalf("got %q, %v, want the Machine of somebody's pool to be left", w.machines(t), err)
	}
	if err := b.sweepNow(t.Context(), time.Now().Add(41*time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.none(t)
	if _, err := s.Refresh(t.Context()); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("got %v, want %v", err, executor.ErrNotFound)
	}
}

// Larger ones Fly does not suspend. Nothing asks it to.
func TestSuspendTooLarge(t *testing.T) {
	t.Parallel()
	cfg := Config{App: testApp, Token: driver.Secret{Env: tokenVariable}, Guest: Guest{CPUs: 2, MemoryMB: 4096}}
	box, err := Open(t.Context(), driver.Env{Owner: "test"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if _, err := pool.New(box, pool.Options{Size: 1, Suspended: true}); !errors.Is(err, executor.ErrInvalid) || box.Info().Suspends {
		t.Errorf("got %v, want %v", err, executor.ErrInvalid)
	}
	s := &sandbox{m: &fly.Machine{Config: &fly.MachineConfig{Guest: &fly.MachineGuest{MemoryMB: 4096}}}}
	var e *executor.Error
	if err := s.Suspend(t.Context()); !errors.As(err, &e) || !errors.Is(err, executor.ErrUnsupported) || len(e.Missing) != 1 {
		t.Errorf("got %v, want %v", err, executor.ErrUnsupported)
	}
}
