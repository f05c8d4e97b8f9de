package backends_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/internal/fake"
)

// asReplica makes the test binary a replica of a chat backend. Its value is the file of its
// configuration, which it reads again at SIGHUP.
const asReplica = "EXECBROKER_TEST_REPLICA"

// owner is that of all replicas.
const owner = "drill"

// remoteConfig is the configuration of the type "fake" in a replica.
type remoteConfig struct {
	Address string `json:"address"`
}

// turn is a message to a replica, and answered what comes back.
type turn struct {
	Key, Subject, Plan, Code string
}

type answered struct {
	Out         string
	Fresh, Lost bool
	Kind        string // of the error, or ""
	Error       string
	Ran         string
}

// replicaRegistry has the type "fake" of a provider in another process.
func replicaRegistry() *backends.Registry {
	return backends.NewRegistry(driver.NewFactory(fake.Type, func(ctx context.Context, env driver.Env, c remoteConfig) (executor.Executor, error) {
		d, err := fake.Dial(ctx, c.Address)
		if err != nil {
			return nil, err
		}
		return fake.Open(d, env)
	}, nil))
}

// replica serves messages until it is killed.
func replica(file string) error {
	reg := replicaRegistry()
	load := func() (backends.Config, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return backends.Config{}, err
		}
		return backends.Parse(data)
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	b, err := backends.Open(context.Background(), driver.Env{Owner: owner, Instance: fmt.Sprint("replica-", os.Getpid())}, reg, cfg)
	if err != nil {
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	go func() {
		for range reload {
			if cfg, err := load(); err != nil || b.Reload(context.Background(), cfg) != nil {
				panic("the configuration cannot be reloaded")
			}
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // the test is its only client
		var m turn
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := answered{Ran: executor.RanNo.String()}
		err := func() error {
			lease, err := b.Manager().Acquire(r.Context(), m.Key, executor.Spec{Subject: m.Subject, Attributes: map[string]string{"plan": m.Plan}})
			if err != nil {
				return err
			}
			a.Fresh, a.Lost = lease.Fresh, lease.Lost
			res, err := lease.Run(r.Context(), executor.Request{Code: m.Code}, nil)
			if res != nil {
				a.Out = strings.TrimSpace(string(res.Stdout))
			}
			_ = lease.Release() // it fails while the store is away; the lease then ends by itself
			return err
		}()
		if err != nil {
			a.Error, a.Kind, a.Ran = err.Error(), executor.KindName(err), executor.RanMaybe.String()
			if e := (*executor.Error)(nil); errors.As(err, &e) {
				a.Ran = e.Ran.String()
			}
		}
		_ = json.NewEncoder(w).Encode(a)
	}))
}

// drill is a deployment: replicas over one store and two backends.
type drill struct {
	testing.TB
	config   string
	mu       sync.Mutex
	replicas []*member
}

type member struct {
	cmd  *exec.Cmd
	addr string
}

// start starts a replica in the place of the one before.
func (d *drill) start(i int) {
	d.Helper()
	program, err := os.Executable()
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.Command(program) //nolint:noctx // the test kills it
	cmd.Env = append(os.Environ(), asReplica+"="+d.config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		d.Fatalf("a replica does not start: %v", err)
	}
	go io.Copy(io.Discard, out)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replicas[i] = &member{cmd, strings.TrimSpace(string(line[:n]))}
}

// kill ends a replica as a crash does.
func (d *drill) kill(i int) {
	d.mu.Lock()
	m := d.replicas[i]
	d.mu.Unlock()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

func (d *drill) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas[rand.IntN(len(d.replicas))].addr
}

// send sends a message to one of the replicas. If the replica is gone, nobody knows whether it ran.
func (d *drill) send(client *http.Client, m turn) answered {
	body, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(d.Context(), 40*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.address(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answered{Kind: "gone", Error: err.Error(), Ran: "maybe"}
	}
	defer resp.Body.Close()
	var a answered
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return answered{Kind: "gone", Error: err.Error(), Ran: "maybe"}
	}
	return a
}

// conversation counts in its session. Each message adds one and prints the sum, so the sums show
// what ran: a message that was answered once, one of which nobody knows once or never.
type conversation struct {
	key      string
	sum, may int  // the sum that is known, and how many more messages may have run since
	begun    bool // its session exists
}

// say sends the next message and checks the answer. It returns what went wrong.
func (c *conversation) say(d *drill, client *http.Client) (a answered, wrong string) {
	code := "n = n + 1\nprint(n)"
	if !c.begun {
		code = "n = 1\nprint(n)"
	}
	a = d.send(client, turn{Key: c.key, Subject: "user of " + c.key, Code: code})
	switch {
	case a.Kind != "" && a.Ran == "no":
	case a.Kind != "":
		c.may++
	case a.Fresh && c.begun && a.Out == "": // the session was lost with its backend, and says so
		if !a.Lost {
			wrong = "a new session does not say that the old one is lost"
		}
		*c = conversation{key: c.key}
	case !c.begun:
		if a.Out != "1" {
			wrong = fmt.Sprintf("the first message printed %q", a.Out)
		}
		c.sum, c.may, c.begun = 1, 0, true
	default:
		n, err := strconv.Atoi(a.Out)
		if err != nil || n < c.sum+1 || n > c.sum+1+c.may {
			wrong = fmt.Sprintf("got %q (fresh %v, lost %v) after %d, with %d messages of which nobody knew", a.Out, a.Fresh, a.Lost, c.sum, c.may)
		}
		c.sum, c.may = n, 0
	}
	return a, wrong
}

