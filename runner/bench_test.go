package runner

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// BenchmarkColdStart is from the start of a process to the first result, in the first sandbox of
// its kind, which compiles the program, and in a later one, which gets what that has compiled.
// Sub-benchmark raw is the same with nothing but Python.
func BenchmarkColdStart(b *testing.B) {
	python := pythonOf(host)
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			if out, err := exec.Command(python, "-I", "-c", "print(1 + 1)").Output(); err != nil || string(out) != "2\n" {
				b.Fatalf("%q, %v", out, err)
			}
		}
	})
	cold := func(b *testing.B, edit func(*Config)) *sandbox {
		s := start(b, host, edit)
		if r := s.code(b, "1 + 1"); r.value() != "2" {
			b.Fatalf("%+v", r)
		}
		return s
	}
	end := func(s *sandbox) {
		s.Detach()
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
	s := cold(b, func(c *Config) { c.compile = true })
	made := s.Info().Compiled
	end(s)
	for name, c := range map[string]*compiled{"first": nil, "runner": made} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s := cold(b, func(cfg *Config) { cfg.compiled = c })
				b.StopTimer()
				end(s)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkWarmRun is one expression in an interpreter that runs. Sub-benchmark raw is a line to a
// Python that evaluates it, and one back.
func BenchmarkWarmRun(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		_, conn := launch(b, io.Discard, pythonOf(host), "-I", "-S", "-u", "-c", "import sys\nfor line in sys.stdin: print(eval(line))")
		b.Cleanup(func() { conn.Close() })
		r := bufio.NewReader(conn)
		for b.Loop() {
			if _, err := io.WriteString(conn, "1 + 1\n"); err != nil {
				b.Fatal(err)
			}
			if line, err := r.ReadString('\n'); line != "2\n" {
				b.Fatalf("%q, %v", line, err)
			}
		}
	})
	for _, language := range []executor.Language{executor.Python, executor.JavaScript} {
		b.Run(string(language), func(b *testing.B) {
			s := start(b, host, withNode)
			req := executor.Request{Language: language, Code: "1 + 1", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 20}}
			for b.Loop() {
				if _, err := s.Run(b.Context(), &req, func(executor.Event) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstByte is from the call to the first output of code that goes on.
func BenchmarkFirstByte(b *testing.B) {
	s := start(b, host)
	req := executor.Request{Language: executor.Python, Code: "print(1)\nfor i in range(100000): pass", Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 20}}
	var first time.Duration
	for b.Loop() {
		begin, got := time.Now(), false
		if _, err := s.Run(b.Context(), &req, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout && !got {
				got = true
				first += time.Since(begin)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(first.Nanoseconds())/float64(b.N), "ns/first-byte")
}

func BenchmarkWarmCommand(b *testing.B) {
	s := start(b, host)
	req := executor.Request{Command: []string{"true"}, Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 20}}
	for b.Loop() {
		if _, err := s.Run(b.Context(), &req, func(executor.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutput is how fast output of code arrives. Sub-benchmarks raw are a Python with a pipe
// instead of the runner.
func BenchmarkOutput(b *testing.B) {
	for name, code := range map[string]string{
		"write":    "import sys\nfor _ in range(1024): sys.stdout.write(s)",
		"lines":    "for _ in range(1048576 // 4): print('x' * 127)",
		"children": "import os; os.system('head -c 33554432 /dev/zero')",
		"binary":   "import sys\nfor _ in range(1024): sys.stdout.buffer.write(d)",
	} {
		b.Run(name+"/raw", func(b *testing.B) {
			for b.Loop() {
				_, conn := launch(b, io.Discard, pythonOf(host), "-I", "-c", "s, d = 'x' * 65536, b'x' * 65536\n"+code)
				n, err := io.Copy(io.Discard, conn)
				if err != nil || n == 0 {
					b.Fatal(n, err)
				}
				b.SetBytes(n)
				conn.Close()
			}
		})
		b.Run(name, func(b *testing.B) {
			s := start(b, host)
			s.code(b, "s, d = 'x' * 65536, b'x' * 65536")
			req := executor.Request{Language: executor.Python, Code: code, Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 40}}
			for b.Loop() {
				n := 0
				if _, err := s.Run(b.Context(), &req, func(ev executor.Event) error { n += len(ev.Data); return nil }); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(n))
			}
		})
	}
}

func BenchmarkFiles(b *testing.B) {
	s := start(b, host)
	name := filepath.Join(s.workdir, "file")
	data := strings.Repeat("x", 32<<20)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := s.Files().Write(b.Context(), name, strings.NewReader(data), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			r, err := s.Files().Read(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); n != int64(len(data)) || err != nil {
				b.Fatal(n, err)
			}
			r.Close()
		}
	})
}
