// Package store keeps directories that take long to make. Each is made once, by the first process
// that needs it, and never changes afterwards.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Store is a directory of entries, which are directories. An entry that has its final name is
// complete: it is made under another name and renamed. A killed process leaves a temporary
// directory, which the next one removes.
type Store struct {
	Dir string
	// Checkpoint, if not nil, is called at the points where tests kill the process.
	Checkpoint func(name string)
}

func (s Store) checkpoint(name string) {
	if s.Checkpoint != nil {
		s.Checkpoint(name)
	}
}

// manifest lists the files of a directory, so that later damage is detected.
type manifest struct {
	Files map[string]File `json:"files"` // by path with slashes
}

// File describes a file by its content.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ManifestName is the name of the file that lists the others of a directory.
const ManifestName = "execbroker-manifest.json"

// Get returns the directory of an entry. If it does not exist, or check finds it damaged, build
// makes it.
func (s Store) Get(ctx context.Context, name string, check func(dir string) error, build func(ctx context.Context, dir string) error) (string, error) {
	dir := filepath.Join(s.Dir, name)
	if check(dir) == nil {
		now := time.Now()
		os.Chtimes(dir, now, now) //nolint:errcheck // after an error it only looks less used; see retire
		return dir, nil
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := WaitLock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if check(dir) == nil { // made by the previous holder of the lock
		return dir, nil
	}
	if err := s.sweep(name); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.Dir, name+".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := build(ctx, tmp); err != nil {
		return "", err
	}
	if err := readable(tmp); err != nil {
		return "", err
	}
	if err := WriteManifest(tmp); err != nil {
		return "", err
	}
	s.checkpoint("built " + name)
	// A directory cannot be replaced by renaming another one over it, so a damaged one is first
	// moved away.
	if err := os.Rename(dir, tmp+"-damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	s.checkpoint("named " + name)
	s.retire(name)
	return dir, s.sweep(name)
}

// Unused is how long entries of other versions of this package are kept after their last use.
const Unused = 30 * 24 * time.Hour

// retire removes entries of the same kind as name that have not been used for long. The kind is the
// part of a name before the first hyphen. Users of an entry open it once, at their start, and mark
// it as used. An entry that cannot be removed stays, which does no harm.
func (s Store) retire(name string) {
	kind, _, _ := strings.Cut(name, "-")
	all, _ := filepath.Glob(filepath.Join(s.Dir, kind+"-*")) // the pattern is valid
	for _, dir := range all {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || filepath.Base(dir) == name || time.Since(st.ModTime()) < Unused {
			continue
		}
		if unlock, err := TryLock(dir + ".lock"); err == nil { // otherwise a process is making it again
			os.RemoveAll(dir)
			unlock()
			os.Remove(dir + ".lock")
		}
	}
}

// readable lets everybody read a directory, because the processes that use it may run as a user
// without any other rights.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		mode := st.Mode().Perm() | 0o444
		if e.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

// sweep removes what killed processes have left of attempts to make name. The caller holds the
// lock.
func (s Store) sweep(name string) error {
	old, err := filepath.Glob(filepath.Join(s.Dir, name+".tmp-*"))
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// WaitLock waits for the lock of a file that other processes may hold.
func WaitLock(ctx context.Context, path string) (unlock func(), err error) {
	unlock, err = TryLock(path)
	if !errors.Is(err, ErrLocked) {
		return unlock, err
	}
	executor.ReportProgress(ctx, executor.Progress{What: "waiting for another program that prepares the same"})
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C:
			if unlock, err = TryLock(path); !errors.Is(err, ErrLocked) {
				return unlock, err
			}
		}
	}
}

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("locked")

// WriteManifest writes the manifest of dir.
func WriteManifest(dir string) error {
	m := manifest{Files: map[string]File{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == ManifestName {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := Describe(path)
		m.Files[filepath.ToSlash(rel)] = f
		return err
	})
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ManifestName), b, 0o644)
}

// Describe returns the description of a file.
func Describe(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return File{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// CheckSizes compares a directory with its manifest by the sizes of its files.
func CheckSizes(dir string) error {
	return checkFiles(dir, func(path string, want File) error {
		st, err := os.Stat(path)
		if err == nil && st.Size() != want.Size {
			err = fmt.Errorf("%s: %d bytes, want %d", path, st.Size(), want.Size)
		}
		return err
	})
}

// CheckHashes compares a directory with its manifest by the contents of its files.
func CheckHashes(dir string) error {
	return checkFiles(dir, func(path string, want File) error {
		got, err := Describe(path)
		if err == nil && got != want {
			err = fmt.Errorf("%s: it is not as it was made", path)
		}
		return err
	})
}

func checkFiles(dir string, check func(path string, want File) error) error {
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil || len(m.Files) == 0 {
		return fmt.Errorf("%s: it is not as it was made", filepath.Join(dir, ManifestName))
	}
	errs := make(chan error, len(m.Files))
	var wg sync.WaitGroup
	for name, want := range m.Files {
		wg.Go(func() { errs <- check(filepath.Join(dir, filepath.FromSlash(name)), want) })
	}
	wg.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}
