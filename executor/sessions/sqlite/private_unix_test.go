//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
)

// Nobody else can read the store and the files beside it, whatever the umask is and whoever has
// made them.
func TestPrivate(t *testing.T) {
	for name, modes := range map[string]os.FileMode{"new": 0, "readable": 0o644, "writable": 0o666} {
		for _, umask := range []int{0, 0o022, 0o077} {
			dir := t.TempDir()
			path := filepath.Join(dir, "store.db")
			old := syscall.Umask(umask)
			opened := 0
			open := func() *Store {
				s, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				opened++
				if _, err := s.Put(t.Context(), strconv.Itoa(opened), sessions.Entry{Value: []byte("secret")}); err != nil {
					t.Fatal(err)
				}
				return s
			}
			look := func(when string, want int) {
				files, err := os.ReadDir(dir)
				if err != nil || len(files) < want {
					t.Errorf("%s, umask %o, %s: got %v, %v", name, umask, when, files, err)
				}
				for _, f := range files {
					if i, err := f.Info(); err != nil || i.Mode().Perm() != 0o600 {
						t.Errorf("%s, umask %o, %s: %s is %v, %v, want 0600", name, umask, when, f.Name(), i.Mode(), err)
					}
				}
			}
			s := open()
			look("open", 3) // with the log and its index
			if modes != 0 {
				// A version of this package that did not look at rights has left them like this.
				for _, f := range []string{"", "-wal", "-shm"} {
					if err := os.Chmod(path+f, modes); err != nil {
						t.Fatal(err)
					}
				}
				other := open()
				look("opened again", 3)
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			look("closed", 1)
			syscall.Umask(old)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing", "store.db")); err == nil || !strings.Contains(err.Error(), "store.db") {
		t.Errorf("got %v for a directory that is not there", err)
	}
}
