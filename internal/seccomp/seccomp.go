// Package seccomp is the list of system calls that sandboxes on a shared kernel may make. Docker
// takes it as a profile of its API, bubblewrap as a program for the kernel. The supervisor of
// package runner installs a part of it where nobody else has installed the whole.
//
// It is a list of what programs use; everything else is refused with EPERM. It is for the native
// architecture alone. Besides what nobody may do without capabilities it leaves out, of what
// engines allow, what has been a way out more often than of use: io_uring and the older
// asynchronous I/O, memfd_secret, fanotify, modify_ldt, message queues of POSIX (their limit is
// none anyway), reading other processes without ptrace. It also leaves out what takes from the
// machine and not from the sandbox: filters that the kernel compiles, huge pages, and flushes of
// the disks of the host.
package seccomp

import "strings"

// Profile says what sandboxes may ask of the kernel. The zero value allows the least.
type Profile struct {
	// CodeFilters lets code install filters of system calls for itself, as browsers do. The kernel
	// compiles them into memory that the whole machine shares: while that is full, no sandbox can
	// be made.
	CodeFilters bool
}

// ENOSYS is the error of calls that a kernel does not have, on every architecture of containers.
const ENOSYS = 38

// Calls returns the names of those that are allowed without a look at their arguments. Not every
// architecture has all of them.
func (p Profile) Calls() (names []string) {
	for _, c := range calls {
		names = append(names, strings.Fields(c)...)
	}
	if p.CodeFilters {
		names = append(names, "prctl")
	}
	return names
}

// Unknown returns the calls that answer as in a kernel that does not have them. No filter sees what
// is in the memory of clone3, so that programs have to go back to clone; few programs expect to be
// refused io_uring; and those that want a filter of their own do without it where the kernel has
// none.
func (p Profile) Unknown() []string {
	names := []string{"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"}
	if !p.CodeFilters {
		names = append(names, "seccomp")
	}
	return names
}

// flushes are calls that make the host write to its disks.
var flushes = []string{"sync", "syncfs"}

var calls = []string{
	// Files.
	`access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat
	faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
	fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate
	futimesat getcwd getdents getdents64 getxattr inotify_add_watch inotify_init inotify_init1
	inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr llistxattr lremovexattr lseek
	lsetxattr lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pipe pipe2
	pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
	removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statx
	symlink symlinkat sync_file_range tee truncate umask unlink unlinkat utime utimensat
	utimes write writev`,
	// Waiting.
	`epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2
	poll ppoll pselect6 select signalfd signalfd4`,
	// Memory.
	`brk get_robust_list madvise membarrier mincore mlock mlock2 mlockall
	mprotect mremap msync munlock munlockall munmap set_robust_list`,
	// Processes and threads. Namespaces are refused below.
	`arch_prctl capget capset execve execveat exit exit_group fork futex futex_waitv getcpu
	getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid
	getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill
	landlock_add_rule landlock_create_ruleset landlock_restrict_self pause pidfd_open
	pidfd_send_signal prlimit64 ptrace restart_syscall rseq rt_sigaction rt_sigpending
	rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
	sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
	sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
	sched_setscheduler sched_yield set_tid_address setfsgid setfsuid setgid setgroups
	setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid
	sigaltstack tgkill tkill uname vfork wait4 waitid`,
	// Shared memory and semaphores of System V: databases use them.
	`msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt`,
	// Time and chance.
	`alarm clock_getres clock_gettime clock_nanosleep getitimer getrandom gettimeofday nanosleep
	setitimer sysinfo time timer_create timer_delete timer_getoverrun timer_gettime
	timer_settime timerfd_create timerfd_gettime timerfd_settime times`,
	// Sockets that are there. Which can be made is below.
	`accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
	recvmsg send sendmmsg sendmsg sendto shutdown`,
	// The names of some of these on 32 bits, and what single architectures need.
	`_llseek _newselect arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush chown32
	clock_getres_time64 clock_gettime64 clock_nanosleep_time64 fadvise64_64 fchown32 fcntl64
	fstat64 fstatat64 fstatfs64 ftruncate64 futex_time64 getegid32 geteuid32 getgid32
	getgroups32 getresgid32 getresuid32 getuid32 lchown32 lstat64 ppoll_time64
	pselect6_time64 recvmmsg_time64 riscv_flush_icache riscv_hwprobe rt_sigtimedwait_time64
	sched_rr_get_interval_time64 semtimedop_time64 sendfile64 set_tls setfsgid32 setfsuid32
	setgid32 setgroups32 setregid32 setresgid32 setresuid32 setreuid32 setuid32 sigprocmask
	sigreturn stat64 statfs64 sync_file_range2 timer_gettime64 timer_settime64 timerfd_gettime64
	timerfd_settime64 truncate64 ugetrlimit utimensat_time64 waitpid`,
}
