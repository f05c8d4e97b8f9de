package pyodide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// plainStart measures the start of Pyodide without this package: a process of the same Deno that
// loads Pyodide from npm and runs one line.
func plainStart(b *testing.B, in installation, dir string) time.Duration {
	b.Helper()
	script := filepath.Join(dir, "plain.mjs")
	text := fmt.Sprintf("import { loadPyodide } from %q;\nconst py = await loadPyodide({ indexURL: %q });\npy.runPython('print(1)');\nDeno.exit(0);\n",
		"file://"+filepath.ToSlash(filepath.Join(in.pyodide, "pyodide.mjs")), in.pyodide)
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	c := exec.CommandContext(b.Context(), in.deno, "run", "-A", "--no-config", script)
	c.Dir = dir
	c.Env = []string{"DENO_NO_UPDATE_CHECK=1", "DENO_DIR=" + filepath.Join(dir, "deno"), "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	began := time.Now()
	out, err := c.CombinedOutput()
	took := time.Since(began)
	if err != nil || !strings.Contains(string(out), "1\n") {
		b.Fatalf("%v\n%s", err, out)
	}
	return took
}

// BenchmarkCold measures the time from Create to the first result, and the processor time of the
// process until then, and compares it with a plain start of Pyodide. The two alternate, so that
// both run under the same conditions. With a spare, the time until it is ready is not counted. It
// fails if the ratio is worse than promised.
func BenchmarkCold(b *testing.B) {
	in, err := find(realRuntime(b))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, layer string
		spares      int
		least       float64 // the smallest promised speedup
	}{
		{"layer=none", string(confine.None), 0, 5},
		{"layer=auto", autoLayer, 0, 5},
		{"layer=auto/spare", autoLayer, 1, 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := open(b, Config{OSLayer: c.layer, Spares: &c.spares})
			dir := b.TempDir()
			var d *Driver
			start := func() (took, cpu time.Duration) {
				if d != nil && c.spares > 0 {
					spareOf(b, d)
				}
				began := time.Now()
				s, err := first(b.Context(), x, executor.Python, "print(1)")
				took = time.Since(began)
				if err != nil {
					b.Fatal(err)
				}
				h := driverSession(s).h
				cpu = cpuTime(confine.PID(h.layer, h.cmd.Process.Pid))
				d = driverSession(s).d
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				return took, cpu
			}
			start() // for checks that run only once
			plainStart(b, in, dir)
			var ours, cpus, plain []time.Duration
			for b.Loop() {
				took, cpu := start()
				ours, cpus = append(ours, took), append(cpus, cpu)
				b.StopTimer()
				plain = append(plain, plainStart(b, in, dir))
				b.StartTimer()
			}
			o, p := median(ours), median(plain)
			ratio := float64(p) / float64(o)
			b.ReportMetric(float64(o.Microseconds())/1000, "ms")
			b.ReportMetric(float64(median(cpus).Microseconds())/1000, "cpu-ms")
			b.ReportMetric(float64(p.Microseconds())/1000, "plain-ms")
			b.ReportMetric(ratio, "times-as-fast")
			if len(ours) >= 5 && ratio < c.least {
				b.Errorf("%.1f times as fast as a plain start, want %.0f times", ratio, c.least)
			}
		})
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// BenchmarkWarm measures a whole run in an existing session.
func BenchmarkWarm(b *testing.B) {
	s := one(b, executor.Spec{})
	runCode(b, s, "1 + 1")
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		runCode(b, s, "1 + 1")
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "p95-ms")
}

// languages returns the languages of sessions on this system, with trivial code for each.
func languages() map[executor.Language]string {
	all := map[executor.Language]string{executor.Python: "print(1)"}
	if javascriptHere {
		all[executor.JavaScript] = "console.log(1)"
	}
	return all
}

// first creates a session and runs code in it.
func first(ctx context.Context, x executor.Executor, l executor.Language, code string) (executor.Session, error) {
	s, err := x.Create(ctx, executor.Spec{Languages: []executor.Language{l}})
	if err != nil {
		return nil, err
	}
	r, err := s.Run(ctx, executor.Request{Code: code}, nil)
	if err == nil && string(r.Stdout) != "1\n" {
		err = errors.New(describeResult(r))
	}
	return s, err
}

