package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server"
)

// load is a number of users, each of whom has a session and runs something in it about once a second.
type load struct {
	users int
	runs  time.Duration // from when all have their session
	think time.Duration // on average, between two runs
}

// figures are what came of it.
type figures struct {
	took         []time.Duration // of each run, in order
	sessions     time.Duration   // until all had one
	early, late  uint64          // bytes of heap in use a third of the way, and at the end
	routinesLate int             // at the end, beyond those at the beginning of the runs
}

const loadKey = "key-of-the-load-0123456789"

// do puts a load on a server over a configuration. A request that fails, or whose answer is not right, fails it.
func (l load) do(ctx context.Context, config string) (f figures, err error) {
	cfg, err := backends.Parse([]byte(config))
	if err != nil {
		return f, err
	}
	box, err := backends.Open(ctx, driver.Env{Name: "load", Owner: "load-" + strconv.FormatInt(time.Now().UnixNano(), 36)}, all.Registry(), cfg)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	var keys server.Keys
	if err := keys.Add(loadKey, server.Client{}); err != nil {
		return f, err
	}
	s, err := server.New(box, server.Config{Keys: keys, MaxSessions: l.users, MaxRuns: l.users})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := srv.Client()
	c.Transport.(*http.Transport).MaxIdleConnsPerHost = l.users

	began := time.Now()
	ids := make([]string, l.users)
	if err := each(l.users, 4, func(i int) error { // a provider that creates all at once creates none in time
		var made server.Session
		err := post(ctx, c, srv.URL+"/v1/sessions", map[string]any{"languages": []string{"python"}}, http.StatusCreated, &made)
		ids[i] = made.ID
		return err
	}); err != nil {
		return f, err
	}
	f.sessions = time.Since(began)
	run := func(i, n int) error {
		var res struct{ Status, Stdout string }
		err := post(ctx, c, srv.URL+"/v1/sessions/"+ids[i]+"/run", map[string]any{"code": fmt.Sprintf("n = 1 if %d == 1 else n + 1\nprint(%d, n)", n, i)}, http.StatusOK, &res)
		if want := fmt.Sprintln(i, n); err == nil && (res.Status != "ok" || res.Stdout != want) {
			err = fmt.Errorf("got %s %q, want %q", res.Status, res.Stdout, want)
		}
		return err
	}
	if err := each(l.users, 4, func(i int) error { return run(i, 1) }); err != nil { // the first one is not warm
		return f, err
	}
	routines := runtime.NumGoroutine()
	var mu sync.Mutex
	end := time.Now().Add(l.runs)
	third := time.AfterFunc(l.runs/3, func() {
		heap := heapInUse()
		mu.Lock()
		defer mu.Unlock()
		f.early = heap
	})
	defer third.Stop()
	if err := each(l.users, l.users, func(i int) error {
		for n := 2; time.Now().Before(end); n++ {
			select {
			case <-time.After(time.Duration(rand.Float64() * 2 * float64(l.think))):
			case <-ctx.Done():
				return ctx.Err()
			}
			began := time.Now()
			if err := run(i, n); err != nil {
				return err
			}
			mu.Lock()
			f.took = append(f.took, time.Since(began))
			mu.Unlock()
		}
		return nil
	}); err != nil {
		return f, err
	}
	f.late, f.routinesLate = heapInUse(), runtime.NumGoroutine()-routines
	slices.Sort(f.took)
	return f, nil
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// each calls f for 0 to n-1, so many at a time.
func each(n, atOnce int, f func(i int) error) error {
	errs := make([]error, n)
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func post(ctx context.Context, c *http.Client, url string, in any, status int, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+loadKey)
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("got %d %s", res.StatusCode, text)
	}
	return json.Unmarshal(text, out)
}

// loadConfigs are the backends that a load is put on. Sandboxes are small, since there are many.
func loadConfigs(tb testing.TB) map[string]string {
	tb.Helper()
	host, err := dockertest.Host()
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]string{
		"docker":  fmt.Sprintf("backends: {box: {type: docker, host: %q, image: %q, pull: never, limits: {memory: 64MiB, disk: 1MiB}, broker: {queue: {max: 200, wait: 5m}}}}", host, dockertest.Trixie),
		"pyodide": "backends: {local: {type: pyodide, broker: {queue: {max: 200, wait: 5m}}}}",
	}
}

// Many users at once lose nothing, and leave no memory behind. How long it takes is for BenchmarkUsers to say.
func TestUsers(t *testing.T) {
	for name, config := range loadConfigs(t) {
		t.Run(name, func(t *testing.T) {
			f, err := load{users: 12, runs: 6 * time.Second, think: 200 * time.Millisecond}.do(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.took) < 12 {
				t.Errorf("got %d runs of 12 users", len(f.took))
			}
			if f.early > 0 && f.late > 2*f.early+8<<20 {
				t.Errorf("the heap has grown from %d to %d bytes", f.early, f.late)
			}
			t.Logf("%d runs, p50 %v, p95 %v, heap %d to %d bytes", len(f.took), f.took[len(f.took)/2], f.took[len(f.took)*95/100], f.early, f.late)
		})
	}
}

// BenchmarkUsers has a hundred users for a minute.
func BenchmarkUsers(b *testing.B) {
	for name, config := range loadConfigs(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := load{users: 100, runs: time.Minute, think: time.Second}.do(b.Context(), config)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(f.took)), "runs")
				b.ReportMetric(float64(f.took[len(f.took)/2])/1e6, "ms-p50-run")
				b.ReportMetric(float64(f.took[len(f.took)*95/100])/1e6, "ms-p95-run")
				b.ReportMetric(float64(f.took[len(f.took)-1])/1e6, "ms-max-run")
				b.ReportMetric(f.sessions.Seconds(), "s-for-100-sessions")
				b.ReportMetric(float64(f.early)/1e6, "MB-heap-early")
				b.ReportMetric(float64(f.late)/1e6, "MB-heap-late")
				b.ReportMetric(float64(f.routinesLate), "goroutines-more")
			}
		})
	}
}
