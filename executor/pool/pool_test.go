package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/pool"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// world is a pool over a fake backend, in a synctest bubble.
type world struct {
	*testing.T
	b *fake.Backend
	x executor.Executor
	p *pool.Pool
}

func bubble(t *testing.T, fo fake.Options, po pool.Options, f func(w world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fo)
		x, err := b.Open(driver.Env{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := pool.New(x, po)
		if err != nil {
			t.Fatal(err)
		}
		f(world{t, b, x, p})
		for _, c := range []func() error{p.Close, p.Close, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
		if left := b.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes left", len(left))
		}
	})
}

func (w world) create(spec executor.Spec) executor.Session {
	w.Helper()
	s, err := w.p.Create(w.Context(), spec)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// after waits for d and then until every goroutine is blocked.
func after(d time.Duration) {
	time.Sleep(d) // time of the bubble
	synctest.Wait()
}

func TestHitIsUsedOnce(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, pool.Options{Size: 3, Refill: 2}, func(w world) {
		after(5 * time.Second)
		if st := w.p.Stats(); st.Warm != 3 || st.Starting != 0 {
			w.Fatalf("got %+v, want 3 warm", st)
		}
		begin := time.Now()
		seen := map[string]bool{}
		for range 3 {
			s := w.create(executor.Spec{Subject: "u", Attributes: map[string]string{"plan": "pro"}})
			id := s.Info().Handle.Session
			if seen[id] {
				w.Errorf("%s was handed out twice", id)
			}
			seen[id] = true
			if err := s.Close(); err != nil { // it does not return to the pool
				w.Error(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			w.Errorf("got %v for three hits, want nothing to be created meanwhile", d)
		}
		after(5 * time.Second)
		if st := w.p.Stats(); st.Warm != 3 || st.Hits != 3 || st.Misses != 0 {
			w.Errorf("got %+v, want 3 warm again and 3 hits", st)
		}
	})
}

func TestMissIsCold(t *testing.T) {
	bubble(t, fake.Options{CreateTime: time.Second}, pool.Options{Size: 1}, func(w world) {
		after(5 * time.Second)
		begin := time.Now()
		defer w.create(executor.Spec{Env: map[string]string{"A": "b"}}).Close()
		if d, st := time.Since(begin), w.p.Stats(); d != time.Second || st.Bypasses != 1 || st.Differs["Env"] != 1 || st.Warm != 1 {
			w.Errorf("got %v %+v, want a cold one", d, st)
		}
		defer w.create(executor.Spec{}).Close()
		defer w.create(executor.Spec{}).Close() // there is no warm session yet
		if st := w.p.Stats(); st.Hits != 1 || st.Misses != 1 || st.Bypasses != 1 {
			w.Errorf("got %+v, want a hit, a miss and a bypass", st)
		}
	})
}

// TestBypassIsToldOnce: a pool that serves no session says so in the log, but not with every
// Create.
func TestBypassIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	o := pool.Options{Size: 1, Log: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, fake.Options{}, o, func(w world) {
		after(time.Second)
		env := executor.Spec{Env: map[string]string{"A": "b"}}
		both := executor.Spec{Env: env.Env, Limits: executor.Limits{Processes: 4}}
		for _, spec := range []executor.Spec{{}, env, env, both, both, env} {
			w.create(spec).Close()
			after(time.Second)
		}
		st := w.p.Stats()
		if st.Hits != 1 || st.Misses != 0 || st.Bypasses != 5 || !maps.Equal(st.Differs, map[string]int64{"Env": 5, "Limits": 2}) {
			w.Errorf("got %+v", st)
		}
		st.Differs["Env"]++ // the map belongs to the caller
		if got := w.p.Stats().Differs["Env"]; got != 5 {
			w.Errorf("got %d", got)
		}
	})
	if got := strings.Count(log.String(), "\n"); got != 2 || !strings.Contains(log.String(), "differs=[Env]") || !strings.Contains(log.String(), "differs=\"[Env Limits]\"") {
		t.Errorf("got %s", log.String())
	}
}

func TestDeadIsNotHandedOut(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 2}, func(w world) {
		after(time.Second)
		w.b.Break(w.b.Sandboxes()[0])
		s := w.create(executor.Spec{})
		defer s.Close()
		if i, err := s.Refresh(w.Context()); err != nil || i.State != executor.SessionRunning {
			w.Errorf("got %+v %v, want a living one", i, err)
		}
		after(time.Second) // nothing is being created
		w.b.Fail(fake.OpCreate, -1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		if _, err := w.p.Create(w.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("all dead and none to be had: got %v, want %v", err, executor.ErrUnavailable)
		}
		if st := w.p.Stats(); st.Dead == 0 {
			w.Errorf("got %+v, want dead ones counted", st)
		}
	})
}

