package kubernetes

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// What the main process of a container writes is kept by the node, on its disk, and counts against
// the pod. So the runner is not spoken to over that process's own streams. It begins as the
// prelude, which waits for an opener: a process that exec starts, whose streams are those of the
// connection. It takes them over, and becomes the runner. The opener stays for as long as the
// runner has its standard error, because a node ends the streams of an exec with its process.

// prelude is the program of the main process, before it becomes the runner. What it does needs
// rights that the runner gives up before there is code.
//
// It closes the file for termination messages, which everybody can write to without a bound. It
// takes every interface down but loopback, with the flags of each as the kernel tells them. It
// gives the writable directories their owners. Then it waits, and ends if nobody comes.
//
// With policies of the cluster it proves instead that they are in force: neither the API server nor
// the node nor another target may answer, not even with a refusal. Networks take a moment to learn
// of a new pod.
const prelude = `import array, errno, fcntl, os, select, socket, struct, sys, time
uid, network, wait, rooms, runner = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(), sys.argv[5:]
try:
    os.chmod("/dev/termination-log", 0o600)
except FileNotFoundError:
    pass
if network == "none":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _, name in socket.if_nameindex():
        if name != "lo":
            r = struct.pack("16sh14x", name.encode(), 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(s, 0x8913, r))[1]
            fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", name.encode(), flags & ~1))
            flags = struct.unpack("16sh14x", fcntl.ioctl(s, 0x8913, r))[1]
            if flags & 1:
                sys.exit("execbroker: interface %s stays up" % name)
    s.close()
targets = [(a.rpartition(":")[0].strip("[]"), a.rpartition(":")[2]) for a in os.environ.get("EXECBROKER_TARGETS", "").split()]
def reached():
    names, waits = [], select.poll()
    tries = {}
    for host, port in [(os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]), (os.environ["EXECBROKER_NODE"], 10250)] + targets:
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        s.setblocking(False)
        e = s.connect_ex((host, int(port)))
        if e in (0, errno.ECONNREFUSED):
            names.append(host)
        elif e == errno.EINPROGRESS:
            tries[s.fileno()] = host, s
            waits.register(s, select.POLLOUT)
    end = time.monotonic() + 1
    while tries and time.monotonic() < end:
        for fd, _ in waits.poll(max(0, end - time.monotonic()) * 1000):
            host, s = tries.pop(fd)
            waits.unregister(fd)
            if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                names.append(host)
    return names
if network == "policy":
    end = time.monotonic() + 10
    while True:
        names = reached()
        if not names:
            break
        if time.monotonic() > end:
            sys.stderr.write("execbroker: code would reach %s\n" % ", ".join(names))
            sys.exit(79)
        time.sleep(0.1)
for path, mode, owner in (("/workspace", 0o755, uid), ("/tmp", 0o1777, 0), ("/dev/shm", 0o1777, 0), ("/run/nscd", 0o755, 0)) + tuple((r, 0o755, 0) for r in rooms):
    os.chmod(path, mode)
    if owner:
        os.chown(path, owner, owner)
l = socket.socket(socket.AF_UNIX)
l.bind("\0execbroker-start")
l.listen(1)
l.settimeout(wait)
while True:
    try:
        c = l.accept()[0]
    except socket.timeout:
        sys.exit(0)
    c.settimeout(10)
    try:
        data, rights, _, _ = c.recvmsg(1, socket.CMSG_SPACE(8))
    except OSError:
        continue
    fds = array.array("i")
    for level, kind, b in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(b[:len(b) - len(b) % fds.itemsize])
    if data == b"x" and len(fds) == 2:
        break
    for fd in fds:
        os.close(fd)
l.close()
c.setblocking(True)
os.dup2(fds[0], 0)
os.dup2(fds[1], 1)
os.dup2(c.fileno(), 2)
os.write(1, b"+")
os.execvp(runner[0], runner)
`

// exitReaches is the exit code of a prelude that the network lets through.
const exitReaches = 79 // in prelude, too

// nodeVariable has the address of the node, and targetsVariable the addresses of PolicyTargets.
const (
	nodeVariable    = "EXECBROKER_NODE"    // in prelude, too
	targetsVariable = "EXECBROKER_TARGETS" // likewise
)

// opener is the program of the first exec. It hands its streams to the prelude, which may not be
// there yet or still tries what it reaches, and passes on what the runner writes to standard error.
const opener = `import array, os, socket, sys, time
end = time.monotonic() + 20
while True:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect("\0execbroker-start")
        break
    except OSError as e:
        s.close()
        if time.monotonic() > end:
            sys.exit("execbroker: the prelude does not listen: %s" % e.strerror)
        time.sleep(0.005)
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))])
os.closerange(0, 2)
while True:
    b = s.recv(4096)
    if not b:
        break
    os.write(2, b)
`

// announced is a program that becomes another one.
const announced = `import os, sys
os.write(1, b"+")
os.execvp(sys.argv[1], sys.argv[1:])
`

// ready is what the prelude writes when it has the streams, and what announced writes. Then nothing
// that is sent gets lost.
const ready = '+'

// preludeCommand returns the command line of the main process of a container, with the directories
// that only root may write to.
func preludeCommand(uid int, network string, wait time.Duration, rooms, runner []string) []string {
	args := []string{strconv.Itoa(uid), network, strconv.Itoa(int(wait.Seconds())), strings.Join(rooms, " ")}
	return slices.Concat([]string{python, "-I", "-S", "-c", prelude}, args, runner)
}

// openerCommand returns the command line of the first exec.
func openerCommand() []string { return []string{python, "-I", "-S", "-c", opener} }

// announcedCommand returns the command line of a further process that says when it is there.
func announcedCommand(command []string) []string {
	return append([]string{python, "-I", "-S", "-c", announced}, command...)
}

// nothingCommand returns the command line of a process that ends well at once: that it was started
// says that the container runs.
func nothingCommand() []string { return []string{python, "-I", "-S", "-c", ""} }
