package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/wire"
)

// kindOf returns the kind of an error that driver.Fail made.
func kindOf(err error) error {
	var e *executor.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return err
}

func read(t testing.TB, s *sandbox, name string) (string, error) {
	t.Helper()
	r, err := s.Files().Read(t.Context(), name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestFiles(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		f, ctx := s.Files(), t.Context()
		at := func(name string) string { return filepath.Join(s.workdir, name) }

		if err := f.Write(ctx, at("a/b/é\n.txt"), strings.NewReader("hello"), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, s, at("a/b/é\n.txt")); got != "hello" || err != nil {
			t.Errorf("read: got %q, %v", got, err)
		}
		if i, err := f.Stat(ctx, at("a/b/é\n.txt")); err != nil || i.Name != "é\n.txt" || i.Size != 5 || i.Mode != 0o640 || i.ModTime.IsZero() {
			t.Errorf("stat: got %+v, %v", i, err)
		}
		if r := s.code(t, "import os; st = os.stat('a/b/é\\n.txt'); (st.st_uid, st.st_gid, oct(st.st_mode))"); r.value() != fmt.Sprintf("(%d, %d, '0o100640')", s.uid, s.uid) {
			t.Errorf("seen from inside: got %+v", r)
		}
		if err := f.Write(ctx, at("a/b/é\n.txt"), strings.NewReader(""), 0o600); err != nil {
			t.Error(err)
		}
		if got, err := read(t, s, at("a/b/é\n.txt")); got != "" || err != nil {
			t.Errorf("read an empty file: got %q, %v", got, err)
		}
		if err := f.Rename(ctx, at("a"), at("c")); err != nil {
			t.Error(err)
		}
		if err := f.Mkdir(ctx, at("x/y")); err != nil {
			t.Error(err)
		}
		s.sh(t, "ln -s c link; ln -s nowhere broken; mkfifo pipe; mkdir many; cd many; for i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9 0; do for k in 1 2 3 4 5 6 7 8 9 0; do :> f$i$j$k; done; done; done")
		if i, err := f.Stat(ctx, at("link")); err != nil || i.Mode.Type() != fs.ModeSymlink || i.Target != "c" {
			t.Errorf("stat of a link: got %+v, %v", i, err)
		}
		names := func(dir string) (names []string) {
			for i, err := range f.List(ctx, dir) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, i.Name)
			}
			return names
		}
		if got, want := names(s.workdir), []string{"broken", "c", "link", "many", "pipe", "x"}; !slices.Equal(got, want) {
			t.Errorf("list: got %q, want %q", got, want)
		}
		if got := names(at("many")); len(got) != 900 || !slices.IsSorted(got) {
			t.Errorf("list: got %d names", len(got))
		}
		for range f.List(ctx, at("many")) {
			break // leaving early must not disturb what follows
		}
		if got := names(at("x/y")); len(got) != 0 {
			t.Errorf("list of an empty directory: got %q", got)
		}
		for _, name := range []string{"many", "many", "link", "broken", "pipe", "c", "none/such"} {
			if err := f.Remove(ctx, at(name)); err != nil {
				t.Errorf("remove %s: %v", name, err)
			}
		}
		if got := names(s.workdir); !slices.Equal(got, []string{"x"}) {
			t.Errorf("after removing: got %q", got)
		}
		s.sh(t, "mkdir -p locked/in; touch locked/in/f; chmod 0 locked/in locked")
		if err := f.Remove(ctx, at("locked")); err != nil {
			t.Errorf("remove what its owner has locked: %v", err)
		}
	})
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	f, ctx := s.Files(), t.Context()
	s.sh(t, "mkdir dir; echo x > file; mkfifo pipe; ln -s loop loop")
	at := func(name string) string { return filepath.Join(s.workdir, name) }
	write := func(name string) error { return f.Write(ctx, name, strings.NewReader("x"), 0o644) }
	readErr := func(name string) error { _, err := read(t, s, name); return err }
	stat := func(name string) error { _, err := f.Stat(ctx, name); return err }
	lst := func(name string) error {
		for _, err := range f.List(ctx, name) {
			return err
		}
		return nil
	}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"read-missing":         {readErr(at("none")), fs.ErrNotExist},
		"read-below-file":      {readErr(at("file/x")), fs.ErrNotExist},
		"read-dir":             {readErr(at("dir")), fs.ErrInvalid},
		"read-fifo":            {readErr(at("pipe")), fs.ErrInvalid},
		"read-device":          {readErr("/dev/zero"), fs.ErrInvalid},
		"read-loop":            {readErr(at("loop")), fs.ErrInvalid},
		"read-relative":        {readErr("file"), executor.ErrInvalid},
		"read-forbidden":       {readErr("/etc/shadow"), fs.ErrPermission},
		"read-supervisor":      {readErr(fmt.Sprintf("/proc/%d/mem", s.cmd.Process.Pid)), fs.ErrPermission},
		"read-supervisor-env":  {readErr(fmt.Sprintf("/proc/%d/environ", s.cmd.Process.Pid)), fs.ErrPermission},
		"write-dir":            {write(at("dir")), fs.ErrInvalid},
		"write-below-file":     {write(at("file/x")), fs.ErrNotExist},
		"write-forbidden":      {write("/etc/x"), fs.ErrPermission},
		"write-other":          {write("/root/x"), fs.ErrPermission},
		"write-memory":         {write("/proc/self/mem"), fs.ErrNotExist},
		"write-long-name":      {write(at(strings.Repeat("x", 300))), fs.ErrInvalid},
		"stat-missing":         {stat(at("none")), fs.ErrNotExist},
		"list-missing":         {lst(at("none")), fs.ErrNotExist},
		"list-file":            {lst(at("file")), fs.ErrNotExist},
		"mkdir-exists":         {f.Mkdir(ctx, at("dir")), fs.ErrExist},
		"mkdir-file":           {f.Mkdir(ctx, at("file")), fs.ErrExist},
		"rename-missing":       {f.Rename(ctx, at("none"), at("x")), fs.ErrNotExist},
		"rename-forbidden":     {f.Rename(ctx, at("file"), "/etc/x"), fs.ErrPermission},
		"remove-root":          {f.Remove(ctx, "/"), fs.ErrInvalid},
		"remove-root-in-words": {f.Remove(ctx, "/tmp/.."), fs.ErrInvalid},
		"remove-forbidden":     {f.Remove(ctx, "/etc/passwd"), fs.ErrPermission},
	} {
		if !errors.Is(kindOf(c.err), c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if b, err := os.ReadFile(at("file")); string(b) != "x\n" || err != nil {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

// A write that does not reach its end leaves what was there, and nothing else.
func TestWriteIsAtomic(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	f := s.Files()
	name := filepath.Join(s.workdir, "file")
	if err := f.Write(t.Context(), name, strings.NewReader("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			entries, err := os.ReadDir(s.workdir)
			b, rerr := os.ReadFile(name)
			return err == nil && rerr == nil && len(entries) == 1 && string(b) == "old"
		})
	}
	cause := errors.New("the source failed")
	if err := f.Write(t.Context(), name, io.MultiReader(strings.NewReader("new"), iotest.ErrReader(cause)), 0o644); !errors.Is(err, cause) {
		t.Errorf("got %v, want the error of the source", err)
	}
	check("after an error of the source")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := f.Write(ctx, name, readerFunc(func(p []byte) (int, error) { cancel(cause); return copy(p, "new"), nil }), 0o644)
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	check("after a cancel")
	// The connection goes while a file is half written.
	c := attach(t, s, 0)
	begun := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		err := c.Files().Write(t.Context(), name, readerFunc(func(p []byte) (int, error) { once.Do(func() { close(begun) }); return len(p), nil }), 0o644)
		if kindOf(err) != executor.ErrClosed && kindOf(err) != executor.ErrUnavailable {
			t.Errorf("got %v", err)
		}
	})
	<-begun
	c.Detach()
	wg.Wait()
	check("after the connection has ended")
}

