package bwrap

import "golang.org/x/sys/unix"

// Memory returns a descriptor of a file without a name, at its beginning. flags are those of
// memfd_create. What bwrap is to copy into a sandbox, or to load, comes to it in such a file.
func Memory(name string, flags int, content []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, flags)
	if err != nil {
		return 0, err
	}
	for rest := content; len(rest) > 0 && err == nil; {
		var n int
		n, err = unix.Write(fd, rest)
		rest = rest[max(n, 0):]
	}
	if err == nil {
		_, err = unix.Seek(fd, 0, 0)
	}
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}
