package runner

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// sidecar starts a program of Python.
func (s *sandbox) sidecar(t *testing.T, code string) *Sidecar {
	t.Helper()
	p, err := s.StartSidecar(t.Context(), []string{s.python, "-I", "-S", "-c", code})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// line reads a line of what a program says.
func line(t *testing.T, p *Sidecar) string {
	t.Helper()
	var text []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(p, b); err != nil {
			t.Fatalf("after %q: %v: %s", text, err, p.Said())
		}
		if b[0] == '\n' {
			return string(text)
		}
		text = append(text, b[0])
	}
}

// A program beside user code is that of the supervisor: nothing of the session applies to it, and
// user code can do nothing to it.
func TestSidecar(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, func(c *Config) {
			c.Env = map[string]string{"GREETING": "hello"}
			c.MaxRun = executor.RunLimits{WallTime: 2 * time.Minute, OutputBytes: 64 << 20} // the program has none
			c.Rlimits = map[string]int64{"nofile": 64}
		})
		p := s.sidecar(t, `import os, resource, sys
print(os.getpid(), os.getresuid(), os.getcwd(), sorted(os.environ), resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64, sorted(map(int, os.listdir("/proc/self/fd")))[:3], flush=True)
n = 0
while b := sys.stdin.buffer.read1(1 << 16):
    sys.stdout.buffer.write(b)
sys.stdout.flush()`)
		pid, rest, _ := strings.Cut(line(t, p), " ")
		if want := "(0, 0, 0) / ['LANG', 'PATH'] True [0, 1, 2]"; rest != want {
			t.Errorf("got %s, want %s", rest, want)
		}
		r := s.code(t, fmt.Sprintf(`import os
for f in (lambda: os.kill(%[1]s, 9), lambda: os.listdir("/proc/%[1]s/fd"), lambda: open("/proc/%[1]s/mem", "rb").read(1), lambda: open("/proc/%[1]s/environ").read()):
    try: print("done", f())
    except OSError as e: print(e.strerror)`, pid))
		if strings.Count(r.stdout, "\n") != 4 {
			t.Errorf("got %q, %v", r.stdout, r.err)
		}
		for said := range strings.Lines(r.stdout) {
			if said = strings.TrimSpace(said); said != "Operation not permitted" && said != "Permission denied" {
				t.Errorf("user code could do something to it: %s", said)
			}
		}
		// More than both windows.
		sent := make([]byte, 5<<20)
		rand.Read(sent)
		wrote := make(chan error, 1)
		go func() { // waited for below
			_, err := p.Write(sent)
			wrote <- err
		}()
		got := make([]byte, len(sent)-1<<16) // the program keeps some until the end
		if _, err := io.ReadFull(p, got); err != nil || !bytes.Equal(got, sent[:len(got)]) {
			t.Errorf("got other bytes than it was sent, %v", err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "the program has ended", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return errors.Is(err, os.ErrNotExist)
		})
	})
}

// The end of such a program is told, and what it said before.
func TestSidecarEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		p := s.sidecar(t, `import sys; print("out"); sys.exit("x" * 5000 + "why")`)
		if out, err := io.ReadAll(p); string(out) != "out\n" || err == nil || !strings.Contains(err.Error(), "exit code 1") {
			t.Errorf("got %q, %v", out, err)
		}
		if said := p.Said(); len(said) > maxSaid || !strings.HasSuffix(said, "xwhy") {
			t.Errorf("got %q", said)
		}
		if _, err := p.Write(make([]byte, 3<<20)); err == nil {
			t.Error("what nobody reads was written")
		}
		p = s.sidecar(t, `print("out")`)
		if out, err := io.ReadAll(p); string(out) != "out\n" || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
		if p, err := s.StartSidecar(t.Context(), []string{"/no/such"}); err == nil {
			if _, err := io.ReadAll(p); err == nil || !strings.Contains(p.Said(), "No such file") {
				t.Errorf("got %v, %q", err, p.Said())
			}
			p.Close()
		}
		// When its holder goes it has nothing more to read.
		mark := "sidecar-" + strconv.Itoa(s.uid)
		p = s.sidecar(t, `import sys; print("on", flush=True); sys.stdin.read() # `+mark)
		line(t, p)
		if !runs(mark) {
			t.Error("it does not run")
		}
		s.Detach()
		if _, err := io.ReadAll(p); err == nil {
			t.Error("no error when the connection has ended")
		}
		eventually(t, "the program has ended", func() bool { return !runs(mark) })
	})
}

// runs reports whether there is a process with a word on its command line.
func runs(word string) bool {
	entries, _ := os.ReadDir("/proc")
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		return err == nil && bytes.Contains(b, []byte(word)) && bytes.Contains(b, []byte("-S\x00-c"))
	})
}
