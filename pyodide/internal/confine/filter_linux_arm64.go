package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// legacy are calls under the names that this architecture has for them.
var legacy = []uintptr{unix.SYS_FSTATAT}
