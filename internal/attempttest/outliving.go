package attempttest

// outlive is the code, after the prelude, of attempts to outlive a run. Each thread of a surviving
// process has a name by which it is found, and ignores every signal that it can ignore.
const outlive = `
def name(): libc.prctl(15, b"outlive", 0, 0, 0)

def deaf():
    name()
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

def rest():
    while True: time.sleep(1000)

def child(do, *args):
    """Calls do(ready, ...) in a process, and returns when that has called ready or has ended."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(r)
            deaf()
            do(lambda: os.write(w, b"x"), *args)
        finally:
            os._exit(1)
    os.close(w)
    if os.read(r, 1) == b"": say("it has ended")
    os.close(r)
    return pid

def stay(ready):
    ready()
    os.closerange(0, 4096)
    rest()

def raw_clone(flags):
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    return checked(libc.syscall(number, ctypes.c_long(flags), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0)))

def clone_of_libc(flags):
    """Starts a process that shares memory and does nothing but sleep. It is named before, as it cannot do that itself."""
    name()
    stack = ctypes.create_string_buffer(1 << 16)
    keep.append(stack)
    top = (ctypes.addressof(stack) + (1 << 16)) & ~15
    sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
    return checked(libc.clone(sleep, ctypes.c_void_p(top), flags, ctypes.c_void_p(100000)))

def leave():
    """Ends the first thread of the process, and only that one."""
    libc.syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[platform.machine()]), ctypes.c_long(0))

def headless(ready, threads=1):
    started = [threading.Event() for _ in range(threads)]
    def loop(e):
        name()
        e.set()
        rest()
    for e in started: threading.Thread(target=loop, args=(e,), daemon=True).start()
    for e in started: e.wait()
    ready()
    leave()

def dead(pid):
    """Waits until a process shows as dead."""
    while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(0.001)
`

// outlives returns an attempt to leave something running after the run. Its code ends with "ok"
// when that is running.
func outlives(name, code string) Attempt {
	return Attempt{Name: name, Code: outlive + code, Stopped: "gone"}
}

