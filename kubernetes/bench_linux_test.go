package kubernetes

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// BenchmarkCluster measures on a real cluster what the backend adds to the cluster's own work, in
// turn with it, so that both see the same noise. Docker's figures are of the same machine at the
// same time.
func BenchmarkCluster(b *testing.B) {
	c := testCluster(b)
	for _, bench := range []struct {
		name string
		do   func(*testing.B, *kubetest.Cluster)
	}{{"cold", benchCold}, {"warm", benchWarm}, {"stdout", benchStdout}, {"many", benchMany}} {
		b.Run(bench.name, func(b *testing.B) { bench.do(b, c) })
	}
}

// onDocker opens the backend of Docker with the same image.
func onDocker(b *testing.B) executor.Executor {
	b.Helper()
	host, err := dockertest.Host()
	if err != nil {
		b.Fatal(err)
	}
	x, err := docker.Open(b.Context(), driver.Env{Owner: "tests"}, docker.Config{Host: host, Image: dockertest.Python, Pull: docker.PullNever})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { x.Close() })
	return x
}

// medians reports the medians of what took how long, in milliseconds.
func medians(b *testing.B, took map[string][]time.Duration) {
	b.ReportMetric(0, "ns/op") // of all: says nothing
	for name, t := range took {
		slices.Sort(t)
		b.ReportMetric(t[len(t)/2].Seconds()*1e3, "ms-"+name)
	}
}

// benchCold is from the call of Create to the first result, against a pod as sessions have it whose
// main process is a Python that prints what time it is: up to that.
func benchCold(b *testing.B, c *kubetest.Cluster) {
	const pairs = 25 // for a median that means something, however short the benchmark is
	cfg := testConfig(c.Kubeconfig, namespace(b, c))
	x := open(b, cfg)
	api, err := newBackend(driver.Env{Owner: "tests"}, cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer api.Close()
	raw := func() time.Duration {
		box := testBox(&cfg, executor.NetworkNone)
		box.id = strings.ToLower(rand.Text())
		pod := box.pod()
		pod.Spec.Containers[0].Command = []string{python, "-I", "-S", "-c", "import time\nprint(time.time(), flush=True)\ntime.sleep(60)"}
		begin := time.Now()
		made, err := api.api.create(b.Context(), pod, false)
		if err != nil {
			b.Fatal(err)
		}
		var at float64 // the node has the clock of this machine
		if err := untilOK(b.Context(), func() error {
			said, err := api.api.rest.Get().Namespace(cfg.Namespace).Resource("pods").Name(pod.Name).SubResource("log").Do(silent(b.Context())).Raw()
			if err == nil {
				at, err = strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
			}
			return err
		}); err != nil {
			b.Fatal(err)
		}
		if err := (&sandbox{b: api, id: box.id, uid: made.UID}).Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
		return time.UnixMicro(int64(at * 1e6)).Sub(begin)
	}
	session := func() time.Duration {
		begin := time.Now()
		s := create(b, x, executor.Spec{})
		run(b, s, "print(1+1)")
		took := time.Since(begin)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		return took
	}
	session() // the first one of a backend compiles the runner
	took := map[string][]time.Duration{}
	for b.Loop() {
		for range pairs {
			took["cold"] = append(took["cold"], session())
			took["raw"] = append(took["raw"], raw())
		}
	}
	medians(b, took)
}

// loop is the least that runs code: a line in, its value out.
const loop = "import sys\nfor line in sys.stdin:\n print(eval(line), flush=True)"

// benchWarm is a value in a session, against the same on Docker, and a line to a process that exec
// has started in the same pod and its answer.
func benchWarm(b *testing.B, c *kubetest.Cluster) {
	box, near, conn := three(b, c, executor.RunLimits{}, loop)
	r := bufio.NewReader(conn)
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, do := range map[string]func(){
			"warm":   func() { value(b, box, "1+1") },
			"docker": func() { value(b, near, "1+1") },
			"exec": func() {
				if _, err := io.WriteString(conn, "1+1\n"); err != nil {
					b.Fatal(err)
				}
				if got, err := r.ReadString('\n'); got != "2\n" {
					b.Fatalf("got %q, %v", got, err)
				}
			},
		} {
			begin := time.Now()
			do()
			took[name] = append(took[name], time.Since(begin))
		}
	}
	medians(b, took)
}

