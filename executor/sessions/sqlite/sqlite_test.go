package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
	"github.com/execbroker/execbroker/executor/sessions/storetest"
	"github.com/execbroker/execbroker/internal/leaktest"
)

// childEnv names the database in the child process that runs this test program.
const childEnv = "SQLITE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := count(path, 50); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("counted")
		return
	}
	os.Exit(leaktest.Main(m))
}

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Test(t, func(t *testing.T) func() sessions.Store {
		path := filepath.Join(t.TempDir(), "odd name?&#%.db")
		return func() sessions.Store { return open(t, path) }
	})
}

// count adds n to a number in the store, one at a time.
func count(path string, n int) error {
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	for done := 0; done < n; {
		e, err := s.Get(ctx, "n")
		if err != nil {
			return err
		}
		var v int
		fmt.Sscan(string(e.Value), &v)
		e.Value = fmt.Append(nil, v+1)
		switch _, err := s.Put(ctx, "n", e); {
		case err == nil:
			done++
		case !errors.Is(err, sessions.ErrConflict):
			return err
		}
	}
	return nil
}

func TestProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 4
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			c := exec.CommandContext(t.Context(), self)
			c.Env = append(os.Environ(), childEnv+"="+path)
			if out, err := c.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "counted" {
				t.Errorf("got %q %v, want counted", out, err)
			}
		})
	}
	wg.Wait()
	if e, err := open(t, path).Get(t.Context(), "n"); err != nil || string(e.Value) != fmt.Sprint(50*processes) {
		t.Errorf("got %q %v, want %d", e.Value, err, 50*processes)
	}
}

// A lease is lost if its renewal waits for too long. SQLite lets any writer overtake waiting ones,
// so the Store queues writers.
func TestWritersTakeTurns(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "sessions.db"))
	const writers, writes = 12, 600
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		last [writers]int // the number of its last write
		all  int
	)
	for w := range writers {
		wg.Go(func() {
			for {
				_, err := s.Put(t.Context(), fmt.Sprintf("%d/%d", w, time.Now().UnixNano()), sessions.Entry{Value: []byte("v")})
				mu.Lock()
				all++
				waited := all - last[w]
				last[w] = all
				end := all >= writes || err != nil
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if waited > 3*writers {
					t.Errorf("writer %d waited for %d writes of %d others", w, waited, writers-1)
				}
				if end {
					return
				}
			}
		})
	}
	wg.Wait()
	for w, n := range last {
		if n < writes-3*writers {
			t.Errorf("writer %d came last at %d of %d writes", w, n, writes)
		}
	}
}

// Processes that open a new file at the same time wait for each other.
func TestOpenTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 100 {
		path := filepath.Join(dir, fmt.Sprint(i))
		for range 8 {
			wg.Go(func() {
				s, err := sqlite.Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte(strings.Repeat("this is not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, file, filepath.Join(dir, "no", "such", "directory")} {
		if s, err := sqlite.Open(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: got %v, want an error with the path", p, err)
			if err == nil {
				s.Close()
			}
		}
	}
}