// TestDrill is a short form of TestDrillForMinutes.
func TestDrill(t *testing.T) {
	for _, name := range []string{"postgres", "redis"} {
		t.Run(name, func(t *testing.T) { runDrill(t, name, 40, 14*time.Second) })
	}
}

// TestDrillForMinutes: three replicas over one store serve conversations on two backends, while
// replicas are killed, the store is killed, a backend is taken away and weights are changed. No
// message runs twice, no conversation is lost, nothing is left at the backends, and a quota that
// all replicas share is never exceeded.
func TestDrillForMinutes(t *testing.T) {
	for _, name := range []string{"postgres", "redis"} {
		t.Run(name, func(t *testing.T) { runDrill(t, name, 200, 3*time.Minute) })
	}
}

func runDrill(t *testing.T, name string, conversations int, length time.Duration) {
	servers := map[string]func(testing.TB) *dbtest.Server{
		"postgres": func(tb testing.TB) *dbtest.Server { return dbtest.Postgres(tb) },
		"redis":    func(tb testing.TB) *dbtest.Server { return dbtest.Redis(tb) },
	}
	db := servers[name](t)
	var address [2]string
	var provider [2]*fake.Backend
	for i := range address {
		provider[i] = fake.New(fake.Options{})
		a, stop, err := fake.Serve(provider[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
		address[i] = a
	}
	t.Setenv("DRILL_PASSWORD", db.Password)
	const quota = 30 // runs of the subject that several senders share
	d := &drill{TB: t, config: filepath.Join(t.TempDir(), "app.yaml"), replicas: make([]*member, 3)}
	configure := func(a, b int) {
		text := fmt.Sprintf(`
backends:
  a: {type: fake, address: %q, broker: {breaker: {failures: 3, open: 1s}}}
  b: {type: fake, address: %q, broker: {breaker: {failures: 3, open: 1s}}}
routes:
  - {name: r, split: [{backend: a, weight: %d}, {backend: b, weight: %d}], fallback: [a, b], on_unavailable: wait}
sessions: {store: %q, store_password: {env: DRILL_PASSWORD}, lease_ttl: 3s}
guard: {runs_at_once: 8, quotas: [{per: month, runs: %d, when: {plan: limited}}]}`, address[0], address[1], a, b, db.URL, quota)
		if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(1, 1)
	for i := range d.replicas {
		d.start(i)
	}
	defer func() {
		for i := range d.replicas {
			d.kill(i)
		}
	}()

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	all := make([]*conversation, conversations)
	kinds := map[string]int{}
	var mu sync.Mutex
	var good atomic.Int64
	var wg sync.WaitGroup
	for i := range all {
		all[i] = &conversation{key: fmt.Sprint("chat-", i)}
		wg.Go(func() {
			for ctx.Err() == nil {
				a, wrong := all[i].say(d, client)
				if wrong != "" {
					t.Errorf("%s: %s", all[i].key, wrong)
				}
				mu.Lock()
				kinds[a.Kind]++
				mu.Unlock()
				if a.Kind == "" {
					good.Add(1)
				}
				pause(ctx, time.Duration(rand.IntN(1000))*time.Millisecond)
			}
		})
	}
	var granted, refused atomic.Int64
	for i := range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				a := d.send(client, turn{Key: fmt.Sprint("limited-", i), Subject: "limited", Plan: "limited", Code: "print(1)"})
				switch {
				case a.Kind == "":
					granted.Add(1)
				case a.Kind == "denied":
					refused.Add(1)
				}
				pause(ctx, time.Duration(rand.IntN(500))*time.Millisecond)
			}
		})
	}
	disturb(ctx, d, db, provider, configure)
	wg.Wait()
	if granted.Load() > quota || granted.Load() < quota/3 || refused.Load() == 0 {
		t.Errorf("%d runs were granted by a quota of %d, and %d refused", granted.Load(), quota, refused.Load())
	}
	t.Logf("%d messages were answered; all by kind of error: %v", good.Load(), kinds)
	if least := int64(conversations) * int64(length/time.Second) / 10; good.Load() < least {
		t.Errorf("%d messages were answered, want at least %d", good.Load(), least)
	}
	// When the disturbances are over, every conversation goes on where it was.
	for _, c := range all {
		deadline := time.Now().Add(time.Minute)
		for {
			a, wrong := c.say(d, client)
			if wrong != "" {
				t.Errorf("%s: %s", c.key, wrong)
			}
			if a.Kind == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not go on: %s", c.key, a.Error)
			}
			pause(t.Context(), 50*time.Millisecond)
		}
	}
	for i := range d.replicas {
		d.kill(i)
	}
	nothingLeft(t, d, all, provider)
}

