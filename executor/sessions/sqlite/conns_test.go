package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
)

// openFiles returns how many files below a directory this process has open.
func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the system does not list open files:", err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			n++
		}
	}
	return n
}

// TestConnections: many readers at once do not open many files. A writer beside 256 readers waited
// for seconds when each had a connection of its own.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store.db"))
	for i := range 100 {
		if _, err := s.Put(t.Context(), fmt.Sprint("session/", i), sessions.Entry{Value: make([]byte, 500)}); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for r := range 256 {
		wg.Go(func() {
			for i := r % 100; ; i = (i + 1) % 100 {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Get(t.Context(), fmt.Sprint("session/", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	most, rev := 0, ""
	for range 10 {
		var err error
		if rev, err = s.Put(t.Context(), "account", sessions.Entry{Rev: rev}); err != nil {
			t.Error(err)
		}
		most = max(most, openFiles(t, dir))
	}
	close(stop)
	wg.Wait()
	if most > 30 {
		t.Errorf("%d files were open", most)
	}
}
