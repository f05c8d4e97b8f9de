package e2b

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// benchSession makes a session over a stand-in.
func benchSession(b *testing.B) (executor.Session, driver.Session) {
	b.Helper()
	s, err := e2btest.Start(b.Context(), e2btest.Options{Owner: "bench", Docker: docker.Config{Limits: docker.Limits{CPUs: 2, Disk: 600 << 20}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	var inner driver.Session
	env := driver.Env{Owner: "bench", Wrap: func(d driver.Driver) driver.Driver { return grabbing{d.(found), &inner} }}
	x, err := Open(b.Context(), env, emulated(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })
	box, err := x.Create(b.Context(), executor.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	return box, inner
}

// grabbing keeps the session of the driver that Create makes.
type grabbing struct {
	found
	s *driver.Session
}

func (g grabbing) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	s, err := g.found.Create(ctx, c)
	if err == nil {
		*g.s = s
	}
	return s, err
}

// BenchmarkWarmRun compares a run with the bare exchange of its frames over the same connection with the same server.
func BenchmarkWarmRun(b *testing.B) {
	box, inner := benchSession(b)
	req := executor.Request{ID: "", Language: executor.Python, Code: "1", Limits: executor.RunLimits{WallTime: executor.DefaultWallTime, OutputBytes: 1 << 20}}
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			if _, err := inner.Run(b.Context(), &req, func(executor.Event) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			if _, err := box.Run(b.Context(), req, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTransfer moves 500 MB up and down, and says how much of the heap that takes.
func BenchmarkTransfer(b *testing.B) {
	const size = 500 << 20
	box, _ := benchSession(b)
	heap := func(b *testing.B) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapSys)/(1<<20), "heap-MB")
	}
	b.Run("up", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := box.Files().Write(b.Context(), "big", io.LimitReader(zeros{}, size), 0); err != nil {
				b.Fatal(err)
			}
		}
		heap(b)
	})
	b.Run("down", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			rc, err := box.Files().Read(b.Context(), "big")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, rc); err != nil || n != size {
				b.Fatal(n, err)
			}
			rc.Close()
		}
		heap(b)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
