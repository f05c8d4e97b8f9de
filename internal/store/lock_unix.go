//go:build unix

package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// TryLock locks a file until unlock is called or this process ends. It creates the file if
// necessary. Only its owner can open the file: a user who can open it could lock it and block
// everybody.
func TryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			err = ErrLocked
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}
