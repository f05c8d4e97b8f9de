package all_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/waittest"
)

// BenchmarkEscalation measures a run that moves its conversation from Pyodide to a pool on Docker,
// beside the same run once the conversation is there.
func BenchmarkEscalation(b *testing.B) {
	host, err := dockertest.Host()
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("CHECKPOINT_KEY", string(bytes.Repeat([]byte("k"), 32)))
	x, err := openFile(b.Context(), fmt.Sprint("escalation-", rand.Uint32()), "bench", fmt.Sprintf(`
backends: {local: {type: pyodide}, box: {type: docker, host: %q, image: %q, pull: never, broker: {pools: [{size: 2, languages: [python]}]}}}
sessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}
escalate: [{from: local, to: box, on: [subprocess]}]
routes: [{name: all, split: [{backend: local, weight: 1}]}]`, host, dockertest.Python))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	turn := func(key, code, backend string) time.Duration {
		b.Helper()
		began := time.Now()
		l, err := x.Manager().Acquire(b.Context(), key, executor.Spec{Subject: key, Languages: []executor.Language{executor.Python}})
		if err != nil {
			b.Fatal(err)
		}
		r, err := l.Run(b.Context(), executor.Request{Code: code}, nil)
		if err = errors.Join(err, l.Release()); err == nil {
			err = r.Err()
		}
		if err != nil || r.Origin.Backend != backend {
			b.Fatalf("%v on %s: %+v", err, r.Origin.Backend, r)
		}
		return time.Since(began)
	}
	var moved, stayed []time.Duration
	const code = "import subprocess\nprint(subprocess.run(['echo', basket.items[0]], capture_output=True, text=True).stdout)"
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprint("chat-", i)
		turn(key, fmt.Sprintf(state, "first"), "local")
		waittest.Until(b, "the pool has another one", func() error {
			if pool := x.Stats().Backends[0].Pools[0]; pool.Warm == 0 {
				return fmt.Errorf("got %+v", pool)
			}
			return nil
		})
		moved, stayed = append(moved, turn(key, code, "box")), append(stayed, turn(key, code, "box"))
		if err := x.Manager().Discard(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(moved)
	slices.Sort(stayed)
	m, s := moved[len(moved)/2], stayed[len(stayed)/2]
	b.ReportMetric(float64(m)/1e6, "ms-moved")
	b.ReportMetric(float64(s)/1e6, "ms-stayed")
	b.ReportMetric(float64(m-s)/1e6, "ms-more")
}
