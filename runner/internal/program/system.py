"""Processes and rights."""

import errno
import fcntl
import os
import resource
import struct
import sys
import time

# "signal" and "socket" import enum, which takes longer than everything else here, and "collections" and "ctypes" take as long as the
# rest. What they wrap is all that is needed.
import _signal
import _socket

FIONREAD = 0x541B
F_SETPIPE_SZ = 1031
NETLINK = 16
ATTACH_FILTER = 26


class Library:
    """The functions of the C library, by name. They take numbers, bytes and arrays of words, and return a number."""

    def __init__(self):
        import _ctypes

        number, self.word = (type("Number", (_ctypes._SimpleCData,), {"_type_": kind}) for kind in "iI")
        self.function = type("Function", (_ctypes.CFuncPtr,), {"_flags_": _ctypes.FUNCFLAG_CDECL, "_restype_": number})
        self.address, self._handle = _ctypes.addressof, _ctypes.dlopen(None, 0)

    def __getattr__(self, name):
        return self.function((name, self))


class System:
    """What the standard library reaches only through ctypes. Without it, each call does nothing and returns False."""

    NO_NEW_PRIVS, DUMPABLE, SUBREAPER, DEATHSIG, SECCOMP = 38, 4, 36, 1, 22  # of prctl
    KEEP = 1 << 5 | 1 << 6 | 1 << 7  # CAP_KILL, CAP_SETGID, CAP_SETUID

    def __init__(self):
        self.pid = os.getpid()
        try:
            self.libc = Library()
            self.libc.prctl, self.libc.capset
        except (ImportError, OSError, AttributeError):
            self.libc = None

    def prctl(self, option, value):
        return self.libc is not None and self.libc.prctl(option, value, 0, 0, 0) == 0

    def filter(self, program):
        """Narrows what this process and all that it starts may ask of the kernel, by a program for it. It needs no-new-privileges."""
        if self.libc is None or not program:
            return False
        words = (self.libc.word * (len(program) // 4)).from_buffer_copy(program)
        return self.libc.prctl(self.SECCOMP, 2, struct.pack("HP", len(program) // 8, self.libc.address(words)), 0, 0) == 0

    @staticmethod
    def filtered():
        """Reports whether there is a filter that narrows what code can do with sockets, whoever has installed it."""
        refused = errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES
        for make in (_socket.socket, _socket.socketpair):
            try:
                made = make(NETLINK, _socket.SOCK_RAW, 15)  # events of devices, which every kernel has
            except OSError as e:
                if e.errno not in refused:
                    return False
            else:
                for s in made if type(made) is tuple else (made,):
                    s.close()
                return False
        s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            s.setsockopt(_socket.SOL_SOCKET, ATTACH_FILTER, bytes(16))  # no program: the kernel would call it invalid
        except OSError as e:
            return e.errno in refused
        finally:
            s.close()
        return False

    def reduce(self):
        """Gives up the capabilities that a supervisor does not need, and with them all that its process could do to the machine."""
        if self.libc is None:
            return False
        head = (self.libc.word * 2)(0x20080522, 0)
        data = (self.libc.word * 6)()  # effective, permitted, inheritable; twice
        if self.libc.capget(head, data) != 0:
            return False
        data[0], data[1], data[2] = data[0] & self.KEEP, data[1] & self.KEEP, 0
        data[3] = data[4] = data[5] = 0
        return self.libc.capset(head, data) == 0


def status(pid):
    """Returns the fields of /proc/PID/status that are asked for here; an empty dict if the process is gone."""
    try:
        fd = os.open("/proc/%s/status" % pid, os.O_RDONLY)
    except OSError:
        return {}
    try:
        lines = os.read(fd, 4096).split(b"\n")
    except OSError:
        return {}
    finally:
        os.close(fd)
    found = {}
    for line in lines:
        k, _, v = line.partition(b":")
        if k in (b"State", b"Threads", b"PPid", b"Uid", b"Groups", b"NoNewPrivs", b"CapPrm"):
            found[k] = v.split()
    return found


def consumed(pids):
    """Returns the processor time of processes and of their children that have ended, in nanoseconds."""
    ticks = 0
    for pid in pids:
        try:
            fd = os.open("/proc/%d/stat" % pid, os.O_RDONLY)
        except OSError:
            continue
        try:
            ticks += sum(map(int, os.read(fd, 4096).rpartition(b")")[2].split()[11:15]))
        except OSError:
            pass  # it has just ended
        finally:
            os.close(fd)
    return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


class Table:
    """The processes as they were at one moment.

    A process is dead when it has no thread that lives. Its state does not say so: that is the state of its first thread, which may have
    ended alone. The dead are kept apart: one that has just died may have started another that the table lacks.
    """

    def __init__(self, only=None):
        self.rows, self.dead = {}, set()  # parent, user and groups of each, dead or alive; which of them are dead
        self.missed = False  # one was gone before it was looked at
        for name in os.listdir("/proc") if only is None else map(str, only):
            if name.isdigit():
                s = status(name)
                if b"PPid" not in s:
                    self.missed = True
                    continue  # its parent has taken note of its end, and is in the table or was itself found dead
                pid = int(name)
                self.rows[pid] = int(s[b"PPid"][0]), int(s[b"Uid"][0]), s.get(b"Groups", [])
                if s[b"State"][0] in (b"Z", b"X") and int(s.get(b"Threads", [b"1"])[0]) <= 1:
                    self.dead.add(pid)

    def alive(self, pids):
        return pids & self.rows.keys() - self.dead

    def below(self, roots):
        """Returns those of roots that are there, and all their descendants."""
        children = {}
        for pid, (parent, _, _) in self.rows.items():
            children.setdefault(parent, []).append(pid)
        found, todo = set(), list(roots)
        while todo:
            pid = todo.pop()
            if pid not in found:
                found.add(pid)
                todo += children.get(pid, ())
        return found & self.rows.keys()

    def marked(self, user, mark):
        """Returns the processes of a user that are in a group."""
        name = b"%d" % mark
        return {pid for pid, (_, uid, groups) in self.rows.items() if uid == user and name in groups}


def states(pid):
    """Returns the states of the threads of a process that live; none if it is ending."""
    found = set()
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, thread), "rb") as f:
                found.add(f.read().rpartition(b")")[2].split()[0])
    except (OSError, IndexError):
        return set()
    return found - {b"Z", b"X"}


def stuck(pids):
    """Reports whether one of the processes lives and waits for something else than a processor: SIGKILL does not end it."""
    return any(found and b"R" not in found for found in map(states, pids))


def worked(pid):
    """Returns for how many seconds a process has had a processor."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return sum(map(int, f.read().rpartition(b")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0


def ticks():
    """Returns the time in which the kernel says when a process was started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def started(pid):
    """Returns when a process was started, in ticks; 0 if it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def command_line(pid):
    """Returns the beginning of what a process was started with."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            line = f.read(200).replace(b"\0", b" ").strip().partition(b"\n")[0]
            return b"python" if b" -c import builtins, os, sys" in line else line  # one that the code has forked
    except OSError:
        return b""


def kill(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def kill_all(find):
    """Kills the processes that find finds in a table.

    They are stopped first, until no new one appears: what is killed makes room for another child of a fork bomb, what is stopped
    does not.
    """
    stopped = set()
    for _ in range(20):
        table = Table()
        new = table.alive(find(table)) - stopped
        if not new:
            break
        for pid in new:
            kill(pid, _signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        kill(pid, _signal.SIGKILL)


def signal_name(number):
    for name, value in vars(_signal).items():
        # Some have an old name as well.
        if name.startswith("SIG") and name[3] != "_" and value == number and name not in ("SIGIOT", "SIGCLD", "SIGPOLL"):
            return name
    return "SIG%d" % number


def close(*fds):
    for fd in fds:
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass


def pending(fd):
    """Returns how many bytes wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(fd, FIONREAD, b"\0\0\0\0"))[0]


def reopen(fd, flags=0):
    """Opens the pipe of a descriptor once more, with flags of its own."""
    try:
        return os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_CLOEXEC | flags)
    except OSError:
        return os.dup(fd)


def socketpair():
    a, b = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    return a.detach(), b.detach()


def send_fd(sock, data, fd):
    s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, sock)
    try:
        return s.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", fd))]) == len(data)
    except OSError:
        return False
    finally:
        s.detach()


def local(fd):
    """Returns the socket of a descriptor."""
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)


def receive_fds(s, size, count):
    """Returns what recv returns, and the descriptors that came with it."""
    data, extra, _, _ = s.recvmsg(size, _socket.CMSG_SPACE(4 * count), _socket.MSG_CMSG_CLOEXEC)
    fds = []
    for level, kind, content in extra:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += struct.unpack("%di" % (len(content) // 4), content[: len(content) // 4 * 4])
    return data, fds


def more_descriptors():
    """Lets this process open as many files as it may, and returns how many it could before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))
    return soft


class Memory:
    """Counts the processes that the kernel has killed because the memory of the sandbox ran out."""

    FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

    def __init__(self):
        for name in self.FILES:
            self.file = -1
            try:
                self.file = os.open(name, os.O_RDONLY)
                if b"\noom_kill " in os.pread(self.file, 4096, 0):
                    return
            except OSError:
                pass
            close(self.file)
        self.file = -1  # nobody counts

    def kills(self):
        try:
            return int(os.pread(self.file, 4096, 0).partition(b"\noom_kill ")[2].partition(b"\n")[0])
        except (OSError, ValueError):
            return 0


def only_fds(fds, keep=(), inherit=()):
    """Gives a forked process the descriptors of fds under their numbers, and closes all others but those in keep."""
    high = {n: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for n, fd in fds.items()}
    for n, fd in high.items():
        os.dup2(fd, n, n < 3 or n in inherit)
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        names = range(3, 4096)
    for fd in map(int, names):
        if fd not in fds and fd not in keep:
            close(fd)


def become_helper(config, system, control):
    """Turns a forked process into one that has the user's rights to files, and that the user cannot signal.

    What a process may open goes by its effective user, who may signal it by its real one. It executes nothing.
    """
    null = os.open("/dev/null", os.O_RDWR)
    only_fds({0: null, 1: null, 2: 2, 3: control})
    _signal.set_wakeup_fd(-1)
    if not config["same_user"]:
        os.setgroups([])
        os.setresgid(config["gid"], config["gid"], 0)
        os.setresuid(0, config["uid"], 0)
    system.prctl(system.DEATHSIG, _signal.SIGKILL)
    system.prctl(system.DUMPABLE, 0)
    os.umask(0o022)
    os.chdir("/")


def as_user(config, call, *args):
    """Calls call with the user's rights to files. Whom user code could signal is the real user, which stays."""
    if config["same_user"]:
        return call(*args)
    os.setresuid(-1, config["uid"], -1)
    try:
        return call(*args)
    finally:
        os.setresuid(-1, 0, -1)


def default_signals():
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_DFL)


def become_user(config, system, mark, fds, keep, cwd, inherit=()):
    """Turns a forked process into one of user code. It keeps no right and no descriptor but those given. It has to execute a program:
    until then its memory is a copy of the supervisor's, which user code must not read.

    mark is a group that only its descendants are in, and that none of them can leave. fds maps numbers to descriptors; those in
    inherit, and 0 to 2, stay open in programs that it executes.
    """
    os.setsid()
    only_fds(fds, keep, inherit)
    default_signals()
    try:
        with open("/proc/self/oom_score_adj", "wb", 0) as f:
            f.write(b"%d" % config["oom_score"])
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (config["nofile"], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for name, value in config["rlimits"].items():
        number = getattr(resource, "RLIMIT_" + name.upper())
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    os.nice(10)  # where there are hundreds of user code, the supervisor still gets its turn
    uid, gid = config["uid"], config["gid"]
    if config["same_user"]:
        system.prctl(system.SUBREAPER, 1)  # what it starts cannot be marked, but then it stays below it
    else:
        os.setgroups([mark])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        if os.getresuid() != (uid, uid, uid) or status("self")[b"CapPrm"][0].strip(b"0"):
            os._exit(126)
    # After the change of user, which would undo both.
    system.prctl(system.DEATHSIG, _signal.SIGKILL)
    if os.getppid() != system.pid:
        os._exit(137)  # the supervisor died before that
    os.umask(0o022)
    os.chdir(cwd)
