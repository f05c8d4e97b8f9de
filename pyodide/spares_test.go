package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// openDriver opens the backend with one spare, and returns its driver too.
func openDriver(t testing.TB, cfg Config) (executor.Executor, *Driver) {
	t.Helper()
	cfg.Spares = new(1)
	var d *Driver
	x, err := Open(t.Context(), driver.Env{Owner: "test", Wrap: func(of driver.Driver) driver.Driver {
		d = of.(*Driver)
		return record(of)
	}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x, d
}

// openSpared opens the backend for a test that creates sessions with create.
func openSpared(t testing.TB, cfg Config) (executor.Executor, *Driver) {
	t.Helper()
	x, d := openDriver(t, cfg)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x, d
}

// listed returns the spares that no session has taken.
func (p *spares) listed() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// spareOf waits until the spare of a backend that has created a session is ready, and returns it.
func spareOf(t testing.TB, d *Driver) *spare {
	t.Helper()
	eventually(t, "a spare is listed", func() bool { return len(d.spares.listed()) == 1 })
	sp := d.spares.listed()[0]
	select {
	case <-sp.ready:
	case <-t.Context().Done():
	}
	if sp.err != nil {
		t.Fatal(sp.err)
	}
	return sp
}

// pid returns the PID of the process that was started.
func (sp *spare) pid() int { return sp.h.cmd.Process.Pid }

// What a session is holds although its process is older than it.
func TestSpareServes(t *testing.T) {
	t.Parallel()
	x, d := openSpared(t, Config{Memory: 128 * mib, Disk: 16 * mib})
	// next creates a session in the spare.
	next := func(t *testing.T, spec executor.Spec) executor.Session {
		t.Helper()
		sp := spareOf(t, d)
		s := create(t, x, spec)
		if got := process(t, s); got != sp.pid() {
			t.Fatalf("it has process %d, want the spare, %d", got, sp.pid())
		}
		return s
	}
	create(t, x, executor.Spec{})
	const unique = "import random, uuid, secrets, tempfile; print(random.random(), uuid.uuid4(), secrets.token_hex(), tempfile.mktemp())"
	a := next(t, executor.Spec{Env: map[string]string{"FROM_SPEC": "a", "ONLY_A": "a"}})
	b := next(t, executor.Spec{Env: map[string]string{"FROM_SPEC": "b"}})
	t.Run("environment", func(t *testing.T) {
		const code = "import os; print(os.environ['FROM_SPEC'], 'ONLY_A' in os.environ, os.environ['HOME'], os.getcwd())"
		for s, want := range map[executor.Session]string{a: "a True /tmp/home /workspace\n", b: "b False /tmp/home /workspace\n"} {
			if got := output(t, s, code); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
	t.Run("random", func(t *testing.T) {
		first, second := strings.Fields(output(t, a, unique)), strings.Fields(output(t, b, unique))
		for i := range first {
			if first[i] == second[i] {
				t.Errorf("both sessions got %s", first[i])
			}
		}
	})
	t.Run("time", func(t *testing.T) {
		got := output(t, b, "import os; print(min(int(os.stat(d).st_mtime * 1000) for d in ('/workspace', '/tmp/home')))")
		stamp, err := strconv.ParseInt(strings.TrimSpace(got), 10, 64)
		if made := driverSession(b).made.UnixMilli(); err != nil || stamp < made {
			t.Errorf("the directories are from %d, the session from %d, %v", stamp, made, err)
		}
	})
	t.Run("limits", func(t *testing.T) {
		if l := a.Info().Limits; l != (executor.Limits{MemoryBytes: 128 * mib, DiskBytes: 16 * mib}) {
			t.Errorf("got %+v", l)
		}
		r := runCode(t, a, "open('f', 'wb').write(bytes(17 << 20))")
		if r.Exception == nil || !strings.Contains(r.Exception.Message, "No space left") {
			t.Errorf("disk: got %s", describeResult(r))
		}
		r = runCode(t, a, "b = bytearray(200 << 20)")
		if r.Exception == nil || r.Exception.Type != "MemoryError" {
			t.Errorf("memory: got %s", describeResult(r))
		}
		if r := runCode(t, a, "while True: pass", within(time.Second)); r.Status != executor.StatusTimedOut || r.StateLost {
			t.Errorf("time: got %s", describeResult(r))
		}
	})
	t.Run("idle", func(t *testing.T) {
		s := next(t, executor.Spec{IdleTTL: 4 * time.Second}) // enough to turn off the other clock
		h := driverSession(s).h
		driverSession(s).idle.Reset(time.Hour) // so that only the clock of the process is left
		eventually(t, "the process has ended", h.isDead)
		if h.exitCode() != exitIdle {
			t.Errorf("got exit code %d", h.exitCode())
		}
	})
	t.Run("life", func(t *testing.T) {
		s := next(t, executor.Spec{MaxLife: 4 * time.Second})
		h := driverSession(s).h
		driverSession(s).lifetime.Stop()
		eventually(t, "the process has ended", h.isDead)
		if h.exitCode() != exitLife {
			t.Errorf("got exit code %d", h.exitCode())
		}
	})
	t.Run("does-not-fit", func(t *testing.T) {
		sp := spareOf(t, d)
		specs := []executor.Spec{{Limits: executor.Limits{MemoryBytes: 64 * mib}}, {Limits: executor.Limits{DiskBytes: 2 * mib}}}
		if javascriptHere {
			specs = append(specs, executor.Spec{Languages: []executor.Language{executor.JavaScript}})
		}
		for _, spec := range specs {
			if got := process(t, create(t, x, spec)); got == sp.pid() {
				t.Errorf("%+v: it has the spare", spec)
			}
		}
		if all := d.spares.listed(); len(all) != 1 || all[0] != sp || sp.h.isDead() {
			t.Errorf("got spares %v, want that one", all)
		}
	})
}

// A spare serves one session. Another one that is created at the same time gets a process of its
// own.
func TestSpareServesOne(t *testing.T) {
	t.Parallel()
	x, d := openSpared(t, Config{})
	create(t, x, executor.Spec{})
	spare := spareOf(t, d).pid()
	var both [2]executor.Session
	var errs [2]error
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i], errs[i] = x.Create(t.Context(), executor.Spec{}) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	a, b := process(t, both[0]), process(t, both[1])
	if a == b || a != spare && b != spare {
		t.Errorf("got processes %d and %d, want the spare, %d, once", a, b, spare)
	}
	for _, s := range both {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A session takes a spare that is still starting, and waits for it no longer than its context
// allows.
func TestSpareStarts(t *testing.T) {
	t.Parallel()
	// starting returns a spare that waits for its turn, and a Create that has taken it.
	starting := func(t *testing.T, ctx context.Context) (d *Driver, sp *spare, created func() (executor.Session, error)) {
		t.Helper()
		x, d := openSpared(t, Config{})
		for range cap(d.starts) {
			d.starts <- struct{}{}
		}
		d.spares.create()(true)
		sp = d.spares.listed()[0]
		var s executor.Session
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { s, err = x.Create(ctx, executor.Spec{}) })
		eventually(t, "it is taken", func() bool { return len(d.spares.listed()) == 0 })
		return d, sp, func() (executor.Session, error) { wg.Wait(); return s, err }
	}
	t.Run("waited-for", func(t *testing.T) {
		d, sp, created := starting(t, t.Context())
		for range cap(d.starts) {
			<-d.starts
		}
		s, err := created()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := process(t, s); got != sp.pid() {
			t.Errorf("it has process %d, want the spare, %d", got, sp.pid())
		}
	})
	t.Run("given-up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, sp, created := starting(t, ctx)
		cancel()
		if _, err := created(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(sp.dir); sp.h != nil || !os.IsNotExist(err) {
			t.Errorf("it left a process or %q, %v", sp.dir, err)
		}
	})
}

// A spare that nobody needs ends, and nothing of it is left.
func TestSpareEnds(t *testing.T) {
	t.Parallel()
	x, d := openSpared(t, Config{})
	d.spares.life = time.Millisecond
	create(t, x, executor.Spec{})
	sp := d.spares.listed()[0]
	<-sp.ready
	if sp.err != nil {
		t.Fatal(sp.err)
	}
	eventually(t, "it has ended", sp.h.isDead)
	eventually(t, "its files are removed", func() bool { _, err := os.Stat(sp.dir); return os.IsNotExist(err) })
	if n := len(d.spares.listed()); n != 0 {
		t.Errorf("got %d spares, want none until another session needs one", n)
	}
	create(t, x, executor.Spec{})
}

// Close ends a spare, whether it is ready or still starting.
func TestCloseEndsSpares(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{true, false} {
		t.Run(fmt.Sprintf("ready=%t", ready), func(t *testing.T) {
			x, d := openDriver(t, Config{})
			s, err := x.Create(t.Context(), executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			sp := d.spares.listed()[0]
			if ready {
				sp = spareOf(t, d)
			}
			if err := errors.Join(s.Close(), x.Close()); err != nil {
				t.Error(err)
			}
			select {
			case <-sp.ready:
			default:
				t.Fatal("its start continues")
			}
			if sp.h != nil && !sp.h.isDead() {
				t.Error("it lives on")
			}
		})
	}
}

// No process is started in advance if the configuration or the program says so.
func TestNoSpares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  driver.Env
		cfg  Config
		want int
	}{
		{"default", driver.Env{}, Config{}, 1},
		{"none", driver.Env{}, Config{Spares: new(0)}, 0},
		{"one-shot", driver.Env{OneShot: true}, Config{Spares: new(1)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.env.Owner, c.env.Wrap = "test", record
			x, err := Open(t.Context(), c.env, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			s := create(t, x, executor.Spec{})
			if got := len(driverSession(s).d.spares.listed()); got != c.want {
				t.Errorf("got %d spares, want %d", got, c.want)
			}
		})
	}
}
