package attempttest

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
)

// A bounded is a table of the kernel, or a disk, that is one for the whole machine. When it is full
// nobody gets anything of it.
type bounded struct {
	used, bound func(*testing.T) int
	taking      string // code like that of the table of this name; it may take the variable most
	// beyond is what docs/security/machine.md says where a sandbox gets that.
	beyond string
}

// number returns what finds a number in a file of the kernel. Where there is no such file, the
// kernel does not have the table.
func number(file, pattern string, base int) func(*testing.T) int {
	return func(t *testing.T) int {
		t.Helper()
		data, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			t.Skipf("this kernel has no %s", file)
		}
		must(t, err)
		found := regexp.MustCompile(pattern).FindSubmatch(data)
		if found == nil {
			t.Fatalf("%s: got %q, want %s", file, data, pattern)
		}
		n, err := strconv.ParseInt(string(found[1]), base, 64)
		must(t, err)
		return int(n)
	}
}

// set returns what reads the last number of a setting.
func set(name string) func(*testing.T) int { return number("/proc/sys/"+name, `(\d+)\n$`, 10) }

// most returns what is taken, and how much more may be: then it is a quarter of the bound. Until
// the test ends nobody else takes, as tests of several packages run at a time.
func (b bounded) most(t *testing.T) (before, most int) {
	t.Helper()
	lock, err := os.Open(os.TempDir())
	must(t, err)
	t.Cleanup(func() { lock.Close() })
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	before = b.used(t)
	if most = b.bound(t)/4 - before; most <= 0 {
		t.Skipf("the machine itself has taken %d of %d", before, b.bound(t))
	}
	return before, most
}

// stopped fails the test if code got as much as it may, and the page does not say that it can.
func (b bounded) stopped(t *testing.T, before, most int) {
	t.Helper()
	after := b.used(t)
	t.Logf("from %d to %d of %d", before, after, b.bound(t))
	if after-before < most/10*9 {
		return
	}
	page, err := os.ReadFile("../docs/security/machine.md")
	must(t, err)
	if b.beyond == "" || !strings.Contains(string(page), b.beyond) {
		t.Errorf("one sandbox got a quarter of the machine's bound, and docs/security/machine.md does not say so: %q", b.beyond)
	}
}

// Bounds is Beside for what would cut the machine off if it were full. Code takes a quarter of what
// the kernel or the disk has, unless its sandbox stops it before. dir is on the backend's disk.
func Bounds(t *testing.T, x executor.Executor, dir string) {
	t.Helper()
	free := func(t *testing.T) int {
		t.Helper()
		var f unix.Statfs_t
		must(t, unix.Statfs(dir, &f))
		return int(f.Bavail) * int(f.Bsize)
	}
	room := free(t) // of which a quarter may be taken: of the whole disk more may be taken already
	all := maps.Clone(counted)
	all["disk"] = bounded{
		used: func(t *testing.T) int { return room - free(t) }, bound: func(*testing.T) int { return room },
		taking: `
for place in "/workspace", "/tmp", "/dev/shm", "/var/tmp", "/":
    try:
        f = open(place + "/big", "xb", 0)
        keep.append(f)
        os.unlink(f.name)
        while most > 0: most -= f.write(bytes(1 << 20))
    except OSError: pass`,
	}
	take(t, x, all)
}

// manySockets is what the page says of memory of TCP and UDP.
const manySockets = "One sandbox can take a quarter of either, or more: as much as its memory limit"

// counted are the tables whose counter a kernel shows, by what is taken.
var counted = map[string]bounded{
	"processes": {
		used: number("/proc/loadavg", `/(\d+)`, 10),
		bound: func(t *testing.T) int {
			return min(set("kernel/pid_max")(t), set("kernel/threads-max")(t))
		},
		taking: `
for _ in range(most):
    if in_child(signal.pause) is None: break`,
	},
	"file-handles": {
		used: number("/proc/sys/fs/file-nr", `^(\d+)`, 10), bound: set("fs/file-max"),
		taking: `
def fill(w, n):
    taken = 0
    try:
        while taken < n:
            os.open("/dev/null", os.O_RDONLY)
            taken += 1
    except OSError: pass
    os.write(w, b"%d" % taken)
    signal.pause()
while most > 0:
    r, w = os.pipe()
    if in_child(fill, w, most) is None: break
    os.close(w)
    most -= int(os.read(r, 20) or most)
    os.close(r)`,
		beyond: "One sandbox can take a quarter of it, or more: 524288 are the default limits",
	},
	"tcp": {
		used: number("/proc/net/sockstat", `TCP:.* mem (\d+)`, 10), bound: set("net/ipv4/tcp_mem"),
		taking: `
l = socket.create_server(("127.0.0.1", 0))
def more():
    pair = socket.create_connection(l.getsockname()), l.accept()[0]
    keep.extend(pair)
    for s in pair:
        s.setblocking(False)
        attempt_to(lambda: [s.send(bytes(1 << 16)) for _ in range(8)])
wait_in_sockets("TCP:", more)`,
		beyond: manySockets,
	},
	"udp": {
		used: number("/proc/net/sockstat", `UDP:.* mem (\d+)`, 10), bound: set("net/ipv4/udp_mem"),
		taking: `
def more():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keep.append(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    s.bind(("127.0.0.1", 0))
    for _ in range(20): s.sendto(bytes(1 << 15), s.getsockname())
wait_in_sockets("UDP:", more)`,
		beyond: manySockets,
	},
	"neighbours": {
		used: number("/proc/net/stat/arp_cache", `\n(\w+)`, 16), bound: set("net/ipv4/neigh/default/gc_thresh3"),
		taking: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(most):
    for to in "127.0.%d.%d", "224.0.%d.%d", "10.0.%d.%d", "255.255.%d.%d": attempt_to(lambda: s.sendto(b"x", (to % divmod(n, 256), 9)))`,
	},
	"neighbours-of-ipv6": {
		used: number("/proc/net/stat/ndisc_cache", `\n(\w+)`, 16), bound: set("net/ipv6/neigh/default/gc_thresh3"),
		taking: `
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for n in range(most):
    for to in "::%x", "ff01::%x", "ff02::%x", "fe80::%x", "fd00::%x":
        for scope in range(3): attempt_to(lambda: s.sendto(b"x", (to % (n + 1), 9, 0, scope)))`,
	},
	"connections": {
		used: number("/proc/sys/net/netfilter/nf_conntrack_count", `^(\d+)`, 10), bound: set("net/netfilter/nf_conntrack_max"),
		taking: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(min(most, 1 << 16)): attempt_to(lambda: s.sendto(b"x", ("127.0.%d.1" % (n >> 14), 1024 + n % (1 << 14))))
own = "/proc/sys/net/netfilter/nf_conntrack_count"
assert not os.path.exists(own) or open(own).read() == "0\n", "connections are tracked"`,
	},
}