// nothingLeft ends all conversations by a further process, once the replicas count as dead, and
// looks for sandboxes that no conversation has.
func nothingLeft(t *testing.T, d *drill, all []*conversation, provider [2]*fake.Backend) {
	w := &world{T: t, reg: replicaRegistry()}
	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: owner, Instance: "last"}, w.reg, parse(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close(b)
	end := func(key string) {
		deadline := time.Now().Add(time.Minute)
		for err := b.Manager().Discard(t.Context(), key); err != nil; err = b.Manager().Discard(t.Context(), key) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", key, err)
			}
			pause(t.Context(), 100*time.Millisecond)
		}
	}
	for _, c := range all {
		end(c.key)
	}
	for i := range 6 {
		end(fmt.Sprint("limited-", i))
	}
	for _, err := range b.Manager().Reap(t.Context(), 0, false) {
		if err != nil {
			t.Error(err)
		}
	}
	for i, p := range provider {
		if left := p.Sandboxes(); len(left) > 0 {
			t.Errorf("%d sandboxes are left at provider %d", len(left), i)
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// disturb does one thing after the other until ctx ends, and puts all right again.
func disturb(ctx context.Context, d *drill, db *dbtest.Server, provider [2]*fake.Backend, configure func(a, b int)) {
	for n := 0; ctx.Err() == nil; n++ {
		pause(ctx, 2*time.Second)
		i := rand.IntN(len(d.replicas))
		switch n % 5 {
		case 0:
			d.kill(i)
			pause(ctx, time.Second)
			d.start(i)
		case 1:
			db.Kill()
			pause(ctx, 500*time.Millisecond)
			db.Start()
		case 2:
			at := provider[n/5%2]
			at.Fail(fake.OpCreate, -1, unavailable)
			at.Fail(fake.OpAttach, -1, unavailable)
			pause(ctx, 2*time.Second)
			at.Fail(fake.OpCreate, 0, nil)
			at.Fail(fake.OpAttach, 0, nil)
		case 3:
			configure(1+n%3, 1+n%2)
			d.mu.Lock()
			for _, m := range d.replicas {
				_ = m.cmd.Process.Signal(syscall.SIGHUP)
			}
			d.mu.Unlock()
		case 4:
			db.Freeze()
			pause(ctx, time.Second)
			db.Thaw()
		}
	}
}

// BenchmarkReplicas compares the 95th percentile of a message to three replicas over PostgreSQL
// with that to one process over SQLite, at the same offered load, in turns. Each message is an
// Acquire, a warm run that the guard counts, and a Release.
func BenchmarkReplicas(b *testing.B) {
	provider := fake.New(fake.Options{})
	address, stop, err := fake.Serve(provider)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stop() })
	db := dbtest.Postgres(b)
	b.Setenv("DRILL_PASSWORD", db.Password)
	deploy := func(replicas int, store string) *drill {
		d := &drill{TB: b, config: filepath.Join(b.TempDir(), "app.yaml"), replicas: make([]*member, replicas)}
		text := fmt.Sprintf("{backends: {a: {type: fake, address: %q}}, sessions: {store: %s}, guard: {runs_at_once: 8, quotas: [{per: month, runs: 1000000}]}}", address, store)
		if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		for i := range d.replicas {
			d.start(i)
			b.Cleanup(func() { d.kill(i) })
		}
		return d
	}
	many := deploy(3, fmt.Sprintf("%q, store_password: {env: DRILL_PASSWORD}", db.URL))
	one := deploy(1, fmt.Sprintf("%q", "sqlite:"+filepath.Join(b.TempDir(), "one.db")))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	p95 := func(d *drill) time.Duration {
		const users, messages = 20, 25 // a message in 10 ms
		took := make([]time.Duration, 0, users*messages)
		var mu sync.Mutex
		each(b, users, func(i int) error {
			key := fmt.Sprint("user-", i)
			for range messages {
				pause(b.Context(), time.Duration(rand.Int64N(int64(400*time.Millisecond))))
				began := time.Now()
				if a := d.send(client, turn{Key: key, Subject: key, Code: "print(1)"}); a.Kind != "" {
					return errors.New(a.Error)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
			return nil
		})
		slices.Sort(took)
		return took[len(took)*95/100]
	}
	p95(many)
	p95(one)
	var ratios []float64
	var last [2]time.Duration
	for b.Loop() {
		for range 5 {
			last = [2]time.Duration{p95(many), p95(one)}
			ratios = append(ratios, float64(last[0])/float64(last[1]))
		}
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "replicas/one")
	b.ReportMetric(last[0].Seconds()*1e3, "ms-replicas")
	b.ReportMetric(last[1].Seconds()*1e3, "ms-one")
	b.ReportMetric(0, "ns/op")
}
