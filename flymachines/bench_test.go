package flymachines

import (
	"slices"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
)

// BenchmarkWarmRun is one expression in a session. The metrics are medians: ready of one request to the runner and its answer, the least
// that any run can take; raw of the exchange with the runner alone; and over of what the contract adds to that. They are measured in turn,
// so that whatever else the machine does is in all of them.
func BenchmarkWarmRun(b *testing.B) {
	w := newWorld(b)
	s := create(b, w.open(b, plain), executor.Spec{})
	var m *fly.Machine
	if !executor.As(s, &m) {
		b.Fatal("no Machine")
	}
	d, err := newBackend(b.Context(), driverEnv(w), w.config())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	secret, err := d.secretOf(s.Info().Handle.Session)
	if err != nil {
		b.Fatal(err)
	}
	e := d.endpoint(m, secret, d.cfg.port())
	var took [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{
			func() error { return e.Ready(b.Context()) },
			func() error {
				_, err := s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil)
				return err
			},
		} {
			begin := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2])
	}
	ready, session := median(took[0]), median(took[1])
	b.ReportMetric(ready, "ns/ready")
	b.ReportMetric(session, "ns/op") // of the session alone
}

// BenchmarkCreate is from the call of Create to the first result.
func BenchmarkCreate(b *testing.B) {
	w := newWorld(b)
	box := w.open(b, plain)
	for b.Loop() {
		s, err := box.Create(b.Context(), executor.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
