package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// legacy are system calls that newer architectures do not have.
var legacy = []uintptr{
	unix.SYS_ARCH_PRCTL, unix.SYS_ACCESS, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_READLINK,
	unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_TIME,
}