func TestOldIsReplaced(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 2, MaxAge: 10 * time.Minute}, func(w world) {
		after(time.Second)
		before := w.b.Sandboxes()
		after(11 * time.Minute)
		now := w.b.Sandboxes()
		if st := w.p.Stats(); st.Expired != 2 || len(now) != 2 {
			w.Errorf("got %+v and %d sandboxes, want 2 expired and 2 new", st, len(now))
		}
		for _, id := range before {
			if slices.Contains(now, id) {
				w.Errorf("%s is still there", id)
			}
		}
	})
}

// TestMaxAgeIsHalfOfTheTTL: a session that is handed out has at least half of its idle TTL left.
func TestMaxAgeIsHalfOfTheTTL(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 1, Spec: executor.Spec{IdleTTL: time.Minute}}, func(w world) {
		after(29 * time.Second)
		first := w.b.Sandboxes()
		after(2 * time.Second)
		if now := w.b.Sandboxes(); len(now) != 1 || now[0] == first[0] {
			w.Errorf("got %q after %q, want another", now, first)
		}
	})
}

func TestBackOff(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 1}, func(w world) {
		after(time.Second) // nothing is being created
		w.b.Fail(fake.OpCreate, -1, driver.Fail(executor.ErrExhausted, executor.RanNo, nil))
		before := w.b.Calls(fake.OpCreate)
		defer w.create(executor.Spec{}).Close() // the warm session
		after(10 * time.Minute)
		calls := w.b.Calls(fake.OpCreate) - before
		// The waits double from 250 ms to a minute: about eight creations in the first minute, then
		// one per minute.
		if calls < 12 || calls > 22 {
			w.Errorf("got %d attempts in ten minutes, want about 17", calls)
		}
		w.b.Fail(fake.OpCreate, 0, nil)
		after(2 * time.Minute)
		if st := w.p.Stats(); st.Warm != 1 || st.Failed != int64(calls) && st.Failed != int64(calls)+1 {
			w.Errorf("got %+v, want one warm", st)
		}
	})
}

func TestAdapted(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 1}, func(w world) {
		after(time.Second)
		s := w.create(executor.Spec{
			IdleTTL: 2 * time.Hour,
			Run:     executor.RunLimits{WallTime: 2 * time.Second, OutputBytes: 100},
			MaxRun:  executor.RunLimits{WallTime: 5 * time.Second, OutputBytes: 200},
		})
		defer s.Close()
		if st := w.p.Stats(); st.Hits != 1 {
			w.Fatalf("got %+v, want a hit", st)
		}
		i, err := s.Refresh(w.Context())
		if err != nil || i.Run.WallTime != 2*time.Second || i.MaxRun.WallTime != 5*time.Second ||
			i.Handle.MaxRun.OutputBytes != 200 || i.Handle.IdleTTL != 2*time.Hour {
			w.Errorf("got %+v %v", i, err)
		}
		spin := executor.Request{Language: executor.Python, Code: "forever()"}
		begin := time.Now()
		res, err := s.Run(w.Context(), spin, nil)
		if err != nil || res.Status != executor.StatusTimedOut || time.Since(begin) > 10*time.Second {
			w.Errorf("got %+v %v after %v, want the tighter limit", res, err, time.Since(begin))
		}
		spin.Limits.WallTime = 6 * time.Second
		if _, err := s.Run(w.Context(), spin, nil); !errors.Is(err, executor.ErrInvalid) {
			w.Errorf("beyond the tighter ceiling: got %v, want %v", err, executor.ErrInvalid)
		}
		if _, err := s.KeepAlive(w.Context(), 3*time.Hour); err != nil {
			w.Error(err)
		}
		if got := s.Info().Handle.IdleTTL; got != 3*time.Hour {
			w.Errorf("the handle has an idle TTL of %v after KeepAlive", got)
		}
	})
}

