package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
	"github.com/execbroker/execbroker/executor/sessions/storetest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
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

func TestOversized(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.TestOversized(t, open(t, path), func(key string) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(t.Context(), "UPDATE entry SET value = zeroblob(1048576) WHERE key = ?", key)
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
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
	path := filepath.Join(t.TempDir(), "sessions.db")
	s := open(t, path)
	unlock := lock(t, path)
	const writers = 8
	var (
		wg   sync.WaitGroup
		revs [writers]string
	)
	for w := range writers {
		wg.Go(func() {
			var err error
			if revs[w], err = s.Put(t.Context(), fmt.Sprint(w), sessions.Entry{Value: []byte("v")}); err != nil {
				t.Error(err)
			}
		})
		waittest.Until(t, "a writer waits behind the others", func() error {
			first, queued := 0, 0
			for _, stack := range leaktest.Others() {
				switch {
				case strings.Contains(stack, "sql.(*DB).BeginTx("):
					first++
				case strings.Contains(stack, "semaphore.(*Weighted).Acquire(") && strings.Contains(stack, "[select"):
					queued++
				}
			}
			if first != 1 || queued != w {
				return fmt.Errorf("%d at the lock and %d in the queue, want 1 and %d", first, queued, w)
			}
			return nil
		})
	}
	unlock()
	wg.Wait()
	for w, rev := range revs {
		if want := fmt.Sprint(w + 1); rev != want {
			t.Errorf("writer %d made revision %s, want %s", w, rev, want)
		}
	}
}

// lock keeps writers out of a database, as another process does, until unlock is called.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	do := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Error(err)
		}
	}
	do("BEGIN IMMEDIATE")
	return func() {
		do("ROLLBACK")
		if err := db.Close(); err != nil {
			t.Error(err)
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
