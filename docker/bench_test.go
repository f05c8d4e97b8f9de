package docker

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// rawLoop is the least that runs code in a container: a line in, its value out.
const rawLoop = "import sys\nfor line in sys.stdin:\n print(eval(line), flush=True)"

// raw makes a container as sessions have it and speaks with it by the client alone.
type raw struct {
	e  *engine
	id string
	s  *stdio
	r  *bufio.Reader
}

func newRaw(ctx context.Context, tb testing.TB, e *engine, program string) *raw {
	tb.Helper()
	f, err := e.facts(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	img, err := e.inspect(ctx, dockertest.Python, f)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := Config{}
	id := strings.ToLower(rand.Text())
	b := &box{id: id, image: img, command: []string{"python3", "-I", "-S", "-u", "-c", program}, network: "none", want: cfg.limits(&executor.Spec{}, f), seccomp: cfg.profile(), uid: f.userID(id)}
	made, err := e.ContainerCreate(ctx, b.options(f))
	if err != nil {
		tb.Fatal(err)
	}
	a, err := e.ContainerAttach(ctx, made.ID, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := e.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		tb.Fatal(err)
	}
	s := newStdio(a.Conn)
	return &raw{e, id, s, bufio.NewReader(s)}
}

func (r *raw) eval(tb testing.TB, line string) string {
	tb.Helper()
	if _, err := fmt.Fprintln(r.s, line); err != nil {
		tb.Fatal(err)
	}
	got, err := r.r.ReadString('\n')
	if err != nil {
		tb.Fatal(err, r.s.stderr())
	}
	return strings.TrimSpace(got)
}

func (r *raw) close(tb testing.TB) {
	r.s.Close()
	if err := r.e.destroy(context.Background(), r.id); err != nil {
		tb.Error(err)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func benchSession(b *testing.B, x executor.Executor, run executor.RunLimits) executor.Session {
	b.Helper()
	s, err := x.Create(b.Context(), executor.Spec{Run: run})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchRun(b *testing.B, s executor.Session, code string, emit func(executor.Event) error) *executor.Result {
	b.Helper()
	res, err := s.Run(b.Context(), executor.Request{Code: code, Keep: -1}, emit)
	if err != nil || res.Status != executor.StatusOK {
		b.Fatalf("%+v, %v", res, err)
	}
	return res
}

// From nothing to the first result, against the same container driven by the client alone, in turn,
// so that both see the same noise.
func BenchmarkCold(b *testing.B) {
	const (
		pairs = 15 // for a median that means something, however short the benchmark is
		most  = 1.3
	)
	x := open(b)
	e := testEngine(b)
	var ours, theirs []time.Duration
	for b.Loop() {
		for range pairs {
			start := time.Now()
			s := benchSession(b, x, executor.RunLimits{})
			benchRun(b, s, "1+1", nil)
			ours = append(ours, time.Since(start))
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			start = time.Now()
			r := newRaw(b.Context(), b, e, rawLoop)
			r.eval(b, "1+1")
			theirs = append(theirs, time.Since(start))
			r.close(b)
		}
	}
	m, raw := median(ours), median(theirs)
	ratio := float64(m) / float64(raw)
	b.ReportMetric(0, "ns/op") // of both with their ends: says nothing
	b.ReportMetric(m.Seconds()*1e3, "ms-cold")
	b.ReportMetric(raw.Seconds()*1e3, "ms-raw")
	b.ReportMetric(ratio, "ratio")
	if ratio > most {
		b.Errorf("a cold start takes %.2f times as long as the raw engine, want at most %v", ratio, most)
	}
}

// A session and its first value with each runtime that the engine has, in turn, so that what else
// the machine does is the same for all.
func BenchmarkRuntimes(b *testing.B) {
	f, err := testEngine(b).facts(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	took, boxes := map[string][]time.Duration{}, map[string]executor.Executor{}
	for _, runtime := range []string{"runc", dockertest.Crun, dockertest.GVisor} {
		if _, ok := f.info.Runtimes[runtime]; ok {
			boxes[runtime] = open(b, func(c *Config) { c.Runtime = runtime })
		}
	}
	for b.Loop() {
		for runtime, x := range boxes {
			start := time.Now()
			s := benchSession(b, x, executor.RunLimits{})
			benchRun(b, s, "1+1", nil)
			took[runtime] = append(took[runtime], time.Since(start))
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all with their ends: says nothing
	for runtime, t := range took {
		b.ReportMetric(median(t).Seconds()*1e3, "ms-"+runtime)
	}
}

// What our filter of system calls costs beside the engine's own: a session and its first value, and
// a call of the kernel by code, in turn.
func BenchmarkFilter(b *testing.B) {
	host, err := dockertest.Host()
	if err != nil {
		b.Skip(err)
	}
	p, err := dockertest.NewProxy(host, func(c map[string]any) {
		if h, ok := c["HostConfig"].(map[string]any); ok {
			h["SecurityOpt"] = []string{"no-new-privileges"}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { check(b, p.Close()) }) // after what goes through it
	const calls = 200_000
	code := fmt.Sprintf("import os\nfor _ in range(%d): os.getppid()", calls)
	boxes := map[string]executor.Executor{"ours": open(b), "engine": openAt(b, p.Host)}
	starts, runs := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for name, x := range boxes {
			start := time.Now()
			s := benchSession(b, x, executor.RunLimits{})
			benchRun(b, s, "1+1", nil)
			starts[name] = append(starts[name], time.Since(start))
			start = time.Now()
			benchRun(b, s, code, nil)
			runs[name] = append(runs[name], time.Since(start))
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all with their ends: says nothing
	for name := range boxes {
		b.ReportMetric(median(starts[name]).Seconds()*1e3, "ms-start-"+name)
		b.ReportMetric(float64(median(runs[name]).Nanoseconds())/calls, "ns-call-"+name)
	}
}

// A value in a session, against a line to the raw container and its answer, in turn.
func BenchmarkWarm(b *testing.B) {
	s := benchSession(b, open(b), executor.RunLimits{})
	benchRun(b, s, "1+1", nil)
	r := newRaw(b.Context(), b, testEngine(b), rawLoop)
	defer r.close(b)
	r.eval(b, "1+1")
	var ours, theirs []time.Duration
	for b.Loop() {
		start := time.Now()
		r.eval(b, "1+1")
		theirs = append(theirs, time.Since(start))
		start = time.Now()
		benchRun(b, s, "1+1", nil)
		ours = append(ours, time.Since(start))
	}
	b.ReportMetric(0, "ns/op") // of both
	b.ReportMetric(float64(median(ours).Microseconds()), "µs-warm")
	b.ReportMetric(float64(median(theirs).Microseconds()), "µs-raw")
}

// From the call of Run to the first byte that the code prints, and to its end.
func BenchmarkFirstByte(b *testing.B) {
	s := benchSession(b, open(b), executor.RunLimits{})
	benchRun(b, s, "1+1", nil)
	r := newRaw(b.Context(), b, testEngine(b), rawLoop)
	defer r.close(b)
	var first, raw []time.Duration
	for b.Loop() {
		start := time.Now()
		r.eval(b, "'x'")
		raw = append(raw, time.Since(start))
		start = time.Now()
		benchRun(b, s, "import time\nprint('x', flush=True)\ntime.sleep(0.005)", func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				first = append(first, time.Since(start))
			}
			return nil
		})
	}
	b.ReportMetric(float64(median(first).Microseconds()), "µs-first-byte")
	b.ReportMetric(float64(median(raw).Microseconds()), "µs-raw")
}

// Standard output as fast as it goes, and the memory that this process needs for it.
func BenchmarkStdout(b *testing.B) {
	const (
		chunk  = 64 << 10
		chunks = 4096 // 256 MiB
		memory = 64 << 20
	)
	b.Run("session", func(b *testing.B) {
		s := benchSession(b, open(b), executor.RunLimits{OutputBytes: 1 << 40, WallTime: 5 * time.Minute})
		code := fmt.Sprintf("import os\nb = b'x' * %d\nfor _ in range(%d): os.write(1, b)", chunk, chunks)
		b.SetBytes(chunk * chunks)
		var got, heap uint64
		for b.Loop() {
			n := 0
			benchRun(b, s, code, func(ev executor.Event) error {
				got += uint64(len(ev.Data))
				if n++; n%64 == 0 {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					heap = max(heap, m.HeapInuse)
				}
				return nil
			})
		}
		if want := uint64(b.N) * chunk * chunks; got != want {
			b.Errorf("got %d bytes, want %d", got, want)
		}
		b.ReportMetric(float64(heap>>20), "MiB-heap")
		if heap > memory {
			b.Errorf("this process held %d MiB, want at most %d", heap>>20, memory>>20)
		}
	})
	b.Run("raw", func(b *testing.B) {
		program := fmt.Sprintf("import os, sys\nb = b'x' * %d\nfor line in sys.stdin:\n for _ in range(%d): os.write(1, b)", chunk, chunks)
		r := newRaw(b.Context(), b, testEngine(b), program)
		defer r.close(b)
		b.SetBytes(chunk * chunks)
		for b.Loop() {
			if _, err := fmt.Fprintln(r.s, "go"); err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, r.r, chunk*chunks); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// many has sessions at once that run code again and again, and returns when the last one was there.
func many(tb testing.TB, sessions, runs int) (all time.Duration) {
	tb.Helper()
	x := open(tb, func(c *Config) { c.Limits = Limits{CPUs: 1, Memory: 64 << 20, Disk: 1 << 20} })
	start := time.Now()
	var wg sync.WaitGroup
	var created atomic.Int64
	var last atomic.Int64
	for range sessions {
		wg.Go(func() {
			s, err := x.Create(tb.Context(), executor.Spec{Languages: []executor.Language{executor.Python}})
			if err != nil {
				tb.Error(err)
				return
			}
			if created.Add(1) == int64(sessions) {
				last.Store(int64(time.Since(start)))
			}
			for i := range runs {
				says(tb, s, fmt.Sprintf("n = 0 if %d == 0 else n + 1; print(n)", i), strconv.Itoa(i))
			}
			if err := s.Close(); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Duration(last.Load())
}

func TestManySessions(t *testing.T) {
	t.Parallel()
	many(t, 12, 5)
}

// A hundred sessions at once, twenty runs each: no error, and nothing is left, which open looks
// for.
func BenchmarkManySessions(b *testing.B) {
	const sessions, runs = 100, 20
	for b.Loop() {
		b.ReportMetric(many(b, sessions, runs).Seconds(), "s-all-there")
	}
}

// A hundred users who arrive at once, from the call of each to the first result: the 95th
// percentile, against as many of the same containers driven by the client alone.
func BenchmarkArrivals(b *testing.B) {
	const users = 100
	e := testEngine(b)
	x := open(b, func(c *Config) { c.Limits = Limits{CPUs: 1, Memory: 64 << 20, Disk: 1 << 20} })
	p95 := func(arrive func() (leave func())) time.Duration {
		var wg sync.WaitGroup
		took, leave := make([]time.Duration, users), make([]func(), users)
		start := time.Now()
		for i := range users {
			wg.Go(func() {
				leave[i] = arrive()
				took[i] = time.Since(start)
			})
		}
		wg.Wait()
		for _, f := range leave {
			wg.Go(f)
		}
		wg.Wait()
		slices.Sort(took)
		return took[users*95/100]
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		ours = append(ours, p95(func() func() {
			s, err := x.Create(b.Context(), executor.Spec{})
			if err != nil {
				b.Error(err)
				return func() {}
			}
			says(b, s, "print(1+1)", "2")
			return func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}
		}))
		theirs = append(theirs, p95(func() func() {
			r := newRaw(b.Context(), b, e, rawLoop)
			r.eval(b, "1+1")
			return func() { r.close(b) }
		}))
	}
	b.ReportMetric(0, "ns/op") // of both with their ends: says nothing
	b.ReportMetric(median(ours).Seconds(), "s-p95")
	b.ReportMetric(median(theirs).Seconds(), "s-p95-raw")
}

// BenchmarkCommandLine compares a session that is created, used once and closed with what people
// write instead of a sandbox: a command line of docker for each piece of code.
func BenchmarkCommandLine(b *testing.B) {
	cli, err := exec.LookPath("docker")
	if err != nil {
		b.Skip(err)
	}
	host, err := dockertest.Host()
	if err != nil {
		b.Fatal(err)
	}
	x := open(b)
	var ours, theirs []time.Duration
	for b.Loop() {
		begin := time.Now()
		s := benchSession(b, x, executor.RunLimits{})
		says(b, s, "print(1+1)", "2")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(begin))
		begin = time.Now()
		run := exec.CommandContext(b.Context(), cli, "--host", host, "run", "--rm", "--network=none", "--pull=never", dockertest.Python, "python3", "-c", "print(1+1)")
		if out, err := run.Output(); err != nil || string(out) != "2\n" {
			b.Fatalf("%q, %v", out, err)
		}
		theirs = append(theirs, time.Since(begin))
	}
	b.ReportMetric(0, "ns/op") // of both: says nothing
	b.ReportMetric(median(ours).Seconds()*1e3, "ms-session")
	b.ReportMetric(median(theirs).Seconds()*1e3, "ms-command")
}
