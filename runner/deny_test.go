package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestWithheldArtifact lets code hold a lease on a file that it leaves. That is the code's doing
// and no failure of the infrastructure, and the other files arrive.
func TestWithheldArtifact(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	r := s.do(t.Context(), executor.Request{
		Language: executor.Python, Artifacts: &executor.ArtifactRequest{Contents: true},
		Code: "import fcntl, os\nfor n in 'abc': open(n, 'w').write(n)\nfd = os.open('b', os.O_WRONLY)\nfcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
	})
	if r.err != nil || r.Reason != executor.ReasonCode || r.Code != -1 {
		t.Errorf("got %+v", r)
	}
	got := ""
	for _, a := range r.Artifacts {
		got += fmt.Sprintf("%s=%s ", a.Name, a.Data)
	}
	if got != "a=a b= c=c " {
		t.Errorf("got artifacts %s", got)
	}
	s.usable(t)
}

// TestDeepTree removes directories that lie deeper than a name can be long.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	r := s.do(t.Context(), executor.Request{
		Language: executor.Python, Artifacts: &executor.ArtifactRequest{},
		Code: `
import os
os.mkdir("deep")
os.chdir("deep")
for i in range(300):
    open("file", "w").close()
    os.mkdir("n" * 200)
    os.chdir("n" * 200)
    if i % 50 == 0: os.chmod("..", 0o500)
os.chdir("/")`,
	})
	if r.err != nil || r.Code != 0 {
		t.Fatalf("got %+v %+v", r, r.Exception)
	}
	if err := s.Files().Remove(t.Context(), filepath.Join(s.workdir, "deep")); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(s.workdir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	s.usable(t)
}

// TestSharedObjects leaves memory, semaphores and queues that belong to no process. They are there
// until a Reset ends all code.
func TestSharedObjects(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	objects := func() (found []string) {
		for _, kind := range []string{"shm", "msg", "sem"} {
			b, err := os.ReadFile("/proc/sysvipc/" + kind)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if strings.Contains(line, " "+strconv.Itoa(s.uid)+" ") {
					found = append(found, kind)
				}
			}
		}
		files, err := filepath.Glob("/dev/shm/*-" + strconv.Itoa(s.uid))
		if err != nil {
			t.Fatal(err)
		}
		return append(found, files...)
	}
	make := fmt.Sprintf(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)
