package store

import (
	"os"

	"golang.org/x/sys/windows"
)

// TryLock locks a file, which it makes if need be, until unlock is called or this process ends.
// Nobody else can open it, since who can open a file can lock it, and keep everybody waiting.
func TryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		f.Close()
		if err == windows.ERROR_LOCK_VIOLATION {
			err = ErrLocked
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}
