package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// usable fails the test if the sandbox does not work as before.
func (s *sandbox) usable(t *testing.T) {
	t.Helper()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatalf("the supervisor: %v\n%s", err, s.stderr)
	}
	if r := s.code(t, "print('hello'); 6 * 7"); r.err != nil || r.stdout != "hello\n" || r.value() != "42" {
		t.Errorf("a later run: got %+v", r)
	}
	if r := s.sh(t, "echo hello"); r.err != nil || r.stdout != "hello\n" {
		t.Errorf("a later command: got %+v", r)
	}
	name := filepath.Join(s.workdir, "usable")
	if err := s.Files().Write(t.Context(), name, strings.NewReader("x"), 0o644); err != nil {
		t.Errorf("files: %v", err)
	}
}

// TestRights tries what user code must not be able to do to the supervisor and its helper. Each
// attempt has to fail in its own words.
func TestRights(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, func(c *Config) { c.Rlimits = map[string]int64{"nofile": 1000} })
		helper := s.helper(t)
		secret := filepath.Join(filepath.Dir(s.workdir), "root", "secret")
		if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		env := fmt.Sprintf("S, H, SECRET, SOCKET = %d, %d, %q, %q\nimport os, ctypes, socket, signal\nlibc = ctypes.CDLL(None, use_errno=True)\ndef sys(r):\n    if r == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n    return r\n",
			s.cmd.Process.Pid, helper, secret, s.socket)
		for _, c := range []struct{ name, code, want string }{
			{"kill-supervisor", "os.kill(S, 9)", "PermissionError"},
			{"kill-helper", "os.kill(H, 9)", "PermissionError"},
			{"stop-supervisor", "os.kill(S, signal.SIGSTOP)", "PermissionError"},
			{"kill-group", "os.killpg(S, 9)", "PermissionError|ProcessLookupError"},
			{"supervisor-stdout", "open('/proc/%d/fd/1' % S, 'wb')", "PermissionError"},
			{"supervisor-fds", "os.listdir('/proc/%d/fd' % S)", "PermissionError"},
			{"helper-fds", "os.listdir('/proc/%d/fd' % H)", "PermissionError"},
			{"supervisor-memory", "open('/proc/%d/mem' % S, 'rb')", "PermissionError"},
			{"helper-memory", "open('/proc/%d/mem' % H, 'rb')", "PermissionError"},
			{"supervisor-environ", "open('/proc/%d/environ' % S, 'rb').read()", "PermissionError"},
			{"supervisor-root", "os.listdir('/proc/%d/root/' % S)", "PermissionError"},
			{"trace-supervisor", "sys(libc.ptrace(16, S, 0, 0))", "PermissionError"},
			{"trace-helper", "sys(libc.ptrace(16, H, 0, 0))", "PermissionError"},
			{"priority-supervisor", "os.setpriority(os.PRIO_PROCESS, S, 19)", "PermissionError"},
			{"limits-supervisor", "import resource; resource.prlimit(S, resource.RLIMIT_NOFILE, (0, 0))", "PermissionError"},
			{"oom-score-supervisor", "open('/proc/%d/oom_score_adj' % S, 'w')", "PermissionError"},
			{"pidfd-getfd", "fd = os.pidfd_open(S); sys(libc.syscall(438, fd, 1, 0))", "PermissionError"},
			{"process-vm-read", "import ctypes as c\nb = c.create_string_buffer(8)\nclass V(c.Structure): _fields_ = [('p', c.c_void_p), ('n', c.c_size_t)]\nl, r = V(c.cast(b, c.c_void_p), 8), V(4096, 8)\nsys(libc.process_vm_readv(S, c.byref(l), 1, c.byref(r), 1, 0))", "PermissionError"},
			{"setuid", "os.setuid(0)", "PermissionError"},
			{"setgid", "os.setgid(0)", "PermissionError"},
			{"setgroups", "os.setgroups([0])", "PermissionError"},
			{"chroot", "os.chroot('/')", "PermissionError"},
			{"chown", "open('f', 'w'); os.chown('f', 0, 0)", "PermissionError"},
			{"mknod", "os.mknod('dev', 0o60666, os.makedev(8, 0))", "PermissionError"},
			{"mount", "sys(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))", "PermissionError"},
			{"raise-limit", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))", "ValueError|PermissionError"},
			{"secret", "open(SECRET)", "PermissionError"},
			{"socket", "s = socket.socket(socket.AF_UNIX); s.connect(SOCKET)", "PermissionError"},
			{"shadow", "open('/etc/shadow')", "PermissionError"},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := s.code(t, env+c.code)
				if r.err != nil || r.Exception == nil || !strings.Contains("|"+c.want+"|", "|"+r.Exception.Type+"|") {
					t.Errorf("got %+v, exception %+v; want %s", r, r.Exception, c.want)
				}
			})
		}
		for _, c := range []struct{ name, code, want string }{
			{"user", "import os; os.getresuid() + os.getresgid()", strings.ReplaceAll("(u, u, u, u, u, u)", "u", strconv.Itoa(s.uid))},
			{"groups", "import os; [40000 <= g < 60000 for g in os.getgroups()]", "[True]"},
			{"capabilities", "{l.split()[1] for l in open('/proc/self/status') if l[:6] in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb')}", "{'0000000000000000'}"},
			{"no-new-privileges", "[l.split()[1] for l in open('/proc/self/status') if 'NoNew' in l]", "['1']"},
			{"io-uring", "import ctypes; l = ctypes.CDLL(None, use_errno=True); [(l.syscall(n, -1, 0, 0, 0, 0, 0), ctypes.get_errno()) for n in (425, 426, 427)]", "[(-1, 38), (-1, 38), (-1, 38)]"},
			{"sockets", sockets + "made(range(64), 3, 0)", "[1, 2, 10, 16]"},
			{"socket-pairs", sockets + "made(range(64), 1, 0, socket.socketpair)", "[1]"},
			{"netlink", sockets + "[p for p in range(32) if 16 in made([16], 3, p)]", "[0]"},
			{"upper-half", sockets + "l = ctypes.CDLL(None, use_errno=True); [l.syscall(SOCKET, ctypes.c_long(40 | 1 << 32), ctypes.c_long(1), 0), ctypes.get_errno()]", "[-1, 97]"},
			{"other-calls", sockets + "l = ctypes.CDLL(None, use_errno=True); [l.syscall(ctypes.c_long(0x40000000 | SOCKET), 40, 1, 0), ctypes.get_errno()]", "[-1, 38]"},
			{"descriptors", "import os; [f for f in range(3, 256) if os.path.exists('/proc/self/fd/%d' % f) and os.get_inheritable(f)]", "[]"},
			{"descriptors-of-child", "import subprocess; subprocess.run(['ls', '/proc/self/fd'], stdout=-1, close_fds=False).stdout", "b'0\\n1\\n2\\n3\\n'"},
			{"oom-score", "int(open('/proc/self/oom_score_adj').read())", "500"},
			{"umask", "import os; os.umask(0o22)", "18"},
			{"session", "import os; os.getsid(0) == os.getpid() == os.getpgrp()", "True"},
			{"signals", "import signal, subprocess; subprocess.run(['sh', '-c', 'grep SigIgn /proc/self/status']).returncode", "0"},
		} {
			t.Run(c.name, func(t *testing.T) {
				if r := s.code(t, c.code); r.err != nil || r.value() != c.want {
					t.Errorf("got %q %+v, want %s", r.value(), r.Exception, c.want)
				}
			})
		}
		// The supervisor itself has given up what it does not need.
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"CapPrm:\t00000000000000e0\n", "CapEff:\t00000000000000e0\n", "CapInh:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("the supervisor: no %q in\n%s", want, status)
			}
		}
		s.usable(t)
	})
}

