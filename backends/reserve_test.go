package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// callers is how many ask at the same moment.
const callers = 1000

// oracle is below the broker and counts what is really used, without the ledger.
type oracle struct {
	mu    sync.Mutex
	boxes int
	life  time.Duration // of sandboxes
	runs  int
	time  time.Duration // of runs
	bytes int64         // in both directions

	installation time.Duration // how long one takes
}

func (o *oracle) add(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// cost returns what all that comes to.
func (o *oracle) cost(p driver.Prices) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := new(big.Rat)
	add := func(price driver.Price, n, unit int64) {
		x := new(big.Rat).SetFrac64(n, unit)
		sum.Add(sum, x.Mul(x, new(big.Rat).SetFrac64(int64(price), 1_000_000_000_000)))
	}
	add(p.Creation, int64(o.boxes), 1)
	add(p.Second, int64(o.life), int64(time.Second))
	add(p.Run, int64(o.runs), 1)
	add(p.GiB, o.bytes, 1<<30)
	f, _ := sum.Float64()
	return f
}

// over is o's view of an Executor.
func (o *oracle) over(_ driver.Env, x executor.Executor) executor.Executor {
	return &watchedExecutor{x, o}
}

type watchedExecutor struct {
	executor.Executor
	o *oracle
}

func (w *watchedExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	began := time.Now()
	s, err := w.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	w.o.add(func() { w.o.boxes++ })
	return &watchedSession{Session: s, o: w.o, began: began}, nil
}

type watchedSession struct {
	executor.Session
	o     *oracle
	began time.Time
	once  sync.Once
}

func (s *watchedSession) As(target any) bool { return executor.As(s.Session, target) }

func (s *watchedSession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if req.Stdin != nil {
		req.Stdin = &watchedReader{req.Stdin, s.o}
	}
	passed := len(req.Code)
	began := time.Now()
	res, err := s.Session.Run(ctx, req, func(ev executor.Event) error {
		passed += len(ev.Data)
		if emit == nil {
			return nil
		}
		return emit(ev)
	})
	if res != nil {
		for _, a := range res.Artifacts {
			passed += len(a.Data)
		}
	}
	s.o.add(func() { s.o.runs++; s.o.time += time.Since(began); s.o.bytes += int64(passed) })
	return res, err
}

func (s *watchedSession) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (*executor.Result, error) {
	began := time.Now()
	time.Sleep(s.o.installation)
	res, err := s.Session.Install(ctx, p, emit)
	s.o.add(func() { s.o.runs++; s.o.time += time.Since(began) })
	return res, err
}

func (s *watchedSession) Files() executor.Files { return &watchedFiles{s.Session.Files(), s.o} }

func (s *watchedSession) Dial(ctx context.Context, port int) (executor.Conn, error) {
	c, err := s.Session.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	return &watchedConn{c, s.o}, nil
}

func (s *watchedSession) Close() error {
	err := s.Session.Close()
	s.once.Do(func() { s.o.add(func() { s.o.life += time.Since(s.began) }) })
	return err
}

type watchedFiles struct {
	executor.Files
	o *oracle
}

func (f *watchedFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	return f.Files.Write(ctx, name, &watchedReader{r, f.o}, mode)
}

func (f *watchedFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := f.Files.Read(ctx, name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&watchedReader{r, f.o}, r}, nil
}

type watchedReader struct {
	r io.Reader
	o *oracle
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.o.add(func() { r.o.bytes += int64(n) })
	return n, err
}

type watchedConn struct {
	executor.Conn
	o *oracle
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.o.add(func() { c.o.bytes += int64(n) })
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.o.add(func() { c.o.bytes += int64(n) })
	return n, err
}

// crowd is a thousand callers of one subject, who share a quota.
type crowd struct {
	*world
	o      oracle
	b      *backends.Broker
	prices driver.Prices
}

// rounded is what the costs of a thousand sessions are rounded by: each by half a millionth.
const rounded = callers * 0.5e-6

