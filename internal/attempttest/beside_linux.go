package attempttest

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// taking has code for each thing that a kernel counts by machine. It takes what it can get of that,
// which is at most a small part of what there is, and keeps it.
var taking = map[string]string{
	"compiled filters": `
for _ in range(200):
    s = socket.socket(socket.AF_UNIX)
    keep.append(s)
    attempt_to(lambda: s.setsockopt(socket.SOL_SOCKET, 26, program()))
for flags in (0, 1, 8):
    for _ in range(20): attempt_to(lambda: keep.append(system("seccomp", 1, flags, program())))
for _ in range(20): attempt_to(lambda: system("prctl", 22, 2, program(), 0, 0))`,
	"terminals":  `for _ in range(60): attempt_to(lambda: keep.append(os.openpty()))`,
	"huge pages": `for _ in range(20): attempt_to(lambda: keep.append(os.memfd_create("x", 4))); attempt_to(lambda: system("mmap", 0, 2 << 20, 3, 0x48022, -1, 0))`,
	"netlink": `
for _ in range(40):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    keep.append(s)
    for _ in range(4): attempt_to(lambda: s.send(struct.pack("IHHII", 100000, 0x7fff, 5, 1, 0) + bytes(100000 - 16)))`,
	"keys": `for n in range(100): attempt_to(lambda: system("add_key", b"user", b"execbroker-%d" % n, b"x", 1, -2))`,
	"queues": `
for _ in range(100):
    attempt_to(lambda: libc.msgget(0, 0o1600))
    attempt_to(lambda: libc.semget(0, 1, 0o1600))
    attempt_to(lambda: libc.shmget(0, 4096, 0o1600))`,
	"watches":    `for _ in range(200): attempt_to(lambda: keep.append(checked(libc.inotify_init1(0))) or libc.inotify_add_watch(keep[-1], b"/tmp", 2))`,
	"pipes":      `for _ in range(100): attempt_to(lambda: (keep.append(os.pipe()), fcntl.fcntl(keep[-1][1], 1031, 1 << 20)))`,
	"files":      `for _ in range(3000): attempt_to(lambda: keep.append(os.open("/dev/null", os.O_RDONLY)))`,
	"namespaces": `for _ in range(50): attempt_to(lambda: system("unshare", 0x10000000))`,
	"pressure":   `for _ in range(50): attempt_to(lambda: (keep.append(open("/proc/pressure/cpu", "r+b", 0)), keep[-1].write(b"some 500000 2000000\0")))`,
	"signals": `
for _ in range(200000):
    if libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())): break`,
	"entropy": `with open("/dev/random", "rb") as f: keep.append(len(f.read(16 << 20)))`,
	"flushes": `for _ in range(3): attempt_to(lambda: system("syncfs", os.open("/tmp", os.O_RDONLY)))`,
}

// held is the code around what takes: it says that it has taken, and keeps that until it is told to
// end.
const held = `
def attempt_to(do):
    try: do()
    except (OSError, ValueError): pass
def in_child(do, *args):
    try: pid = os.fork()
    except OSError: return None
    if pid == 0:
        try: do(*args)
        finally: os._exit(0)
    return pid
def wait_in_sockets(kind, more):
    def pages(): return [int(line.split()[-1]) for line in open("/proc/net/sockstat") if line.startswith(kind)][0]
    end = pages() + most - most // 20  # more takes some hundred
    try:
        while pages() < end: more()
    except OSError: pass
%s
print("held", flush=True)
sys.stdin.read()`

// Beside takes with one session all that it can get of what the kernel counts by machine, one thing
// after the other. Meanwhile another session is made, which has to run code, get a terminal and
// end.
func Beside(t *testing.T, x executor.Executor) {
	t.Helper()
	all := map[string]bounded{}
	for name, code := range taking {
		all[name] = bounded{taking: code}
	}
	take(t, x, all)
}

// take is Beside for some things.
func take(t *testing.T, x executor.Executor, all map[string]bounded) {
	t.Helper()
	s, err := x.Create(t.Context(), executor.Spec{Run: executor.RunLimits{WallTime: 5 * time.Minute}}) // on a busy machine
	must(t, err)
	defer s.Close()
	for name, b := range all {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			before, most := 0, 0
			if b.used != nil {
				before, most = b.most(t)
			}
			stdin, tell := io.Pipe()
			defer tell.Close()
			var r *executor.Result
			taken, done := make(chan struct{}), make(chan error, 1)
			go func() { // the test waits for it
				text := prelude + fmt.Sprintf("most = %d", most) + strings.Replace(held, "%s", b.taking, 1)
				var err error
				r, err = s.Run(t.Context(), executor.Request{Command: []string{"python3", "-I", "-S", "-c", text}, Stdin: stdin}, func(ev executor.Event) error {
					if strings.Contains(string(ev.Data), "held") {
						close(taken)
					}
					return nil
				})
				done <- err
			}()
			select {
			case <-taken:
			case err := <-done:
				if err != nil || b.used == nil || r.Reason != executor.ReasonMemory { // which is a limit of its own
					t.Fatalf("nothing is held: %+v, %v", r, err)
				}
				t.Log("its memory limit has ended it")
				done <- nil
			}
			if b.used != nil {
				b.stopped(t, before, most)
			}
			beside(t, x)
			tell.Close()
			must(t, <-done)
		})
	}
}

// asking is code that gets what the kernel counts by user or by machine: a watch, a big pipe,
// random bytes and a timer.
const asking = `import ctypes, fcntl, os
assert ctypes.CDLL(None, use_errno=True).inotify_init1(0) >= 0, os.strerror(ctypes.get_errno())
assert fcntl.fcntl(os.pipe()[1], 1031, 1 << 20) >= 1 << 20
assert len(os.getrandom(32, os.GRND_NONBLOCK)) == 32
assert ctypes.CDLL(None, use_errno=True).timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0, os.strerror(ctypes.get_errno())
print(6 * 7)`

// beside makes a session and uses it.
func beside(t *testing.T, x executor.Executor) {
	t.Helper()
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Errorf("another session is not made: %v", err)
		return
	}
	if r, err := s.Run(t.Context(), executor.Request{Code: asking}, nil); err != nil || r.Stdout.String() != "42\n" {
		t.Errorf("code in another session: got %+v, %v", r, err)
	}
	r, err := s.Run(t.Context(), executor.Request{Command: []string{"tty"}, Terminal: new(executor.Terminal)}, nil)
	if err != nil || !strings.HasPrefix(r.Stdout.String(), "/dev/pts/") {
		t.Errorf("a terminal in another session: got %+v, %v", r, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("the end of another session: %v", err)
	}
}