// three makes a session on the cluster, one on Docker, and a process of a program in the pod.
func three(b *testing.B, c *kubetest.Cluster, limits executor.RunLimits, program string) (box, near executor.Session, conn io.ReadWriter) {
	b.Helper()
	box, near = create(b, open(b, testConfig(c.Kubeconfig, namespace(b, c))), executor.Spec{Run: limits}), create(b, onDocker(b), executor.Spec{Run: limits})
	for _, s := range []executor.Session{box, near} {
		value(b, s, "1+1")
	}
	var pod Pod
	if !executor.As(box, &pod) {
		b.Fatal("no Pod")
	}
	api, err := newClient(&Config{Kubeconfig: c.Kubeconfig, Namespace: pod.Namespace})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(api.close)
	s, err := api.opened(b.Context(), pod.Name, handover.AnnouncedCommand(python, []string{python, "-I", "-S", "-u", "-c", program}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return box, near, s
}

// value runs code whose output does not matter.
func value(b *testing.B, s executor.Session, code string) {
	res, err := s.Run(b.Context(), executor.Request{Code: code, Keep: -1}, nil)
	if err != nil || res.Status != executor.StatusOK {
		b.Fatalf("%+v, %v", res, err)
	}
}

// benchStdout is standard output as fast as it goes, of a session, of one on Docker, and of a
// process that exec has started in the same pod.
func benchStdout(b *testing.B, c *kubetest.Cluster) {
	const chunk, chunks = 64 << 10, 1024 // 64 MiB
	print := fmt.Sprintf("import os\nb = b'x' * %d\nfor _ in range(%d): os.write(1, b)\n", chunk, chunks)
	box, near, conn := three(b, c, executor.RunLimits{OutputBytes: 1 << 40, WallTime: 5 * time.Minute}, "import sys\nfor line in sys.stdin:\n exec("+fmt.Sprintf("%q", print)+")")
	took := map[string]time.Duration{}
	n := 0
	for b.Loop() {
		n++
		for name, do := range map[string]func(){
			"session": func() { value(b, box, print) },
			"docker":  func() { value(b, near, print) },
			"exec": func() {
				if _, err := io.WriteString(conn, "go\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyN(io.Discard, conn, chunk*chunks); err != nil {
					b.Fatal(err)
				}
			},
		} {
			begin := time.Now()
			do()
			took[name] += time.Since(begin)
		}
	}
	b.ReportMetric(0, "ns/op") // of all: says nothing
	for name, t := range took {
		b.ReportMetric(float64(n*chunk*chunks)/1e6/t.Seconds(), "MB/s-"+name)
	}
}

// benchMany makes a hundred sessions at once, from the call of each to its first result, and ends
// them.
func benchMany(b *testing.B, c *kubetest.Cluster) {
	const users = 100
	cfg := testConfig(c.Kubeconfig, namespace(b, c))
	cfg.Limits, cfg.Requests, cfg.ScheduleTimeout = Limits{Memory: 64 << 20, Disk: 1 << 20}, 0.001, driver.Duration(5*time.Minute)
	x := open(b, cfg)
	var there, all []time.Duration
	for b.Loop() {
		var mu sync.Mutex
		var some sync.WaitGroup
		var took []time.Duration
		var held []executor.Session
		begin := time.Now()
		for range users {
			some.Go(func() {
				s, err := x.Create(b.Context(), executor.Spec{})
				if err != nil {
					b.Error(err)
					return
				}
				_, err = s.Run(b.Context(), executor.Request{Code: "1+1"}, nil)
				mu.Lock()
				defer mu.Unlock()
				took, held = append(took, time.Since(begin)), append(held, s)
				if err != nil {
					b.Error(err)
				}
			})
		}
		some.Wait()
		for _, s := range held {
			some.Go(func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			})
		}
		some.Wait()
		all = append(all, time.Since(begin))
		slices.Sort(took)
		if len(took) > 0 {
			there = append(there, took[len(took)*95/100])
		}
	}
	medians(b, map[string][]time.Duration{"p95": there, "all-ended": all})
}
