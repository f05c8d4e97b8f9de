//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
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
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server"
)

// drillOwner is that of all replicas.
const drillOwner = "drill"

// drill is a deployment: replicas of serve over one store and two backends.
type drill struct {
	testing.TB
	config, keys string // files
	client       *http.Client
	mu           sync.Mutex
	replicas     []*replica
}

type replica struct {
	*process
	url string
}

// newDrill makes a deployment of n replicas for clients that userKey names. None has started.
func newDrill(t testing.TB, n int, clients ...server.Client) *drill {
	d := &drill{TB: t, config: filepath.Join(t.TempDir(), "app.yaml"), replicas: make([]*replica, n)}
	d.keys = d.config + ".keys"
	var list []any
	for _, c := range clients {
		list = append(list, map[string]any{"key": keyOf(c.Subject), "subject": c.Subject, "attributes": c.Attributes})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	d.write(d.keys, string(text))
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	d.client = &http.Client{Transport: transport, Timeout: 40 * time.Second}
	return d
}

// keyOf is the API key of a subject.
func keyOf(subject string) string { return "key-of-the-subject-" + subject }

func (d *drill) write(file, text string) {
	d.Helper()
	err := os.WriteFile(file+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file) // no replica reads a part of it
	}
	if err != nil {
		d.Fatal(err)
	}
}

// start starts a replica in the place of the one before.
func (d *drill) start(i int) {
	d.Helper()
	p := command(d, "serve", "--config", d.config, "--keys", d.keys, "--watch", "--listen", "127.0.0.1:0", "--owner", drillOwner, "--json")
	m := &replica{p, announced[serving](d, p).URL}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replicas[i] = m
}

// kill ends a replica as a crash does.
func (d *drill) kill(i int) {
	d.mu.Lock()
	m := d.replicas[i]
	d.mu.Unlock()
	_ = m.Process.Kill()
	_ = m.Wait()
}

func (d *drill) url() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas[rand.IntN(len(d.replicas))].url
}

// answered is what is known of a message. If the replica is gone, nobody knows whether it ran.
type answered struct {
	server.Result
	Problem server.Problem // the zero value: it ran
}

// send sends a message in a conversation to one of the replicas.
func (d *drill) send(subject, key, id, code string) (a answered) {
	body, err := json.Marshal(server.RunRequest{ID: id, Language: executor.Python, Code: code})
	if err != nil {
		panic(err)
	}
	status, err := d.ask(http.MethodPost, "/v1/conversations/"+key+"/run", subject, string(body), func(dec *json.Decoder, status int) error {
		if status == http.StatusOK {
			return dec.Decode(&a.Result)
		}
		return dec.Decode(&a.Problem)
	})
	if err != nil {
		a.Problem = server.Problem{Status: status, Kind: "gone", Message: err.Error(), Ran: executor.RanMaybe.String()}
	}
	return a
}

// ask sends a request to one of the replicas.
func (d *drill) ask(method, path, subject, body string, read func(*json.Decoder, int) error) (status int, err error) {
	req, err := http.NewRequestWithContext(d.Context(), method, d.url()+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+keyOf(subject))
	resp, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, read(json.NewDecoder(resp.Body), resp.StatusCode)
}

// noProblem reads an answer without a body, or p.
func noProblem(p *server.Problem) func(*json.Decoder, int) error {
	return func(dec *json.Decoder, status int) error {
		if status == http.StatusNoContent {
			return nil
		}
		return dec.Decode(p)
	}
}

// conversation counts in its session. Each message adds one and prints the sum, so the sums show
// what ran: a message that was answered once, one of which nobody knows once or never. Such a
// message is repeated under its ID, which a replica runs only if none has begun it.
type conversation struct {
	key      string
	sum, may int  // the sum that is known, and how many more messages may have run since
	begun    bool // its session exists
	sent     int  // names the message
}

