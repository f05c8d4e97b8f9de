package backends_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

// TestLossIsTold ends the sandbox of a conversation in each way there is. The next lease, the next
// answer of the tool, one line of the log and a counter say so, once, with the reason.
func TestLossIsTold(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	const file = "backends: {x: {type: fake, on: a}, y: {type: fake, on: b}}\nsessions: {%sreplace_after: 3m}\nroutes: [{name: r, split: [{backend: x, weight: 1}], fallback: [y]}]\n"
	const kept = "checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}, "
	evict := func(w *world, b *backends.Broker, key string) error { return b.Manager().Evict(w.Context(), key) }
	for way, c := range map[string]struct {
		sessions string // what the configuration needs
		caps     executor.Capabilities
		why      string
		end      func(w *world, b *backends.Broker, key string) error
	}{
		"idle TTL": {why: "gone", end: func(*world, *backends.Broker, string) error {
			time.Sleep(2 * executor.DefaultIdleTTL)
			return nil
		}},
		"crash": {why: "gone", end: func(w *world, _ *backends.Broker, _ string) error {
			for _, id := range w.at["a"].Sandboxes() {
				w.at["a"].Break(id)
			}
			return nil
		}},
		"destroyed by another program": {why: "gone", end: func(w *world, b *backends.Broker, key string) error {
			for r, err := range b.Manager().Records(w.Context(), key) {
				if err != nil {
					return err
				}
				if err := b.Destroy(w.Context(), r.Handle); err != nil {
					return err
				}
			}
			return nil
		}},
		"evicted": {sessions: kept, why: "evicted", end: evict},
		"drained": {sessions: kept, why: "moved", end: func(w *world, b *backends.Broker, _ string) error {
			return b.Reload(w.Context(), parse(w.T, fmt.Sprintf(strings.ReplaceAll(file, "backend: x, weight: 1}], fallback: [y]", "backend: y, weight: 1}]"), "drain: [x], "+kept)))
		}},
		"abandoned": {why: "abandoned", end: func(w *world, b *backends.Broker, key string) error { return b.Manager().Abandon(w.Context(), key) }},
		"does not answer": {why: "unavailable", end: func(w *world, b *backends.Broker, key string) error {
			w.outage("a", -1)
			if _, err := b.Manager().Acquire(w.Context(), key, executor.Spec{Subject: "ann", Languages: []executor.Language{executor.Python}}); err == nil {
				return fmt.Errorf("the backend has answered")
			}
			time.Sleep(4 * time.Minute)
			return nil
		}},
	} {
		for _, checkpoints := range []string{"", kept} {
			if c.sessions != "" && checkpoints == "" {
				continue
			}
			t.Run(strings.TrimSpace(way+" "+strings.TrimSuffix(checkpoints, ": {every: 1 run, key: {env: CHECKPOINT_KEY}}, ")), func(t *testing.T) {
				bubble(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureMixedLanguages)}, func(w *world) {
					var log bytes.Buffer
					b, err := backends.Open(w.Context(), driver.Env{Owner: "me", Log: slog.New(slog.NewTextHandler(&log, nil))}, w.reg, parse(w.T, fmt.Sprintf(file, checkpoints)))
					if err != nil {
						w.Fatal(err)
					}
					defer w.close(b)
					reader := sdkmetric.NewManualReader()
					stop, err := b.Observe(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
					if err != nil {
						w.Fatal(err)
					}
					defer stop()
					x, err := tool.New(b, b.Manager(), tool.Options{})
					if err != nil {
						w.Fatal(err)
					}
					answer := func(id, code string) tool.Output {
						out, err := x.Run(w.Context(), tool.Conversation{ID: id, Subject: "ann"}, tool.Input{Language: executor.Python, Code: code}, nil)
						if err != nil {
							w.Error(err)
						}
						return out
					}
					for _, id := range []string{"told", "leased"} {
						answer(id, "x = 5")
						if err := c.end(w, b, id+"/python"); err != nil {
							w.Fatal(err)
						}
						if id == "told" {
							first, second := answer(id, "y = 1").Stderr, answer(id, "y = 1").Stderr
							if !strings.Contains(first, "This is a new sandbox") || strings.Contains(first, "variables x") != (checkpoints != "") || strings.Contains(second, "This is a new sandbox") {
								w.Errorf("the answers say %q and %q", first, second)
							}
							w.outage("a", 0)
							if err := b.Reload(w.Context(), parse(w.T, fmt.Sprintf(file, checkpoints))); err != nil {
								w.Fatal(err)
							}
							continue
						}
						l, err := b.Manager().Acquire(w.Context(), id+"/python", executor.Spec{Subject: "ann", Languages: []executor.Language{executor.Python}})
						if err != nil {
							w.Fatal(err)
						}
						if !l.Fresh || !l.Lost || string(l.Why) != c.why || l.Kept.Restored() != (checkpoints != "") {
							w.Errorf("got fresh %v, lost %v, why %q, kept %+v, want %s", l.Fresh, l.Lost, l.Why, l.Kept, c.why)
						}
						if err := l.Release(); err != nil {
							w.Error(err)
						}
					}
					restored := checkpoints != ""
					for _, id := range []string{"told", "leased"} {
						if line := fmt.Sprintf("msg=\"a conversation has lost its sandbox\" key=%s/python why=%s", id, c.why); strings.Count(log.String(), line) != 1 || strings.Count(log.String(), fmt.Sprintf("restored=%v", restored)) != 2 {
							w.Errorf("not once: %s, restored=%v, in\n%s", line, restored, &log)
						}
					}
					if n := lost(w, reader, c.why, restored); n != 2 {
						w.Errorf("the counter has %d", n)
					}
					for _, id := range []string{"told", "leased"} {
						if err := x.Reset(w.Context(), tool.Conversation{ID: id, Subject: "ann"}); err != nil {
							w.Error(err)
						}
					}
					w.outage("a", 0)
					for _, err := range b.Manager().Reap(w.Context(), 0, false) { // what could not be reached
						if err != nil {
							w.Error(err)
						}
					}
				})
			})
		}
	}
}

// lost returns backends.MetricLost for a reason.
func lost(w *world, r sdkmetric.Reader, why string, restored bool) (n int64) {
	w.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(w.Context(), &all); err != nil {
		w.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != backends.MetricLost {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				got, _ := p.Attributes.Value("execbroker.loss")
				ok, _ := p.Attributes.Value("execbroker.restored")
				if p.Value > 0 && (got.AsString() != why || ok.AsBool() != restored) {
					w.Errorf("counted %s", p.Attributes.Encoded(nil))
				}
				n += p.Value
			}
		}
	}
	return n
}
