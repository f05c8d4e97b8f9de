//go:build linux || darwin

package pyodide

import "golang.org/x/sys/unix"

// freeBytes returns how many bytes this user may still write on the disk of dir.
func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
