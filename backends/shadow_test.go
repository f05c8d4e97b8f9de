package backends_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// shadowFile repeats everything on b that is allowed, and half of it on a for control.
const shadowFile = `
backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}
routes: [{name: r, split: [{backend: a, weight: 1}]}]
shadows:
  r: {to: b, share: 100%, when: {shadow: allowed}, most: 1000/min, budget: 5/day, at_once: 100, control: 50%}
sessions: {lease_ttl: 9s}`

// onlyB is shadowFile with hardly any control.
var onlyB = strings.Replace(shadowFile, "control: 50%", "control: 5%", 1)

// mirrored is a deployment with a shadow, in a bubble.
type mirrored struct {
	*world
	*backends.Broker
	store sessions.Store

	mu     sync.Mutex
	asked  map[string][]executor.Spec // at the backends, by owner and name: "me-shadow/b"
	code   map[string][]string        // that has run there
	audits []backends.Audit
}

// box is a session as its backend sees it. Backend b says everything in capitals, and both add a
// number to the output of code with the word flaky.
type box struct {
	executor.Session
	m    *mirrored
	at   string
	name string
}

var throws atomic.Int64

func (x *box) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	x.m.mu.Lock()
	x.m.code[x.at] = append(x.m.code[x.at], req.Code)
	x.m.mu.Unlock()
	res, err := x.Session.Run(ctx, req, emit)
	if res != nil && x.name == "b" {
		res.Stdout = executor.Bytes(strings.ToUpper(string(res.Stdout)))
		if e := res.Exception; e != nil {
			e.Message = strings.ToUpper(e.Message)
		}
	}
	if res != nil && strings.Contains(req.Code, "odd") && x.at == "me-shadow/a" {
		res.Stdout = append(res.Stdout, "odd"...)
	}
	if res != nil && strings.Contains(req.Code, "flaky") {
		res.Stdout = append(res.Stdout, fmt.Sprint(throws.Add(1))...)
	}
	return res, err
}

// mirror opens a broker by a file and calls f.
func mirror(t *testing.T, file string, f func(m *mirrored)) {
	t.Helper()
	bubble(t, fake.Options{}, func(w *world) {
		m := watchShadows(w, sessions.NewMemoryStore())
		m.Broker = m.start("one", file)
		f(m)
		w.close(m.Broker)
		if n := m.ShadowBytes(); n != 0 {
			w.Errorf("%d bytes are held after the end", n)
		}
	})
}

func watchShadows(w *world, store sessions.Store) *mirrored {
	m := &mirrored{world: w, store: store, asked: map[string][]executor.Spec{}, code: map[string][]string{}}
	w.wrap = func(env driver.Env, x executor.Executor) executor.Executor {
		at := env.Owner + "/" + env.Name
		return &seeing{Executor: x, created: func(spec executor.Spec, s executor.Session) executor.Session {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.asked[at] = append(m.asked[at], spec)
			return &box{s, m, at, env.Name}
		}}
	}
	return m
}

func (m *mirrored) start(instance, file string) *backends.Broker {
	m.Helper()
	return m.openAs(instance, file, backends.WithStore(m.store), backends.WithAudit(func(a backends.Audit) {
		if a.Op == "shadow" {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.audits = append(m.audits, a)
		}
	}))
}

// seeing tells of the sandboxes that are created.
type seeing struct {
	executor.Executor
	created func(executor.Spec, executor.Session) executor.Session
}

func (x *seeing) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return x.created(spec, s), nil
}

var allowed = map[string]string{"shadow": "allowed"}

// talk runs each code in a session of its own conversation, and closes it.
func (m *mirrored) talk(spec executor.Spec, code ...string) {
	m.Helper()
	if spec.Attributes == nil {
		spec.Attributes = allowed
	}
	s := m.create(m.Broker, spec)
	for _, c := range code {
		if _, err := s.Run(m.Context(), executor.Request{Code: c}, nil); err != nil {
			m.Error(err)
		}
	}
	m.end(s)
	synctest.Wait()
}

func (m *mirrored) end(s executor.Session) {
	m.Helper()
	if err := s.Close(); err != nil {
		m.Error(err)
	}
}

func (m *mirrored) report() backends.ShadowReport {
	m.Helper()
	synctest.Wait()
	all, err := m.Shadows(m.Context())
	if err != nil || len(all) != 1 {
		m.Fatalf("got %+v, %v", all, err)
	}
	return all[0]
}

