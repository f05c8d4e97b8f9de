package backends_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// BenchmarkMessage measures the processor time of a message, and its requests to the store, with
// 10, 1,000 and 100,000 conversations. At most 1,000 of them have a sandbox; those of the others
// have ended. The heartbeats and checks of that time are included.
func BenchmarkMessage(b *testing.B) {
	const messages = 5000
	type cost struct{ cpu, reads, writes float64 }
	measure := func(conversations int) cost {
		w := newWorld(nil, fake.Options{})
		store := &counting{Store: sessions.NewMemoryStore()}
		x, err := backends.Open(b.Context(), driver.Env{Owner: "me", Instance: "one"}, w.reg,
			parse(b, "{backends: {a: {type: fake, on: a}}, guard: {quotas: [{per: day, runs: 100000}]}}"), backends.WithStore(store))
		if err != nil {
			b.Fatal(err)
		}
		live := min(conversations, 1000)
		say := func(n int) error {
			lease, err := x.Manager().Acquire(b.Context(), fmt.Sprint("chat-", n), executor.Spec{Subject: fmt.Sprint("user-", n)})
			if err != nil {
				return err
			}
			_, err = lease.Once(b.Context(), fmt.Sprint(time.Now().UnixNano()))
			if err == nil {
				_, err = lease.Run(b.Context(), executor.Request{Code: "n = 1"}, nil)
			}
			if n >= live {
				w.at["a"].Break(lease.Info().Handle.Session)
			}
			return errors.Join(err, lease.Release())
		}
		for n := range conversations {
			if err := say(n); err != nil {
				b.Fatal(err)
			}
		}
		waittest.Until(b, "the sandboxes of the others end", func() error {
			if n := len(w.at["a"].Sandboxes()); n != live {
				return fmt.Errorf("%d sandboxes", n)
			}
			return nil
		})
		store.take()
		before := processorTime(b)
		for i := range messages {
			if err := say(i * 7919 % live); err != nil {
				b.Fatal(err)
			}
		}
		took := processorTime(b) - before
		reads, writes := store.take()
		if err := x.Close(); err != nil {
			b.Error(err)
		}
		return cost{took.Seconds() * 1e6 / messages, float64(len(reads)) / messages, float64(len(writes)) / messages}
	}
	var costs [3][]cost
	for b.Loop() {
		for i, n := range []int{10, 1000, 100_000} {
			costs[i] = append(costs[i], measure(n))
		}
	}
	b.ReportMetric(0, "ns/op") // of all three: says nothing
	for i, name := range []string{"10", "1000", "100000"} {
		slices.SortFunc(costs[i], func(a, b cost) int { return int(a.cpu*1e3 - b.cpu*1e3) })
		c := costs[i][len(costs[i])/2]
		b.ReportMetric(c.cpu, "µs-cpu-at-"+name)
		b.ReportMetric(c.reads, "reads-at-"+name)
		b.ReportMetric(c.writes, "writes-at-"+name)
	}
}

// processorTime returns what this process has used so far.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
