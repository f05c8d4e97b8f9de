package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

// fileError checks that err is an *executor.Error with a kind that files have.
func fileError(t *T, what string, err error) {
	kinds := []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid}
	var e *executor.Error
	if !errors.As(err, &e) || !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
		t.Errorf("%s: got the error %v, want one of the kinds of files", what, err)
	}
}

func symlinks(t *T, s executor.Session, f executor.Files) {
	ctx := t.Context()
	t.put(f, "links/target/file", "content")
	for link, target := range map[string]string{"to-dir": "target", "to-file": "target/file", "dangling": "nowhere", "loop": "loop"} {
		t.ok(s, t.Program("symlink", "target", target, "link", "links/"+link))
		i, err := f.Stat(ctx, "links/"+link)
		if err != nil || i.Mode&fs.ModeSymlink == 0 || i.Target != target || i.Name != link {
			t.Errorf("stat of the link %q: got %+v, %v, want a link to %q", link, i, err, target)
		}
	}
	t.lists(f, "links", "dangling", "loop", "target", "to-dir", "to-file")
	for i, err := range f.List(ctx, "links") {
		if err == nil && (i.Mode&fs.ModeSymlink != 0) != (i.Name != "target") {
			t.Errorf("list shows %q with mode %v", i.Name, i.Mode)
		}
	}
	for _, name := range []string{"links/dangling", "links/loop"} {
		r, err := f.Read(ctx, name)
		if err == nil {
			r.Close()
			t.Errorf("read of the link %q: no error", name)
		}
	}
	t.noError(f.Rename(ctx, "links/to-file", "links/moved"), "rename of a link")
	if i, err := f.Stat(ctx, "links/moved"); err != nil || i.Target != "target/file" {
		t.Errorf("stat of the moved link: got %+v, %v", i, err)
	}
	for _, name := range []string{"links/moved", "links/to-dir", "links/dangling", "links/loop"} {
		t.noError(f.Remove(ctx, name), "remove of the link %q", name)
	}
	t.lists(f, "links", "target")
	t.holds(f, "links/target/file", "content")
	// A tree with a link out of it is removed without what the link points to.
	t.put(f, "tree/file", "x")
	t.ok(s, t.Program("symlink", "target", "../links/target", "link", "tree/out"))
	t.noError(f.Remove(ctx, "tree"), "remove of a tree with a link")
	t.holds(f, "links/target/file", "content")
}

func replaces(t *T, s executor.Session, f executor.Files) {
	old, fresh := string(pattern(3<<20)), strings.Repeat("new ", 1<<18)
	t.put(f, "dir/file", old)
	r := t.opens(f, "dir/file")
	head := make([]byte, 1000)
	t.noError(errorOf(io.ReadFull(r, head)), "read")
	// The writer stops half-way until the old content has been seen.
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() { // it is waited for below
		err := f.Write(t.Context(), "dir/file", pr, 0)
		pr.CloseWithError(errBroken) // it may not have read all
		written <- err
	}()
	io.WriteString(pw, fresh[:len(fresh)/2])
	t.holds(f, "dir/file", old)
	io.WriteString(pw, fresh[len(fresh)/2:])
	pw.Close()
	t.noError(<-written, "write")
	t.holds(f, "dir/file", fresh)
	rest, err := io.ReadAll(r)
	if got := string(head) + string(rest); err != nil || got != old {
		t.Errorf("a reader from before the replacement got %s, %v, want the old content", excerpt(got), err)
	}
	r.Close()
	t.lists(f, "dir", "file")
}

func failedWrites(t *T, s executor.Session, f executor.Files) {
	t.put(f, "dir/old", "old content")
	for _, name := range []string{"dir/old", "dir/new"} {
		broken := io.MultiReader(bytes.NewReader(pattern(200<<10)), failingReader{})
		err := f.Write(t.Context(), name, broken, 0)
		t.isNo("write from a reader that fails", err, executor.ErrInvalid)
		if !errors.Is(err, errBroken) {
			t.Errorf("write from a reader that fails: got %v, want the error of the reader in it", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = f.Write(ctx, name, io.MultiReader(bytes.NewReader(pattern(200<<10)), cancelingReader(cancel)), 0)
		if err == nil {
			t.Errorf("write with a context that ends: no error")
		}
		cancel()
	}
	t.holds(f, "dir/old", "old content")
	t.lists(f, "dir", "old")
}

var errBroken = errors.New("conformance: this reader is broken")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBroken }

// cancelingReader ends a context when it is read, and goes on for some time then.
func cancelingReader(cancel func()) io.Reader {
	left := 64
	return readFunc(func(p []byte) (int, error) {
		cancel()
		if left--; left < 0 {
			return 0, errBroken
		}
		return len(p), nil
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func readers(t *T, s executor.Session, f executor.Files) {
	data := string(pattern(16 << 20))
	t.put(f, "large", data)
	for range 3 {
		r := t.opens(f, "large")
		t.noError(errorOf(io.ReadFull(r, make([]byte, 10))), "read of the beginning")
		t.noError(r.Close(), "close of a reader before its end")
	}
	t.says(s, t.Program("print", "text", "next"), "next")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := f.Read(ctx, "large")
	t.must(err, "read")
	t.noError(errorOf(io.ReadFull(r, make([]byte, 10))), "read of the beginning")
	cancel()
	if n, err := io.Copy(io.Discard, r); err == nil && n == int64(len(data)-10) {
		t.Errorf("a reader went on to the end after its context had ended")
	}
	r.Close()
	t.isNo("stat with a context that has ended", errorOf(f.Stat(ctx, "large")), context.Canceled)
	t.holds(f, "large", data)
	s = t.Session()
	f = s.Files()
	t.put(f, "large", data)
	r = t.opens(f, "large")
	defer r.Close()
	t.noError(s.Close(), "close")
	if n, err := io.Copy(io.Discard, r); err == nil && n == int64(len(data)) {
		t.Errorf("a reader went on to the end after its session was closed")
	}
}

func parallelFiles(t *T, s executor.Session, f executor.Files) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 5 {
				name := fmt.Sprintf("dir-%d/file-%d", i, n)
				want := strings.Repeat(name, 1000*(n+1))
				if err := f.Write(t.Context(), name, strings.NewReader(want), 0); err != nil {
					t.Errorf("write %q: %v", name, err)
					return
				}
				t.holds(f, name, want)
			}
		})
	}
	wg.Wait()
}