// sockets tells which families of sockets can be made.
const sockets = `
import ctypes, platform, socket
SOCKET = {"x86_64": 41, "aarch64": 198, "riscv64": 198}[platform.machine()]
def made(families, kind, protocol, make=socket.socket):
    found = []
    for f in families:
        try: make(f, 2 if f in (2, 10) and make is socket.socket else kind, protocol); found.append(int(f))
        except OSError: pass
    return found
`

// helper returns the process that works on files, and starts it before if it does not run.
func (s *sandbox) helper(t *testing.T) int {
	t.Helper()
	s.Files().Stat(t.Context(), "/")
	for _, pid := range children(t, s.cmd.Process.Pid) {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); strings.Contains(string(status), fmt.Sprintf("Uid:\t0\t%d\t0\t", s.uid)) {
			return pid
		}
	}
	t.Fatal("no helper found")
	return 0
}

// children lists the child processes of one.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for f := range strings.FieldsSeq(string(b)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, n)
	}
	return found
}

// TestForgedFrames lets user code speak for its interpreter. It can lie about itself, and no more.
func TestForgedFrames(t *testing.T) {
	t.Parallel()
	const helpers = `
import os, struct
def value(v):
    if v is None: return b"n"
    if v is True: return b"t"
    if isinstance(v, int): return b"i" + struct.pack(">q", v)
    if isinstance(v, bytes): return b"s" + struct.pack(">I", len(v)) + v
    if isinstance(v, dict): return b"m" + struct.pack(">I", len(v)) + b"".join(value(k) + value(x) for k, x in v.items())
def send(kind, payload, flags=0, channel=0, stream=1):
    os.write(3, struct.pack(">BBHII", kind, flags, channel, stream, len(payload)) + payload)
`
	s := start(t, host)
	for _, c := range []struct {
		name, code string
		check      func(r result) bool
	}{
		{"garbage", "os.write(3, b'x' * 1000)\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" && r.StateLost }},
		{"long-frame", "os.write(3, struct.pack('>BBHII', 10, 0, 0, 1, 1 << 31))\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" && r.StateLost }},
		{"second-start", "send(9, value({}))\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" }},
		{"hello", "send(1, value({}), stream=0)\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" }},
		{"fail", "send(12, value({b'kind': b'busy'}))\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" }},
		{"done-not-a-value", "send(11, b'zz')\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" }},
		{"done-wrong-types", "send(11, value({b'exit': b'x'}))\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" }},
		{"done-with-reason", "send(11, value({b'exit': 7, b'reason': b'memory', b'signal': b'SIGX', b'lost': True}))\nimport time; time.sleep(1000)",
			func(r result) bool { return r.Code == 7 && r.Reason == "" && r.Signal == "" && !r.StateLost }},
		{"busy-after-done", "x = 1", func(r result) bool { return r.err == nil && r.Code == 0 && r.StateFresh }},
		{"close-control", "os.close(3)\nimport time; time.sleep(1000)", func(r result) bool { return r.Reason == "code" && r.StateLost }},
		{"endless-value", "while True: send(10, b'x' * 100000, flags=1)", func(r result) bool { return r.Reason == "output" }},
		{"half-a-frame", "os.write(3, b'\\x0a\\x00')\nos._exit(0)", func(r result) bool { return r.Code == 0 && r.StateLost }},
		{"not-a-bundle", "send(10, b'zzz')", func(r result) bool { return r.err == nil && r.Reason == "code" && r.Code == -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: helpers + c.code, Limits: executor.RunLimits{OutputBytes: 1 << 20}})
			if !c.check(r) {
				t.Errorf("got %+v", r)
			}
		})
		if c.name != "done-with-reason" { // there the code still runs
			s.usable(t)
		}
	}
}