// TestWallTimeIsOfTheRequest: warm sessions, which were started before any request, serve runs that
// take longer than the default. The Spec of each session sets its limits.
func TestWallTimeIsOfTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		spec    executor.Spec
		ask     time.Duration
		allowed bool
	}{
		"default":          {executor.Spec{}, executor.DefaultWallTime, true},
		"beyond-default":   {executor.Spec{}, executor.DefaultWallTime + time.Second, false},
		"raised-ceiling":   {executor.Spec{MaxRun: executor.RunLimits{WallTime: 2 * time.Minute}}, 2 * time.Minute, true},
		"beyond-ceiling":   {executor.Spec{MaxRun: executor.RunLimits{WallTime: 2 * time.Minute}}, 3 * time.Minute, false},
		"raised-default":   {executor.Spec{Run: executor.RunLimits{WallTime: time.Hour}}, 0, true},
		"without-a-limit":  {executor.Spec{Run: executor.RunLimits{WallTime: executor.NoLimit}}, executor.NoLimit, true},
		"much-more-output": {executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 40}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, pool.Options{Size: 1}, func(w world) {
				after(time.Second)
				s := w.create(c.spec)
				defer s.Close()
				wantRun, wantMax := c.spec.Bounds()
				if st, i := w.p.Stats(), s.Info(); st.Hits != 1 || i.Run != wantRun || i.MaxRun != wantMax {
					w.Errorf("got %+v, %+v and %+v, want a warm session with %+v and %+v", st, i.Run, i.MaxRun, wantRun, wantMax)
				}
				req := executor.Request{Language: executor.Python, Code: "x = 1", Limits: executor.RunLimits{WallTime: c.ask}}
				if _, err := s.Run(w.Context(), req, nil); c.allowed && err != nil || !c.allowed && !errors.Is(err, executor.ErrInvalid) {
					w.Errorf("a run of %v: got %v", c.ask, err)
				}
				again, err := w.p.Attach(w.Context(), s.Info().Handle)
				if err != nil {
					w.Fatal(err)
				}
				defer again.Close()
				if i := again.Info(); i.Run != wantRun || i.MaxRun != wantMax {
					w.Errorf("attached: got %+v and %+v", i.Run, i.MaxRun)
				}
			})
		})
	}
}

func TestPrelude(t *testing.T) {
	run := func(code string) executor.Request { return executor.Request{Language: executor.Python, Code: code} }
	bubble(t, fake.Options{}, pool.Options{Size: 1, Prelude: []executor.Request{run(`print("x")`)}}, func(w world) {
		after(time.Second)
		s := w.create(executor.Spec{})
		defer s.Close()
		if res, err := s.Run(w.Context(), run(`print("x")`), nil); err != nil || res.Cell != 2 {
			w.Errorf("got %+v %v, want the second cell", res, err)
		}
	})
	bubble(t, fake.Options{}, pool.Options{Size: 1, Prelude: []executor.Request{run(`throw("ValueError", "x")`)}}, func(w world) {
		after(time.Second)
		if st := w.p.Stats(); st.Warm != 0 || st.Failed == 0 {
			w.Errorf("got %+v, want none warm: the prelude fails", st)
		}
	})
}

