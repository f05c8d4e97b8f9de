package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These tests run the real program with Pyodide, which is downloaded on first use.

func TestPyodideRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := write(t, dir, "data.csv", "a,b\n1,2\n")
	script := write(t, dir, "script.py", "import csv\nrows = list(csv.DictReader(open('data.csv')))\nprint(rows[0]['b'])\nopen('out.txt', 'w').write('made')\nrows")
	t.Cleanup(func() { // after all tests
		if got := read(t, filepath.Join(dir, "out", "out.txt")); got != "made" {
			t.Errorf("got %q", got)
		}
	})
	for name, c := range map[string]struct {
		args     []string
		in       string
		code     int
		out, err []string
	}{
		"value":     {args: []string{"-c", "print('渐')\n6*7"}, out: []string{"渐\n42\n"}},
		"script":    {args: []string{"--file", data, "--out", filepath.Join(dir, "out"), script}, out: []string{"2\n[{'a': '1', 'b': '2'}]\n"}, err: []string{"saved ", "out.txt (text/plain, 4 bytes)"}},
		"exception": {args: []string{"-c", "x = 1\n1/0"}, code: exitFailed, err: []string{`File "<cell 1>", line 2`, "ZeroDivisionError: division by zero"}},
		"exit":      {args: []string{"-c", "import sys; sys.exit(3)"}, code: exitFailed, err: []string{"exit code 3"}},
		"timeout":   {args: []string{"--timeout", "5s", "-c", "print('before')\nwhile True: pass"}, code: exitTimeout, out: []string{"before\n"}, err: []string{"the time limit"}},
		"input":     {args: []string{"-c", "print('hello ' + input())"}, in: "world\n", out: []string{"hello world\n"}},
		"network":   {args: []string{"-c", "import urllib.request as r\nr.urlopen('http://127.0.0.1:9')"}, code: exitFailed, err: []string{"Error"}},
		"refused":   {args: []string{"--language", "r", "-c", "1"}, code: exitUsage, err: []string{"language:r"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := installed(t, append([]string{"run"}, c.args...)...)
			p.Stdin = strings.NewReader(c.in)
			if got := p.code(t, p.Run()); got != c.code {
				t.Errorf("got exit code %d, want %d", got, c.code)
			}
			contains(t, p.out.String(), c.out...)
			contains(t, p.err.String(), c.err...)
		})
	}
}

// TestPyodideLeavesNothing ends the program in every possible way, and checks that its processes
// are gone.
func TestPyodideLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sigs []syscall.Signal
		code string
		want int
	}{
		"interrupt":      {[]syscall.Signal{syscall.SIGINT}, "print('ready', flush=True)\nwhile True: pass", 130},
		"interrupt-deaf": {[]syscall.Signal{syscall.SIGINT}, "print('ready', flush=True)\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass", 130},
		"twice":          {[]syscall.Signal{syscall.SIGINT, syscall.SIGINT}, "print('ready', flush=True)\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass", 130},
		"terminate":      {[]syscall.Signal{syscall.SIGTERM}, "print('ready', flush=True)\nimport time; time.sleep(3600)", 143},
		"hangup":         {[]syscall.Signal{syscall.SIGHUP}, "print('ready', flush=True)\nwhile True: pass", 129},
		"kill":           {[]syscall.Signal{syscall.SIGKILL}, "print('ready', flush=True)\nwhile True: pass", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := installed(t, "run", "--timeout", "0", "-c", c.code)
			r := start(t, p)
			had := descendants(t, p.Process.Pid)
			if len(had) == 0 {
				t.Fatal("the program has no process for the sandbox")
			}
			for _, sig := range c.sigs {
				if err := p.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			if code, _ := ended(t, p, r); code != c.want {
				t.Errorf("got exit code %d, want %d\n%s", code, c.want, p.err.String())
			}
			late := time.NewTimer(2 * time.Minute)
			defer late.Stop()
			look := time.NewTicker(10 * time.Millisecond)
			defer look.Stop()
			for left := had; len(left) > 0; {
				select {
				case <-late.C:
					t.Fatalf("still running: %v", left)
				case <-look.C:
					left = running(left)
				}
			}
		})
	}
}

// started identifies a process uniquely: a PID can be reused, but not with the same start time.
type started struct {
	pid   int
	start string
}

// descendants returns the processes below pid.
func descendants(t *testing.T, pid int) (all []started) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		var child int
		fmt.Sscanf(file, "/proc/%d/stat", &child)
		if s, parent, ok := stat(child); ok && parent == pid {
			all = append(append(all, s), descendants(t, child)...)
		}
	}
	return all
}

// running returns the processes that have not ended.
func running(ps []started) (left []started) {
	for _, p := range ps {
		if s, _, ok := stat(p.pid); ok && s == p {
			left = append(left, p)
		}
	}
	return left
}

// stat reads the kernel's information about a process. A zombie counts as gone.
func stat(pid int) (s started, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, found := bytes.Cut(data, []byte(") ")) // after the name, which may contain anything
	fields := strings.Fields(string(after))
	if err != nil || !found || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return s, 0, false
	}
	fmt.Sscan(fields[1], &parent)
	return started{pid, fields[19]}, parent, true
}

func TestPyodideRepl(t *testing.T) {
	p := installed(t, "repl")
	s := onTerminal(t, p)
	s.see("python", "Ctrl-D leaves", ">>> ")
	s.keys("def f(n):\r")
	s.see("... ")
	s.keys("\treturn 2*n\r")
	s.see("... ")
	s.keys("\r")
	s.see(">>> ")
	s.keys("f(21)\r")
	s.see("42\r\n", ">>> ")
	s.keys("input('name? ')\r")
	s.see("name? ')", "name? ")
	s.keys("me\r")
	s.see("'me'\r\n", ">>> ")
	s.keys("print('be' + 'gun') or sum(iter(lambda: 1, 0))\r")
	s.interrupts()
	s.see(">>> ")
	s.keys("f(4)\r")
	s.see("8\r\n", ">>> ")
	s.keys("%quit\r")
	s.ends(0)
}

// TestPyodideConformance runs a few cases through the program, one of them with a second process.
func TestPyodideConformance(t *testing.T) {
	t.Parallel()
	p := installed(t, "conformance", "--only", "python/stdin/*", "--only", "declares")
	if got := p.code(t, p.Run()); got != exitOK {
		t.Errorf("got exit code %d", got)
	}
	contains(t, p.out.String(), "pyodide", "passed")
}

func TestPyodideDoctorAndSetup(t *testing.T) {
	t.Parallel()
	p := installed(t, "setup")
	if got := p.code(t, p.Run()); got != exitOK || p.out.String() != "pyodide is set up\n" {
		t.Errorf("got exit code %d and %q: %s", got, p.out.String(), p.err.String())
	}
	p = installed(t, "doctor", "--backend", "pyodide")
	if got := p.code(t, p.Run()); got != exitOK {
		t.Errorf("got exit code %d", got)
	}
	contains(t, p.out.String(), "pyodide works\n")
}
