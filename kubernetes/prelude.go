package kubernetes

import (
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/internal/handover"
)

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// What the main process of a container writes is kept by the node, on its disk, and counts against
// the pod. So the runner is not spoken to over that process's own streams: see package handover.

// prelude is the program of the main process, before it becomes the runner. What it does needs
// rights that the runner gives up before there is code.
//
// It closes the file for termination messages, which everybody can write to without a bound. It
// takes every interface down but loopback, with the flags of each as the kernel tells them. It
// gives the writable directories their owners.
//
// With policies of the cluster it proves instead that they are in force: neither the API server nor
// the node nor another target may answer, not even with a refusal. Networks take a moment to learn
// of a new pod.
const prelude = `import array, errno, fcntl, os, select, socket, struct, sys, time
uid, network, rooms = int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1).split()
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
`

// exitReaches is the exit code of a prelude that the network lets through.
const exitReaches = 79 // in prelude, too

// nodeVariable has the address of the node, and targetsVariable the addresses of PolicyTargets.
const (
	nodeVariable    = "EXECBROKER_NODE"    // in prelude, too
	targetsVariable = "EXECBROKER_TARGETS" // likewise
)

// preludeCommand returns the command line of the main process of a container, with the directories
// that only root may write to.
func preludeCommand(uid int, network string, wait time.Duration, rooms, runner []string) []string {
	return handover.PreludeCommand(python, prelude, []string{strconv.Itoa(uid), network, strings.Join(rooms, " ")}, wait, runner)
}