func TestCloseWaits(t *testing.T) {
	bubble(t, fake.Options{}, pool.Options{Size: 2}, func(w world) {
		after(time.Second)
		release := w.b.Hold(fake.OpCreate)
		defer release()
		s := w.create(executor.Spec{}) // a warm session
		synctest.Wait()
		if st := w.p.Stats(); st.Starting != 1 {
			w.Errorf("got %+v, want a creation on its way", st)
		}
		if err := w.p.Close(); err != nil {
			w.Error(err)
		}
		if left := w.b.Sandboxes(); len(left) != 1 || left[0] != s.Info().Handle.Session {
			w.Errorf("got %q, want the one that was handed out", left)
		}
		if err := s.Close(); err != nil {
			w.Error(err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	bubble(t, fake.Options{CreateTime: 100 * time.Millisecond}, pool.Options{Size: 10, Refill: 4}, func(w world) {
		after(time.Second)
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				s, err := w.p.Create(w.Context(), executor.Spec{})
				if err != nil {
					w.Error(err)
					return
				}
				mu.Lock()
				seen[s.Info().Handle.Session]++
				mu.Unlock()
				s.Close()
			})
		}
		wg.Wait()
		if st := w.p.Stats(); len(seen) != 100 || st.Hits+st.Misses != 100 || st.Hits < 10 {
			w.Errorf("got %d sessions, %+v, want 100 different ones", len(seen), st)
		}
	})
}

// TestFits looks at every field of Spec. It fails for a new field until it has a case.
func TestFits(t *testing.T) {
	bare := fake.Without(fake.All(executor.Python), executor.FeatureKeepAlive)
	bare.Templates = []string{"x"}
	bare.MaxRun.WallTime = time.Minute
	x, err := fake.New(fake.Options{Capabilities: bare}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	p, err := pool.New(x, pool.Options{Size: 1, Spec: executor.Spec{Aliases: []string{"/mnt/data", "/home/user"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	misfits := map[string]executor.Spec{
		"Template":     {Template: "x"},
		"Languages":    {Languages: []executor.Language{executor.JavaScript}},
		"Packages":     {Packages: []executor.Packages{{Names: []string{"six"}}}},
		"Env":          {Env: map[string]string{"A": "b"}},
		"Aliases":      {Aliases: []string{"/mnt/data", "/mnt/more"}},
		"Ports":        {Ports: true},
		"Labels":       {Labels: map[string]string{"a": "b"}},
		"Limits":       {Limits: executor.Limits{Processes: 4}},
		"Run":          {Run: executor.RunLimits{WallTime: time.Hour}},
		"MaxRun":       {MaxRun: executor.RunLimits{WallTime: time.Hour}},
		"Network":      {Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		"IdleTTL":      {IdleTTL: time.Minute},
		"MaxLife":      {MaxLife: time.Hour},
		"MinIsolation": {MinIsolation: executor.IsolationMicroVM},
		"Require":      {Require: []executor.Feature{executor.FeatureKeepAlive}},
	}
	never := []string{"Subject", "Attributes"} // never prevent the use of a warm session
	for _, f := range reflect.VisibleFields(reflect.TypeFor[executor.Spec]()) {
		spec, ok := misfits[f.Name]
		if !ok && !slices.Contains(never, f.Name) {
			t.Errorf("%s: is it looked at?", f.Name)
		}
		if ok {
			if fits, fields := p.Fits(spec); fits || !slices.Contains(fields, f.Name) {
				t.Errorf("%s: got %v %q, want it in the way", f.Name, fits, fields)
			}
		}
	}
	for name, spec := range map[string]executor.Spec{
		"zero":     {},
		"named":    {Languages: []executor.Language{executor.Python}, Network: executor.NetworkPolicy{Mode: executor.NetworkNone}, IdleTTL: executor.DefaultIdleTTL},
		"alias":    {Aliases: []string{"/home/user"}},
		"user's":   {Subject: "u", Attributes: map[string]string{"a": "b"}},
		"tighter":  {Run: executor.RunLimits{WallTime: time.Second}},
		"longer":   {MaxRun: executor.RunLimits{WallTime: time.Minute}},
		"required": {Require: []executor.Feature{executor.FeatureState}, MinIsolation: executor.IsolationProcess},
	} {
		if fits, fields := p.Fits(spec); !fits {
			t.Errorf("%s: got %q in the way, want it to fit", name, fields)
		}
	}
}

// TestFirstLanguage: a Spec without languages means the first one of the backend, even if the pool
// has others.
func TestFirstLanguage(t *testing.T) {
	js := pool.Options{Size: 1, Spec: executor.Spec{Languages: []executor.Language{executor.JavaScript}}}
	bubble(t, fake.Options{}, js, func(w world) {
		after(time.Second)
		s := w.create(executor.Spec{})
		defer s.Close()
		if got := s.Info().Capabilities.Languages; len(got) != 1 || got[0].Language != executor.Python {
			w.Errorf("got a session with %+v", got)
		}
	})
}

func TestInvalidOptions(t *testing.T) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for name, o := range map[string]pool.Options{
		"size":     {},
		"negative": {Size: 1, MaxAge: -1},
		"subject":  {Size: 1, Spec: executor.Spec{Subject: "u"}},
		"labels":   {Size: 1, Spec: executor.Spec{Labels: map[string]string{"a": "b"}}},
		"spec":     {Size: 1, Spec: executor.Spec{IdleTTL: -1}},
		"prelude":  {Size: 1, Prelude: []executor.Request{{}}},
	} {
		if p, err := pool.New(x, o); !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, executor.ErrInvalid)
			if err == nil {
				p.Close()
			}
		}
	}
}

// BenchmarkHit is from the call of Create to the session that was waiting: the median, since others
// are made at the same time.
func BenchmarkHit(b *testing.B) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	p, err := pool.New(x, pool.Options{Size: 64, Refill: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	var took []time.Duration
	for b.Loop() {
		waittest.Until(b, "a session is warm", func() error {
			if st := p.Stats(); st.Warm == 0 {
				return fmt.Errorf("got %+v", st)
			}
			return nil
		})
		begin := time.Now()
		s, err := p.Create(b.Context(), executor.Spec{})
		took = append(took, time.Since(begin))
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	if st := p.Stats(); st.Hits != int64(len(took)) {
		b.Errorf("got %+v of %d", st, len(took))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns-hit")
}

// suspendable adds suspension to a backend. Sessions of fake cannot be suspended.
type suspendable struct {
	executor.Executor
	fails   error // returned by Suspend
	mu      sync.Mutex
	asleep  int
	wakings int
}

func (x *suspendable) Info() executor.Info {
	i := x.Executor.Info()
	i.Suspends = true
	return i
}

func (x *suspendable) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &sleeper{Session: s, x: x}, nil
}

type sleeper struct {
	executor.Session
	x      *suspendable
	asleep bool
}

func (s *sleeper) As(target any) bool {
	t, ok := target.(*executor.Suspender)
	if ok {
		*t = s
	}
	return ok
}

func (s *sleeper) Suspend(context.Context) error {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if s.x.fails == nil {
		s.asleep = true
		s.x.asleep++
	}
	return s.x.fails
}

func (s *sleeper) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	s.x.mu.Lock()
	if s.asleep {
		s.asleep = false
		s.x.wakings++
	}
	s.x.mu.Unlock()
	return s.Session.Refresh(ctx)
}

func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{})
		x, err := b.Open(driver.Env{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		suspendable := &suspendable{Executor: x}
		p, err := pool.New(suspendable, pool.Options{Size: 2, Suspended: true})
		if err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		if st := p.Stats(); st.Warm != 2 || suspendable.asleep != 2 || suspendable.wakings != 0 {
			t.Errorf("got %+v, %d suspended, %d woken", st, suspendable.asleep, suspendable.wakings)
		}
		s, err := p.Create(t.Context(), executor.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		after(time.Second)
		if st := p.Stats(); st.Hits != 1 || st.Warm != 2 || suspendable.asleep != 3 || suspendable.wakings != 1 {
			t.Errorf("got %+v, %d suspended, %d woken", st, suspendable.asleep, suspendable.wakings)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if left := b.Sandboxes(); len(left) != 1 {
			t.Errorf("got %d sandboxes, want that which was handed out", len(left))
		}
	})
}

// A session that cannot be suspended would cost more than the configuration allows.
func TestNotSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(fake.Options{})
		x, err := b.Open(driver.Env{})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if _, err := pool.New(x, pool.Options{Size: 1, Suspended: true}); !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("a backend that cannot: got %v, want %v", err, executor.ErrInvalid)
		}
		p, err := pool.New(&suspendable{Executor: x, fails: errors.New("no")}, pool.Options{Size: 1, Suspended: true})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		after(time.Minute)
		if st := p.Stats(); st.Warm != 0 || st.Failed == 0 || len(b.Sandboxes()) != 0 {
			t.Errorf("got %+v and %d sandboxes, want none kept", st, len(b.Sandboxes()))
		}
	})
}
