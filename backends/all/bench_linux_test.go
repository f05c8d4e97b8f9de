package all_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// BenchmarkHundredConversations runs a hundred conversations of ten messages each at once over
// Docker. Every message acquires the session of its conversation. Any error fails the benchmark.
func BenchmarkHundredConversations(b *testing.B) {
	host, err := dockertest.Host()
	if err != nil {
		b.Fatal(err)
	}
	box, err := openFile(b.Context(), "hundred-"+strconv.FormatInt(time.Now().UnixNano(), 36), "bench", fmt.Sprintf(
		"backends: {box: {type: docker, host: %q, image: %q, pull: never, limits: {memory: 64MiB, disk: 1MiB}, broker: {queue: {max: 200}}}}", host, dockertest.Trixie))
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	for b.Loop() {
		took := converse(b, box, 100, 10)
		b.ReportMetric(float64(took[len(took)/2])/1e6, "ms-p50-message")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "ms-p99-message")
	}
}

// converse returns how long each message of a conversation took, except the first, in order.
func converse(b *testing.B, box *backends.Broker, n, messages int) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var took []time.Duration
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprint("chat-", i)
			for j := range messages {
				began := time.Now()
				lease, err := box.Manager().Acquire(b.Context(), key, executor.Spec{Subject: key})
				if err != nil {
					errs[i] = err
					return
				}
				res, err := lease.Run(b.Context(), executor.Request{Code: fmt.Sprintf("n = 0 if %d == 0 else n + 1\nprint(n)", j)}, nil)
				if err == nil && string(res.Stdout) != fmt.Sprintln(j) {
					err = fmt.Errorf("got %q in message %d", res.Stdout, j)
				}
				if err = errors.Join(err, lease.Release()); err != nil {
					errs[i] = err
					return
				}
				if j > 0 {
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			}
			errs[i] = box.Manager().Discard(b.Context(), key)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	return took
}