// BenchmarkColdScript measures the time from Create to the first result for JavaScript.
func BenchmarkColdScript(b *testing.B) {
	if !javascriptHere {
		b.Skip("there are no sessions with JavaScript on this system")
	}
	for _, layer := range []string{string(confine.None), autoLayer} {
		b.Run("layer="+layer, func(b *testing.B) {
			x := open(b, Config{OSLayer: layer})
			for b.Loop() {
				s, err := first(b.Context(), x, executor.JavaScript, "console.log(1)")
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkManySessions measures how long it takes until each of 40 simultaneously created sessions
// has run code, and how much memory they use together. None may fail.
func BenchmarkManySessions(b *testing.B) {
	const n = 40
	for l, code := range languages() {
		b.Run(string(l), func(b *testing.B) {
			x := open(b, Config{})
			for b.Loop() {
				sessions, errs := make([]executor.Session, n), make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() { sessions[i], errs[i] = first(b.Context(), x, l, code) })
				}
				wg.Wait()
				b.StopTimer()
				if err := errors.Join(errs...); err != nil {
					b.Fatal(err)
				}
				if runtime.GOOS == "linux" {
					b.ReportMetric(memory(b)/n/mib, "MiB/session")
				}
				for _, s := range sessions {
					if err := s.Close(); err != nil {
						b.Error(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/n, "ms/session")
		})
	}
}

// BenchmarkIdleMemory measures the memory of an idle session, with memory that processes share
// counted once.
func BenchmarkIdleMemory(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("it is read from /proc")
	}
	const n = 4
	for l, code := range languages() {
		b.Run(string(l), func(b *testing.B) {
			x := open(b, Config{})
			for b.Loop() {
				var sessions []executor.Session
				for range n {
					s, err := first(b.Context(), x, l, code)
					if err != nil {
						b.Fatal(err)
					}
					sessions = append(sessions, s)
				}
				b.ReportMetric(memory(b)/n/mib, "MiB/session")
				for _, s := range sessions {
					s.Close()
				}
			}
		})
	}
}

// memory returns the memory of all processes that this one has started, and of their children.
func memory(b *testing.B) float64 {
	b.Helper()
	var total int64
	for pid := range sandboxProcesses(b) {
		total += pss(b, pid)
	}
	return float64(total)
}

// sandboxProcesses returns the processes that this one has started, and their children.
func sandboxProcesses(b *testing.B) map[int]bool {
	b.Helper()
	all := map[int]bool{}
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		b.Fatal(err)
	}
	for len(tasks) > 0 {
		text, _ := os.ReadFile(tasks[0])
		tasks = tasks[1:]
		for f := range strings.FieldsSeq(string(text)) {
			var pid int
			if _, err := fmt.Sscan(f, &pid); err == nil && !all[pid] {
				all[pid] = true
				below, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
				tasks = append(tasks, below...)
			}
		}
	}
	return all
}

func pss(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		var kb int64
		if _, err := fmt.Sscanf(l, "Pss: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}

// BenchmarkOutput measures output. For lines it also measures the same loop with a file in the
// interpreter that discards them as soon as each is written: that is the most that is possible.
func BenchmarkOutput(b *testing.B) {
	const loop = "for i in range(100_000): print(%s, file=f)"
	for _, c := range []struct{ name, lines, code string }{
		{name: "numbers", lines: "i"},
		{name: "lines=6", lines: "'x' * 5"},
		{name: "lines=32", lines: "'x' * 31"},
		{name: "lines=128", lines: "'x' * 127"},
		{name: "one-piece", code: "print('x' * 50_000_000)"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := one(b, executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 30}})
			run := func(code string) (n int64, took time.Duration) {
				began := time.Now()
				_, err := s.Run(b.Context(), executor.Request{Code: code, Keep: -1}, func(ev executor.Event) error {
					n += int64(len(ev.Data))
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				return n, time.Since(began)
			}
			code := c.code
			if c.lines != "" {
				code = fmt.Sprintf("f = None\n"+loop, c.lines)
			}
			var n int64
			var ours, null []time.Duration
			run(code) // its code is compiled again when it has run for a while
			for b.Loop() {
				var took time.Duration
				n, took = run(code)
				ours = append(ours, took)
				if c.lines != "" {
					b.StopTimer()
					_, took = run(fmt.Sprintf("f = open('/dev/null', 'w', 1)\n"+loop, c.lines))
					null = append(null, took)
					b.StartTimer()
				}
			}
			report := func(unit string, all []time.Duration) {
				if len(all) > 0 {
					b.ReportMetric(float64(n)/1e6/median(all).Seconds(), unit)
				}
			}
			report("p50-MB/s", ours)
			report("null-MB/s", null)
		})
	}
}

// BenchmarkEvents measures output of which no two pieces can be joined.
func BenchmarkEvents(b *testing.B) {
	const n = 50_000
	s := one(b, executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 30}})
	code := fmt.Sprintf("import sys\nfor i in range(%d):\n    f = sys.stderr if i & 1 else sys.stdout\n    f.write('x')\n    f.flush()", n)
	for b.Loop() {
		events := 0
		_, err := s.Run(b.Context(), executor.Request{Code: code, Keep: -1}, func(ev executor.Event) error {
			if len(ev.Data) > 0 {
				events++
			}
			return nil
		})
		if err != nil || events != n {
			b.Fatalf("got %d events, %v", events, err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkFilesAtHand measures how much unchanged files cost a run, and how much one changed file
// among many costs.
func BenchmarkFilesAtHand(b *testing.B) {
	for _, files := range []int{0, 100, 5000} {
		s := one(b, executor.Spec{})
		runCode(b, s, fmt.Sprintf("for i in range(%d): open(f'f{i}', 'w').write('x' * 1000)", files))
		for _, c := range []struct{ name, code string }{{"unchanged", "1 + 1"}, {"one-changed", "open('one', 'w').write('x'); None"}} {
			b.Run(fmt.Sprintf("%s/files=%d", c.name, files), func(b *testing.B) {
				for b.Loop() {
					runCode(b, s, c.code)
				}
			})
		}
	}
}

func BenchmarkTransfer(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	b.Run("write", func(b *testing.B) {
		s := one(b, executor.Spec{})
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := s.Files().Write(b.Context(), "f", bytes.NewReader(data), 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		s := one(b, executor.Spec{})
		if err := s.Files().Write(b.Context(), "f", bytes.NewReader(data), 0); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			f, err := s.Files().Read(b.Context(), "f")
			if err == nil {
				_, err = io.Copy(io.Discard, f)
				f.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReplace measures the time from the loss of a session's process to the next result, with
// files to restore.
func BenchmarkReplace(b *testing.B) {
	s := one(b, executor.Spec{})
	runCode(b, s, "for i in range(1000): open(f'f{i}', 'w').write('x' * 1000)\nopen('large', 'wb').write(bytes(32 << 20))")
	for b.Loop() {
		b.StopTimer()
		if err := s.Reset(b.Context(), executor.Interpreter{}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		runCode(b, s, "1")
	}
}