// repeatedOn returns what ran in sandboxes of the owner for shadows.
func (m *mirrored) repeatedOn(name string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.code["me-shadow/"+name])
}

// until talks until a conversation has been repeated on b and not for control.
func (m *mirrored) until(spec executor.Spec, code ...string) {
	m.Helper()
	before := len(m.repeatedOn("b"))
	for range 50 {
		m.talk(spec, code...)
		if len(m.repeatedOn("b")) > before {
			return
		}
	}
	m.Fatal("nothing was repeated")
}

// TestShadow: runs are repeated in order, in sandboxes of another owner, and the user gets the
// original's result.
func TestShadow(t *testing.T) {
	mirror(t, onlyB, func(m *mirrored) {
		m.until(executor.Spec{Subject: "ann", Labels: map[string]string{"user": "ann"}}, "x = 1", "x = x + 1", "print(x)", "print(\"a\")", "print(3)")
		want := []string{"x = 1", "x = x + 1", "print(x)", "print(\"a\")"} // the last one after a difference
		if got := m.repeatedOn("b"); !slices.Equal(got, want) {
			m.Errorf("got %q", got)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, spec := range m.asked["me-shadow/b"] {
			if spec.Subject != "" || spec.Attributes != nil || spec.Labels != nil || spec.Network.Mode != executor.NetworkNone || len(spec.Languages) != 1 || spec.IdleTTL > 15*time.Minute {
				m.Errorf("got %+v", spec)
			}
		}
		if n := len(m.asked["me/b"]); n > 0 {
			m.Errorf("%d sandboxes of users on b", n)
		}
		var kinds []string
		for _, a := range m.audits {
			if a.Origin.Backend == "b" {
				kinds = append(kinds, a.Shadow.What+" "+a.Shadow.Class+a.Shadow.Left)
				if a.Subject != "ann" || a.Origin.Route != "r" || a.Shadow.Original == "" || a.Shadow.Control {
					m.Errorf("got %+v", a)
				}
			}
		}
		if want := []string{"create ", "run ", "run ", "run ", "run stdout differs", "end differed"}; !slices.Equal(kinds, want) {
			m.Errorf("audited %q", kinds)
		}
	})
}

// TestShadowWithoutPermission: the backend of a shadow never sees the code of who has not allowed
// it, nor of who is not in the sample.
func TestShadowWithoutPermission(t *testing.T) {
	mirror(t, shadowFile, func(m *mirrored) {
		for _, attributes := range []map[string]string{{}, {"shadow": "no"}, {"plan": "pro"}} {
			m.talk(executor.Spec{Attributes: attributes}, "print(1)")
		}
		x, _ := m.Backend("a")
		s := m.create(x, executor.Spec{Attributes: allowed}) // by no route
		m.says(s, "print(1)", "1\n")
		m.end(s)
		m.never(0)
	})
	mirror(t, strings.Replace(shadowFile, "share: 100%", "share: 0.0001%", 1), func(m *mirrored) {
		for range 20 {
			m.talk(executor.Spec{}, "print(1)")
		}
		m.never(0)
	})
}

// never checks that no sandbox was created for a shadow, and how many conversations were excluded.
func (m *mirrored) never(excluded int64) {
	m.Helper()
	r := m.report()
	var n int64
	for _, k := range r.Excluded {
		n += k
	}
	if len(m.asked["me-shadow/a"])+len(m.asked["me-shadow/b"])+m.at["b"].Calls(fake.OpCreate) > 0 || n != excluded || r.Arms[0].Runs+r.Arms[1].Runs > 0 {
		m.Errorf("asked for %v, %+v", m.asked, r)
	}
}

// TestShadowExcludes: what may have an effect outside of its sandbox, and what another sandbox
// would not have, is never repeated.
func TestShadowExcludes(t *testing.T) {
	for name, c := range map[string]struct {
		spec executor.Spec
		file string
		why  string
	}{
		"network":       {executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, shadowFile, "network"},
		"hosts":         {executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"example.org"}}}, shadowFile, "network"},
		"secrets":       {executor.Spec{Env: map[string]string{"TOKEN": "x"}}, shadowFile, "env"},
		"ports":         {executor.Spec{Ports: true}, shadowFile, "ports"},
		"packages":      {executor.Spec{Packages: []executor.Packages{{Names: []string{"numpy"}}}}, shadowFile, "packages"},
		"another":       {executor.Spec{Packages: []executor.Packages{{Names: []string{"six"}}}}, shadowFile + "\nguard: {packages: {python: [six]}}", ""},
		"prelude":       {executor.Spec{}, strings.Replace(shadowFile, "on: a}", "on: a, broker: {pools: [{size: 1, prelude: [{code: 'y = 1'}]}]}}", 1), "prelude"},
		"other-prelude": {executor.Spec{}, strings.Replace(shadowFile, "on: a}", "on: a, broker: {pools: [{size: 1, network: {mode: full}, prelude: [{code: 'y = 1'}]}]}}", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			mirror(t, c.file, func(m *mirrored) {
				for range 10 {
					m.talk(c.spec, "1")
				}
				if c.why != "" {
					m.never(10)
					if r := m.report(); r.Excluded[c.why] != 10 {
						m.Errorf("got %v", r.Excluded)
					}
				} else if r := m.report(); r.Arms[0].Conversations+r.Arms[1].Conversations != 10 {
					m.Errorf("got %+v", r)
				}
			})
		})
	}
}