// gather runs f in a bubble over a broker with prices and a quota.
func gather(t *testing.T, prices, quota string, f func(c *crowd)) {
	t.Helper()
	bubble(t, fake.Options{}, func(w *world) {
		c := &crowd{world: w}
		w.wrap = c.o.over
		file := fmt.Sprintf("backends: {a: {type: fake, on: a, broker: {prices: %s}}}\nguard: {quotas: [{per: month, %s}]}", prices, quota)
		c.prices = *parse(t, file).Backends["a"].Broker.Prices
		c.b = w.open(file)
		defer w.close(c.b)
		f(c)
	})
}

// at calls f for each caller at the same moment, and returns how many were refused.
func (c *crowd) at(f func(i int) error) (refused int) {
	c.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			err := f(i)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, executor.ErrDenied):
				refused++
			case err != nil:
				c.Errorf("caller %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return refused
}

// sessions creates one for each caller.
func (c *crowd) sessions(spec executor.Spec) []executor.Session {
	c.Helper()
	spec.Subject = "u"
	all := make([]executor.Session, callers)
	for i := range all {
		all[i] = c.create(c.b, spec)
	}
	return all
}

// ends closes all, and checks that what was used is at most the quota and at least some of it, and
// that the ledger says the same as the oracle.
func (c *crowd) ends(all []executor.Session, refused int, used func() float64, least, most float64) {
	c.Helper()
	for _, s := range all {
		if s != nil {
			s.Close()
		}
	}
	synctest.Wait()
	if got := used(); got > most+rounded || got < least {
		c.Errorf("used %v, want %v to %v", got, least, most)
	}
	if refused == 0 || refused == callers {
		c.Errorf("%d of %d were refused", refused, callers)
	}
	rows, err := c.b.Usage(c.Context(), time.Now().AddDate(0, 0, -2), time.Now())
	if err != nil {
		c.Fatal(err)
	}
	var cost executor.Money
	for _, r := range rows {
		cost += r.Cost
	}
	if got, want := float64(cost)/1e6, c.o.cost(c.prices); got > want+rounded || got < want-rounded {
		c.Errorf("the ledger says %v, and %v were used", got, want)
	}
}

func (c *crowd) used() float64 { return c.o.cost(c.prices) }

// TestReservedCreation: creations and the first minute.
func TestReservedCreation(t *testing.T) {
	gather(t, "{creation: 0.5, second: 0.01}", "cost: 20", func(c *crowd) {
		all := make([]executor.Session, callers)
		refused := c.at(func(i int) (err error) {
			s, err := c.b.Create(c.Context(), executor.Spec{Subject: "u"})
			if err == nil {
				all[i] = s
			}
			return err
		})
		c.ends(all, refused, c.used, 9, 20)
	})
}

// slowExecutor creates sandboxes that are ready only after a while.
type slowExecutor struct {
	executor.Executor
	by time.Duration
}

func (x *slowExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	time.Sleep(x.by)
	return s, err
}

// TestReservedUntilReady: the time from which a sandbox exists until it is ready is charged too.
func TestReservedUntilReady(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.wrap = func(_ driver.Env, x executor.Executor) executor.Executor { return &slowExecutor{x, 30 * time.Second} }
		b := w.open("backends: {a: {type: fake, on: a, broker: {prices: {second: 0.01}}}}\nguard: {quotas: [{per: month, cost: 1}]}")
		defer w.close(b)
		w.create(b, executor.Spec{Subject: "u"}).Close()
		if got := b.Stats().Arms[0].Cost.String(); got != "0.3" {
			w.Errorf("it has cost %s", got)
		}
	})
}

// bigExecutor creates sandboxes that are bigger than was asked for.
type bigExecutor struct{ executor.Executor }

func (x *bigExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &bigSession{s}, nil
}

type bigSession struct{ executor.Session }

func (s *bigSession) Info() executor.SessionInfo {
	i := s.Session.Info()
	i.Limits.CPUs = 8
	return i
}

// TestReservedSize: a sandbox that turns out to be bigger than its quota allows is closed at once.
func TestReservedSize(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.wrap = func(_ driver.Env, x executor.Executor) executor.Executor { return &bigExecutor{x} }
		b := w.open("backends: {a: {type: fake, on: a, broker: {prices: {cpu_second: 0.01, cpus: 1}}}}\nguard: {quotas: [{per: month, cost: 5.5}]}")
		defer w.close(b)
		w.create(b, executor.Spec{Subject: "u"}).Close() // 4.80 for a minute
		s := w.create(b, executor.Spec{Subject: "u"})
		_, err := b.Create(w.Context(), executor.Spec{Subject: "u"})
		w.fails(err, executor.ErrDenied)
		if n := len(w.at["a"].Sandboxes()); n != 1 {
			w.Errorf("%d sandboxes", n)
		}
		s.Close()
	})
}

