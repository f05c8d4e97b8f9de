package runner_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// watched makes every Python of a sandbox write down which of the runner's parts it compiles, and
// how many lines they have. Python itself says so, to a hook of its own that no program can remove.
const watched = `
def hook(event, args, write=os.write, open=os.open, flags=os.O_WRONLY | os.O_APPEND):
    if event == "compile" and type(args[0]) in (str, bytes) and str(args[1]).startswith("<execbroker "):
        write(open(%q, flags), b"%%d %%s\n" %% (len(args[0].splitlines()), args[1].encode()))
sys.addaudithook(hook)
`

// compiling is a transport whose sandboxes tell what they compile.
func compiling(t *testing.T) (l *local, lines func() int) {
	dir, err := os.MkdirTemp("/var/tmp", "") // the sandboxes cover /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := filepath.Join(dir, "log")
	if err := errors.Join(os.WriteFile(log, nil, 0o666), os.Chmod(log, 0o666), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	hook := strings.NewReplacer("%q", strconv.Quote(log), "%%", "%").Replace(watched)
	l = &local{base: "this machine"}
	l.argv = func(command []string) []string {
		command = append([]string{"unshare", "--mount", "sh", "-ec", mounts, "sh"}, command...)
		for i, arg := range command {
			if strings.Contains(arg, "import _frozen_importlib_external") {
				command[i] = strings.Replace(arg, "def take(", hook+"def take(", 1)
			}
		}
		return command
	}
	return l, func() (n int) {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(\d+) `).FindAllSubmatch(data, -1) {
			k, _ := strconv.Atoi(string(m[1]))
			n += k
		}
		return n
	}
}

// use makes use of all that a sandbox may load.
func use(t *testing.T, s executor.Session) {
	t.Helper()
	if err := s.Files().Write(t.Context(), "a", strings.NewReader("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	const code = "%time n = 6\nprint(n * 7)\n1 / 0"
	res, err := s.Run(t.Context(), executor.Request{Code: code, Artifacts: &executor.ArtifactRequest{}}, nil)
	if err != nil || !strings.Contains(string(res.Stdout), "42") || res.Exception == nil || !strings.Contains(res.Exception.Traceback, "line 3") {
		t.Fatalf("got %+v, %v", res, err)
	}
	if strings.Contains(res.Exception.Traceback, "execbroker") {
		t.Errorf("got the traceback %s", res.Exception.Traceback)
	}
}

// TestCompiledOnce counts the lines that sandboxes compile: the first of its kind does for all.
func TestCompiledOnce(t *testing.T) {
	l, lines := compiling(t)
	x := open(t, l)
	before := 0
	for i, want := range []func(int) bool{func(n int) bool { return n > 3000 }, func(n int) bool { return n == 0 }, func(n int) bool { return n == 0 }} {
		s, err := x.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		use(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		now := lines()
		if !want(now - before) {
			t.Errorf("sandbox %d compiled %d lines", i+1, now-before)
		}
		before = now
	}
	l.base = "something else"
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if use(t, s); lines()-before < 3000 {
		t.Errorf("a sandbox of another kind compiled %d lines", lines()-before)
	}
}

// changed is a connection on which what is sent is changed.
type changed struct {
	io.ReadWriteCloser
	change func([]byte) []byte
}

func (c *changed) Write(p []byte) (int, error) {
	if _, err := c.ReadWriteCloser.Write(c.change(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestCompiledBadly sends what this version of Python cannot use: what another version has compiled
// is passed over, and what is broken is not used again.
func TestCompiledBadly(t *testing.T) {
	l, lines := compiling(t)
	var magic []byte
	size := 0
	argv := l.argv
	l.argv = func(command []string) []string {
		size, _ = strconv.Atoi(command[len(command)-1])
		return argv(command)
	}
	x := open(t, l)
	create := func() error {
		s, err := x.Create(t.Context(), spec)
		if err == nil {
			use(t, s)
			err = s.Close()
		}
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	replaced := func(to func(compiled []byte) []byte) {
		l.wire = func(conn io.ReadWriteCloser) io.ReadWriteCloser {
			first := true
			return &changed{conn, func(b []byte) []byte {
				if !first {
					return b
				}
				first = false
				magic = bytes.Clone(b[size+4 : size+8])
				return bytes.ReplaceAll(b, append(magic, 'x'), to(append(magic, 'x')))
			}}
		}
	}
	before := lines()
	replaced(func([]byte) []byte { return []byte("nonex") })
	if err := create(); err != nil || lines()-before < 3000 {
		t.Errorf("got %v with the work of another version, and %d lines compiled", err, lines()-before)
	}
	replaced(func(b []byte) []byte { return append(b[:4:4], 'y') })
	if err := create(); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v with what is broken", err)
	}
	l.wire = nil
	before = lines()
	if err := create(); err != nil || lines()-before < 3000 {
		t.Errorf("got %v after that, and %d lines compiled", err, lines()-before)
	}
}