// TestShadowLeaves: a run after something that cannot be repeated is not compared.
func TestShadowLeaves(t *testing.T) {
	run := func(m *mirrored, s executor.Session, req executor.Request) {
		m.Helper()
		if _, err := s.Run(m.Context(), req, nil); err != nil {
			m.Error(err)
		}
	}
	for name, c := range map[string]struct {
		do  func(m *mirrored, s executor.Session)
		why string
	}{
		"env": {func(m *mirrored, s executor.Session) {
			run(m, s, executor.Request{Code: "2", Env: map[string]string{"TOKEN": "x"}})
		}, "env"},
		"terminal": {func(m *mirrored, s executor.Session) {
			run(m, s, executor.Request{Command: []string{"echo"}, Terminal: &executor.Terminal{}})
		}, "terminal"},
		"stopped by a limit": {func(m *mirrored, s executor.Session) {
			if _, err := s.Run(m.Context(), executor.Request{Code: "forever()", Limits: executor.RunLimits{WallTime: time.Second}}, nil); err != nil {
				m.Error(err)
			}
		}, "stopped"},
		"canceled": {func(m *mirrored, s executor.Session) {
			ctx, cancel := context.WithTimeout(m.Context(), time.Second)
			defer cancel()
			if _, err := s.Run(ctx, executor.Request{Code: "forever()"}, nil); err == nil {
				m.Error("want an error")
			}
		}, "canceled"},
		"stopped by the user": {func(m *mirrored, s executor.Session) {
			stop := errors.New("enough")
			if _, err := s.Run(m.Context(), executor.Request{Code: "print(1)\nforever()"}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					return stop
				}
				return nil
			}); !errors.Is(err, stop) {
				m.Errorf("got %v", err)
			}
		}, "canceled"},
		"install": {func(m *mirrored, s executor.Session) {
			if _, err := s.Install(m.Context(), executor.Packages{Names: []string{"six"}}, nil); err != nil {
				m.Error(err)
			}
		}, "packages"},
		"at the same time": {func(m *mirrored, s executor.Session) {
			var wg sync.WaitGroup
			wg.Go(func() { run(m, s, executor.Request{Code: "sleep(1000)"}) })
			time.Sleep(time.Millisecond)
			if err := s.Files().Write(m.Context(), "a", strings.NewReader("x"), 0); err != nil {
				m.Error(err)
			}
			wg.Wait()
		}, "concurrent"},
		"too much": {func(m *mirrored, s executor.Session) {
			if err := s.Files().Write(m.Context(), "a", strings.NewReader(strings.Repeat("x", 17<<20)), 0); err != nil {
				m.Error(err)
			}
		}, "memory"},
		"input": {func(m *mirrored, s executor.Session) {
			run(m, s, executor.Request{Code: "readline()", Stdin: strings.NewReader(strings.Repeat("x", 2<<20))})
		}, "input"},
		"idle": {func(m *mirrored, _ executor.Session) { time.Sleep(11 * time.Minute) }, "idle"},
	} {
		t.Run(name, func(t *testing.T) {
			mirror(t, shadowFile, func(m *mirrored) {
				s := m.create(m.Broker, executor.Spec{Attributes: allowed})
				run(m, s, executor.Request{Code: "1"})
				synctest.Wait()
				c.do(m, s)
				synctest.Wait()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				before := len(m.repeatedOn("a")) + len(m.repeatedOn("b"))
				run(m, s, executor.Request{Code: "print(7)"})
				synctest.Wait()
				if r := m.report(); r.Left[c.why] != 1 || len(r.Left) != 1 {
					m.Errorf("got %v", r.Left)
				}
				if got := len(m.repeatedOn("a")) + len(m.repeatedOn("b")); got != before || before == 0 {
					m.Errorf("%d runs, then %d", before, got)
				}
				m.end(s)
			})
		})
	}
}

