//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/internal/bwrap"
)

// allowed are the system calls of Deno with Pyodide, found by tracing it during the conformance
// suite, and equivalent calls that another C library would use. Files can only be opened for
// reading, in a root that contains nothing else.
//
// Not included are all calls for networks, other processes, new namespaces, mounts, keys, tracing,
// BPF programs, io_uring, userfaultfd, and shared memory. They fail with "function not
// implemented", which programs can handle, instead of killing the process.
var allowed = slices.Concat(legacy, []uintptr{
	// memory
	unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE,
	unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT, unix.SYS_MINCORE, unix.SYS_MEMBARRIER,
	// threads, and execution of the program
	unix.SYS_EXECVE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST,
	unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETCPU,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
	unix.SYS_PRCTL, unix.SYS_RESTART_SYSCALL, unix.SYS_TGKILL,
	// signals
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	// descriptors
	unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_LSEEK,
	unix.SYS_CLOSE, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_FCNTL, unix.SYS_PIPE2, unix.SYS_EVENTFD2,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL, unix.SYS_PSELECT6,
	unix.SYS_OPENAT, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
	unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_FSTATFS, unix.SYS_STATFS,
	// an asynchronous runtime wakes itself through a socket pair and reads from it
	unix.SYS_SOCKETPAIR, unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_SHUTDOWN,
	// clocks and system information
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETRANDOM, unix.SYS_GETRLIMIT, unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRUSAGE, unix.SYS_TIMES,
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
})

// conditional are system calls that are allowed only with some arguments.
var conditional = []struct {
	call uintptr
	arg  uint32 // index of the argument; only its low half is checked
	bits uint32 // one of these bits must be set ...
	eq   bool   // ... or, with eq, the argument must be exactly this
}{
	{unix.SYS_CLONE, 0, unix.CLONE_THREAD, false}, // a thread, not a process
	{unix.SYS_PRLIMIT64, 0, 0, true},              // only for the process itself
	{unix.SYS_IOCTL, 1, unix.TCGETS, true},        // tests for a terminal
	{unix.SYS_IOCTL, 1, fionbio, true},            // sets non-blocking mode
	{unix.SYS_IOCTL, 1, fioclex, true},            // sets close-on-exec
	{unix.SYS_IOCTL, 1, unix.TIOCGWINSZ, true},    // reads the window size
}

// Requests of ioctl that package unix does not name.
const (
	fionbio = 0x5421
	fioclex = 0x5451
)

// Offsets in the data that the kernel passes to a filter: system-call number, architecture,
// instruction pointer, six arguments of 64 bits.
const (
	offCall = 0
	offArch = 4
	offArgs = 16
)

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retKill   = unix.SECCOMP_RET_KILL_PROCESS
	retRefuse = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// filter assembles the BPF program. Calls that are not allowed fail.
func filter() ([]bpf.RawInstruction, error) {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: retKill}, // another architecture has different system-call numbers
		bpf.LoadAbsolute{Off: offCall, Size: 4},
	}
	for _, c := range allowed {
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c), SkipTrue: 1},
			bpf.RetConstant{Val: retAllow})
	}
	for _, c := range conditional {
		test := bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: c.bits, SkipTrue: 1}
		if c.eq {
			test = bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.bits, SkipTrue: 1}
		}
		prog = append(prog,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c.call), SkipTrue: 4},
			bpf.LoadAbsolute{Off: offArgs + 8*c.arg, Size: 4},
			test,
			bpf.RetConstant{Val: retAllow},
			bpf.LoadAbsolute{Off: offCall, Size: 4})
	}
	return bpf.Assemble(append(prog, bpf.RetConstant{Val: retRefuse}))
}

// installFilter installs the filter on this thread.
func installFilter() error {
	raw, err := filter()
	if err != nil {
		return fmt.Errorf("system-call filter: %w", err)
	}
	p := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		p[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	f := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f))); e != 0 {
		return fmt.Errorf("system-call filter: %w", e)
	}
	return nil
}

// filterFile returns a descriptor from which bwrap reads the filter.
func filterFile() (int, error) {
	raw, err := filter()
	if err != nil {
		return 0, fmt.Errorf("system-call filter: %w", err)
	}
	var b []byte
	for _, r := range raw {
		b = binary.NativeEndian.AppendUint16(b, r.Op)
		b = append(b, r.Jt, r.Jf)
		b = binary.NativeEndian.AppendUint32(b, r.K)
	}
	fd, err := bwrap.Memory("filter", 0, b) // inherited: bwrap reads and closes it
	if err != nil {
		return 0, fmt.Errorf("system-call filter: %w", err)
	}
	return fd, nil
}
