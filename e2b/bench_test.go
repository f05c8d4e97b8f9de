package e2b

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// benchServer starts a stand-in.
func benchServer(b *testing.B) *e2btest.Server {
	b.Helper()
	s, err := e2btest.Start(b.Context(), e2btest.Options{Owner: "bench", Docker: docker.Config{Limits: docker.Limits{CPUs: 2, Disk: 600 << 20}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// benchSession makes a session over a stand-in.
func benchSession(b *testing.B) (executor.Session, driver.Session) {
	b.Helper()
	s := benchServer(b)
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

// BenchmarkCold is from the call of Create to the first result, against a sandbox of the same
// template up to the first byte of a Python that the service's daemon has started, by turns.
func BenchmarkCold(b *testing.B) {
	s := benchServer(b)
	d, err := newBackend(driver.Env{Owner: "bench"}, emulated(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	x, err := Open(b.Context(), driver.Env{Owner: "bench"}, emulated(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })
	session := func() (time.Duration, error) {
		begin := time.Now()
		box, err := x.Create(b.Context(), executor.Spec{})
		if err != nil {
			return 0, err
		}
		_, err = box.Run(b.Context(), executor.Request{Code: "1"}, nil)
		took := time.Since(begin)
		return took, errors.Join(err, box.Close())
	}
	raw := func() (time.Duration, error) {
		begin, ttl := time.Now(), int64(60)
		id := strings.ToLower(rand.Text())
		made, _, err := d.make(b.Context(), id, id, api.NewSandbox{TemplateID: d.cfg.template(""), Timeout: &ttl})
		if err != nil {
			return 0, err
		}
		p, err := d.service.daemon(made).startNew(b.Context(), []string{"python3", "-I", "-S", "-c", "print(1)"})
		if err != nil {
			return 0, err
		}
		_, err = io.ReadFull(p, make([]byte, 1))
		took := time.Since(begin)
		return took, errors.Join(err, p.Close(), d.service.kill(b.Context(), made.SandboxID))
	}
	const pairs = 9 // for a median that means something, however short the benchmark is
	var took [2][]time.Duration
	turn := func() {
		for i, f := range []func() (time.Duration, error){session, raw} {
			d, err := f()
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], d)
		}
	}
	turn()
	clear(took[:]) // the first session of a backend compiles the runner
	for b.Loop() {
		for range pairs {
			turn()
		}
	}
	b.ReportMetric(0, "ns/op") // of both with their ends: says nothing
	for i, unit := range []string{"ms-cold", "ms-raw"} {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2].Seconds()*1e3, unit)
	}
}

// BenchmarkSDK compares this package with E2B's own SDK for JavaScript as clients of the same
// server: a first result from a new sandbox, and another one from the same.
func BenchmarkSDK(b *testing.B) {
	const colds, warms = 5, 50
	dir := npmtest.Install(b, "../server/e2b/testdata/sdk")
	s := benchServer(b)
	x, err := Open(b.Context(), driver.Env{Owner: "bench"}, emulated(s.URL))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = x.Close() })
	run := func(box executor.Session) time.Duration {
		begin := time.Now()
		if _, err := box.Run(b.Context(), executor.Request{Code: "1 + 1"}, nil); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	var cold, warm, sdkCold, sdkWarm []time.Duration
	for b.Loop() {
		for n := range colds {
			begin := time.Now()
			box, err := x.Create(b.Context(), executor.Spec{})
			if err != nil {
				b.Fatal(err)
			}
			run(box)
			cold = append(cold, time.Since(begin))
			for i := 0; i < warms && n == 0; i++ {
				warm = append(warm, run(box))
			}
			if err := box.Close(); err != nil {
				b.Fatal(err)
			}
		}
		node := exec.CommandContext(b.Context(), "node", filepath.Join(dir, "times.mjs"), strconv.Itoa(colds), strconv.Itoa(warms))
		node.Env = append(os.Environ(), "E2B_API_URL="+s.URL, "E2B_SANDBOX_URL="+s.URL, "E2B_API_KEY="+e2btest.Key)
		out, err := node.Output()
		var ms struct{ Cold, Warm float64 }
		if err = errors.Join(err, json.Unmarshal(out, &ms)); err != nil {
			b.Fatal(err)
		}
		sdkCold = append(sdkCold, time.Duration(ms.Cold*1e6))
		sdkWarm = append(sdkWarm, time.Duration(ms.Warm*1e6))
	}
	b.ReportMetric(0, "ns/op") // of both with their ends: says nothing
	for unit, took := range map[string][]time.Duration{"ms-cold": cold, "ms-warm": warm, "ms-cold-sdk": sdkCold, "ms-warm-sdk": sdkWarm} {
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds()*1e3, unit)
	}
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

// BenchmarkWarmRun compares a run with the bare exchange of its frames over the same connection
// with the same server.
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