// TestShadowCarries: files that the user writes, before and between runs, resets, input and
// packages are there for the repetition too.
func TestShadowCarries(t *testing.T) {
	mirror(t, strings.Replace(shadowFile, "control: 50%", "control: 50%, keep: {code: true}", 1)+"\nguard: {packages: {python: [six]}}", func(m *mirrored) {
		for range 20 {
			s := m.create(m.Broker, executor.Spec{Attributes: allowed})
			f, ctx := s.Files(), m.Context()
			must := func(err error) {
				m.Helper()
				if err != nil {
					m.Error(err)
				}
			}
			must(f.Write(ctx, "in/a.txt", strings.NewReader("7"), 0))
			m.says(s, `print(read("in/a.txt"))`, "7\n")
			must(f.Mkdir(ctx, "more"))
			must(f.Rename(ctx, "in/a.txt", "more/b.txt"))
			must(f.Write(ctx, "c.txt", strings.NewReader("8"), 0))
			must(f.Remove(ctx, "in"))
			if err := f.Write(ctx, "../x", strings.NewReader("8"), 0); err == nil { // changes nothing
				m.Error("want an error")
			}
			m.says(s, `print(read("more/b.txt") + read("c.txt"), attempt(read, "in/a.txt"))`, "78 FileNotFoundError: open /workspace/in/a.txt: file does not exist\n")
			if _, err := s.Install(ctx, executor.Packages{Names: []string{"six"}}, nil); err != nil {
				m.Error(err)
			}
			m.says(s, "y = 1", "")
			if err := s.Reset(ctx, executor.Interpreter{Language: "cobol"}); err == nil { // changes nothing
				m.Error("want an error")
			}
			must(s.Reset(ctx, executor.Interpreter{}))
			res, err := s.Run(ctx, executor.Request{Code: "print(readline())\nprint(y)", Stdin: strings.NewReader("9\n")}, nil)
			if err != nil || string(res.Stdout) != "9\n" || res.Status != executor.StatusFailed {
				m.Errorf("got %+v, %v", res, err)
			}
			m.end(s)
		}
		r := m.report()
		// Where text has letters, b differs: in the second run.
		if own := r.Arms[1]; own.Conversations == 0 || own.Runs != 4*own.Conversations || len(own.Classes) > 0 {
			m.Errorf("got %+v", own)
		}
		if other := r.Arms[0]; other.Runs != 2*other.Conversations || other.Classes["stdout differs"] != other.Conversations {
			m.Errorf("got %+v", other)
		}
	})
}

// TestShadowSubtracts: what differs always on the other backend is found, and what the code does
// differently each time is not.
func TestShadowSubtracts(t *testing.T) {
	mirror(t, shadowFile, func(m *mirrored) {
		for range 200 {
			m.talk(executor.Spec{}, "print(\"letters\")")
			m.talk(executor.Spec{}, "# flaky", "print(1)")
			m.talk(executor.Spec{}, "print(1)")
		}
		r := m.report()
		if len(r.Classes) != 1 || r.Classes[0].Class != "stdout differs" {
			m.Fatalf("got %+v", r.Classes)
		}
		// A third differs by the code, and a third on b alone. The bounds are five standard
		// deviations wide.
		if c := r.Classes[0]; !c.Differs() || c.Excess.Share < .13 || c.Excess.Share > .53 || c.Control < 50 {
			m.Errorf("got %+v", c)
		}
	})
	mirror(t, shadowFile, func(m *mirrored) {
		for range 60 {
			m.talk(executor.Spec{}, "# flaky")
		}
		r := m.report()
		if len(r.Classes) != 1 {
			m.Fatalf("got %+v", r.Classes)
		}
		if c := r.Classes[0]; c.Differs() || c.Excess.Share != 0 || c.Shadow != r.Arms[0].Conversations || c.Control != r.Arms[1].Conversations || c.Shadow+c.Control != 60 {
			m.Errorf("got %+v", c)
		}
	})
}

