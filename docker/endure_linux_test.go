package docker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

// endurance makes sessions in great number on an engine of its own, which it restarts and kills now
// and then.
type endurance struct {
	engine *dockertest.Engine
	x      executor.Executor
	owner  string

	mu    sync.RWMutex // held for writing while an engine is being broken, which sessions do not wait for
	epoch atomic.Int64 // odd while the engine is broken

	sessions, excused atomic.Int64
	kinds             sync.Map // name of a life -> *atomic.Int64
}

// life is what a session may be used for. It returns what was wrong with the outcome.
type life struct {
	name string
	do   func(t *testing.T, n *endurance, s executor.Session, r *rand.Rand) error
}

// ends returns a life of one run that ends in a known way.
func ends(name, code string, want func(*executor.Result) bool, edit ...func(*executor.Request)) life {
	return life{name, func(t *testing.T, _ *endurance, s executor.Session, _ *rand.Rand) error {
		req := executor.Request{Code: code}
		for _, f := range edit {
			f(&req)
		}
		r, err := s.Run(t.Context(), req, nil)
		if err == nil && !want(r) {
			err = &wrong{r}
		}
		return err
	}}
}

// wrong is an outcome that a life should not have.
type wrong struct{ r *executor.Result }

func (w *wrong) Error() string { return fmt.Sprintf("got %+v", outcomeOf(w.r, nil)) }

var lives = []life{
	{"state", func(t *testing.T, _ *endurance, s executor.Session, r *rand.Rand) error {
		for i := range 1 + r.IntN(3) {
			n := r.Int32()
			res, err := s.Run(t.Context(), executor.Request{Code: fmt.Sprintf("a = %d if %d == 0 else a + 1\nprint(%d)", n, i, n)}, nil)
			if err != nil {
				return err
			}
			if res.Status != executor.StatusOK || res.Stdout.String() != fmt.Sprintln(n) {
				return &wrong{res}
			}
		}
		return nil
	}},
	ends("exception", "1/0", func(r *executor.Result) bool { return r.Exception != nil && r.Exception.Type == "ZeroDivisionError" }),
	ends("exit", "raise SystemExit(7)", func(r *executor.Result) bool { return r.ExitCode == 7 }),
	ends("timeout", "while True: pass", func(r *executor.Result) bool { return r.Status == executor.StatusTimedOut },
		func(req *executor.Request) { req.Limits.WallTime = 300 * time.Millisecond }),
	ends("deaf-timeout", "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint('deaf', flush=True)\nwhile True: time.sleep(1)",
		func(r *executor.Result) bool { // on a busy machine its time may be over before it is deaf
			return r.Status == executor.StatusTimedOut && (r.StateLost || len(r.Stdout) == 0)
		},
		func(req *executor.Request) { req.Limits.WallTime = 300 * time.Millisecond }),
	ends("output", "while True: print('x' * 1000)", func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput },
		func(req *executor.Request) { req.Limits.OutputBytes = 100_000 }),
	ends("memory", "b = []\nwhile True: b.append(bytearray(1 << 24))", func(r *executor.Result) bool { return r.Reason == executor.ReasonMemory }),
	ends("kills-itself", "import os; os.kill(os.getpid(), 9)", func(r *executor.Result) bool { return r.Signal == "SIGKILL" }),
	ends("leaves-processes", "import subprocess\nfor _ in range(5): subprocess.Popen(['sleep', '1000'], start_new_session=True)", func(r *executor.Result) bool { return r.Status == executor.StatusOK }),
	ends("command", "", func(r *executor.Result) bool { return r.ExitCode == 3 && r.Stdout.String() == "x\n" },
		func(req *executor.Request) { req.Command = []string{"sh", "-c", "echo x; exit 3"} }),
	{"cancel", func(t *testing.T, _ *endurance, s executor.Session, _ *rand.Rand) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := s.Run(ctx, executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				cancel()
			}
			return nil
		})
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			return fmt.Errorf("cancelled: got %+v, %w", outcomeOf(r, err), err)
		case r == nil:
			return fmt.Errorf("cancelled: got no result, %w", err)
		case err == nil || r.Status != executor.StatusCanceled:
			return &wrong{r}
		}
		return nil
	}},
	{"killed", func(t *testing.T, _ *endurance, s executor.Session, _ *rand.Rand) error {
		var c Container
		executor.As(s, &c)
		var kerr error
		r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				_, kerr = c.Client.ContainerKill(t.Context(), c.ID, client.ContainerKillOptions{Signal: "KILL"})
			}
			return nil
		})
		switch {
		case kerr != nil:
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, kerr)
		case err != nil:
			return err
		case r.Status != executor.StatusKilled || !r.StateLost || !r.FilesLost:
			return &wrong{r}
		}
		return nil
	}},
	{"closed-while-running", func(t *testing.T, _ *endurance, s executor.Session, _ *rand.Rand) error {
		on, done := make(chan struct{}), make(chan error, 1)
		go func() { // the caller waits for done
			r, err := s.Run(t.Context(), executor.Request{Code: "print('on', flush=True)\nwhile True: pass"}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					close(on)
				}
				return nil
			})
			if err == nil && r.Status != executor.StatusKilled {
				err = fmt.Errorf("closed: got %+v", outcomeOf(r, err))
			}
			done <- err
		}()
		select {
		case <-on:
		case err := <-done:
			return err
		}
		err := s.Close()
		if rerr := <-done; rerr != nil && !errors.Is(rerr, executor.ErrClosed) {
			err = errors.Join(err, rerr)
		}
		return err
	}},
	{"attach", func(t *testing.T, n *endurance, s executor.Session, _ *rand.Rand) error {
		if _, err := s.Run(t.Context(), executor.Request{Code: "kept = 4711"}, nil); err != nil {
			return err
		}
		a, err := n.x.Attach(t.Context(), s.Info().Handle)
		if err != nil {
			return err
		}
		defer a.Detach()
		r, err := a.Run(t.Context(), executor.Request{Code: "print(kept)"}, nil)
		if err == nil && r.Stdout.String() != "4711\n" {
			err = &wrong{r}
		}
		return err
	}},
}