// say sends the next message and checks the answer. It returns what went wrong.
func (c *conversation) say(d *drill) (a answered, wrong string) {
	code := "n = n + 1"
	if !c.begun {
		code = "n = 1"
	}
	code += "\nprint(n)\nsleep(50)" // so that some have counted and are not answered when their replica is killed
	a = d.send(c.key, c.key, fmt.Sprint("message-", c.sent), code)
	out := strings.TrimSpace(string(a.Stdout))
	switch {
	case a.Problem.Kind == "gone" || a.Problem.Kind != "" && a.Problem.Ran == executor.RanNo.String():
		return a, "" // it is sent again
	case a.Problem.Kind != "": // begun, and perhaps not ended
		c.may++
	case !c.begun:
		if out != "1" {
			wrong = fmt.Sprintf("the first message printed %q", out)
		}
		c.sum, c.may, c.begun = 1, 0, true
	default:
		n, err := strconv.Atoi(out)
		if err != nil || n < c.sum+1 || n > c.sum+1+c.may {
			wrong = fmt.Sprintf("got %q (%+v) after %d, with %d messages of which nobody knew", out, a.Conversation, c.sum, c.may)
		}
		c.sum, c.may = n, 0
	}
	c.sent++
	return a, wrong
}

// TestDrill is a short form of TestDrillForMinutes.
func TestDrill(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postgres", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			runDrill(t, name, 40, 14*time.Second)
		})
	}
}

// TestDrillForMinutes: three replicas of serve over one store have conversations on two backends,
// while replicas are killed, the store is killed, a backend is taken away and weights are changed.
// No message runs twice, no conversation is lost, nothing is left at the backends, and a quota that
// all replicas share is never exceeded.
func TestDrillForMinutes(t *testing.T) { runDrill(t, "postgres", 200, 10*time.Minute) }

// TestDrillForMinutesOverRedis is the same over the other store that replicas share.
func TestDrillForMinutesOverRedis(t *testing.T) { runDrill(t, "redis", 200, 10*time.Minute) }

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
	password := "DRILL_PASSWORD_" + name // several drills may be running
	os.Setenv(password, db.Password)
	t.Cleanup(func() { os.Unsetenv(password) })
	const quota = 30 // runs of the subject that several senders share
	clients := []server.Client{{Subject: "limited", Attributes: map[string]string{"plan": "limited"}}}
	all := make([]*conversation, conversations)
	for i := range all {
		all[i] = &conversation{key: fmt.Sprint("chat-", i)}
		clients = append(clients, server.Client{Subject: all[i].key})
	}
	d := newDrill(t, 3, clients...)
	configure := func(a, b int) {
		text := fmt.Sprintf(`
backends:
  a: {type: fake, address: %q, broker: {breaker: {failures: 3, open: 1s}}}
  b: {type: fake, address: %q, broker: {breaker: {failures: 3, open: 1s}}}
routes:
  - {name: r, split: [{backend: a, weight: %d}, {backend: b, weight: %d}], fallback: [a, b], on_unavailable: wait}
sessions: {store: %q, store_password: {env: %s}, lease_ttl: 3s}
guard: {runs_at_once: 8, quotas: [{per: month, runs: %d, when: {plan: limited}}]}`, address[0], address[1], a, b, db.URL, password, quota)
		d.write(d.config, text)
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
	kinds := map[string]int{}
	var mu sync.Mutex
	var good atomic.Int64
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for ctx.Err() == nil {
				a, wrong := all[i].say(d)
				if wrong != "" {
					t.Errorf("%s: %s", all[i].key, wrong)
				}
				mu.Lock()
				kinds[a.Problem.Kind]++
				mu.Unlock()
				if a.Problem.Kind == "" {
					good.Add(1)
				}
				pause(ctx, time.Duration(rand.IntN(1000))*time.Millisecond)
			}
		})
	}
	var granted atomic.Int64
	limited := func(key string) error {
		a := d.send("limited", key, "", "print(1)")
		if a.Problem.Kind == "" {
			granted.Add(1)
			return errors.New("it was granted")
		}
		return &a.Problem
	}
	for i := range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = limited(fmt.Sprint("limited-", i)) // any refusal may come now
				pause(ctx, time.Duration(rand.IntN(500))*time.Millisecond)
			}
		})
	}
	disturb(ctx, d, db, provider, configure)
	wg.Wait()
	t.Logf("%d runs were granted by a quota of %d", granted.Load(), quota)
	waittest.Until(t, "a run beyond the quota is denied", func() error {
		err := limited("limited-0")
		if p := (*server.Problem)(nil); errors.As(err, &p) && p.Kind == "denied" {
			return nil
		}
		return err
	})
	if granted.Load() > quota || granted.Load() == 0 {
		t.Errorf("%d runs were granted by a quota of %d", granted.Load(), quota)
	}
	var sent int64
	for _, n := range kinds {
		sent += int64(n)
	}
	t.Logf("%d of %d messages were answered; all by kind of error: %v", good.Load(), sent, kinds)
	if good.Load() == 0 {
		t.Errorf("%d of %d messages were answered", good.Load(), sent)
	}
	// When the disturbances are over, every conversation goes on where it was.
	for _, c := range all {
		waittest.Until(t, c.key, func() error {
			a, wrong := c.say(d)
			if wrong != "" {
				t.Errorf("%s: %s", c.key, wrong)
			}
			if a.Problem.Kind != "" {
				return &a.Problem
			}
			return nil
		})
	}
	for i := range d.replicas {
		d.kill(i)
	}
	nothingLeft(t, d, all, provider)
}

