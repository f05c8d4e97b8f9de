package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(builderProgram); dir != "" {
		if err := wantEntry(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

// A process that can open a lock file can hold the lock, so only the owner can open it.
func TestLocksAreTheirOwners(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such mode there")
	}
	path := filepath.Join(t.TempDir(), "it.lock")
	unlock, err := store.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", st.Mode(), err)
	}
}

// Entries of other versions are removed when they have not been used for long.
func TestRetire(t *testing.T) {
	s := store.Store{Dir: t.TempDir()}
	old := time.Now().Add(-store.Unused - time.Hour)
	for name, used := range map[string]time.Time{"host-old": old, "host-recent": time.Now(), "deno-host-old": old, "host-locked": old} {
		if err := os.MkdirAll(filepath.Join(s.Dir, name, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(s.Dir, name), used, used); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := store.TryLock(filepath.Join(s.Dir, "host-locked.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	build := func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte("f"), 0o644)
	}
	if _, err := s.Get(t.Context(), "host-new", store.CheckHashes, build); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if e.IsDir() {
			got = append(got, e.Name())
		}
	}
	if want := []string{"deno-host-old", "host-locked", "host-new", "host-recent"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestManifest(t *testing.T) {
	for _, c := range []struct {
		name          string
		damage        func(dir string) error
		sizes, hashes bool // whether the check fails
	}{
		{"none", func(string) error { return nil }, false, false},
		{"changed", func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("B"), 0o644) }, false, true},
		{"short", func(dir string) error { return os.Truncate(filepath.Join(dir, "a"), 0) }, true, true},
		{"gone", func(dir string) error { return os.Remove(filepath.Join(dir, "a")) }, true, true},
		{"no-manifest", func(dir string) error { return os.Remove(filepath.Join(dir, store.ManifestName)) }, true, true},
		{"no-files-in-manifest", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, store.ManifestName), []byte("{}"), 0o644)
		}, true, true},
		{"half-a-manifest", func(dir string) error { return os.Truncate(filepath.Join(dir, store.ManifestName), 20) }, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			err := os.CopyFS(dir, fstest.MapFS{"a": {Data: []byte("a")}, "sub/b": {Data: []byte("b")}})
			if err == nil {
				err = store.WriteManifest(dir)
			}
			if err == nil {
				err = c.damage(dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := store.CheckSizes(dir); (err != nil) != c.sizes {
				t.Errorf("sizes: got %v", err)
			}
			if err := store.CheckHashes(dir); (err != nil) != c.hashes {
				t.Errorf("hashes: got %v", err)
			}
		})
	}
}

// Callers that want the same entry at the same time wait for the one that makes it. A failure
// leaves nothing.
func TestGetOnce(t *testing.T) {
	s := store.Store{Dir: t.TempDir()}
	var built atomic.Int32
	get := func(ctx context.Context, build error) (string, error) {
		return s.Get(ctx, "thing-1", store.CheckHashes, func(_ context.Context, dir string) error {
			built.Add(1)
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), []byte("whole"), 0o644), build)
		})
	}
	broken := errors.New("broken")
	if _, err := get(t.Context(), broken); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, "thing-1*")); len(left) != 1 || filepath.Ext(left[0]) != ".lock" {
		t.Errorf("got %q, want the lock only", left)
	}
	built.Store(0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := get(t.Context(), nil)
			if b, rerr := os.ReadFile(filepath.Join(dir, "f")); err != nil || rerr != nil || string(b) != "whole" {
				t.Errorf("got %q, %v, %v", b, err, rerr)
			}
		})
	}
	wg.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("got %d builds, want 1", n)
	}
}
