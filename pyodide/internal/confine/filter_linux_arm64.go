package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// legacy are system calls under the names that this architecture uses.
var legacy = []uintptr{unix.SYS_FSTATAT}