// session has one session live one life. Errors are right only if the engine was broken meanwhile,
// and then they have to say so.
func (n *endurance) session(t *testing.T, r *rand.Rand) {
	l := lives[r.IntN(len(lives))]
	before := n.epoch.Load()
	s, err := n.x.Create(t.Context(), executor.Spec{Limits: executor.Limits{MemoryBytes: 64 << 20, DiskBytes: 8 << 20, Processes: 32}})
	if err == nil {
		err = l.do(t, n, s, r)
	}
	if broken := before%2 == 1 || n.epoch.Load() != before; err != nil {
		var e *executor.Error
		var w *wrong
		switch {
		case broken && errors.As(err, &w) && w.r.Status == executor.StatusKilled && w.r.Reason == executor.ReasonLifetime:
			n.excused.Add(1) // an engine that is stopped ends its containers
			n.whole()
		case !errors.As(err, &e), !broken, !slices.Contains([]error{executor.ErrUnavailable, executor.ErrNotFound}, e.Kind):
			t.Errorf("%s (engine broken: %v): %v", l.name, broken, err)
		default:
			n.excused.Add(1)
			n.whole()
		}
	}
	if s != nil {
		n.close(t, s)
	}
	n.sessions.Add(1)
	k, _ := n.kinds.LoadOrStore(l.name, new(atomic.Int64))
	k.(*atomic.Int64).Add(1)
}

// close closes a session as a careful program does: again, if the engine was away.
func (n *endurance) close(t *testing.T, s executor.Session) {
	for {
		before := n.epoch.Load()
		err := s.Close()
		if err == nil {
			return
		}
		if !errors.Is(err, executor.ErrUnavailable) || before%2 == 0 && n.epoch.Load() == before || t.Context().Err() != nil {
			t.Errorf("close: %v", err)
			return
		}
		n.whole()
	}
}

// whole waits until nobody breaks the engine.
func (n *endurance) whole() {
	n.mu.RLock()
	defer n.mu.RUnlock()
}

// breaks breaks the engine in one of several ways and mends it.
func (n *endurance) breaks(t *testing.T, r *rand.Rand) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epoch.Add(1)
	defer n.epoch.Add(1)
	switch r.IntN(3) {
	case 0:
		check(t, n.engine.Kill(t.Context()))
		check(t, n.engine.Restart(t.Context()))
	case 1:
		check(t, n.engine.Stop(t.Context()))
		check(t, n.engine.Restart(t.Context()))
	case 2:
		check(t, n.engine.Freeze(t.Context()))
		<-time.After(time.Second) // it is to last
		check(t, n.engine.Thaw())
	}
}

// usage is what a program of sessions holds.
type usage struct {
	heap        uint64
	goroutines  int
	descriptors int
}

func measure(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return usage{m.HeapAlloc, len(leaktest.Others()), len(fds)}
}

// endure runs rounds of sessions, with a broken engine in the middle of each, and compares what
// this program holds after each with what it held after the first.
func endure(t *testing.T, rounds, sessions, workers int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	n := &endurance{engine: ownEngine(t), owner: owner(t)}
	x, err := Open(t.Context(), driver.Env{Owner: n.owner}, Config{Host: n.engine.Host, Image: dockertest.Trixie, Pull: PullNever, Timeout: driver.Duration(time.Minute)})
	check(t, err)
	n.x = x
	var first usage
	start := time.Now()
	for round := range rounds {
		var wg sync.WaitGroup
		var todo atomic.Int64
		for w := range workers {
			r := rand.New(rand.NewPCG(seed, uint64(round*workers+w)))
			wg.Go(func() {
				for todo.Add(1) <= int64(sessions) && t.Context().Err() == nil {
					n.session(t, r)
				}
			})
		}
		half := n.sessions.Load() + int64(sessions/2)
		wg.Go(func() {
			for n.sessions.Load() < half && t.Context().Err() == nil && todo.Load() <= int64(sessions) {
				time.Sleep(10 * time.Millisecond) // between looks
			}
			n.breaks(t, rand.New(rand.NewPCG(seed, 1<<40+uint64(round))))
		})
		wg.Wait()
		n.empty(t)
		now := measure(t)
		if round == 0 {
			first = now
		}
		t.Logf("round %d: %d sessions in %v, %d met a broken engine; %+v", round, n.sessions.Load(), time.Since(start).Round(time.Second), n.excused.Load(), now)
		if now.heap > first.heap+8<<20 || now.goroutines > first.goroutines+8 || now.descriptors > first.descriptors+8 {
			t.Errorf("round %d: holds %+v, after the first it was %+v", round, now, first)
		}
	}
	check(t, x.Close())
	n.kinds.Range(func(k, v any) bool { t.Logf("%-22s %d", k, v.(*atomic.Int64).Load()); return true })
}

// empty waits until nothing is left at the engine.
func (n *endurance) empty(t *testing.T) {
	t.Helper()
	waittest.Until(t, "nothing is left", func() error { // removal after a Create that failed goes on behind it
		if left := containers(t, n.engine.Host, n.owner); len(left) > 0 {
			return fmt.Errorf("got %q", left)
		}
		return nil
	})
}

// TestEndure is the short form of TestSoakSessions.
func TestEndure(t *testing.T) { endure(t, 2, 20, 3) }
