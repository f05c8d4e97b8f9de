package executor_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// mapFiles implements Files over a map from absolute names. It follows a link only at the end of a
// name that is read.
type mapFiles struct {
	executor.Files
	files map[string]executor.FileInfo
	data  map[string]string
	err   error // returned by every call
	reads int
}

func newMapFiles() *mapFiles {
	m := &mapFiles{files: map[string]executor.FileInfo{}, data: map[string]string{}}
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	add := func(name string, mode fs.FileMode, data, target string) {
		m.files[name] = executor.FileInfo{Name: path.Base(name), Size: int64(len(data)), Mode: mode, ModTime: at, Target: target}
		m.data[name] = data
	}
	for _, d := range []string{"", "/empty", "/a", "/a/b"} {
		add(executor.Workdir+d, fs.ModeDir|0o755, "", "")
	}
	add("/etc/hosts", 0o644, "outside", "")
	add(executor.Workdir+"/hello.txt", 0o600, "hello", "")
	add(executor.Workdir+"/a/b/deep.bin", 0o644, "\x00\xff", "")
	add(executor.Workdir+"/a/up", fs.ModeSymlink|0o777, "", "../hello.txt")
	add(executor.Workdir+"/twice", fs.ModeSymlink|0o777, "", "a/up")
	add(executor.Workdir+"/out", fs.ModeSymlink|0o777, "", "/etc/hosts")
	return m
}

func (m *mapFiles) find(name string) (string, error) {
	if m.err != nil {
		return "", m.err
	}
	if !path.IsAbs(name) {
		name = path.Join(executor.Workdir, name)
	}
	if _, ok := m.files[name]; !ok {
		return "", &executor.Error{Op: "files", Kind: fs.ErrNotExist, Ran: executor.RanNo}
	}
	return name, nil
}

func (m *mapFiles) Stat(_ context.Context, name string) (executor.FileInfo, error) {
	name, err := m.find(name)
	return m.files[name], err
}

func (m *mapFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	m.reads++
	name, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if i := m.files[name]; i.Target != "" {
		if !path.IsAbs(i.Target) {
			i.Target = path.Join(path.Dir(name), i.Target)
		}
		return m.Read(ctx, i.Target)
	}
	return io.NopCloser(strings.NewReader(m.data[name])), nil
}

func (m *mapFiles) List(_ context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		dir, err := m.find(dir)
		if err != nil {
			yield(executor.FileInfo{}, err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			if path.Dir(name) == dir && !yield(m.files[name], nil) {
				return
			}
		}
	}
}

type fileSession struct {
	executor.Session
	files executor.Files
}

func (s fileSession) Files() executor.Files { return s.files }

func TestFS(t *testing.T) {
	fsys := executor.FS(t.Context(), fileSession{files: newMapFiles()})
	if err := fstest.TestFS(fsys, "hello.txt", "a/b/deep.bin", "a/up", "twice", "out", "empty"); err != nil {
		t.Error(err)
	}
}

func TestFSFollowsLinks(t *testing.T) {
	m := newMapFiles()
	fsys := executor.FS(t.Context(), fileSession{files: m})
	for name, want := range map[string]string{"a/up": "hello", "twice": "hello", "out": "outside"} {
		got, err := fs.ReadFile(fsys, name)
		if string(got) != want || err != nil {
			t.Errorf("%s: got %q %v, want %q", name, got, err, want)
		}
		if i, err := fs.Stat(fsys, name); err != nil || !i.Mode().IsRegular() || i.Name() != path.Base(name) || i.Size() != int64(len(want)) {
			t.Errorf("%s: got %+v %v", name, i, err)
		}
	}
	if i, err := fs.Lstat(fsys, "out"); err != nil || i.Mode().Type() != fs.ModeSymlink {
		t.Errorf("got %+v %v, want the link itself", i, err)
	}
	if got, err := fs.ReadLink(fsys, "twice"); got != "a/up" || err != nil {
		t.Errorf("got %q %v", got, err)
	}
	if _, err := fs.ReadLink(fsys, "hello.txt"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v for a file that is no link", err)
	}
	m.files[executor.Workdir+"/loop"] = executor.FileInfo{Name: "loop", Mode: fs.ModeSymlink, Target: "loop"}
	if _, err := fs.Stat(fsys, "loop"); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("loop: got %v", err)
	}
	m.files[executor.Workdir+"/broken"] = executor.FileInfo{Name: "broken", Mode: fs.ModeSymlink, Target: "nowhere"}
	if _, err := fs.Stat(fsys, "broken"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("broken: got %v", err)
	}
}

func TestFSErrors(t *testing.T) {
	m := newMapFiles()
	fsys := executor.FS(t.Context(), fileSession{files: m})
	calls := map[string]func(name string) error{
		"open":     func(name string) error { _, err := fsys.Open(name); return err },
		"stat":     func(name string) error { _, err := fs.Stat(fsys, name); return err },
		"lstat":    func(name string) error { _, err := fs.Lstat(fsys, name); return err },
		"readlink": func(name string) error { _, err := fs.ReadLink(fsys, name); return err },
		"readfile": func(name string) error { _, err := fs.ReadFile(fsys, name); return err },
		"readdir":  func(name string) error { _, err := fs.ReadDir(fsys, name); return err },
	}
	check := func(name string, kind error) {
		t.Helper()
		for op, call := range calls {
			err := call(name)
			var pe *fs.PathError
			if !errors.As(err, &pe) || pe.Op != op || pe.Path != name || !errors.Is(err, kind) {
				t.Errorf("%s %s: got %v, want a *fs.PathError of %v", op, name, err, kind)
			}
		}
	}
	check("missing", fs.ErrNotExist)
	for _, name := range []string{"", "/hello.txt", "../etc", "a//b", "a/", "a/."} {
		check(name, fs.ErrInvalid)
	}
	m.err = &executor.Error{Op: "files", Kind: executor.ErrBusy, Ran: executor.RanNo}
	check("hello.txt", executor.ErrBusy)
}

func TestFSFile(t *testing.T) {
	m := newMapFiles()
	fsys := executor.FS(t.Context(), fileSession{files: m})
	f, err := fsys.Open("hello.txt")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := f.Stat(); err != nil || i.Size() != 5 || m.reads != 0 {
		t.Errorf("got %+v %v after %d reads, want the size without reading", i, err, m.reads)
	}
	if got, err := io.ReadAll(f); string(got) != "hello" || err != nil || m.reads != 1 {
		t.Errorf("got %q %v", got, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Close: got %v", err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read after Close: got %v", err)
	}
	gone, err := fsys.Open("hello.txt")
	if err != nil {
		t.Fatal(err)
	}
	delete(m.files, executor.Workdir+"/hello.txt")
	for range 2 {
		if _, err := gone.Read(make([]byte, 1)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed meanwhile: got %v", err)
		}
	}
	dir, err := fsys.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := dir.Read(make([]byte, 1)); err == nil {
		t.Error("a directory was read as a file")
	}
	m.err = executor.ErrBusy
	if _, err := dir.(fs.ReadDirFile).ReadDir(-1); !errors.Is(err, executor.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
}
