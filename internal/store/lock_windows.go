package store

import (
	"os"

	"golang.org/x/sys/windows"
)

// TryLock locks a file until unlock is called or this process ends. It creates the file if
// necessary. Only its owner can open the file: a user who can open it could lock it and block
// everybody.
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