// TestShadowHangs: neither a run nor Close of the user waits for a shadow that does not answer, and
// Close of the program ends it.
func TestShadowHangs(t *testing.T) {
	for _, op := range []fake.Op{fake.OpCreate, fake.OpRun} {
		t.Run(string(op), func(t *testing.T) {
			mirror(t, onlyB, func(m *mirrored) {
				free := m.world.at["b"].Hold(op)
				defer free()
				for i := range 40 {
					began := time.Now()
					s := m.create(m.Broker, executor.Spec{Attributes: allowed, Subject: fmt.Sprint(i)})
					for range 120 {
						m.says(s, "print(1)", "1\n")
					}
					m.end(s)
					if took := time.Since(began); took > 0 {
						m.Errorf("the user waited for %v", took)
					}
				}
				synctest.Wait()
				if m.world.at["b"].Calls(op) == 0 {
					m.Error("nothing hangs")
				}
				if r := m.report(); r.Left["behind"] == 0 {
					m.Errorf("got %v", r.Left)
				}
				began := time.Now()
				m.close(m.Broker)
				if took := time.Since(began); took > 15*time.Second {
					m.Errorf("Close took %v", took)
				}
			})
		})
	}
}

// TestShadowTakesNothing: a backend whose users may have one sandbox, and whose pool has one, is
// not fuller by its shadows, and the guard does not count them.
func TestShadowTakesNothing(t *testing.T) {
	file := strings.NewReplacer(
		"b: {type: fake, on: b}", "b: {type: fake, on: b, broker: {queue: {max: 2, length: 1, wait: 1s}, pools: [{size: 1}]}}",
		"{backend: a, weight: 1}]}", "{backend: a, weight: 1}]}, {name: q, match: {attributes: {direct: x}}, split: [{backend: b, weight: 1}]}",
	).Replace(onlyB) + "\nguard: {sessions_per_subject: 2, runs_at_once: 1, runs_per_minute: 11, quotas: [{per: day, runs: 11}]}"
	file = strings.Replace(file, "routes: [{name: r, split: [{backend: a, weight: 1}]}, {name: q, match: {attributes: {direct: x}}, split: [{backend: b, weight: 1}]}]",
		"routes: [{name: q, match: {attributes: {direct: x}}, split: [{backend: b, weight: 1}]}, {name: r, split: [{backend: a, weight: 1}]}]", 1)
	mirror(t, file, func(m *mirrored) {
		time.Sleep(time.Second)
		var open []executor.Session
		for i := range 5 { // each has a shadow that lives as long
			s := m.create(m.Broker, executor.Spec{Attributes: allowed, Subject: fmt.Sprint("user-", i)})
			for range 10 {
				m.says(s, "print(1)", "1\n")
			}
			open = append(open, s)
		}
		synctest.Wait()
		if n := len(m.repeatedOn("b")) + len(m.repeatedOn("a")); n < 40 {
			m.Errorf("%d runs were repeated", n)
		}
		bs := m.Stats().Backends[1]
		if bs.Name != "b" || bs.Sessions != 1 || bs.Pools[0].Warm != 1 || bs.Pools[0].Hits+bs.Pools[0].Misses+bs.Pools[0].Bypasses != 0 {
			m.Errorf("got %+v", bs)
		}
		direct := m.create(m.Broker, executor.Spec{Subject: "user-0", Attributes: map[string]string{"direct": "x"}})
		m.says(direct, "print(1)", "1\n") // the eleventh run of the subject
		if _, err := direct.Run(m.Context(), executor.Request{Code: "1"}, nil); !errors.Is(err, executor.ErrDenied) {
			m.Errorf("got %v, want the twelfth to be refused", err)
		}
		for _, s := range append(open, direct) {
			m.end(s)
		}
	})
}