// TestFloods runs what eats processes, descriptors, memory of pipes and time.
func TestFloods(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) {
		c.Grace = 2 * time.Second
		c.Rlimits = map[string]int64{"nproc": 150, "nofile": 256, "core": 0, "fsize": 10 << 20}
	})
	heeding := start(t, host) // code that heeds an interrupt has more time for it on a busy machine
	before := s.sh(t, "echo x")
	if before.Code != 0 {
		t.Fatalf("got %+v", before)
	}
	for _, c := range []struct {
		name, code string
		check      func(r result) bool
		ends       bool // by itself, however slow the machine is
	}{
		{"fork-bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", func(r result) bool { return r.Reason == "wall-time" }, false},
		{"fork-bomb-in-sessions", "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass", func(r result) bool { return r.Reason == "wall-time" }, false},
		{"fork-bomb-that-wakes", "import os, signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True:\n  try: os.fork()\n  except OSError: pass\n  try: os.kill(-1, signal.SIGCONT)\n  except OSError: pass", func(r result) bool { return r.Reason == "wall-time" && r.StateLost }, false},
		{"orphans", "import os\nfor _ in range(100):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n      import time; time.sleep(1000)\n    os._exit(0)\n  os.wait()", func(r result) bool { return r.Code == 0 }, true},
		{"descriptors", "fs = []\nwhile True: fs.append(open('/dev/null'))", func(r result) bool { return r.Exception != nil && r.Exception.Type == "OSError" }, true},
		{"threads", "import threading, time\nts = []\nwhile True:\n  t = threading.Thread(target=time.sleep, args=(1000,), daemon=True); t.start(); ts.append(t)", func(r result) bool { return r.Exception != nil && r.Exception.Type == "RuntimeError" }, true},
		{"file-size", "open('big', 'wb').write(b'x' * (20 << 20))", func(r result) bool { return r.Code != 0 || r.Signal == "SIGXFSZ" }, true},
		{"recursion", "def f(): f()\nf()", func(r result) bool { return r.Exception != nil && r.Exception.Type == "RecursionError" }, true},
		{"exception-without-end", "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E", func(r result) bool { return r.Reason == "wall-time" }, false},
		{"repr-without-end", "class E:\n  def __repr__(self):\n    while True: pass\nE()", func(r result) bool { return r.Reason == "wall-time" && !r.StateLost }, false},
		{"kill-all", "import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)", func(r result) bool { return r.Signal == "SIGKILL" && r.StateLost }, true},
		{"stop-self", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", func(r result) bool { return r.Reason == "wall-time" && r.StateLost }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			wall := 2 * time.Second
			if c.ends {
				wall = 2 * time.Minute
			}
			s := s
			if strings.HasSuffix(c.name, "-without-end") {
				s = heeding
			}
			s.do(t.Context(), executor.Request{Language: executor.Python, Context: c.name, Code: "1"}) // an interpreter starts
			r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: c.name, Code: c.code, Limits: executor.RunLimits{WallTime: wall}})
			if r.err != nil || !c.check(r) {
				t.Errorf("got %+v, %+v", r, r.Exception)
			}
			if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
				t.Fatal(err)
			}
			s.usable(t)
			if ps := s.processes(t); len(ps) > 2 { // the interpreter of usable
				t.Errorf("%d processes are left: %.500q", len(ps), ps)
			}
		})
	}
}
