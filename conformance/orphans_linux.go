package conformance

import "syscall"

// adoptOrphans makes processes whose parent has died children of this one, instead of the first
// process of the system: a sandbox that outlives a child which was killed would otherwise not be
// seen.
func adoptOrphans(on bool) {
	const prSetChildSubreaper = 36
	var arg uintptr
	if on {
		arg = 1
	}
	// An error means a kernel without it; then fewer leaks are seen.
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, arg, 0)
}
