//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Only the user who has started the server can connect to its socket, whatever the umask is.
func TestSocketIsPrivate(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		file := filepath.Join(t.TempDir(), "s")
		old := syscall.Umask(umask)
		l, err := listenAt(t.Context(), unixPrefix+file)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		i, err := os.Lstat(file)
		if err != nil || i.Mode().Perm() != 0o600 || i.Mode().Type() != os.ModeSocket {
			t.Errorf("umask %o: got %v, %v, want a socket with 0600", umask, i.Mode(), err)
		}
		if got := urlOf(l.Addr()); got != unixPrefix+file {
			t.Errorf("got the address %s", got)
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}()
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", file)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if another, err := listenAt(t.Context(), unixPrefix+file); err == nil {
			another.Close()
			t.Error("a second server took the socket of the first")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}