// nothingLeft ends all conversations at a further replica, once the others count as dead, and looks
// for sandboxes that no conversation has.
func nothingLeft(t *testing.T, d *drill, all []*conversation, provider [2]*fake.Backend) {
	d.replicas = d.replicas[:1]
	d.start(0)
	end := func(subject, key string) {
		waittest.Until(t, key, func() error {
			var p server.Problem
			status, err := d.ask(http.MethodDelete, "/v1/conversations/"+key, subject, "", noProblem(&p))
			if err == nil && status != http.StatusNoContent {
				err = &p
			}
			return err
		})
	}
	for _, c := range all {
		end(c.key, c.key)
	}
	for i := range 6 {
		end("limited", fmt.Sprint("limited-", i))
	}
	d.kill(0)
	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := backends.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	reg := backends.NewRegistry(driver.NewFactory(fake.Type, func(ctx context.Context, env driver.Env, c fakeConfig) (executor.Executor, error) {
		p, err := fake.Dial(ctx, c.Address)
		if err != nil {
			return nil, err
		}
		return fake.Open(p, env)
	}, nil))
	b, err := backends.Open(t.Context(), driver.Env{Owner: drillOwner, Instance: "last"}, reg, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, p := range provider {
		p.Cut(time.Hour)
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
	away := driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("away"))
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
			at.Fail(fake.OpCreate, -1, away)
			at.Fail(fake.OpAttach, -1, away)
			pause(ctx, 2*time.Second)
			at.Fail(fake.OpCreate, 0, nil)
			at.Fail(fake.OpAttach, 0, nil)
		case 3:
			configure(1+n%3, 1+n%2)
			d.mu.Lock()
			for _, m := range d.replicas {
				_ = m.Process.Signal(syscall.SIGHUP)
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
// lease, a warm run that the guard counts, and the end of the lease.
func BenchmarkReplicas(b *testing.B) {
	provider := fake.New(fake.Options{})
	address, stop, err := fake.Serve(provider)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stop() })
	db := dbtest.Postgres(b)
	b.Setenv("DRILL_PASSWORD", db.Password)
	const users, messages = 20, 25 // a message in 10 ms
	var clients []server.Client
	for i := range users {
		clients = append(clients, server.Client{Subject: fmt.Sprint("user-", i)})
	}
	deploy := func(replicas int, store string) *drill {
		d := newDrill(b, replicas, clients...)
		d.write(d.config, fmt.Sprintf("{backends: {a: {type: fake, address: %q}}, sessions: {store: %s}, guard: {runs_at_once: 8, quotas: [{per: month, runs: 1000000}]}}", address, store))
		for i := range d.replicas {
			d.start(i)
			b.Cleanup(func() { d.kill(i) })
		}
		return d
	}
	many := deploy(3, fmt.Sprintf("%q, store_password: {env: DRILL_PASSWORD}", db.URL))
	one := deploy(1, fmt.Sprintf("%q", "sqlite:"+filepath.Join(b.TempDir(), "one.db")))
	p95 := func(d *drill) time.Duration {
		took := make([]time.Duration, 0, users*messages)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				for range messages {
					pause(b.Context(), time.Duration(rand.Int64N(int64(400*time.Millisecond))))
					began := time.Now()
					if a := d.send(c.Subject, c.Subject, "", "print(1)"); a.Problem.Kind != "" {
						b.Error(a.Problem.Message)
						return
					}
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			})
		}
		wg.Wait()
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
