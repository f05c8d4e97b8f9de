package all_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/internal/waittest"
)

// TestRolloutDrill: under load, over two replicas, a rollout goes from Pyodide to Docker by itself,
// and rolls back if the new backend is slow, has no room, or is dear.
func TestRolloutDrill(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	box := fmt.Sprintf("type: docker, host: %q, image: %q, pull: never", host, dockertest.Python)
	const local = "type: pyodide"
	for name, c := range map[string]struct {
		now, next, guard string
		want             rollout.Status
		why              string
	}{
		"forward": {local, box, "success: -10%", rollout.Promoted, "no-worse"},
		"slow":    {box + ", broker: {pools: [{size: 8, languages: [python]}]}", local + ", spares: 0", "p95: +30%", rollout.RolledBack, "p95"},
		"full":    {local, box + ", broker: {queue: {max: 1, length: 1, wait: 1ms}}", "success: -5%", rollout.RolledBack, "success"},
		"dear":    {box + ", broker: {prices: {run: 0.001}}", box + ", broker: {prices: {run: 0.002}}", "cost: +20%", rollout.RolledBack, "cost"},
	} {
		t.Run(name, func(t *testing.T) {
			file := fmt.Sprintf(`
backends: {now: {%s}, next: {%s}}
routes: [{name: r, split: [{backend: now, weight: 1}, {backend: next, weight: 0}], fallback: [now]}]
rollouts: {r: {to: next, steps: [50, 100], every: 15s, least: 20, horizon: 10s, guard: {%s}}}
sessions: {store: %q, lease_ttl: 3s}`, c.now, c.next, c.guard, "sqlite:"+filepath.Join(t.TempDir(), "r.db"))
			owner := fmt.Sprint("rollout-", name, rand.Uint32())
			var replicas [2]*backends.Broker
			for i := range replicas {
				b, err := openFile(t.Context(), owner, fmt.Sprint("replica-", i), file)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}()
				replicas[i] = b
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			var users sync.WaitGroup
			for i := range 5 {
				users.Go(func() {
					for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
						visit(t, replicas[rand.IntN(2)], fmt.Sprintf("user-%d-%d", i, n))
						pause(ctx, 300*time.Millisecond)
					}
				})
			}
			var got rollout.Report
			for ctx.Err() == nil && !t.Failed() {
				pause(ctx, time.Second)
				all, err := replicas[1].Rollouts(t.Context())
				if err != nil {
					t.Error(err)
				} else if len(all) == 1 {
					if got = all[0]; got.Status != rollout.Running {
						break
					}
				}
			}
			cancel()
			users.Wait()
			if last := got.Log[max(0, len(got.Log)-1):]; got.Status != c.want || len(last) != 1 || !strings.HasPrefix(last[0].Why, c.why) {
				t.Fatalf("got %s: %+v", got.Status, got)
			}
			waittest.Until(t, "both replicas have moved", func() error {
				for i, b := range replicas {
					for n := range 20 {
						d, err := b.Decide(executor.Spec{Subject: fmt.Sprint("later-", n)})
						if err != nil || (d.Assigned == "next") != (c.want == rollout.Promoted) {
							return fmt.Errorf("replica %d: got %+v, %w", i, d, err)
						}
					}
				}
				return nil
			})
			d := got.Log[len(got.Log)-1]
			t.Logf("%s after %d and %d sessions in %v: %+v", d.What, d.Arms[0].Sessions, d.Arms[1].Sessions, d.Time.Sub(got.Log[0].Time).Round(time.Second), d.Guards)
		})
	}
}

// visit is a session with one run. It must have a result wherever it runs.
func visit(t *testing.T, b *backends.Broker, subject string) {
	s, err := b.Create(t.Context(), executor.Spec{Subject: subject, Languages: []executor.Language{executor.Python}})
	if err != nil {
		t.Error(err)
		return
	}
	if res, err := s.Run(t.Context(), executor.Request{Code: "print(6 * 7)"}, nil); err != nil || string(res.Stdout) != "42\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