// TestReservedIdle: sessions that idle are closed before their quota is exceeded.
func TestReservedIdle(t *testing.T) {
	gather(t, "{second: 0.01}", "cost: 700", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		time.Sleep(11 * time.Minute)
		if n := len(c.world.at["a"].Sandboxes()); n != 0 {
			c.Errorf("%d sandboxes live", n)
		}
		c.ends(all, 1, c.used, 400, 700)
	})
}

// TestReservedRuns: the price of runs.
func TestReservedRuns(t *testing.T) {
	gather(t, "{run: 0.1}", "cost: 5", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		refused := c.at(func(i int) error {
			_, err := all[i].Run(c.Context(), executor.Request{Code: "1"}, nil)
			return err
		})
		c.ends(all, refused, c.used, 5, 5)
	})
}

// deaf is code that its sandbox has to kill, some time after its wall time.
const deaf = "deafen()\nforever()"

// TestReservedGrace: the wall time of runs, and the time to stop them. The refusal says what the
// run may come to and what fits.
func TestReservedGrace(t *testing.T) {
	gather(t, "{}", "time: 20s", func(c *crowd) {
		all := c.sessions(executor.Spec{Run: executor.RunLimits{WallTime: time.Millisecond}})
		var once sync.Once
		refused := c.at(func(i int) error {
			_, err := all[i].Run(c.Context(), executor.Request{Code: deaf}, nil)
			if err != nil {
				once.Do(func() {
					const want = "the run may come to 5.001s of run time, with its wall time of 1ms and up to 5s to stop it; no wall time fits"
					if e := c.fails(err, executor.ErrDenied); !strings.Contains(e.Error(), want) {
						c.Errorf("got %v", e)
					}
				})
			}
			return err
		})
		c.ends(all, refused, func() float64 { return c.o.time.Seconds() }, 0.9, 20)
		// What was not used is there again.
		s := c.create(c.b, executor.Spec{Subject: "u"})
		defer s.Close()
		_, err := s.Run(c.Context(), executor.Request{Code: "1", Limits: executor.RunLimits{WallTime: 15 * time.Second}}, nil)
		if e := c.fails(err, executor.ErrDenied); !strings.Contains(e.Error(), "the run may come to 20s of run time, with its wall time of 15s and up to 5s to stop it; a wall time of up to 14.097s fits") {
			c.Errorf("got %v", e)
		}
		if _, err := s.Run(c.Context(), executor.Request{Code: "1", Limits: executor.RunLimits{WallTime: 14097 * time.Millisecond}}, nil); err != nil {
			c.Error(err)
		}
	})
}

// TestReservedLife: what the sandbox costs during runs, which take longer than their wall time.
func TestReservedLife(t *testing.T) {
	gather(t, "{second: 0.01}", "cost: 620", func(c *crowd) { // 600 are reserved for sessions
		all := c.sessions(executor.Spec{Run: executor.RunLimits{WallTime: 10 * time.Second}})
		time.Sleep(19 * time.Second) // they are billed every 20 s
		refused := c.at(func(i int) error {
			_, err := all[i].Run(c.Context(), executor.Request{Code: deaf}, nil)
			return err
		})
		time.Sleep(10 * time.Minute)
		c.ends(all, refused, c.used, 500, 620)
	})
}

// hundred is a file of 100 KiB, of which 100 cost 0.01 by the price of a GiB below.
const (
	hundred = 100 << 10
	traffic = "{gib: 1.024}"
)

// TestReservedUploads: files that are uploaded.
func TestReservedUploads(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		text := strings.Repeat("x", hundred)
		refused := c.at(func(i int) error {
			return all[i].Files().Write(c.Context(), "x", strings.NewReader(text), 0o600)
		})
		c.ends(all, refused, c.used, 0.01, 0.02)
	})
}

