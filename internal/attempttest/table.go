package attempttest

// kernel attempts to use privileged features of the kernel.
var kernel = []Attempt{
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

	// The file systems of the kernel. Opening a file is enough for success; nothing is written.
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

	// More namespaces.
	{"unshare-uts", `system("unshare", 0x4000000)`, "EPERM", "capabilities", "ok"},
	{"unshare-ipc", `system("unshare", 0x8000000)`, "EPERM", "capabilities", "ok"},
	{"unshare-cgroup", `system("unshare", 0x2000000)`, "EPERM", "capabilities", "ok"},
	{"unshare-time", `system("unshare", 0x80)`, "EPERM", "capabilities", "ok|EINVAL"},
	{"clone-user-mount", `os._exit(0) if system("clone", 0x10020000 | 17, 0, 0, 0, 0) == 0 else None`, "EPERM", "seccomp", "ok"},
	{"clone-user-network", `os._exit(0) if system("clone", 0x50000000 | 17, 0, 0, 0, 0) == 0 else None`, "EPERM", "seccomp", "ok"},
	{"clone-user-pid", `os._exit(0) if system("clone", 0x30000000 | 17, 0, 0, 0, 0) == 0 else None`, "EPERM", "seccomp", "ok"},
	{"clone-network", `os._exit(0) if system("clone", 0x40000000 | 17, 0, 0, 0, 0) == 0 else None`, "EPERM", "capabilities", "ok"},
	{"fsconfig", `system("fsconfig", -1, 0, 0, 0, 0)`, "EPERM", "seccomp and capabilities", "EBADF|EINVAL"},
	{"fsmount", `system("fsmount", -1, 0, 0)`, "EPERM", "seccomp and capabilities", "EBADF"},
	{"fspick", `system("fspick", -100, b"/none", 0)`, "EPERM", "seccomp and capabilities", "ENOENT"},
	{"move-mount", `system("move_mount", -100, b"/none", -100, b"/none", 0)`, "EPERM", "seccomp and capabilities", "ENOENT"},
	{"swapoff", `system("swapoff", b"/none")`, "EPERM", "seccomp and capabilities", "ENOENT"},
	{"list-mounts", `system("listmount", 0, 0, 0, 0)`, "EPERM|ENOSYS", "seccomp", "EFAULT|EINVAL|ENOSYS"},
	{"stat-mount", `system("statmount", 0, 0, 0, 0)`, "EPERM|ENOSYS", "seccomp", "EFAULT|EINVAL|ENOSYS"},

	// Rarely used parts of the kernel.
	{"io-uring-enter", `system("io_uring_enter", -1, 0, 0, 0, 0, 0)`, "ENOSYS", "seccomp", "EBADF|EOPNOTSUPP"},
	{"io-uring-register", `system("io_uring_register", -1, 0, 0, 0)`, "ENOSYS", "seccomp", "EBADF|EINVAL"},
	{"aio", `system("io_setup", 4, ctypes.create_string_buffer(8))`, "EPERM", "seccomp", "ok"},
	{"modify-ldt", `system("modify_ldt", 0, ctypes.create_string_buffer(16), 16)`, "EPERM|ENOSYS", "seccomp", "ok|ENOSYS"},
	{"memfd-secret", `system("memfd_secret", 0)`, "EPERM|ENOSYS", "seccomp", "ok|ENOSYS"},
	{"vmsplice", `system("vmsplice", os.pipe()[1], struct.pack("QQ", 0, 0), 0, 0)`, "EPERM", "seccomp", "ok"},
	{"process-madvise", `system("process_madvise", -1, 0, 0, 0, 0)`, "EPERM", "seccomp", "EBADF|EINVAL"},
	{"process-release", `system("process_mrelease", -1, 0)`, "EPERM|ENOSYS", "seccomp", "EBADF|ENOSYS"},
	{"kcmp-itself", `system("kcmp", os.getpid(), os.getpid(), 0, 1, 1)`, "EPERM", "seccomp", "ok"},
	{"vm-read-itself", `b = ctypes.create_string_buffer(8); v = struct.pack("QQ", ctypes.addressof(b), 8); system("process_vm_readv", os.getpid(), v, 1, v, 1, 0)`, "EPERM", "seccomp", "ok"},
	{"vm-write-itself", `b = ctypes.create_string_buffer(8); v = struct.pack("QQ", ctypes.addressof(b), 8); system("process_vm_writev", os.getpid(), v, 1, v, 1, 0)`, "EPERM", "seccomp", "ok"},
	{"descriptor-of-itself", `system("pidfd_getfd", os.pidfd_open(os.getpid()), 1, 0)`, "EPERM", "seccomp", "ok"},
	{"personality-of-32-bits", `system("personality", 0x8)`, "EPERM", "seccomp", "ok"},
	{"personality-old-kernel", `system("personality", 0x20000)`, "EPERM", "seccomp", "ok"},
	{"personality-all-executable", `system("personality", 0x400000)`, "EPERM", "seccomp", "ok"},
	{"memory-policy", `system("set_mempolicy", 0, 0, 0)`, "EPERM", "seccomp", "ok|ENOSYS"},
	{"memory-policy-of", `system("get_mempolicy", 0, 0, 0, 0, 0)`, "EPERM", "seccomp", "ok|ENOSYS"},
	{"memory-binding", `system("mbind", 0, 0, 0, 0, 0, 0)`, "EPERM", "seccomp", "ok|EINVAL|ENOSYS"},
	{"memory-home", `system("set_mempolicy_home_node", 0, 0, 0, 0)`, "EPERM|ENOSYS", "seccomp", "ok|EINVAL|ENOSYS"},
	{"move-pages", `system("move_pages", 0, 0, 0, 0, 0, 0)`, "EPERM", "seccomp", "ok|ENOSYS"},
	{"migrate-pages", `system("migrate_pages", 0, 0, 0, 0)`, "EPERM", "seccomp", "ok|EINVAL|ENOSYS"},
	{"remap-pages", `system("remap_file_pages", 0, 0, 0, 0, 0)`, "EPERM", "seccomp", "EINVAL"},
	{"shadow-stack", `system("map_shadow_stack", 0, 4096, 0)`, "EPERM|ENOSYS", "seccomp", "EOPNOTSUPP|EINVAL|ENOSYS|ok"},
	{"cache-of-a-file", `system("cachestat", -1, 0, 0, 0)`, "EPERM|ENOSYS", "seccomp", "EBADF|ENOSYS"},
	{"handle-of-a-file", `system("name_to_handle_at", -100, b"/etc/passwd", ctypes.create_string_buffer(struct.pack("I", 0), 8), ctypes.create_string_buffer(4), 0)`, "EPERM", "seccomp", "EOVERFLOW|ENOTSUP"},
	{"kinds-of-file-systems", `system("sysfs", 3)`, "EPERM|ENOSYS", "seccomp", "ok|ENOSYS"},
	{"read-adjustment", `system("adjtimex", ctypes.create_string_buffer(256))`, "EPERM", "seccomp", "ok"},
	{"read-adjustment-of-a-clock", `system("clock_adjtime", 0, ctypes.create_string_buffer(256))`, "EPERM", "seccomp", "ok"},
	{"set-real-time", `system("clock_settime", 0, struct.pack("qq", -1, 0))`, "EPERM", "seccomp and capabilities", "EINVAL"},
	{"domain-name", `system("setdomainname", b"x", 1)`, "EPERM", "capabilities", "ok"},
	{"hang-up", `system("vhangup")`, "EPERM", "capabilities", "ok"},
	{"call-of-32-bits", `
import mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes.fromhex("b814000000cd80c3"))  # getpid by the gate of 32 bits
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
pid = os.fork()
if pid == 0: os._exit(call() == os.getpid())
status = os.waitpid(pid, 0)[1]
say("ENOSYS" if status == 11 else status == 256)  # SIGSEGV: the machine has no such gate`, "False|ENOSYS", "seccomp", "True|ENOSYS"},

	// More files of the kernel, which are opened but not written.
	{"drop-caches", `os.open("/proc/sys/vm/drop_caches", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"overcommit", `os.open("/proc/sys/vm/overcommit_memory", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"panic", `os.open("/proc/sys/kernel/panic", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"forwarding", `os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"randomization", `os.open("/proc/sys/kernel/randomize_va_space", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"highest-process", `os.open("/proc/sys/kernel/pid_max", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"highest-file", `os.open("/proc/sys/fs/file-max", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"printk", `os.open("/proc/sys/kernel/printk", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"host-name-of-proc", `os.open("/proc/sys/kernel/hostname", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"interrupts", `os.open("/proc/irq/default_smp_affinity", os.O_WRONLY)`, "EROFS|EACCES", "masks", "ok"},
	{"module-parameter", `os.open("/sys/module/printk/parameters/time", os.O_WRONLY)`, "EROFS|EACCES|ENOENT", "masks", "ok|ENOENT"},
	{"addresses-of-memory", `say(any(int(l.split("-")[0], 16) for l in open("/proc/iomem")))`, "False|EACCES", "masks", "True"},
	{"addresses-of-the-kernel", `say(any(int(l.split()[0], 16) for l in open("/proc/kallsyms")))`, "False|EACCES|ENOENT", "masks", "True|ENOENT"},
	{"page-counts", `os.open("/proc/kpagecount", os.O_RDONLY)`, "EACCES|ENOENT", "masks", "ok|EPERM|ENOENT"},
	{"pressure-trigger-cpu", `os.open("/proc/pressure/cpu", os.O_RDWR)`, "EACCES|ENOENT|EROFS", "masks", "ok|EOPNOTSUPP|ENOENT"},
	{"pressure-trigger-memory", `os.open("/proc/pressure/memory", os.O_RDWR)`, "EACCES|ENOENT|EROFS", "masks", "ok|EOPNOTSUPP|ENOENT"},
	{"pressure-trigger-disk", `os.open("/proc/pressure/io", os.O_RDWR)`, "EACCES|ENOENT|EROFS", "masks", "ok|EOPNOTSUPP|ENOENT"},
	{"slabs", `os.open("/proc/slabinfo", os.O_RDONLY)`, "EACCES|ENOENT", "masks", "ok|ENOENT"},
	{"kernel-allocations", `os.open("/proc/vmallocinfo", os.O_RDONLY)`, "EACCES|ENOENT", "masks", "ok|ENOENT"},

	setting("overcommit-ratio", "/proc/sys/vm/overcommit_ratio"),
	setting("swappiness", "/proc/sys/vm/swappiness"),
	setting("lowest-address", "/proc/sys/vm/mmap_min_addr"),
	setting("dirty-pages", "/proc/sys/vm/dirty_ratio"),
	setting("compaction", "/proc/sys/vm/compact_memory"),
	setting("reserve-of-memory", "/proc/sys/vm/admin_reserve_kbytes"),
	setting("out-of-memory", "/proc/sys/vm/panic_on_oom"),
	setting("maps-of-a-process", "/proc/sys/vm/max_map_count"),
	setting("sysrq-setting", "/proc/sys/kernel/sysrq"),
	setting("most-threads", "/proc/sys/kernel/threads-max"),
	setting("tracing-rule", "/proc/sys/kernel/yama/ptrace_scope"),
	setting("rule-of-the-log", "/proc/sys/kernel/dmesg_restrict"),
	setting("kernel-pointers", "/proc/sys/kernel/kptr_restrict"),
	setting("perf-rule", "/proc/sys/kernel/perf_event_paranoid"),
	setting("bpf-rule", "/proc/sys/kernel/unprivileged_bpf_disabled"),
	setting("panic-on-oops", "/proc/sys/kernel/panic_on_oops"),
	setting("watchdog", "/proc/sys/kernel/watchdog"),
	setting("quota-of-keys", "/proc/sys/kernel/keys/maxkeys"),
	setting("most-terminals", "/proc/sys/kernel/pty/max"),
	setting("core-limit", "/proc/sys/kernel/core_pipe_limit"),
	setting("domain-name-of-proc", "/proc/sys/kernel/domainname"),
	setting("protected-links", "/proc/sys/fs/protected_symlinks"),
	setting("protected-hard-links", "/proc/sys/fs/protected_hardlinks"),
	setting("set-uid-dumps", "/proc/sys/fs/suid_dumpable"),
	setting("size-of-pipes", "/proc/sys/fs/pipe-max-size"),
	setting("most-watches", "/proc/sys/fs/inotify/max_user_instances"),
	setting("leases", "/proc/sys/fs/lease-break-time"),
	setting("formats-of-programs", "/proc/sys/fs/binfmt_misc/register"),
	setting("ports-of-clients", "/proc/sys/net/ipv4/ip_local_port_range"),
	setting("answers-to-pings", "/proc/sys/net/ipv4/icmp_echo_ignore_all"),
	setting("memory-of-filters", "/proc/sys/net/core/bpf_jit_limit"),
	setting("memory-of-huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
	setting("merged-pages", "/sys/kernel/mm/ksm/pages_to_scan"),
	setting("sleep-of-the-machine", "/sys/power/state"),
	setting("profiling", "/sys/kernel/profiling"),
	setting("rescan-of-devices", "/sys/bus/pci/rescan"),
	setting("second-processor", "/sys/devices/system/cpu/cpu1/online"),
	setting("limit-of-memory", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
	setting("limit-of-processors", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
	setting("allowed-devices", "/sys/fs/cgroup/devices/devices.allow"),
	setting("members-of-a-group", "/sys/fs/cgroup/pids/cgroup.procs"),

	// Filters that the kernel compiles into memory of the whole machine. A handful is attached.
	{"socket-filter", `for s in [*socket.socketpair(), socket.socket(type=socket.SOCK_DGRAM)]: s.setsockopt(socket.SOL_SOCKET, 26, program())`, "EPERM", "seccomp", "ok"},
	{"socket-filter-by-wide-numbers", `s = socket.socket(socket.AF_UNIX); system("setsockopt", s.fileno(), 1 | 1 << 32, 26 | 1 << 32, program(), 16 | 1 << 32)`, "EPERM", "seccomp", "ok"},
	{"socket-program", `socket.socket().setsockopt(socket.SOL_SOCKET, 50, -1)`, "EPERM", "seccomp", "EBADF"},
	{"port-filter", `s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.setsockopt(socket.SOL_SOCKET, 51, program())`, "EPERM", "seccomp", "ok"},
	{"port-program", `s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.setsockopt(socket.SOL_SOCKET, 52, -1)`, "EPERM", "seccomp", "EBADF"},
	{"call-filter", `system("seccomp", 1, 0, program())`, "ENOSYS", "seccomp", "ok"},
	{"call-filter-of-all-threads", `system("seccomp", 1, 1, program())`, "ENOSYS", "seccomp", "ok"},
	{"call-filter-by-prctl", `system("prctl", 22, 2, program(), 0, 0)`, "EINVAL", "seccomp", "ok"},
	{"call-filter-by-a-wide-number", `system("prctl", 22 | 1 << 32, 2, program(), 0, 0)`, "EINVAL", "seccomp", "ok"},
	{"call-filter-kept-by-a-listener", `system("seccomp", 1, 8, program())`, "ENOSYS", "seccomp", "ok"},
	{"call-filter-strict", `pid = os.fork()
if pid == 0:
    libc.prctl(22, 1, 0, 0, 0)
    os._exit(0)  # which is not among the four calls of the strict mode
say(os.waitpid(pid, 0)[1])`, "0", "seccomp", "9"},

	// Huge pages, which no limit counts, and the disks of the machine.
	{"huge-pages", `system("mmap", 0, 2 << 20, 3, 0x40022, -1, 0)`, "EPERM", "seccomp", "ENOMEM|ok"},
	{"huge-pages-by-a-wide-number", `system("mmap", 0, 2 << 20, 3, 0x40022 | 1 << 40, -1, 0)`, "EPERM", "seccomp", "ENOMEM|ok"},
	{"huge-pages-of-a-gigabyte", `system("mmap", 0, 1 << 30, 3, 0x40022 | 30 << 26, -1, 0)`, "EPERM", "seccomp", "ENOMEM|EINVAL|ok"},
	{"huge-pages-of-a-file", `os.memfd_create("x", 4)`, "EPERM", "seccomp", "ok|ENOSYS"},
	{"huge-shared-memory", `system("shmget", 0, 2 << 20, 0o5600)`, "EPERM", "seccomp and capabilities", "ENOMEM|ENOSYS|ok"},
	{"flush-of-all-disks", `system("sync")`, "EPERM", "seccomp", "ok"},
	{"flush-of-a-file-system", `system("syncfs", os.open("/tmp", os.O_RDONLY))`, "EPERM", "seccomp", "ok"},

	{"write-proc-and-sys", `
import stat
def writable():
    for top in ("/proc", "/proc/self/net", "/sys"):
        for directory, names, files in os.walk(top):
            if top == "/proc": names[:] = [n for n in names if not n.isdigit()]
            for name in files:
                name = os.path.join(directory, name)
                if name.endswith("/ns_last_pid"): continue  # of the sandbox's own namespace
                try:
                    if not stat.S_ISREG(os.stat(name).st_mode): continue
                    os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK))
                except OSError: continue
                return name
say(writable() is not None)`, "False", "masks", "True"},

	// More devices.
	{"mknod-memory", `os.mknod("/dev/memory-of-mine", 0o20666, os.makedev(1, 1))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-port", `os.mknod("/dev/port-of-mine", 0o20666, os.makedev(1, 4))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-tun", `os.mknod("/dev/tun-of-mine", 0o20666, os.makedev(10, 200))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-fuse", `os.mknod("/dev/fuse-of-mine", 0o20666, os.makedev(10, 229))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-kvm", `os.mknod("/dev/kvm-of-mine", 0o20666, os.makedev(10, 232))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-loop-control", `os.mknod("/dev/loop-control-of-mine", 0o20666, os.makedev(10, 237))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-vhost-vsock", `os.mknod("/dev/vhost-vsock-of-mine", 0o20666, os.makedev(10, 241))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-console", `os.mknod("/dev/console-of-mine", 0o20666, os.makedev(5, 1))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-loop", `os.mknod("/dev/loop-of-mine", 0o60666, os.makedev(7, 0))`, "EACCES|EPERM", "devices", "ok"},
	{"mknod-disk-of-a-machine", `os.mknod("/dev/disk-of-a-machine-of-mine", 0o60666, os.makedev(254, 0))`, "EACCES|EPERM", "devices", "ok"},
}

// setting is an attempt to open a setting of the machine for writing.
func setting(name, file string) Attempt {
	return Attempt{name, `os.open("` + file + `", os.O_WRONLY)`, "EROFS|EACCES|ENOENT", "masks", "ok|ENOENT"}
}

// network attempts connect to listeners of the test, or send nothing.
var network = []Attempt{
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

	// Sockets that network namespaces do not separate, or that talk to parts of the kernel.
	{"vsock", `socket.socket(40, socket.SOCK_STREAM)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"vsock-of-packets", `socket.socket(40, socket.SOCK_SEQPACKET)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"vsock-by-a-wide-number", `system("socket", 40 | 1 << 32, 1, 0)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-in-a-pair", `socket.socketpair(16, 3, 15)`, "EAFNOSUPPORT", "seccomp", "ENOTSUP"},
	{"netlink-of-users", `socket.socket(16, 3, 2)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-sockets", `socket.socket(16, 3, 4)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-ipsec", `socket.socket(16, 3, 6)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-selinux", `socket.socket(16, 3, 7)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-audit", `socket.socket(16, 3, 9)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-lookups", `socket.socket(16, 3, 10)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-connectors", `socket.socket(16, 3, 11)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-filters", `socket.socket(16, 3, 12)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-of-devices", `socket.socket(16, 3, 15)`, "EAFNOSUPPORT", "seccomp", "ok"},
	{"netlink-generic", `socket.socket(16, 3, 16)`, "EAFNOSUPPORT", "seccomp", "ok"},

	// Addresses and options.
	{"broadcast", `s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.connect(("255.255.255.255", 9))`, "ENETUNREACH", "network", "ok"},
	{"multicast", `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("224.0.0.1", 9))`, "ENETUNREACH", "network", "ok"},
	{"private-network", `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("10.0.0.1", 9))`, "ENETUNREACH", "network", "ok"},
	{"network-of-the-engine", `socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("172.17.0.1", 9))`, "ENETUNREACH", "network", "ok"},
	{"interface-address", `fcntl.ioctl(socket.socket(), 0x8916, struct.pack("16sH2x4s8x", b"lo", 2, bytes((127, 0, 0, 1))))`, "EPERM", "capabilities", "ok"},
	{"mark", `socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1)`, "EPERM", "capabilities", "ok"},
	{"packet-priority", `socket.socket().setsockopt(socket.SOL_SOCKET, 12, 7)`, "EPERM", "capabilities", "ok"},
	{"transparent", `socket.socket().setsockopt(socket.SOL_IP, 19, 1)`, "EPERM", "capabilities", "ok"},
	{"large-receive-buffer", `socket.socket().setsockopt(socket.SOL_SOCKET, 33, 1 << 28)`, "EPERM", "capabilities", "ok"},
	{"large-send-buffer", `socket.socket().setsockopt(socket.SOL_SOCKET, 32, 1 << 28)`, "EPERM", "capabilities", "ok"},
}

// files attempts to leave the directories of the code.
var files = []Attempt{
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

// supervisor attempts to attack the main process, which has PID 1.
var supervisor = []Attempt{
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
	{"scheduling", `os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0))`, "EPERM", "uid", "ok"},
	{"disk-priority", `system("ioprio_set", 1, 1, 2 << 13)`, "EPERM", "uid", "ok"},
	{"signal-by-descriptor", `signal.pidfd_send_signal(os.pidfd_open(1), 0)`, "EPERM", "uid", "ok"},
	{"root", `os.listdir("/proc/1/root")`, "EACCES", "capabilities", "ok"},
	{"directory", `os.readlink("/proc/1/cwd")`, "EACCES", "capabilities", "ok"},
	{"program", `os.readlink("/proc/1/exe")`, "EACCES", "capabilities", "ok"},
	{"namespaces", `os.readlink("/proc/1/ns/net")`, "EACCES", "capabilities", "ok"},
	{"system-call", `open("/proc/1/syscall").read()`, "EACCES|EPERM|ENOENT", "capabilities", "ok|ENOENT"},
	{"stack", `open("/proc/1/stack").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"transfers", `open("/proc/1/io").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"vectors", `open("/proc/1/auxv", "rb").read()`, "EACCES", "capabilities", "ok"},
	{"execution-domain", `open("/proc/1/personality").read()`, "EACCES", "capabilities", "ok"},
	{"mapped-files", `os.listdir("/proc/1/map_files")`, "EACCES", "capabilities", "ok"},
	{"references", `open("/proc/1/clear_refs", "w")`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"name", `os.open("/proc/1/comm", os.O_WRONLY)`, "EACCES", "capabilities", "ok"},
	{"core-filter", `open("/proc/1/coredump_filter", "w")`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"attach", `system("ptrace", 16, 1, 0, 0)`, "EPERM", "capabilities", "ok"},
	{"vm-write", `b = ctypes.create_string_buffer(8); v = struct.pack("QQ", ctypes.addressof(b), 8); system("process_vm_writev", 1, v, 1, struct.pack("QQ", 4096, 8), 1, 0)`, "EPERM", "capabilities", "EFAULT"},
	{"slack-of-timers", `os.write(os.open("/proc/1/timerslack_ns", os.O_WRONLY), b"50000")`, "EPERM|EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"old-oom-score", `os.open("/proc/1/oom_adj", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"users", `os.open("/proc/1/uid_map", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"groups-of-the-namespace", `os.open("/proc/1/gid_map", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"rule-of-groups", `os.open("/proc/1/setgroups", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"login", `os.open("/proc/1/loginuid", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"scheduler", `os.open("/proc/1/sched", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"group-of-the-scheduler", `os.open("/proc/1/autogroup", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"pages", `open("/proc/1/pagemap", "rb").read(8)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"parts-of-memory", `open("/proc/1/smaps").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"sum-of-memory", `open("/proc/1/smaps_rollup").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"facts-of-descriptors", `os.listdir("/proc/1/fdinfo")`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"statistics-of-mounts", `open("/proc/1/mountstats").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"injected-faults", `os.open("/proc/1/make-it-fail", os.O_WRONLY)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"maps-of-a-thread", `open("/proc/1/task/1/maps").read()`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"memory-of-a-thread", `os.open("/proc/1/task/1/mem", os.O_RDWR)`, "EACCES|ENOENT", "capabilities", "ok|ENOENT"},
	{"limits-of-memory", `resource.prlimit(1, resource.RLIMIT_AS, (1 << 40, 1 << 40))`, "EPERM", "capabilities", "ok|ENOENT"},
	{"kill", `os.kill(1, 15)`, "EPERM", "uid", "ok"}, // the last one: without the protection it ends its own sandbox
}

// floods use a limited amount of a resource that is more than a session is allowed.
var floods = []Attempt{
	{"processes", `
for _ in range(150):
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(20)
        os._exit(0)`, "EAGAIN", "limits", "ok"},
	{"terminals", `keep += [os.openpty() for _ in range(200)]; time.sleep(20)`, "processes", "limits", "ok"},
	{"threads", `for _ in range(150): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()`, "RuntimeError: can't start new thread", "limits", "ok"},
	{"memory", `b"x" * (400 << 20)`, "memory", "limits", "ok"},
	{"memory-of-a-file", `f = os.memfd_create("x")
for _ in range(400): os.write(f, b"x" * (1 << 20))`, "memory", "limits", "ok"},
	{"memory-shared", `import mmap
m = mmap.mmap(-1, 400 << 20)
for i in range(0, 400 << 20, 4096): m[i] = 1`, "memory", "limits", "ok"},
	{"memory-of-unix-sockets", `
keep, sent = [], 0
while sent < 400 << 20:
    for s in socket.socketpair():
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        keep.append(s)
        try:
            while True: sent += s.send(b"x" * 65536)
        except BlockingIOError: pass`, "memory", "limits", "ok"},
	{"memory-of-netlink", `
held = 0
while held < 400 << 20:  # of answers that repeat a refused request, and that nobody reads
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF): s.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    size = min(s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) - 1000, 1 << 20)
    for _ in range(2): held += s.send(struct.pack("IHHII", size, 0x7fff, 5, 1, 0) + bytes(size - 16))
    keep.append(s)
time.sleep(20)`, "memory", "limits", "ok"},
	{"disk", `
try:
    with open("/workspace/big", "wb") as f:
        for _ in range(20): f.write(b"x" * (1 << 20))
finally: os.unlink("/workspace/big")`, "ENOSPC", "limits", "ok"},
	{"temporary-directory", `
try:
    with open("/tmp/big", "wb") as f:
        for _ in range(80): f.write(b"x" * (1 << 20))
finally: os.unlink("/tmp/big")`, "ENOSPC", "limits", "ok"},
	{"shared-memory", `
try:
    with open("/dev/shm/big", "wb") as f:
        for _ in range(20): f.write(b"x" * (1 << 20))
finally: os.unlink("/dev/shm/big")`, "ENOSPC", "limits", "ok"},
	{"inodes", `
os.mkdir("/workspace/d")
try:
    for i in range(3000): open("/workspace/d/%d" % i, "w").close()
finally:
    for name in os.listdir("/workspace/d"): os.unlink("/workspace/d/" + name)
    os.rmdir("/workspace/d")`, "ENOSPC", "limits", "ok"},
	{"directories", `
made = 0
try:
    for i in range(3000): os.mkdir("/workspace/%d" % i); made += 1
finally:
    for i in range(made): os.rmdir("/workspace/%d" % i)`, "ENOSPC", "limits", "ok"},
	{"descriptors", `keep = [os.open("/dev/null", os.O_RDONLY) for _ in range(5000)]`, "EMFILE", "limits", "ok"},
	{"locked-memory", `b = ctypes.create_string_buffer(1 << 20); checked(libc.mlock(b, 1 << 20))`, "ENOMEM|EPERM", "limits", "ok"},
	{"message-queues", `checked(libc.mq_open(b"/x", os.O_CREAT | os.O_RDWR, 0o600, None))`, "EPERM", "seccomp and limits", "ok|ENOSYS"},
	{"core-dump", `say(resource.getrlimit(resource.RLIMIT_CORE)[1])`, "0", "limits", "4096"},
	{"processor", `
quota = -1
for name in ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"):
    if os.path.exists(name): quota = int(open(name).read().split()[0].replace("max", "-1"))
start = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        while time.monotonic() < start + 1: pass
        os._exit(0)
for _ in range(4): os.wait()
t = os.times()
# How much a busy machine gives without the limit says nothing: so the limit is looked at as well.
say(quota > 0 and t.children_user + t.children_system < 0.8 * (time.monotonic() - start))`, "True", "limits", "False"},
}

// packages attempts to change installed packages from inside a session. If the code does not have a
// separate uid, they work, in the given order.
var packages = []Attempt{
	{"package-write", `open("/opt/packages/alpha.py", "a")`, "EACCES", "uid", "ok"},
	{"package-truncate", `os.truncate("/opt/packages/beta.py", 0)`, "EACCES", "uid", "ok"},
	{"package-shadow", `open("/opt/packages/json.py", "w")`, "EACCES", "uid", "ok"},
	{"package-bytecode", `open("/opt/packages/__pycache__/alpha.cpython-313.pyc", "ab")`, "EACCES", "uid", "ok"},
	{"package-symbolic-link", `os.symlink("/tmp/evil.py", "/opt/packages/evil.py")`, "EACCES", "uid", "ok"},
	{"package-hard-link", `os.link("/opt/packages/beta.py", "/opt/packages/evil2.py")`, "EACCES|EPERM", "uid", "ok"},
	{"package-rename", `os.rename("/opt/packages/beta.py", "/opt/packages/alpha.py")`, "EACCES", "uid", "ok"},
	{"package-mode", `os.chmod("/opt/packages", 0o777)`, "EPERM", "uid", "ok"},
	{"package-times", `os.utime("/opt/packages/alpha.py", (0, 0))`, "EPERM|EACCES", "uid", "ok"},
	{"package-remove", `os.unlink("/opt/packages/alpha.py")`, "EACCES", "uid", "ok"},
	{"package-cover", `mount(b"none", b"/opt/packages", b"tmpfs")`, "EPERM", "capabilities", "ok"},
	{"module-write", `open("/node_modules/alpha/lib/index.js", "a")`, "EACCES", "uid", "ok"},
	{"module-add", `os.mkdir("/node_modules/evil")`, "EACCES", "uid", "ok"},
	{"module-below", `os.mkdir("/node_modules/beta/node_modules")`, "EACCES", "uid", "ok"},
	{"module-symbolic-link", `os.symlink("/workspace", "/node_modules/evil2")`, "EACCES", "uid", "ok"},
	{"module-hard-link", `os.link("/node_modules/beta/package.json", "/node_modules/alpha/evil.json")`, "EACCES|EPERM", "uid", "ok"},
	{"module-swap", `os.rename("/node_modules/beta", "/node_modules/evil3")`, "EACCES", "uid", "ok"},
	{"module-mode", `os.chmod("/node_modules/alpha", 0o777)`, "EPERM", "uid", "ok"},
}
