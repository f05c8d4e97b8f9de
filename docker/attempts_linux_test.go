package docker

// kernelAttempts use what the kernel offers to those who may.
var kernelAttempts = []attempt{
	// Namespaces and mounts.
	{"unshare-user", `system("unshare", 0x10000000)`, "EPERM", "seccomp", "ok"},
	{"clone-user", `os._exit(0) if system("clone", 0x10000000 | 17, 0, 0, 0, 0) == 0 else None`, "EPERM", "seccomp", "ok"},
	{"clone3", `system("clone3", 0, 0)`, "ENOSYS|EPERM", "seccomp", "EINVAL"},
	{"unshare-mount", `system("unshare", 0x20000)`, "EPERM", "capabilities", "ok"},
	{"unshare-network", `system("unshare", 0x40000000)`, "EPERM", "capabilities", "ok"},
	{"unshare-pid", `system("unshare", 0x20000000)`, "EPERM", "capabilities", "ok"},
	{"setns", `system("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)`, "EPERM", "capabilities", "ok"},
	{"mount-tmpfs", `mount(b"none", b"/tmp", b"tmpfs")`, "EPERM", "capabilities", "ok"},
	{"mount-proc", `mount(b"none", b"/tmp", b"proc")`, "EPERM", "capabilities", "ok"},
	{"mount-cgroup", `mount(b"none", b"/tmp", b"cgroup2")`, "EPERM", "capabilities", "ok"},
	{"remount-root", `mount(None, b"/", None, 32 | 4096)`, "EPERM", "capabilities", "ok"},
	{"bind-mount", `mount(b"/etc", b"/tmp", None, 4096)`, "EPERM", "capabilities", "ok"},
	{"umount-mask", `checked(libc.umount2(b"/proc/keys", 2))`, "EPERM", "capabilities", "ok"},
	{"pivot-root", `system("pivot_root", b"/none", b"/none")`, "EPERM", "seccomp and capabilities", "ENOENT"},
	{"fsopen", `system("fsopen", b"tmpfs", 0)`, "EPERM", "capabilities", "ok"},
	{"open-tree", `system("open_tree", -100, b"/tmp", 1)`, "EPERM", "capabilities", "ok"},
	{"mount-setattr", `system("mount_setattr", -100, b"/", 0, 0, 0)`, "EPERM|ENOSYS", "seccomp", "EINVAL"},
	{"chroot", `os.chroot("/tmp")`, "EPERM", "capabilities", "ok"},

	// Devices.
	{"mknod-kmsg", `os.mknod("/dev/kmsg-of-mine", 0o20666, os.makedev(1, 11)); open("/dev/kmsg-of-mine", "rb")`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-disk", `os.mknod("/dev/disk-of-mine", 0o60666, os.makedev(8, 0))`, "EACCES|EPERM", "devices", "ok"},
	{"dev-kmsg", `open("/dev/kmsg", "rb")`, "ENOENT", "devices", "ok"},
	{"dev-write", `open("/dev/x", "w")`, "EACCES", "uid", "ok"},
	{"push-terminal", `fcntl.ioctl(os.open("/dev/ptmx", os.O_RDWR), 0x5412, b"x")`, "EPERM|EIO", "capabilities", "ok"},

	// Other kernel interfaces.
	{"bpf", `system("bpf", 0, struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100), 72)`, "EPERM", "capabilities", "ok"},
	{"perf-event", `system("perf_event_open", struct.pack("IIQ", 1, 64, 0) + bytes(48), -1, 0, -1, 0)`, "EPERM", "capabilities", "ok"},
	{"userfaultfd", `system("userfaultfd", 1)`, "EPERM", "seccomp", "ok"},
	{"io-uring", `system("io_uring_setup", 4, ctypes.create_string_buffer(120))`, "ENOSYS", "seccomp", "ok|EPERM"},
	{"add-key", `system("add_key", b"user", b"execbroker", b"x", 1, -2)`, "EPERM", "seccomp", "ok"},
	{"request-key", `system("request_key", b"user", b"execbroker-none", None, 0)`, "EPERM", "seccomp", "ENOKEY"},
	{"session-keyring", `system("keyctl", 0, -3, 1)`, "EPERM", "seccomp", "ok"},
	{"kexec-load", `system("kexec_load", 0, 0, 0, 0xffff)`, "EPERM", "seccomp and capabilities", "EINVAL|ENOSYS"},
	{"init-module", `system("init_module", 0, 0, b"")`, "EPERM", "capabilities", "ENOEXEC|EFAULT|ENOSYS"},
	{"finit-module", `system("finit_module", -1, b"", 0)`, "EPERM", "capabilities", "EBADF|ENOSYS"},
	{"delete-module", `system("delete_module", b"execbroker_none", 0)`, "EPERM", "capabilities", "ENOENT|EWOULDBLOCK|ENOSYS"},
	{"reboot", `system("reboot", 0, 0, 0, 0)`, "EPERM", "capabilities", "EINVAL"},
	{"swapon", `system("swapon", b"/none", 0)`, "EPERM", "seccomp and capabilities", "ENOENT"},
	{"accounting", `system("acct", b"/none")`, "EPERM", "capabilities", "ENOENT|EROFS|EACCES"},
	{"quota", `system("quotactl", 0x80000200, b"/none", 0, 0)`, "EPERM", "capabilities", "ENOENT|ENOTBLK"},
	{"kernel-log", `system("syslog", 10, None, 0)`, "EPERM", "capabilities", "ok"},
	{"open-by-handle", `system("open_by_handle_at", -100, struct.pack("Ii", 8, 1) + bytes(8), 0)`, "EPERM", "capabilities", "ESTALE|EINVAL|EOPNOTSUPP"},
	{"fanotify", `system("fanotify_init", 4, 0)`, "EPERM", "capabilities", "ok"},
	{"change-clock", `system("adjtimex", struct.pack("I", 0x4000).ljust(88, b"\0") + struct.pack("q", 10**9) + bytes(200))`, "EPERM", "capabilities", "EINVAL"},
	{"set-clock", `system("settimeofday", None, struct.pack("ii", 100000, 0))`, "EPERM", "capabilities", "EINVAL"},
	{"host-name", `socket.sethostname("x")`, "EPERM", "capabilities", "ok"},
	{"priority", `os.setpriority(os.PRIO_PROCESS, 0, -10)`, "EPERM|EACCES", "capabilities", "ok"},
	{"disk-priority", `system("ioprio_set", 1, 0, 1 << 13)`, "EPERM", "capabilities", "ok"},
	{"personality", `system("personality", 0x0040000)`, "EPERM", "seccomp", "ok"},

	// The file systems of the kernel. What works is opening, and nothing is written.
	{"sysrq", `open("/proc/sysrq-trigger", "w")`, "EROFS|EACCES|ENOENT", "masks", "ok|ENOENT"},
	{"core-pattern", `open("/proc/sys/kernel/core_pattern", "w")`, "EROFS|EACCES", "masks", "ok"},
	{"modprobe-path", `os.open("/proc/sys/kernel/modprobe", os.O_WRONLY)`, "EROFS|EACCES|ENOENT", "masks", "ok|ENOENT"},
	{"kcore", `open("/proc/kcore", "rb").read(1) or say("empty")`, "EACCES|ENOENT|empty", "masks", "ok|EPERM|ENOENT"},
	{"proc-keys", `say(len(open("/proc/keys").read()) >= 0 and os.stat("/proc/keys").st_rdev == os.stat("/dev/null").st_rdev)`, "True", "masks", "False"},
	{"timer-list", `say(len(open("/proc/timer_list").read()) > 0)`, "False|EACCES", "masks", "True"},
	{"sys-uevent", `os.open("/sys/kernel/uevent_helper", os.O_WRONLY)`, "EROFS|EACCES|ENOENT", "masks", "ok|ENOENT"},
	{"sys-power", `os.open("/sys/kernel/mm/ksm/run", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"sys-firmware", `say(len(os.listdir("/sys/firmware")) > 0)`, "False|ENOENT", "masks", "True|ENOENT"},
	{"cgroup-limit", `os.open("/sys/fs/cgroup/pids/pids.max" if os.path.exists("/sys/fs/cgroup/pids") else "/sys/fs/cgroup/pids.max", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"cgroup-new", `os.mkdir("/sys/fs/cgroup/pids/x" if os.path.exists("/sys/fs/cgroup/pids") else "/sys/fs/cgroup/x")`, "EROFS|EACCES", "masks", "ok"},
}

// networkAttempts aim at listeners of the test, or send nothing.
var networkAttempts = []attempt{
	{"tcp4", `s = socket.create_connection(("127.0.0.1", TCP4), 5); say(s.recv(100).decode())`, "ECONNREFUSED", "network", "reached"},
	{"tcp6", `s = socket.create_connection(("::1", TCP6), 5); say(s.recv(100).decode())`, "ECONNREFUSED|EADDRNOTAVAIL|EAFNOSUPPORT", "network", "reached"},
	{"dns", `s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(("127.0.0.1", UDP4)); s.send(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\0\0\1\0\1"); s.recv(512)`, "ECONNREFUSED", "network", "ok"},
	{"abstract-socket", `s = socket.socket(socket.AF_UNIX); s.connect("\0" + ABSTRACT); say(s.recv(100).decode())`, "ECONNREFUSED", "network", "reached"},
	{"route", `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 53))`, "ENETUNREACH", "network", "ok"},
	{"metadata", `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("169.254.169.254", 80))`, "ENETUNREACH", "network", "ok"},
	{"interfaces", `say(len(socket.if_nameindex()) == 1)`, "True", "network", "False"},
	{"raw-socket", `socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)`, "EPERM", "capabilities", "ok"},
	{"raw-socket6", `socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)`, "EPERM|EAFNOSUPPORT", "capabilities", "ok"},
	{"packet-socket", `socket.socket(socket.AF_PACKET, socket.SOCK_RAW)`, "EAFNOSUPPORT", "capabilities", "ok"},
	{"netlink", `s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.send(struct.pack("IHHII", 32, 16, 5, 1, 0) + struct.pack("BBHiII", 0, 0, 0, 1, 1, 1)); e = -struct.unpack("i", s.recv(100)[16:20])[0]
if e: raise OSError(e, "")`, "EPERM", "capabilities", "ok"},
	{"interface-flags", `fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x49))`, "EPERM", "capabilities", "ok"},
	{"process-of-host", `say(find("/proc", bytes.fromhex(PROCESS)))`, "False", "pid-namespace", "True"},
	{"shared-memory-of-host", `system("shmget", SHM, 0, 0)`, "ENOENT", "ipc-namespace", "ok"},
	{"engine", `socket.socket(socket.AF_UNIX).connect("/run/docker.sock")`, "ENOENT", "no-mounts", "ok"},
}

// fileAttempts leave the directories of the code.
var fileAttempts = []attempt{
	{"write-root", `open("/x", "w")`, "EROFS|EACCES", "read-only", "ok"},
	{"write-etc", `open("/etc/passwd", "a")`, "EROFS|EACCES", "read-only", "ok"},
	{"replace-program", `os.rename("/usr/bin/python3", "/usr/bin/python4"); os.rename("/usr/bin/python4", "/usr/bin/python3")`, "EROFS|EACCES", "read-only", "ok"},
	{"dot-dot", `open("/workspace/../opt/x", "w")`, "EROFS|EACCES", "read-only", "ok"},
	{"symbolic-link", `os.path.lexists("/tmp/link") or os.symlink("/opt", "/tmp/link"); open("/tmp/link/x", "w")`, "EROFS|EACCES", "read-only", "ok"},
	{"through-supervisor", `open("/proc/1/root/x", "w")`, "EACCES", "capabilities", "ok|EROFS"},
	{"through-descriptor", `d = os.open("/", os.O_PATH); os.open("../../opt/y", os.O_CREAT | os.O_WRONLY, dir_fd=d)`, "EROFS|EACCES", "read-only", "ok"},
	{"read-shadow", `open("/etc/shadow").close()`, "EACCES", "rights", "ok"},
	{"set-uid-program", `say(subprocess.run(["/opt/become", "-I", "-S", "-c", "import os; print(os.geteuid() == 0)"], stdout=-1).stdout.decode().strip())`, "False", "no-new-privileges", "True"},
	{"file-capability", `say(subprocess.run(["/opt/capable", "-I", "-S", "-c", "print([l for l in open('/proc/self/status') if 'CapPrm' in l][0].split()[1] != '0' * 16)"], stdout=-1, stderr=-1).stdout.decode().strip())`, "False", "no-new-privileges", "True"},
	{"own-set-uid", `open("/tmp/s", "w"); os.chown("/tmp/s", 0, 0)`, "EPERM", "capabilities", "ok"},
	{"device-through-link", `os.path.lexists("/tmp/device") or os.symlink("/dev/kmsg", "/tmp/device"); open("/tmp/device", "rb")`, "ENOENT", "devices", "ok"},
}

// supervisorAttempts go for the main process. 1 is its number.
var supervisorAttempts = []attempt{
	{"stop", `os.kill(1, signal.SIGSTOP)`, "EPERM", "uid", "ok"},
	{"queue-signal", `os.kill(1, signal.SIGRTMIN)`, "EPERM", "uid", "ok"},
	{"priority", `os.setpriority(os.PRIO_PROCESS, 1, 0)`, "EPERM", "uid", "ok"},
	{"affinity", `os.sched_setaffinity(1, os.sched_getaffinity(1))`, "EPERM", "uid", "ok"},
	{"limits", `resource.prlimit(1, resource.RLIMIT_CPU)`, "EPERM", "uid", "ok"},
	{"oom-score", `open("/proc/1/oom_score_adj", "w")`, "EACCES", "capabilities", "ok"},
	{"standard-output", `os.open("/proc/1/fd/1", os.O_WRONLY)`, "EACCES", "capabilities", "ok"},
	{"standard-input", `os.open("/proc/1/fd/0", os.O_RDONLY)`, "EACCES", "capabilities", "ok"},
	{"descriptors", `os.listdir("/proc/1/fd")`, "EACCES", "capabilities", "ok"},
	{"memory", `os.open("/proc/1/mem", os.O_RDWR)`, "EACCES", "capabilities", "ok"},
	{"maps", `open("/proc/1/maps").read()`, "EACCES", "capabilities", "ok"},
	{"environment", `open("/proc/1/environ").read()`, "EACCES", "capabilities", "ok"},
	{"trace", `system("ptrace", 0x4206, 1, 0, 0)`, "EPERM", "capabilities", "ok"},
	{"vm-read", `b = ctypes.create_string_buffer(8); v = struct.pack("QQ", ctypes.addressof(b), 8); system("process_vm_readv", 1, v, 1, struct.pack("QQ", 4096, 8), 1, 0)`, "EPERM", "capabilities", "EFAULT"},
	{"take-descriptor", `system("pidfd_getfd", os.pidfd_open(1), 1, 0)`, "EPERM", "capabilities", "ok"},
	{"kcmp", `system("kcmp", 1, 1, 0, 1, 1)`, "EPERM", "capabilities", "ok"},
	{"socket", `s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect("\0execbroker"); say("closed" if s.recv(1) == b"" else "open")`, "closed|ECONNRESET|EPIPE", "uid", "TimeoutError|open|EAGAIN"},
	{"become-root", `os.setresuid(0, 0, 0)`, "EPERM", "uid", "ok"},
	{"become-another", `os.setresuid(12345, 12345, 12345)`, "EPERM", "uid", "ok"},
	{"groups", `os.setgroups([0])`, "EPERM", "uid", "ok"},
	{"kill", `os.kill(1, 15)`, "EPERM", "uid", "ok"}, // last: there it ends what it is made in
}