// TestShadowBounds: most and budget hold for all processes together, and while the store is away
// nothing is repeated.
func TestShadowBounds(t *testing.T) {
	priced := func(shadow string) string {
		return strings.NewReplacer("most: 1000/min, budget: 5/day", shadow,
			"a: {type: fake, on: a}", "a: {type: fake, on: a, broker: {prices: {run: 0.1}}}",
			"b: {type: fake, on: b}", "b: {type: fake, on: b, broker: {prices: {run: 0.1}}}").Replace(shadowFile)
	}
	for name, c := range map[string]struct {
		file, why string
		want      int
	}{
		"most":    {priced("most: 7/min, budget: 100/day"), "most", 7},
		"by-day":  {priced("most: 5/day, budget: 100/day"), "most", 5},
		"budget":  {priced("most: 1000/min, budget: 0.9/day"), "budget", 9},
		"time":    {priced("most: 1000/min, budget: 100/day, time: 105s/day"), "time", 3}, // of 29 s, for which 35 s are reserved
		"at-once": {strings.Replace(priced("most: 1000/min, budget: 100/day"), "at_once: 100", "at_once: 3", 1), "at_once", 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				m := watchShadows(w, sessions.NewMemoryStore())
				one, two := m.start("one", c.file), m.start("two", c.file)
				m.Broker = one
				var open []executor.Session
				for i := range 30 {
					s := w.create([]*backends.Broker{one, two}[i%2], executor.Spec{Attributes: allowed})
					code := "1"
					if name == "time" {
						code = "sleep(29000)"
					}
					if _, err := s.Run(w.Context(), executor.Request{Code: code}, nil); err != nil {
						w.Error(err)
					}
					open = append(open, s)
					if name != "time" {
						synctest.Wait()
					}
				}
				time.Sleep(40 * time.Second)
				synctest.Wait()
				if got := len(m.repeatedOn("a")) + len(m.repeatedOn("b")); got != c.want {
					w.Errorf("got %d runs, want %d", got, c.want)
				}
				if _, err := two.Shadows(w.Context()); err != nil { // writes what it has counted
					w.Error(err)
				}
				if r := m.report(); r.Left[c.why] != int64(30-c.want) {
					w.Errorf("got %v", r.Left)
				}
				if name == "budget" {
					var cost executor.Money
					usage, err := one.Usage(w.Context(), time.Now(), time.Now())
					for _, u := range usage {
						if u.Account == "shadow/r" && u.Route == "r" {
							cost += u.Cost
						}
					}
					if err != nil || cost.String() != "0.9" {
						w.Errorf("got %v, %v", usage, err)
					}
				}
				for _, s := range open {
					m.end(s)
				}
				w.close(one)
				w.close(two)
			})
		})
	}
	t.Run("away", func(t *testing.T) {
		bubble(t, fake.Options{}, func(w *world) {
			store := &downStore{Store: sessions.NewMemoryStore()}
			m := watchShadows(w, store)
			m.Broker = m.start("one", shadowFile+"\nguard: {runs_per_minute: 1000, on_store_failure: local, local_share: 1}")
			store.down.Store(true)
			for range 10 {
				m.talk(executor.Spec{}, "print(1)")
			}
			if n := len(m.asked["me-shadow/a"]) + len(m.asked["me-shadow/b"]); n > 0 {
				w.Errorf("%d sandboxes without the store", n)
			}
			store.down.Store(false)
			time.Sleep(time.Minute)
			m.talk(executor.Spec{}, "print(1)")
			if r := m.report(); r.Left["store"] != 10 || r.Arms[0].Runs+r.Arms[1].Runs != 1 {
				w.Errorf("got %+v", r)
			}
			w.close(m.Broker)
		})
	})
}

