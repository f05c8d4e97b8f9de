package backends_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

const loaded = `
backends: {a: {type: fake, on: a}, b: {type: fake, on: b}}
routes: [{name: r, split: [{backend: a, weight: 1}, {backend: b, weight: 1}], fallback: [a]}]
guard: {code_bytes: 10240, runs_per_minute: 1000, runs_at_once: 2}
`

// converse runs n conversations of some messages each at once, and returns how long each message
// took.
func converse(tb testing.TB, b *backends.Broker, n, messages int) []time.Duration {
	tb.Helper()
	took := make([]time.Duration, n*messages)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprint("chat-", i)
			for j := range messages {
				began := time.Now()
				errs[i] = message(tb, b, key, fmt.Sprint("user-", i), j)
				took[i*messages+j] = time.Since(began)
				if errs[i] != nil {
					return
				}
			}
			errs[i] = b.Manager().Discard(tb.Context(), key)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(took)
	return took
}

// message is one turn of a chat. Like most code it waits more than it computes.
func message(tb testing.TB, b *backends.Broker, key, user string, n int) error {
	lease, err := b.Manager().Acquire(tb.Context(), key, executor.Spec{Subject: user})
	if err != nil {
		return err
	}
	code := "n = 0"
	if n > 0 {
		code = "sleep(20)\nn = n + 1\nprint(n)"
	}
	res, err := lease.Run(tb.Context(), executor.Request{Code: code}, nil)
	if err == nil && n > 0 && string(res.Stdout) != fmt.Sprintln(n) {
		err = fmt.Errorf("%s: got %q in message %d", key, res.Stdout, n)
	}
	return errors.Join(err, lease.Release())
}

// TestThousandConversations checks that there is no error and that everything is released.
func TestThousandConversations(t *testing.T) {
	w := newWorld(t, fake.Options{})
	b := w.open(loaded)
	converse(t, b, 10, 5)
	goroutines, heap := runtime.NumGoroutine(), inUse()
	converse(t, b, 1000, 5)
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	eventually(t, "memory is given back", func() bool { return inUse() < heap+8<<20 })
	var runs int64
	for _, a := range b.Stats().Arms {
		runs += a.Runs[executor.StatusOK]
		if len(a.CreateErrors)+len(a.RunErrors) > 0 {
			t.Errorf("got %+v", a)
		}
	}
	if runs != 5050 {
		t.Errorf("got %d runs", runs)
	}
	w.close(b)
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come to that %s", what)
		}
	}
}

// BenchmarkConversations compares the time of a message during ten conversations with that during a
// thousand.
func BenchmarkConversations(b *testing.B) {
	w := newWorld(nil, fake.Options{})
	x, err := backends.Open(b.Context(), driver.Env{Owner: "me"}, w.reg, parse(b, loaded))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	var few, many []time.Duration
	for b.Loop() {
		few, many = converse(b, x, 10, 10), converse(b, x, 1000, 5)
	}
	p50, p99 := few[len(few)/2], many[len(many)*99/100]
	b.ReportMetric(float64(p50)/1e6, "ms-p50-at-10")
	b.ReportMetric(float64(p99)/1e6, "ms-p99-at-1000")
	b.ReportMetric(float64(p99)/float64(p50), "ratio")
	if p99 > 20*p50 {
		b.Errorf("p99 at 1000 is %v, more than 20 times the %v of p50 at 10", p99, p50)
	}
}

// BenchmarkRun compares a run through the broker with the same run directly on the backend.
func BenchmarkRun(b *testing.B) {
	w := newWorld(nil, fake.Options{})
	broker, err := backends.Open(b.Context(), driver.Env{Owner: "me"}, w.reg, parse(b, "{backends: {a: {type: fake, on: a}}, guard: {code_bytes: 10240, runs_at_once: 2}}"))
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	raw, err := w.at["b"].Open(driver.Env{Owner: "me"})
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	for name, x := range map[string]executor.Executor{"raw": raw, "broker": broker} {
		b.Run(name, func(b *testing.B) {
			s, err := x.Create(b.Context(), executor.Spec{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Run(b.Context(), executor.Request{Code: "x = 1"}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
