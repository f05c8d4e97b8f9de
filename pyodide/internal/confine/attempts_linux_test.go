//go:build linux && (amd64 || arm64)

package confine_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is something that code with full control over the process could try.
type attempt struct {
	name string
	try  func() error // nil: the attempt succeeded
	// The user for whom it succeeds without the layer: "" any user, "root" only root. Attempts that
	// always fail, because the machine refuses them anyway, would prove nothing and are not listed.
	who string
}

func raw(call uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.Syscall6(call, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return e
	}
	return nil
}

// refused returns errors that mean "not permitted at all" and treats all others as success, because
// the kernel has then looked at the arguments.
func refused(err error) error {
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

func dial(network, env string) func() error {
	return func() error {
		c, err := net.DialTimeout(network, os.Getenv(env), 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
}

func socket(domain, typ, proto int) func() error {
	return func() error {
		fd, err := unix.Socket(domain, typ, proto)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func write(path string) func() error {
	return func() error { return os.WriteFile(path, []byte("x"), 0o600) }
}

// attempts are the escapes, and questions, whose answers are in the text of the error.
var attempts = append(escapes, []attempt{
	{name: "limits", try: func() error {
		var l [4]unix.Rlimit
		for i, r := range []int{unix.RLIMIT_CORE, unix.RLIMIT_DATA, unix.RLIMIT_CPU, unix.RLIMIT_NOFILE} {
			if err := unix.Getrlimit(r, &l[i]); err != nil {
				return err
			}
		}
		return fmt.Errorf("core %d data %d cpu %d files %d", l[0].Cur, l[1].Cur, l[2].Cur, l[3].Max)
	}},
	{name: "user", try: func() error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil {
			return err
		}
		return fmt.Errorf("%d %d", unix.Getuid(), l.Max)
	}},
	{name: "environment", try: func() error { return errors.New(strings.Join(os.Environ(), " ")) }},
	{name: "wait", try: func() error {
		fmt.Println("here")
		_, err := os.Stdin.Read(make([]byte, 1)) // until the end
		return err
	}},
	{name: "descriptors", try: func() error {
		var open []string
		for fd := range 64 {
			var st unix.Stat_t
			// Descriptors that the Go runtime opens are marked close-on-exec; inherited ones are
			// not.
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 && unix.Fstat(fd, &st) == nil {
				open = append(open, fmt.Sprint(fd))
			}
		}
		return errors.New(strings.Join(open, " "))
	}},
}...)

var escapes = []attempt{
	// files
	{name: "read-passwd", try: func() error { _, err := os.ReadFile("/etc/passwd"); return err }},
	{name: "read-shadow", who: "root", try: func() error { _, err := os.ReadFile("/etc/shadow"); return err }},
	{name: "read-secret-of-test", try: func() error { _, err := os.ReadFile(os.Getenv("SECRET")); return err }},
	{name: "read-through-link", try: func() error { _, err := os.ReadFile(os.Getenv("LINK")); return err }},
	{name: "read-through-parent", try: func() error { _, err := os.ReadFile(os.Getenv("GIVEN") + "/../secret/secret"); return err }},
	{name: "see-host-root", try: func() error {
		if _, err := os.Stat("/usr/bin"); err != nil {
			return err
		}
		return nil
	}},
	{name: "write-given-directory", try: func() error { return os.WriteFile(os.Getenv("GIVEN")+"/new", nil, 0o600) }},
	{name: "write-given-file", try: func() error { return os.WriteFile(os.Getenv("GIVEN")+"/file", []byte("changed"), 0o600) }},
	{name: "write-tmp", try: write("/tmp/execbroker-confine-test")},
	{name: "write-dev-shm", try: write("/dev/shm/execbroker-confine-test")},
	{name: "remove-given-file", try: func() error { return os.Remove(os.Getenv("GIVEN") + "/gone") }},
	{name: "make-device", who: "root", try: func() error { return unix.Mknod(os.Getenv("GIVEN")+"/dev", unix.S_IFCHR|0o600, 1<<8|3) }},
	{name: "open-dev-mem-or-disk", who: "root", try: func() error { _, err := os.Open("/dev/kmsg"); return err }},
	{name: "open-by-handle", who: "root", try: func() error {
		return refused(raw(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(99), 0, 0))
	}},
	{name: "memory-file", try: func() error { _, err := unix.MemfdCreate("x", 0); return err }},
	{name: "chroot", who: "root", try: func() error { return unix.Chroot("/") }},
	{name: "mount", who: "root", try: func() error { return refused(unix.Mount("none", "/nowhere", "tmpfs", 0, "")) }},
	{name: "pivot-root", who: "root", try: func() error { return refused(unix.PivotRoot("/nowhere", "/nowhere")) }},
	{name: "open-tree", try: func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", 0); return err }},
	{name: "fs-context", who: "root", try: func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},

	// network: the listeners are the test's
	{name: "tcp-ipv4", try: dial("tcp4", "TCP4")},
	{name: "tcp-ipv6", try: dial("tcp6", "TCP6")},
	{name: "unix-socket-by-path", try: dial("unix", "UNIX")},
	{name: "unix-socket-abstract", try: dial("unix", "ABSTRACT")},
	{name: "udp-socket", try: socket(unix.AF_INET, unix.SOCK_DGRAM, 0)},
	{name: "raw-socket", who: "root", try: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{name: "packet-socket", who: "root", try: socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{name: "netlink-socket", try: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)},
	{name: "vsock-or-unix-socket", try: socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)},
	{name: "see-host-interfaces", try: func() error {
		ifs, err := net.Interfaces()
		if err == nil && len(ifs) == 0 {
			err = errors.New("none")
		}
		return err
	}},

	// processes
	{name: "run-shell", try: func() error { return exec.Command("/bin/sh", "-c", "true").Run() }},
	{name: "run-itself", try: func() error {
		c := exec.Command("/proc/self/exe", "-test.run=^$")
		c.Env = testEnv("none") // without the name of the attempt, otherwise it would recurse forever
		return c.Run()
	}},
	{name: "fork", try: func() error {
		if _, err := syscall.ForkExec("/no/such/program", nil, nil); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil // the new process was created, but did not find the program
	}},
	{name: "see-parent", try: func() error {
		if unix.Getppid() == 0 {
			return errors.New("no parent here")
		}
		return unix.Kill(unix.Getppid(), 0)
	}},
	{name: "signal-parent-of-host", try: func() error { return unix.Kill(pidOf("PARENT"), 0) }},
	{name: "trace-parent", who: "root", try: func() error {
		const seize = 0x4206 // attaching would stop the test
		return refusedOrGone(raw(unix.SYS_PTRACE, seize, uintptr(pidOf("PARENT")), 0, 0))
	}},
	{name: "read-parent-memory", who: "root", try: func() error {
		_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pidOf("PARENT")))
		return err
	}},
	{name: "process-vm-read", who: "root", try: func() error {
		b := make([]byte, 1)
		l := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(pidOf("PARENT"), l, []unix.RemoteIovec{{Base: 1, Len: 1}}, 0)
		return refusedOrGone(err)
	}},
	{name: "pidfd-of-parent", try: func() error { _, err := unix.PidfdOpen(pidOf("PARENT"), 0); return err }},
	{name: "list-processes", try: func() error { _, err := os.ReadDir("/proc/1/task"); return err }},
	{name: "priority", who: "root", try: func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) }},

	// privilege and kernel
	{name: "set-uid", who: "root", try: func() error { return raw(unix.SYS_SETUID, 0) }},
	{name: "user-namespace", try: func() error { return refused(raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_FS)) }},
	{name: "join-namespace", try: func() error { return refused(raw(unix.SYS_SETNS, ^uintptr(0), 0)) }},
	{name: "capability-in-bounding-set", try: func() error {
		for c := range 41 {
			if r, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && r == 1 {
				return nil
			}
		}
		return errors.New("empty")
	}},
	{name: "keyring", try: func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err }},
	{name: "bpf", who: "root", try: func() error { return refused(raw(unix.SYS_BPF, 0, 0, 0)) }},
	{name: "io-uring", try: func() error { return refused(raw(unix.SYS_IO_URING_SETUP, 0, 0)) }},
	{name: "userfaultfd", who: "root", try: func() error { return raw(unix.SYS_USERFAULTFD, 0) }},
	{name: "perf-events", who: "root", try: func() error {
		attr := unix.PerfEventAttr{Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
		_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
		return refused(err)
	}},
	{name: "shared-memory-segment", try: func() error { return raw(unix.SYS_SHMGET, 0, 4096, 0o1600) }},
	{name: "message-queue", try: func() error { return raw(unix.SYS_MSGGET, 0, 0o1600) }},
	{name: "host-name", who: "root", try: func() error { return unix.Sethostname([]byte(os.Getenv("HOST"))) }},
	{name: "personality", try: func() error { return raw(unix.SYS_PERSONALITY, 0xffffffff) }},
	{name: "kernel-log", who: "root", try: func() error { return raw(unix.SYS_SYSLOG, 10) }},
	{name: "swap-or-reboot", who: "root", try: func() error { return refused(raw(unix.SYS_SWAPOFF, 0)) }},
	{name: "clock", who: "root", try: func() error { return refused(raw(unix.SYS_CLOCK_SETTIME, ^uintptr(0), 0)) }},
	{name: "landlock-or-seccomp-listener", try: func() error {
		return refused(raw(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&[]uint32{unix.SECCOMP_RET_ALLOW}[0]))))
	}},
}

func refusedOrGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return err
	}
	return refused(err)
}

func pidOf(env string) int {
	var pid int
	fmt.Sscan(os.Getenv(env), &pid)
	return pid
}