// outliving are ways to survive the end of a run.
var outliving = []Attempt{
	// Processes that are detached from the process that started them.
	outlives("child", `child(stay)`),
	outlives("session", `
def f(ready): os.setsid(); stay(ready)
child(f)`),
	outlives("process-group", `
def f(ready): os.setpgid(0, 0); stay(ready)
child(f)`),
	outlives("double-fork", `
def f(ready):
    os.setsid()
    child(stay)
    ready()
    os._exit(0)
os.waitpid(child(f), 0)`),
	outlives("generations", `
def f(ready, n):
    os.setsid()
    if n == 0: stay(ready)
    child(f, n - 1)
    ready()
    os._exit(0)
child(f, 12)`),
	outlives("below-a-subreaper", `
def f(ready):
    checked(libc.prctl(36, 1, 0, 0, 0))
    def g(ready):
        child(stay)
        ready()
        os._exit(0)
    child(g)
    stay(ready)
child(f)`),
	outlives("orphan-of-a-subreaper", `
def f(ready):
    checked(libc.prctl(36, 1, 0, 0, 0))
    def g(ready):
        child(stay)
        ready()
        os._exit(0)
    child(g)
    ready()
    os._exit(0)
child(f)`),
	outlives("other-program", `
def f(ready):
    ready()
    os.setsid()
    os.execv("/bin/sleep", ["outlive", "100000"])
pid = child(f)
while open("/proc/%d/cmdline" % pid).read()[:7] != "outlive": time.sleep(0.001)`),
	outlives("program-of-a-thread", `
def f(ready):
    t = threading.Thread(target=lambda: (ready(), os.execv("/bin/sleep", ["outlive", "100000"])))
    t.start()
    rest()
pid = child(f)
while open("/proc/%d/cmdline" % pid).read()[:7] != "outlive": time.sleep(0.001)`),
	outlives("other-name", `
def f(ready):
    libc.prctl(15, b"python3", 0, 0, 0)
    threading.Thread(target=lambda: (name(), rest()), daemon=True).start()
    stay(ready)
child(f)`),
	outlives("other-groups", `
def f(ready):
    for leave_groups in (lambda: os.setgroups([]), lambda: os.setgroups([40001]), lambda: os.setresgid(-1, 0, -1), lambda: os.initgroups("root", 0)):
        try: leave_groups()
        except OSError: pass
    stay(ready)
child(f)`),

	// A process that looks dead.
	outlives("dead-first-thread", `dead(child(headless))`),
	outlives("dead-first-thread-in-session", `
def f(ready): os.setsid(); headless(ready)
dead(child(f))`),
	outlives("dead-first-thread-of-orphan", `
def f(ready):
    child(headless)
    ready()
    os._exit(0)
child(f)`),
	outlives("dead-first-thread-many-threads", `dead(child(headless, 8))`),
	outlives("dead-first-threads", `
for _ in range(10): dead(child(headless))`),
	outlives("dead-first-thread-with-children", `
def f(ready):
    child(stay)
    child(headless)
    headless(ready)
dead(child(f))`),
	outlives("dead-first-thread-that-forks", `
def f(ready):
    def loop():
        name()
        ready()
        while True:
            if os.fork() == 0: os._exit(0)
            os.wait()
            time.sleep(0.001)
    threading.Thread(target=loop, daemon=True).start()
    leave()
dead(child(f))`),
	outlives("dead-main-process", `
def loop(): name(); rest()
child(headless)
threading.Thread(target=loop, daemon=True).start()
os.write(1, b"ok %d\n" % os.getpid())
leave()`),

	// A stopped process.
	outlives("stopped", `
def f(ready): ready(); os.kill(os.getpid(), signal.SIGSTOP); rest()
os.waitpid(child(f), os.WUNTRACED)`),
	outlives("stopped-group", `
def f(ready):
    os.setsid()
    def g(ready): ready(); os.kill(os.getpid(), signal.SIGSTOP); rest()
    for _ in range(3): child(g)
    ready()
    os.killpg(0, signal.SIGSTOP)
    rest()
child(f)`),
	outlives("traced", `
def f(ready):
    def g(ready): checked(libc.ptrace(0, 0, 0, 0)); ready(); os.kill(os.getpid(), signal.SIGSTOP); rest()
    os.waitpid(child(g), 0)
    stay(ready)
child(f)`),
	outlives("traced-and-dead-first-thread", `
def f(ready):
    pid = child(headless)
    dead(pid)
    for tid in os.listdir("/proc/%d/task" % pid): libc.ptrace(0x4206, int(tid), 0, 0x100000)  # PTRACE_SEIZE, PTRACE_O_EXITKILL not
    stay(ready)
child(f)`),
	outlives("traced-and-stopped-at-its-end", `
def f(ready):
    pid = child(stay)
    checked(libc.ptrace(0x4206, pid, 0, 0x40))  # PTRACE_SEIZE, PTRACE_O_TRACEEXIT
    stay(ready)
child(f)`),
	outlives("traced-by-a-sibling", `
pid = child(stay)
def f(ready):
    checked(libc.ptrace(16, pid, 0, 0))
    stay(ready)
child(f)`),
	outlives("waits-for-vfork", `
def f(ready):
    if raw_clone(0x4000 | 17) == 0:  # CLONE_VFORK: the parent waits without heeding signals but SIGKILL
        ready()
        os.kill(os.getpid(), signal.SIGSTOP)
        rest()
child(f)`),
	outlives("vfork-of-vfork", `
def f(ready, n=5):
    if n == 0: stay(ready)
    if raw_clone(0x4000 | 17) == 0: f(ready, n - 1)
child(f)`),
	outlives("blocked-in-write", `
def f(ready):
    r, w = os.pipe()
    ready()
    while True: os.write(w, bytes(1 << 16))
child(f)`),
	outlives("locks", `
def f(ready):
    fd = os.open("outlive.lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    def g(ready): other = os.open("outlive.lock", os.O_RDWR); ready(); fcntl.flock(other, fcntl.LOCK_EX); rest()
    child(g)
    stay(ready)
child(f)`),
	outlives("idle-class", `
def f(ready):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    ready()
    while True: pass
child(f)`),
	outlives("keeps-the-dead", `
def f(ready):
    for _ in range(8):
        if os.fork() == 0: os._exit(0)
    stay(ready)
child(f)`),

	// Processes that are created in unusual ways.
	outlives("clone-parent", `
def f(ready):
    if raw_clone(0x8000 | 17) == 0: stay(ready)
    rest()
child(f)
if raw_clone(0x8000 | 17) == 0:
    deaf()
    rest()`),
	outlives("clone-without-signal", `
def f(ready):
    if raw_clone(0) == 0: stay(ready)
    rest()
child(f)`),
	outlives("clone-with-other-signal", `
def f(ready):
    if raw_clone(64) == 0: stay(ready)
    os._exit(0)
child(f)`),
	outlives("clone-shared-memory", `clone_of_libc(0x100 | 17)`),
	outlives("clone-shared-all", `clone_of_libc(0x100 | 0x200 | 0x400 | 0x800 | 17)`),
	outlives("clone-shared-memory-without-signal", `clone_of_libc(0x100 | 0x8000)`),
	outlives("clone-shared-memory-and-dead-first-thread", `
def f(ready):
    clone_of_libc(0x100 | 0x200 | 0x400 | 0x800)
    headless(ready)
dead(child(f))`),

	// Processes that are not there at the moment of a check.
	outlives("chain", `
def f(ready):
    ready()
    while True:
        if os.fork(): os._exit(0)
child(f)`),
	outlives("chains-in-sessions", `
def f(ready):
    ready()
    while True:
        try:
            if os.fork(): os._exit(0)
            os.setsid()
        except OSError: pass
for _ in range(4): child(f)`),
	outlives("storm", `
def f(ready):
    ready()
    while True:
        try: os.fork()
        except OSError: pass
child(f)`),
	outlives("storm-that-wakes", `
def f(ready):
    ready()
    while True:
        try: os.fork()
        except OSError: pass
        try: os.kill(-1, signal.SIGCONT)
        except OSError: pass
child(f)`),
	outlives("revival", `
def f(ready):
    parent = os.getpid()
    if os.fork() == 0:
        while True:
            if os.getppid() != parent:
                parent = os.getpid()
                if os.fork() == 0: continue
                os.wait()
            time.sleep(0.0005)
    ready()
    while True:
        os.wait()
        if os.fork() == 0: rest()
child(f)`),
	outlives("kills-others", `
def f(ready):
    ready()
    while True:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) != os.getpid():
                try: os.kill(int(pid), signal.SIGSTOP)
                except OSError: pass
child(stay)
def g(ready): ready(); time.sleep(0.05); f(lambda: None)
child(g)`),
}

// Alive is a Python program that prints how many processes are left by attempts to outlive their
// run. It does not use the state of a process, which is only that of its first thread. It must run
// as root.
const Alive = `
import os
found = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        alive = False
        for task in os.listdir("/proc/%s/task" % pid):
            with open("/proc/%s/task/%s/stat" % (pid, task)) as f: name, state = f.read().split("(", 1)[1].rsplit(") ", 1)
            with open("/proc/%s/task/%s/cmdline" % (pid, task)) as f: argv = f.read()
            alive = alive or state[0] not in "ZX" and (name == "outlive" or argv.startswith("outlive"))
        found += alive
    except OSError: pass
print(found)`
