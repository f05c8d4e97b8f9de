package backends_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
	each(tb, n, func(i int) error {
		key := fmt.Sprint("chat-", i)
		for j := range messages {
			began := time.Now()
			if err := message(tb, b, key, fmt.Sprint("user-", i), j); err != nil {
				return err
			}
			took[i*messages+j] = time.Since(began)
		}
		return b.Manager().Discard(tb.Context(), key)
	})
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

// TestThousandConversations checks that there is no error and that everything is released, at once.
func TestThousandConversations(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) { // in whose time a busy machine is not slow
		b := w.open(loaded)
		defer w.close(b)
		converse(w.T, b, 10, 5)
		synctest.Wait()
		goroutines, heap := runtime.NumGoroutine(), inUse()
		converse(w.T, b, 1000, 5)
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > goroutines+2 {
			w.Errorf("got %d goroutines, before %d", n, goroutines)
		}
		if n := inUse(); n > heap+8<<20 {
			w.Errorf("got %d MiB, before %d", n>>20, heap>>20)
		}
		var runs int64
		for _, a := range b.Stats().Arms {
			runs += a.Runs[executor.StatusOK]
			if len(a.CreateErrors)+len(a.RunErrors) > 0 {
				w.Errorf("got %+v", a)
			}
		}
		if runs != 5050 {
			w.Errorf("got %d runs", runs)
		}
	})
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has run a cleanup for, and the pools that it has emptied by half
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkLiveSessions compares the time of a message of ten users at once while only they have
// conversations with that while 1,000 and 100,000 have. It also says what the broker holds for
// each.
func BenchmarkLiveSessions(b *testing.B) {
	p99 := func(live int) (took time.Duration, memory uint64) {
		w := newWorld(nil, fake.Options{})
		x, err := backends.Open(b.Context(), driver.Env{Owner: "me"}, w.reg, parse(b, loaded))
		if err != nil {
			b.Fatal(err)
		}
		before := inUse()
		each(b, 10, func(user int) error {
			var errs error
			for n := user; n < live; n += 10 {
				errs = errors.Join(errs, message(b, x, fmt.Sprint("chat-", n), fmt.Sprint("user-", n), 0))
			}
			return errs
		})
		memory = (inUse() - before) / uint64(live)
		const messages = 200
		all := make([]time.Duration, 10*messages)
		each(b, 10, func(user int) error {
			for i := range messages {
				n := (user + 10*i*7919) % live // every conversation of this user, one after the other
				began := time.Now()
				if err := message(b, x, fmt.Sprint("chat-", n), fmt.Sprint("user-", n), 0); err != nil {
					return err
				}
				all[user*messages+i] = time.Since(began)
			}
			return nil
		})
		if err := x.Close(); err != nil {
			b.Error(err)
		}
		slices.Sort(all)
		return all[len(all)*99/100], memory
	}
	var took [3][]time.Duration
	var memory uint64
	for b.Loop() {
		for i, live := range []int{10, 1000, 100_000} {
			var t time.Duration
			t, memory = p99(live)
			took[i] = append(took[i], t)
		}
	}
	b.ReportMetric(0, "ns/op") // of all three: says nothing
	for i, name := range []string{"10", "1000", "100000"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2])/1e3, "µs-p99-at-"+name)
	}
	b.ReportMetric(float64(memory)/(1<<10), "KiB/session")
}

// each calls f at once for each of n users.
func each(tb testing.TB, n int, f func(user int) error) {
	tb.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkRun compares a run through the broker with the same run directly on the backend, by
// turns.
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
	var sessions [2]executor.Session
	for i, x := range []executor.Executor{raw, broker} {
		if sessions[i], err = x.Create(b.Context(), executor.Spec{}); err != nil {
			b.Fatal(err)
		}
		defer sessions[i].Close()
	}
	var took [2][]time.Duration
	for b.Loop() {
		for i, s := range sessions {
			began := time.Now()
			if _, err := s.Run(b.Context(), executor.Request{Code: "x = 1"}, nil); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op") // of both: says nothing
	for i, unit := range []string{"ns-raw", "ns-broker"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds()), unit)
	}
}