// Every frame costs all processes on its way some work, so a source in small pieces is not sent in
// small frames.
func TestWriteFillsFrames(t *testing.T) {
	t.Parallel()
	s, cfg := prepare(t, host)
	_, conn := launch(t, s.stderr, command(s.python)...)
	counted := &countedWrites{ReadWriteCloser: conn}
	c, err := setUp(t.Context(), counted, cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.stderr)
	}
	defer c.Detach()
	name, data := filepath.Join(s.workdir, "file"), bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	before := counted.n.Load()
	if err := c.Files().Write(t.Context(), name, iotest.HalfReader(bufio.NewReaderSize(bytes.NewReader(data), 4096)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := counted.n.Load()-before, int64(len(data)/maxData+2); got > want {
		t.Errorf("got %d writes to the connection, want at most %d", got, want)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the file has %d other bytes, %v", len(got), err)
	}
}

type countedWrites struct {
	io.ReadWriteCloser
	n atomic.Int64
}

func (c *countedWrites) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.ReadWriteCloser.Write(p)
}

// A source that never fills a frame is not read on when nobody wants it.
func TestSourceOfNobody(t *testing.T) {
	t.Parallel()
	s := &stream{c: &client{out: make(chan []byte), over: make(chan struct{})}}
	if err := s.credits.Grant(wire.Window); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no room")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := s.sendAll(ctx, readerFunc(func(p []byte) (int, error) { cancel(cause); p[0] = 'x'; return 1, nil }))
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// A source that was cut is not one that has ended.
func TestSourceThatWasCut(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	name := filepath.Join(s.workdir, "file")
	cut := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := s.Files().Write(t.Context(), name, cut, 0o644); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestLargeFilesSideBySide(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	f := s.Files()
	var wg sync.WaitGroup
	for i := range 20 { // more than are under way at once
		wg.Go(func() {
			name := filepath.Join(s.workdir, fmt.Sprint("f", i))
			data := make([]byte, 3<<20+i)
			rand.NewChaCha8([32]byte{byte(i)}).Read(data)
			if err := f.Write(t.Context(), name, bytes.NewReader(data), 0o644); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			got, err := read(t, s, name)
			if err != nil || sha256.Sum256([]byte(got)) != sha256.Sum256(data) {
				t.Errorf("read: got %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}

// Whoever does not go on reading or writing holds up nobody, and closing early frees everything.
func TestStalledTransfers(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	f := s.Files()
	name := filepath.Join(s.workdir, "big")
	if err := f.Write(t.Context(), name, io.LimitReader(readerFunc(func(p []byte) (int, error) { return len(p), nil }), 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	other := attach(t, s, 0) // its transfers stall, and it has more of them than are allowed at once
	for range 20 {
		go func() { // ends with the connection
			if r, err := other.Files().Read(t.Context(), name); err == nil {
				r.Read(make([]byte, 1))
			}
		}()
	}
	for range 3 {
		if got, err := read(t, s, name); len(got) != 8<<20 || err != nil {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		r, err := f.Read(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		r.Read(make([]byte, 10))
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Read(make([]byte, 10)); err == nil {
			t.Error("read after close")
		}
	}
	if r := s.code(t, "1"); r.value() != "1" {
		t.Errorf("got %+v", r)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		s.code(t, "open('old', 'w').write('1'); open('touched', 'w').write('1')\nimport os; os.mkdir('d')")
		names := func(r result) (names []string) {
			if r.err != nil {
				t.Fatal(r.err)
			}
			for _, a := range r.Artifacts {
				names = append(names, a.Name+"="+string(a.Data))
			}
			return names
		}
		all := &executor.ArtifactRequest{MaxFiles: 100, MaxBytes: 1 << 20, Contents: true}
		code := func(code string) executor.Request {
			return executor.Request{Language: executor.Python, Code: code, Artifacts: all}
		}
		for _, c := range []struct {
			req  executor.Request
			want []string
		}{
			{code("open('touched', 'w').write('2'); open('d/new', 'w').write('3'); os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')"), []string{"d/new=3", "touched=2"}},
			{code("1"), nil},
			{code("open('touched', 'w').write('3')"), []string{"touched=3"}}, // same size, perhaps in the same tick of the clock
			{code("os.utime('old', (1, 1))"), []string{"old=1"}},
			{code("open('new', 'w').write('4'); 1/0"), []string{"new=4"}},
			{code("open('last', 'w').write('5'); os._exit(1)"), []string{"last=5"}},
			{executor.Request{Command: []string{"/bin/sh", "-c", "echo x > cmd; echo y > other.txt"}, Artifacts: &executor.ArtifactRequest{Globs: []string{"*.txt"}, MaxFiles: 9, MaxBytes: 9, Contents: true}}, []string{"other.txt=y\n"}},
		} {
			if got := names(s.do(t.Context(), c.req)); !slices.Equal(got, c.want) {
				t.Errorf("%q: got %q, want %q", c.req.Code, got, c.want)
			}
		}
	})
}
