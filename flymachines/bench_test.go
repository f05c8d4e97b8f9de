package flymachines

import (
	"net/http"
	"testing"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/runner"
)

// BenchmarkWarmRun is one expression in a session. Sub-benchmark raw is the exchange with the runner alone, without what the contract adds
// around it, and ready is one request to the runner and its answer: the least that any run can take.
func BenchmarkWarmRun(b *testing.B) {
	w := newWorld(b)
	s := create(b, w.open(b, plain), executor.Spec{})
	if _, err := s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); err != nil {
		b.Fatal(err)
	}
	var m *fly.Machine
	if !executor.As(s, &m) {
		b.Fatal("no Machine")
	}
	t := &http.Transport{DialContext: w.DialContext}
	b.Cleanup(t.CloseIdleConnections)
	d, err := newDriver(b.Context(), driverEnv(w), w.config())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	e := d.endpoint(m, secretOf(m), d.cfg.port())
	b.Run("ready", func(b *testing.B) {
		for b.Loop() {
			if err := e.Ready(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		c, err := runner.Attach(b.Context(), e.Dial(), 0)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Detach()
		req := executor.Request{Language: executor.Python, Code: "1", Limits: executor.RunLimits{WallTime: 30e9, OutputBytes: 1 << 20}}
		for b.Loop() {
			if _, err := c.Run(b.Context(), &req, func(executor.Event) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
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