// TestReservedSmallFiles: files so small that each costs less than half a millionth. The session,
// which costs nothing but them, is closed then.
func TestReservedSmallFiles(t *testing.T) {
	gather(t, traffic, "cost: 0.001", func(c *crowd) {
		s := c.create(c.b, executor.Spec{Subject: "u"})
		refused := 0
		for range 3 {
			refused += c.at(func(i int) error {
				err := s.Files().Write(c.Context(), fmt.Sprint(i), strings.NewReader(strings.Repeat("x", 500)), 0o600)
				if errors.Is(err, executor.ErrBusy) {
					return nil
				}
				return err
			})
		}
		for i, err := 0, error(nil); err == nil; i++ {
			err = s.Files().Write(c.Context(), "one", strings.NewReader(strings.Repeat("x", 500)), 0o600)
			if i == callers {
				c.Fatal("nothing is refused")
			}
		}
		time.Sleep(time.Minute)
		if n := len(c.world.at["a"].Sandboxes()); n != 0 {
			c.Errorf("%d sandboxes live, and nothing more may pass", n)
		}
		c.ends([]executor.Session{s}, refused, c.used, 0.0005, 0.001)
	})
}

// TestReservedDownloads: files that are downloaded.
func TestReservedDownloads(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		for _, s := range all {
			if _, err := s.Run(c.Context(), executor.Request{Code: fmt.Sprintf("write('x', 'x' * %d)", hundred), Limits: executor.RunLimits{OutputBytes: 1}}, nil); err != nil {
				c.Fatal(err)
			}
		}
		refused := c.at(func(i int) error {
			r, err := all[i].Files().Read(c.Context(), "x")
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, r)
			return errors.Join(err, r.Close())
		})
		c.ends(all, refused, c.used, 0.01, 0.02)
	})
}

// TestReservedOutput: what runs print, and their artifacts.
func TestReservedOutput(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{Run: executor.RunLimits{OutputBytes: hundred}})
		code := fmt.Sprintf("out('x' * %d)\nwrite('x', 'x' * %d)", hundred, hundred)
		refused := c.at(func(i int) error {
			req := executor.Request{Code: code, Artifacts: &executor.ArtifactRequest{MaxBytes: hundred, Contents: true}}
			_, err := all[i].Run(c.Context(), req, nil)
			return err
		})
		c.ends(all, refused, c.used, 0.009, 0.02)
	})
}

// TestReservedInput: the input of runs. Code whose input is refused is stopped.
func TestReservedInput(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{Run: executor.RunLimits{OutputBytes: 1}})
		text := strings.Repeat("x", hundred)
		refused := c.at(func(i int) error {
			_, err := all[i].Run(c.Context(), executor.Request{Code: "readline()", Stdin: strings.NewReader(text)}, nil)
			return err
		})
		c.ends(all, refused, c.used, 0.01, 0.02)
	})
}

// TestReservedPorts: what passes through ports, in both directions. A connection that is refused is
// closed.
func TestReservedPorts(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{Ports: true})
		ports := make([]int, callers)
		for i, s := range all {
			res, err := s.Run(c.Context(), executor.Request{Code: "print(serve('127.0.0.1'))", Limits: executor.RunLimits{OutputBytes: 16}}, nil)
			if err != nil {
				c.Fatal(err)
			}
			fmt.Sscan(string(res.Stdout), &ports[i])
		}
		refused := c.at(func(i int) error {
			conn, err := all[i].Dial(c.Context(), ports[i])
			if err != nil {
				return err
			}
			defer conn.Close()
			if i%2 == 0 {
				if _, err := io.WriteString(conn, "mute\n"); err != nil {
					return err
				}
				for range 100 {
					if _, err := conn.Write(make([]byte, 1<<10)); err != nil {
						return err
					}
				}
				return nil
			}
			if _, err := io.WriteString(conn, "flood\n"); err != nil {
				return err
			}
			_, err = io.CopyN(io.Discard, conn, hundred)
			return err
		})
		c.ends(all, refused, c.used, 0.005, 0.02)
	})
}