// TestShadowKeeps: by default nothing of code and output is in the store, and what is kept expires.
func TestShadowKeeps(t *testing.T) {
	const secret = "secretword"
	stored := func(m *mirrored) (all string) {
		m.report()
		for key, err := range m.store.Keys(m.Context(), "") {
			if err != nil {
				m.Fatal(err)
			}
			e, err := m.store.Get(m.Context(), key)
			if err != nil {
				m.Fatal(err)
			}
			all += key + " " + string(e.Value) + "\n"
		}
		return all
	}
	talk := func(m *mirrored) {
		for range 6 {
			m.until(executor.Spec{}, "x = \""+secret+"\"", "print(x)")
			m.until(executor.Spec{}, "throw(\""+secret+"\", \""+secret+"\")")
		}
	}
	mirror(t, shadowFile, func(m *mirrored) {
		talk(m)
		if got := stored(m); strings.Contains(got, secret) || strings.Contains(got, strings.ToUpper(secret)) || !strings.Contains(got, "stdout differs") {
			m.Errorf("got %s", got)
		}
	})
	for keep, want := range map[string][2]bool{"code: true": {true, false}, "output: true": {false, true}, "code: true, output: true": {true, true}} {
		t.Run(keep, func(t *testing.T) {
			file := strings.Replace(shadowFile, "control: 50%", "control: 50%, keep: {"+keep+", examples: 8, for: 2h}", 1)
			mirror(t, file, func(m *mirrored) {
				cfg := parse(m.T, file)
				for range 20 { // differs for control alone, which is no example
					m.talk(executor.Spec{}, "# odd")
				}
				if all, err := backends.ReadShadowExamples(m.Context(), m.store, cfg, "r"); err != nil || len(all) > 0 || m.report().Arms[1].Classes["stdout was not expected"] == 0 {
					m.Errorf("got %+v, %v", all, err)
				}
				talk(m)
				all, err := backends.ReadShadowExamples(m.Context(), m.store, cfg, "r")
				if err != nil || len(all) != 6 { // of two classes
					m.Fatalf("got %+v, %v", all, err)
				}
				for _, x := range all {
					if got := [2]bool{len(x.Program) > 0, len(x.Differences) > 0}; got != want {
						m.Errorf("got %s, %v", x.Program, x.Differences)
					}
				}
				time.Sleep(2*time.Hour + time.Second)
				if got := stored(m); strings.Contains(got, secret) && !strings.Contains(keep, "output") {
					m.Errorf("got %s", got)
				}
				if all, err := backends.ReadShadowExamples(m.Context(), m.store, cfg, "r"); err != nil || len(all) > 0 {
					m.Errorf("got %+v, %v", all, err)
				}
			})
		})
	}
}

// TestShadowReload: a conversation goes on if nothing that concerns it changes, and leaves the
// sample otherwise.
func TestShadowReload(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		runs int
	}{
		"same":    {onlyB + "\nguard: {code_bytes: 1000}", 2},
		"plan":    {strings.Replace(onlyB, "most: 1000/min", "most: 999/min", 1), 1},
		"none":    {onlyB[:strings.Index(onlyB, "shadows:")] + "sessions: {lease_ttl: 9s}", 1},
		"backend": {strings.Replace(onlyB, "on: b}", "on: c}", 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			mirror(t, onlyB, func(m *mirrored) {
				for range 20 {
					s := m.create(m.Broker, executor.Spec{Attributes: allowed})
					m.says(s, "print(1)", "1\n")
					synctest.Wait()
					if len(m.repeatedOn("b")) == 0 { // it was for control
						m.end(s)
						continue
					}
					if err := m.Reload(m.Context(), parse(m.T, c.file)); err != nil {
						m.Fatal(err)
					}
					synctest.Wait()
					m.says(s, "print(2)", "2\n")
					synctest.Wait()
					if got := m.repeatedOn("b"); len(got) != c.runs {
						m.Errorf("got %q", got)
					}
					m.end(s)
					return
				}
				m.Error("nothing was repeated")
			})
		})
	}
}

// TestShadowUnsupported: a backend that cannot do what the conversation needs differs, for a reason
// that is known.
func TestShadowUnsupported(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		w.at["b"] = fake.New(fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureStdin, executor.FeatureAliases)})
		m := watchShadows(w, sessions.NewMemoryStore())
		m.Broker = m.start("one", shadowFile)
		for range 30 { // half of them are for control, whose backend lacks nothing
			m.talk(executor.Spec{Aliases: []string{executor.DataDir}}, "1")
			s := m.create(m.Broker, executor.Spec{Attributes: allowed})
			if _, err := s.Run(m.Context(), executor.Request{Code: "readline()", Stdin: strings.NewReader("a")}, nil); err != nil {
				m.Error(err)
			}
			m.end(s)
		}
		r := m.report()
		if got := slices.Sorted(maps.Keys(r.Arms[0].Classes)); !slices.Equal(got, []string{"explained: it lacks aliases", "explained: it lacks stdin:python"}) {
			m.Errorf("got %q", got)
		}
		if len(r.Arms[1].Classes) > 0 {
			m.Errorf("got %+v", r.Arms[1])
		}
		w.close(m.Broker)
	})
}