// walksFS compares executor.FS with what was written, by the rules of package io/fs.
func walksFS(t *T, s executor.Session, f executor.Files) {
	want := map[string]string{"a.txt": "a", "dir/b.txt": "bb", "dir/sub/c.bin": string(pattern(5000)), "z": ""}
	for name, content := range want {
		t.put(f, name, content)
	}
	fsys := executor.FS(t.Context(), s)
	var walked []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		stat, err := fs.Stat(fsys, name)
		if err != nil {
			return err
		}
		if stat.Mode() != info.Mode() || stat.Size() != info.Size() && !stat.IsDir() || info.IsDir() != d.IsDir() {
			t.Errorf("%s: the directory has %v, Stat %v", name, fs.FormatFileInfo(info), fs.FormatFileInfo(stat))
		}
		if d.IsDir() {
			return nil
		}
		walked = append(walked, name)
		data, err := fs.ReadFile(fsys, name)
		if err != nil || string(data) != want[name] || info.Size() != int64(len(want[name])) {
			t.Errorf("%s: got %s, size %d, %v, want %s", name, excerpt(string(data)), info.Size(), err, excerpt(want[name]))
		}
		return nil
	})
	t.noError(err, "walk")
	equalLists(t, "walked", walked, []string{"a.txt", "dir/b.txt", "dir/sub/c.bin", "z"})
	for _, name := range []string{"/a.txt", "../a.txt", "dir/../a.txt", "./a.txt", "dir/", ""} {
		if _, err := fsys.Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("open of the invalid name %q: got %v, want fs.ErrInvalid", name, err)
		}
	}
	var pe *fs.PathError
	if _, err := fsys.Open("none"); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &pe) {
		t.Errorf("open of a missing file: got %v, want an *fs.PathError with fs.ErrNotExist", err)
	}
}

// noHostFiles says why a backend need not hide the files of the host.
func noHostFiles(caps executor.Capabilities) string {
	switch {
	case caps.Isolation == executor.IsolationProcess:
		return "the isolation of a process leaves the files of the host in sight"
	case runtime.GOOS == "windows":
		return "the names of files on this system are not those of a sandbox"
	}
	return ""
}

// hostFiles makes a file on the host and tries to read it through a session.
func hostFiles(t *T) {
	dir, err := os.MkdirTemp("", "host-file-")
	if err != nil {
		t.Abort("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const secret = "a file of the host"
	name := filepath.Join(dir, "secret.txt")
	if err := os.WriteFile(name, []byte(secret), 0o644); err != nil {
		t.Abort("%v", err)
	}
	s := t.Session()
	climbing := strings.Repeat("../", 20) + strings.TrimPrefix(name, "/")
	for _, by := range []string{name, climbing, "/proc/1/root" + name, "/proc/self/root" + name} {
		if res := t.Run(s, t.Program("read-file", "name", by)); strings.Contains(string(res.Stdout), secret) {
			t.Errorf("code read a file of the host as %q", by)
		}
	}
	if !t.Has(executor.FeatureFiles) {
		return
	}
	t.Run(s, t.Program("symlink", "target", name, "link", "link"))
	t.Run(s, t.Program("symlink", "target", dir, "link", "linked"))
	for _, by := range []string{name, "link", "linked/secret.txt", "/proc/1/root" + name} {
		if got, err := t.get(s.Files(), by); err == nil && strings.Contains(got, secret) {
			t.Errorf("Files read a file of the host as %q", by)
		}
	}
	s.Files().Write(t.Context(), "linked/planted.txt", strings.NewReader("x"), 0)
	s.Files().Write(t.Context(), name, strings.NewReader("x"), 0)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a file was planted on the host")
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != secret {
		t.Errorf("a file of the host was changed: %q, %v", data, err)
	}
}
