package sqlite_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
)

// A store whose disk is full keeps what it has, says where to make room, and goes on when there is
// some.
func TestFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a disk")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "sessions.db")
	s := open(t, path)
	rev, err := s.Put(t.Context(), "a", sessions.Entry{Value: []byte("before")})
	if err := errors.Join(err, s.Check(t.Context())); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(filler, endless{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want a full disk", err)
	}
	filler.Close()
	if err := s.Check(t.Context()); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("check: got %v", err)
	}
	big := make([]byte, sessions.MaxValue)
	if _, err = s.Put(t.Context(), "b", sessions.Entry{Value: big}); err == nil || !strings.Contains(err.Error(), "make room on the disk of "+path) {
		t.Errorf("put: got %v", err)
	}
	if e, err := s.Get(t.Context(), "a"); err != nil || string(e.Value) != "before" || e.Rev != rev {
		t.Errorf("got %+v, %v", e, err)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "b", sessions.Entry{Value: big}); err != nil {
		t.Error(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
