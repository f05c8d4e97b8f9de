package netnstest

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Alone calls do on a thread whose network has nothing but loopback. A process that do starts, and
// a socket that it opens, stay in that network.
func Alone(do func() error) error {
	return inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		lo, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
			return err
		}
		return do()
	})
}

// Of calls do on a thread in the network of a process.
func Of(pid int, do func() error) error {
	return inThread(func() error {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// inThread calls do on a thread that ends with it, because it is in another network then.
func inThread(do func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- do()
	}()
	return <-failed
}