open("/dev/shm/memory-%[1]d", "w").write("x")
os.makedirs("/dev/shm/directory-%[1]d/below")
min(made) >= 0`, s.uid)
	if r := s.code(t, make); r.err != nil || r.value() != "True" {
		t.Fatalf("got %+v %+v", r, r.Exception)
	}
	if r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: "other", Code: "1"}); r.err != nil {
		t.Fatal(r.err)
	}
	if err := s.Reset(t.Context(), executor.Interpreter{Context: "other"}); err != nil {
		t.Fatal(err)
	}
	if got := objects(); len(got) != 5 {
		t.Errorf("after the end of another interpreter: got %q", got)
	}
	if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	if got := objects(); len(got) != 0 {
		t.Errorf("after a reset: got %q", got)
	}
}

// freeze stops a process so that not even SIGKILL ends it, as a system call does that waits for a
// server which does not answer.
func freeze(t *testing.T, pid int) {
	t.Helper()
	const freezer = "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(freezer); err != nil {
		t.Skip("needs the freezer of control groups, version 1: with version 2 the frozen can be killed")
	}
	group := filepath.Join(freezer, fmt.Sprintf("execbroker-test-%d", pid))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(group, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	write("cgroup.procs", strconv.Itoa(pid))
	write("freezer.state", "FROZEN")
	t.Cleanup(func() {
		write("freezer.state", "THAWED")
		eventually(t, "the group is empty", func() bool { return os.Remove(group) == nil })
	})
}

// starve gives a process and its threads a processor for as many microseconds of each second. The
// kernel looks at each of its ticks, so that the process overdraws that, by seconds if it is
// little. Calling end gives it all of them again.
func starve(t testing.TB, pid, quota int) (end func()) {
	t.Helper()
	const groups = "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(groups + "/cpu.cfs_quota_us"); err != nil {
		t.Skip("needs control groups, version 1, with quotas of processors")
	}
	group := filepath.Join(groups, fmt.Sprintf("execbroker-test-%d", pid))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []struct{ name, text string }{{"cpu.cfs_period_us", "1000000"}, {"cpu.cfs_quota_us", strconv.Itoa(quota)}, {"cgroup.procs", strconv.Itoa(pid)}} {
		if err := os.WriteFile(filepath.Join(group, file.name), []byte(file.text), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		os.WriteFile(filepath.Join(groups, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644) // if it lives
		eventually(t, "the group is empty", func() bool { return os.Remove(group) == nil })
	})
	return func() {
		if err := os.WriteFile(filepath.Join(group, "cpu.cfs_quota_us"), []byte("-1"), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestStarved kills a process that gets no processor for some seconds: the sandbox waits for it,
// and lives on.
func TestStarved(t *testing.T) {
	t.Parallel()
	s := start(t, host, impatient, func(c *Config) { c.Languages = nil })
	h := (&backend{}).session(executor.SessionInfo{}, &buried{}, s.client, 0)
	out := &starter{then: func(pid int) { starve(t, pid, 1000) }}
	run := func(wall time.Duration, code string) (driver.Exit, error) {
		req := executor.Request{Language: executor.Python, Code: code, Limits: executor.RunLimits{WallTime: wall, OutputBytes: 1 << 20}}
		return h.Run(t.Context(), &req, out.emit)
	}
	var exit driver.Exit
	var err error
	for wall := 4 * time.Second; out.pids < 16 && wall < 2*time.Minute; wall *= 2 { // until all have begun: the machine is busy
		out.pids = 0
		exit, err = run(wall, "import os, time\nfor i in range(16):\n  pid = os.fork()\n  if pid == 0:\n    while True: pass\n  print(pid, flush=True)\n  time.sleep(0.02)\ntime.sleep(1000)")
	}
	if err != nil || exit.Reason != executor.ReasonWallTime || exit.FilesLost || out.pids != 16 {
		t.Errorf("got %+v, %v; %d processes starve", exit, err, out.pids)
	}
	if exit, err := run(2*time.Minute, "print('alive')"); err != nil || exit.Reason != "" {
		t.Errorf("the next run: got %+v, %v", exit, err)
	}
}

// starter calls then for each number of a process that code prints in a line of its own.
type starter struct {
	then func(pid int)
	pids int
}

func (s *starter) emit(ev executor.Event) error {
	for line := range strings.Lines(string(ev.Data)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); ev.Kind == executor.EventStdout && err == nil {
			s.then(pid)
			s.pids++
		}
	}
	return nil
}

// TestHeedsLate interrupts code that gets a processor too seldom to heed that at once. It keeps its
// state.
func TestHeedsLate(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) { c.Grace = 5 * time.Second })
	const wall = 3 * time.Second
	var feed *time.Timer
	out := &starter{then: func(pid int) {
		restore := starve(t, pid, 1000)
		feed = time.AfterFunc(wall+7*time.Second, restore) // it gets three times the grace if it has no processor
	}}
	req := executor.Request{
		Language: executor.Python, Code: "import os\nprint(os.getpid(), flush=True)\nwhile True: pass",
		Limits: executor.RunLimits{WallTime: wall, OutputBytes: 1 << 20},
	}
	exit, err := (&backend{}).session(executor.SessionInfo{}, &buried{}, s.client, 0).Run(t.Context(), &req, out.emit)
	if feed != nil {
		feed.Stop()
	}
	if err != nil || exit.Reason != executor.ReasonWallTime || exit.StateLost || out.pids != 1 {
		t.Errorf("got %+v, %v", exit, err)
	}
}

// buried is a sandbox that counts how often its sandbox is removed.
type buried struct {
	Sandbox
	removed int
}

func (b *buried) Remove(context.Context) error { b.removed++; return nil }

// TestStuck leaves a process that nothing ends. The result says that the sandbox has ended for it,
// and it has.
func TestStuck(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, h *session, stuck func(code string) result) result{
		"wall-time": func(t *testing.T, h *session, stuck func(string) result) result {
			return stuck("while True:\n  try: rest()\n  except BaseException: pass")
		},
		"heeded": func(t *testing.T, h *session, stuck func(string) result) result { return stuck("rest()") },
		"reset": func(t *testing.T, h *session, stuck func(string) result) result {
			if r := stuck(""); r.err != nil || r.Reason != "" {
				t.Errorf("got %+v", r)
			}
			return result{err: h.Reset(t.Context(), executor.Interpreter{})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, host, impatient, func(c *Config) { c.Languages = nil })
			if r := s.code(t, "1"); r.err != nil { // an interpreter starts
				t.Fatal(r.err)
			}
			frozen, at := false, &buried{}
			h := (&backend{}).session(executor.SessionInfo{}, at, s.client, 0)
			r := end(t, h, func(code string) result {
				in, out := io.Pipe()
				defer out.Close()
				req := executor.Request{
					Language: executor.Python, Limits: executor.RunLimits{WallTime: 4 * time.Second, OutputBytes: 1 << 20}, Stdin: in,
					Code: "import os, time\ndef rest(): time.sleep(1000)\npid = os.fork()\nif pid == 0: rest()\nprint(pid, flush=True)\ninput()\n" + code,
				}
				var r result
				r.Exit, r.err = h.Run(t.Context(), &req, func(ev executor.Event) error {
					if pid, err := strconv.Atoi(strings.TrimSpace(string(ev.Data))); ev.Kind == executor.EventStdout && err == nil {
						freeze(t, pid)
						frozen = true
						fmt.Fprintln(out)
					}
					return nil
				})
				return r
			})
			if !frozen {
				t.Fatalf("got %+v", r)
			}
			if name == "reset" && kindOf(r.err) != executor.ErrNotFound || name != "reset" && (r.err != nil || r.Reason != executor.ReasonSandbox || !r.FilesLost || !r.StateLost) {
				t.Errorf("got %+v", r)
			}
			if at.removed != 1 {
				t.Errorf("the provider was asked %d times to remove the sandbox", at.removed)
			}
			if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 3 {
				t.Errorf("the runner: %v", err)
			}
		})
	}
}
