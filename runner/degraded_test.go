package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// startAs is start with the command line changed.
func startAs(t *testing.T, change func(argv []string) []string, edit ...func(*Config)) (*sandbox, error) {
	t.Helper()
	s, cfg := prepare(t, host)
	for _, f := range edit {
		f(&cfg)
	}
	cmd, conn := launch(t, s.stderr, change(command(s.python))...)
	c, err := setUp(t.Context(), conn, cfg)
	if err != nil {
		cmd.Wait()
		return s, err
	}
	s.client, s.cmd = c, cmd
	t.Cleanup(func() { c.Detach() })
	return s, nil
}

// before returns a change that makes a runner execute Python code before everything else.
func before(code string) func([]string) []string {
	return func(argv []string) []string {
		argv = slices.Clone(argv)
		i := slices.Index(argv, "-c") + 1
		argv[i] = code + "\n" + argv[i]
		return argv
	}
}

func TestOldPython(t *testing.T) {
	t.Parallel()
	s, err := startAs(t, before("import sys; sys.version_info = (3, 8, 1)"))
	if kindOf(err) != executor.ErrUnavailable || !strings.Contains(s.stderr.String(), "python3 is version 3.8 here, the runner needs 3.9 or later") {
		t.Errorf("got %v and %q", err, s.stderr)
	}
}

func TestWithoutCtypes(t *testing.T) {
	t.Parallel()
	noCtypes := before("import sys; sys.modules['_ctypes'] = None")
	for what, edit := range map[string]func(*Config){"neither": func(*Config) {}, "a false word": func(c *Config) { c.Filtered = true }} {
		if _, err := startAs(t, noCtypes, edit); kindOf(err) != executor.ErrUnsupported || !strings.Contains(err.Error(), "allow_weak") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	s, err := startAs(t, noCtypes, func(c *Config) { c.AllowWeak = true })
	if err != nil {
		t.Fatal(err)
	}
	d := strings.Join(s.Info().Degraded, "\n")
	for _, want := range []string{"no ctypes", "no-new-privileges is off", "more capabilities", "sockets of every family"} {
		if !strings.Contains(d, want) {
			t.Errorf("%q is missing in %q", want, d)
		}
	}
	s.code(t, "import os, subprocess\nsubprocess.Popen(['sleep', '22345'], start_new_session=True)")
	if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	s.gone(t, "sleep", "22345")
	r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: "while True: pass", Limits: executor.RunLimits{WallTime: 200 * time.Millisecond}})
	if r.Reason != executor.ReasonWallTime || r.StateLost {
		t.Errorf("got %+v", r)
	}
	s.usable(t)
}

func TestSameUser(t *testing.T) {
	t.Parallel()
	asNobody := func(argv []string) []string {
		return append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, argv...)
	}
	if _, err := startAs(t, asNobody); kindOf(err) != executor.ErrInvalid || !strings.Contains(err.Error(), "not root") {
		t.Errorf("without SameUser: got %v", err)
	}
	as := func(uid int) func(c *Config) {
		return func(c *Config) {
			c.SameUser, c.socket = true, ""
			for _, d := range []string{c.Workdir, c.Temp} {
				if err := os.Chown(d, uid, uid); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	s, err := startAs(t, asNobody, as(65534))
	if err != nil {
		t.Fatal(err)
	}
	if r := s.code(t, "import os; os.getresuid()"); r.value() != "(65534, 65534, 65534)" {
		t.Errorf("got %+v", r)
	}
	if r := s.sh(t, "exit 3"); r.Code != 3 {
		t.Errorf("got %+v", r)
	}
	s.usable(t)

	// Root as well, beside kernels of root whose files nobody else may read.
	root, err := startAs(t, func(argv []string) []string { return argv }, as(0))
	if err != nil {
		t.Fatal(err)
	}
	if r := root.sh(t, "umask 077 && echo secret > kept && stat -c %u:%a kept"); r.stdout != "0:600\n" {
		t.Errorf("got %+v", r)
	}
	if r := root.code(t, "open('kept').read()"); r.value() != `'secret\n'` {
		t.Errorf("got %+v", r)
	}
	root.usable(t)
}

// memoryGroup makes a control group with a limit of memory. It returns the group and where such
// groups are mounted.
func memoryGroup(t *testing.T, limit int) (group, mount string) {
	t.Helper()
	mount, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(mount); err != nil {
		mount, file = "/sys/fs/cgroup", "memory.max"
	}
	group = filepath.Join(mount, fmt.Sprintf("execbroker-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no control group for memory: %v", err)
	}
	t.Cleanup(func() { eventually(t, "the group is empty", func() bool { return os.Remove(group) == nil }) })
	if err := os.WriteFile(filepath.Join(group, file), []byte(fmt.Sprint(limit)), 0o644); err != nil {
		t.Skipf("no limit of memory: %v", err)
	}
	return group, mount
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	group, mount := memoryGroup(t, 100<<20)
	// In a container the group of the container is what is mounted.
	s, err := startAs(t, func(argv []string) []string {
		script := fmt.Sprintf("echo $$ > %s/cgroup.procs; mount --bind %s %s; exec \"$@\"", group, group, mount)
		return append([]string{"unshare", "-m", "sh", "-c", script, "sh"}, argv...)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	if d := s.Info().Degraded; len(d) > 0 {
		t.Skipf("this machine does not count: %q", d)
	}
	const eat = "x = []\nwhile True: x.append(b'x' * 1000000)"
	python := func(code string) executor.Request {
		return executor.Request{Command: []string{s.python, "-c", code}}
	}
	for _, c := range []struct {
		name string
		req  executor.Request
		want outcome
	}{
		{"code", executor.Request{Language: executor.Python, Code: eat}, outcome{code: -1, reason: executor.ReasonMemory, lost: true}},
		{"code-again", executor.Request{Language: executor.Python, Code: eat}, outcome{code: -1, reason: executor.ReasonMemory, lost: true}},
		{"command", python(eat), outcome{code: -1, reason: executor.ReasonMemory}},
		{"of-a-shell", executor.Request{Command: []string{"sh", "-c", s.python + " -c \"$0\"; exit $?", eat}, Limits: executor.RunLimits{}}, outcome{code: -1, reason: executor.ReasonMemory}},
		{"exit-137", executor.Request{Command: []string{"sh", "-c", "exit 137"}}, outcome{code: 137}},
		{"killed-itself", executor.Request{Command: []string{"sh", "-c", "kill -9 $$"}}, outcome{code: -1, reason: executor.ReasonSignal, signal: "SIGKILL"}},
		{"child-of-code", executor.Request{Language: executor.Python, Code: "import subprocess, sys\nsubprocess.run([sys.executable, '-c', " + fmt.Sprintf("%q", eat) + "]).returncode"}, outcome{value: "-9"}},
	} {
		r := s.do(t.Context(), c.req)
		if c.name == "of-a-shell" {
			r.stderr = "" // the shell says Killed
		}
		t.Run(c.name, func(t *testing.T) { r.want(t, c.want) })
	}
	s.usable(t)
}