// TestReservedCheckpoints: the files of checkpoints, which no user transfers.
func TestReservedCheckpoints(t *testing.T) {
	gather(t, traffic, "cost: 0.02", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		text := strings.Repeat("x", hundred)
		refused := c.at(func(i int) error {
			keeper := sessions.Keeper(nil)
			if !executor.As(all[i], &keeper) {
				return errors.New("no keeper")
			}
			return keeper.KeeperFiles().Write(c.Context(), "x", strings.NewReader(text), 0o600)
		})
		c.ends(all, refused, c.used, 0.01, 0.02)
	})
}

// workingExecutor creates sandboxes in which something is left running that uses a processor.
type workingExecutor struct{ executor.Executor }

func (x *workingExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &workingSession{Session: s, since: time.Now()}, nil
}

type workingSession struct {
	executor.Session
	since time.Time
}

func (s *workingSession) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	i, err := s.Session.Refresh(ctx)
	i.CPU = time.Since(s.since)
	return i, err
}

// TestReservedLeftovers: the processor time of what runs have left running is charged at a Refresh,
// and at the end of the session.
func TestReservedLeftovers(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.wrap = func(_ driver.Env, x executor.Executor) executor.Executor { return &workingExecutor{x} }
		b := w.open("backends: {a: {type: fake, on: a}}\nguard: {quotas: [{per: month, time: 7010s}, {by: team, per: month, time: 10h}]}")
		defer w.close(b)
		spec := executor.Spec{Subject: "u", Attributes: map[string]string{"team": "x"}}
		all := make([]executor.Session, callers)
		for i := range all {
			all[i] = w.create(b, spec)
			if _, err := all[i].Run(w.Context(), executor.Request{Code: "sleep(10)"}, nil); err != nil {
				w.Fatal(err)
			}
		}
		used := func() (of map[string]time.Duration) {
			synctest.Wait()
			rows, err := b.Usage(w.Context(), time.Now().AddDate(0, 0, -1), time.Now())
			if err != nil {
				w.Fatal(err)
			}
			of = map[string]time.Duration{}
			for _, r := range rows {
				of[r.Account] += time.Duration(r.Time)
			}
			return of
		}
		lived := func() (d time.Duration) {
			for _, s := range all {
				d += time.Since(s.Info().Created)
			}
			return d
		}
		time.Sleep(time.Second)
		for _, s := range all[:callers/2] {
			if _, err := s.Refresh(w.Context()); err != nil {
				w.Error(err)
			}
		}
		var want time.Duration
		for i, s := range all {
			if i < callers/2 {
				want += time.Since(s.Info().Created)
			} else {
				want += 10 * time.Millisecond
			}
		}
		if got := used(); got["subject=u"] != want || got["team=x"] != want {
			w.Errorf("used %v, want %v", got, want)
		}
		time.Sleep(time.Second)
		want = lived()
		for _, s := range all {
			s.Close()
		}
		if got := used(); got["subject=u"] != want || got["team=x"] != want {
			w.Errorf("used %v, want %v", got, want)
		}
		s := w.create(b, spec)
		defer s.Close()
		_, err := s.Run(w.Context(), executor.Request{Code: "1", Limits: executor.RunLimits{WallTime: 2 * time.Second}}, nil)
		w.fails(err, executor.ErrDenied)
	})
}

// TestReservedPackages: installations, and those of a Create.
func TestReservedPackages(t *testing.T) {
	gather(t, "{}", "time: 1h", func(c *crowd) {
		all := c.sessions(executor.Spec{})
		p := executor.Packages{Language: executor.Python, Names: []string{"six"}}
		c.o.installation = time.Second
		refused := c.at(func(i int) error {
			_, err := all[i].Install(c.Context(), p, nil)
			return err
		})
		c.ends(all, refused, func() float64 { return float64(callers - refused) }, 6, 6)
		time.AfterFunc(time.Second, c.world.at["a"].Hold(fake.OpCreate))
		all = make([]executor.Session, callers)
		refused = c.at(func(i int) (err error) {
			s, err := c.b.Create(c.Context(), executor.Spec{Subject: "u", Packages: []executor.Packages{p}})
			if err == nil {
				all[i] = s
			}
			return err
		})
		c.ends(all, refused, func() float64 { return float64(callers - refused) }, 5, 6)
	})
}
