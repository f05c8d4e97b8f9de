package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func withFiles(c *cloud) *memory {
	m := newMemory()
	c.files = m
	return m
}

func TestFileNames(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	f := c.session(t, executor.Spec{}).Files()
	long := strings.Repeat("n", 255)
	for in, want := range map[string]string{
		"a":                                 "/workspace/a",
		".":                                 "/workspace",
		"./a//b/":                           "/workspace/a/b",
		"a/../b":                            "/workspace/b",
		"/etc/passwd":                       "/etc/passwd",
		"/workspace/../etc":                 "/etc",
		"/../../x":                          "/x",
		"..a":                               "/workspace/..a",
		" ":                                 "/workspace/ ",
		"a\nb":                              "/workspace/a\nb",
		"ü":                                 "/workspace/ü",
		long:                                "/workspace/" + long,
		"":                                  "",
		"..":                                "",
		"../etc":                            "",
		"a/../../etc":                       "",
		"a/../../workspace/x":               "",
		"a\x00b":                            "",
		"/a\x00":                            "",
		"\xff":                              "",
		long + "n":                          "",
		strings.Repeat("a/", 2048) + "tail": "",
	} {
		m.calls = nil
		_, err := f.Stat(t.Context(), in)
		if want == "" {
			wantError(t, err, "files.stat", fs.ErrInvalid, executor.RanNo)
			if len(m.calls) != 0 || len(err.Error()) > 700 {
				t.Errorf("%.20q: got %q and %.100v", in, m.calls, err)
			}
			continue
		}
		wantError(t, skipNil(err, want), "files.stat", fs.ErrNotExist, executor.RanNo)
		if !slices.Equal(m.calls, []string{"stat " + want}) {
			t.Errorf("%.20q: got %.300q, want %.100q", in, m.calls, want)
		}
	}
}

// skipNil makes the one name that exists look like the others.
func skipNil(err error, name string) error {
	if err == nil && name == executor.Workdir {
		return &executor.Error{Op: "files.stat", Backend: "cloud", Kind: fs.ErrNotExist, Ran: executor.RanNo}
	}
	return err
}

// FuzzFileNames tests that no name gets out of Workdir but an absolute one, and that what gets
// through is clean.
func FuzzFileNames(f *testing.F) {
	for _, s := range []string{"", "a", "../a", "a/../../b", "/..", "a\x00", "\xff/..", "....//", "/workspace/../x"} {
		f.Add(s)
	}
	c := newCloud()
	m := withFiles(c)
	files := c.session(f, executor.Spec{}).Files()
	f.Fuzz(func(t *testing.T, name string) {
		m.calls = nil
		_, err := files.Stat(t.Context(), name)
		if len(m.calls) == 0 {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("got %v", err)
			}
			return
		}
		got := strings.TrimPrefix(m.calls[0], "stat ")
		if !strings.HasPrefix(name, "/") && got != executor.Workdir && !strings.HasPrefix(got, executor.Workdir+"/") {
			t.Errorf("%q became %q", name, got)
		}
		if !fs.ValidPath(strings.TrimPrefix(got, "/")) && got != "/" || strings.ContainsRune(got, 0) {
			t.Errorf("%q became %q, which is not clean", name, got)
		}
	})
}

func TestWorkdirStays(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	f := c.session(t, executor.Spec{}).Files()
	for _, name := range []string{".", "/", "/workspace", "/workspace/", "a/.."} {
		wantError(t, f.Remove(t.Context(), name), "files.remove", fs.ErrInvalid, executor.RanNo)
		wantError(t, f.Rename(t.Context(), name, "b"), "files.rename", fs.ErrInvalid, executor.RanNo)
		wantError(t, f.Rename(t.Context(), "b", name), "files.rename", fs.ErrInvalid, executor.RanNo)
	}
	wantError(t, f.Rename(t.Context(), "a", "a/b"), "files.rename", fs.ErrInvalid, executor.RanNo)
	wantError(t, f.Rename(t.Context(), "../a", "b"), "files.rename", fs.ErrInvalid, executor.RanNo)
	wantError(t, f.Rename(t.Context(), "a", "../b"), "files.rename", fs.ErrInvalid, executor.RanNo)
	if len(m.calls) != 0 {
		t.Errorf("the driver got %q", m.calls)
	}
	if err := errors.Join(f.Rename(t.Context(), "a", "ab"), f.Rename(t.Context(), "/workspaces", "b"), f.Remove(t.Context(), "missing")); err != nil {
		t.Error(err)
	}
}

func TestStatAndErrors(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	f := c.session(t, executor.Spec{}).Files()
	for name, s := range map[string]struct {
		info executor.FileInfo
		err  error
		want executor.FileInfo
		kind error
	}{
		"file":       {info: executor.FileInfo{Name: "x", Size: 3, Mode: 0o600}, want: executor.FileInfo{Name: "b", Size: 3, Mode: 0o600}},
		"link":       {info: executor.FileInfo{Mode: fs.ModeSymlink, Target: "t"}, want: executor.FileInfo{Name: "b", Mode: fs.ModeSymlink, Target: "t"}},
		"no-link":    {info: executor.FileInfo{Target: "t"}, want: executor.FileInfo{Name: "b"}},
		"negative":   {info: executor.FileInfo{Size: -1}, kind: executor.ErrInternal},
		"not-exist":  {err: fs.ErrNotExist, kind: fs.ErrNotExist},
		"wrapped":    {err: fmt.Errorf("x: %w", fs.ErrPermission), kind: fs.ErrPermission},
		"path-error": {err: &fs.PathError{Op: "stat", Err: fs.ErrExist}, kind: fs.ErrExist},
		"too-large":  {err: driver.Fail(executor.ErrTooLarge, executor.RanMaybe, nil), kind: executor.ErrTooLarge},
		"by-fail":    {err: driver.Fail(fs.ErrInvalid, executor.RanMaybe, nil), kind: fs.ErrInvalid},
		"unsaid":     {err: errReset, kind: executor.ErrInternal},
		"gone":       {err: driver.Fail(executor.ErrNotFound, executor.RanMaybe, nil), kind: executor.ErrNotFound},
	} {
		m.stat = func(string) (executor.FileInfo, error) { return s.info, s.err }
		got, err := f.Stat(t.Context(), "a/b")
		if s.kind != nil {
			wantError(t, err, "files.stat", s.kind, executor.RanNo)
		} else if err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if got != s.want {
			t.Errorf("%s: got %+v, want %+v", name, got, s.want)
		}
	}
	wantError(t, f.Mkdir(t.Context(), "a"), "files.mkdir", fs.ErrExist, executor.RanNo)
}

func TestList(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	s := c.session(t, executor.Spec{})
	list := func() (names []string, err error) {
		for i, e := range s.Files().List(t.Context(), ".") {
			if e != nil {
				return names, e
			}
			names = append(names, i.Name)
			if _, err := s.Run(t.Context(), code, nil); err != nil {
				t.Errorf("the loop uses the session: got %v", err)
			}
		}
		return names, nil
	}
	for _, n := range []string{"b", "a", "Z", "ü", "b.txt", "", ".", "..", "x/y", "nul\x00", "\xff", strings.Repeat("n", 256)} {
		m.list = append(m.list, executor.FileInfo{Name: n})
	}
	if got, err := list(); err != nil || !slices.Equal(got, []string{"Z", "a", "b", "b.txt", "ü"}) {
		t.Errorf("got %q %v", got, err)
	}
	for range s.Files().List(t.Context(), ".") {
		break
	}
	m.list = []executor.FileInfo{{Name: "b"}, {Name: "a", Size: -1}}
	got, err := list()
	if wantError(t, err, "files.list", executor.ErrInternal, executor.RanNo); !slices.Equal(got, []string{"b"}) {
		t.Errorf("got %q", got)
	}
	m.list = make([]executor.FileInfo, 100_001)
	for i := range m.list {
		m.list[i].Name = fmt.Sprint(i)
	}
	n := 0
	for _, e := range s.Files().List(t.Context(), ".") {
		if e != nil {
			wantError(t, e, "files.list", executor.ErrTooLarge, executor.RanNo)
		} else {
			n++
		}
	}
	if n != 100_000 {
		t.Errorf("got %d entries", n)
	}
	for _, e := range s.Files().List(t.Context(), "../up") {
		wantError(t, e, "files.list", fs.ErrInvalid, executor.RanNo)
	}
}

func TestWrite(t *testing.T) {
	odd := errors.New("source failed")
	half := func(ctx context.Context, _ string, r io.Reader, _ fs.FileMode) error {
		_, err := io.CopyN(io.Discard, r, 2)
		return err
	}
	for name, c := range map[string]struct {
		r     io.Reader
		mode  fs.FileMode
		write func(context.Context, string, io.Reader, fs.FileMode) error
		want  string // the call
		kind  error
		cause error
	}{
		"default-mode":  {r: strings.NewReader("x"), want: "write /workspace/a -rw-r--r--"},
		"mode":          {r: strings.NewReader("x"), mode: fs.ModeSetuid | fs.ModeDir | 0o700, want: "write /workspace/a -rwx------"},
		"nothing":       {want: "write /workspace/a -rw-r--r--"},
		"one-by-one":    {r: iotest.OneByteReader(strings.NewReader("xyz")), want: "write /workspace/a -rw-r--r--"},
		"source-fails":  {r: iotest.ErrReader(odd), kind: executor.ErrInvalid, cause: odd},
		"source-middle": {r: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(odd)), kind: executor.ErrInvalid, cause: odd},
		"half":          {r: strings.NewReader("xyz"), write: half, kind: executor.ErrInternal},
		"no-space": {
			r: strings.NewReader("xyz"),
			write: func(context.Context, string, io.Reader, fs.FileMode) error {
				return driver.Fail(executor.ErrTooLarge, executor.RanNo, nil)
			},
			kind: executor.ErrTooLarge,
		},
	} {
		cl := newCloud()
		m := withFiles(cl)
		m.write = c.write
		err := cl.session(t, executor.Spec{}).Files().Write(t.Context(), "a", c.r, c.mode)
		if c.kind != nil {
			if e := wantError(t, err, "files.write", c.kind, executor.RanNo); c.cause != nil && !errors.Is(e, c.cause) {
				t.Errorf("%s: got %v, want the source's error in it", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(m.calls, []string{c.want}) {
			t.Errorf("%s: got %v and %q, want %q", name, err, m.calls, c.want)
		}
	}
}

func TestWriteEndsWithItsContext(t *testing.T) {
	c := newCloud()
	withFiles(c)
	ctx, cancel := context.WithCancel(t.Context())
	err := c.session(t, executor.Spec{}).Files().Write(ctx, "a", readFunc(func(p []byte) (int, error) {
		cancel()
		return copy(p, "endless"), nil
	}), 0)
	wantError(t, err, "files.write", context.Canceled, executor.RanNo)
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// body is a file that blocks until it is closed.
type body struct {
	once   sync.Once
	closed chan struct{}
	err    error
}

func newBody() *body { return &body{closed: make(chan struct{})} }

func (b *body) Read([]byte) (int, error) {
	<-b.closed
	return 0, errReset
}

func (b *body) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.err
}

func TestRead(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	s := c.session(t, executor.Spec{})
	m.files["/workspace/a"] = "content"
	f, err := s.Files().Read(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(f, []byte("content")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = f.Read(make([]byte, 1))
	if wantError(t, err, "files.read", executor.ErrClosed, executor.RanNo); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v", err)
	}
	_, err = s.Files().Read(t.Context(), "missing")
	wantError(t, err, "files.read", fs.ErrNotExist, executor.RanNo)
	m.read = func(context.Context, string) (io.ReadCloser, error) { return nil, nil }
	_, err = s.Files().Read(t.Context(), "a")
	wantError(t, err, "files.read", executor.ErrInternal, executor.RanNo)
	m.read = func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(iotest.ErrReader(driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset))), nil
	}
	if f, err = s.Files().Read(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(f)
	wantError(t, err, "files.read", executor.ErrUnavailable, executor.RanNo)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	failing := newBody()
	failing.err = errReset
	m.read = func(context.Context, string) (io.ReadCloser, error) { return failing, nil }
	if f, err = s.Files().Read(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantError(t, f.Close(), "files.read", executor.ErrInternal, executor.RanNo)
	}
}

// TestReadEndsByItself tests that an open file ends with its context and with its session, and that
// nobody then waits for its caller.
func TestReadEndsByItself(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cancel context.CancelFunc, x executor.Executor, s executor.Session) error
		kind error
	}{
		"context": {func(cancel context.CancelFunc, _ executor.Executor, _ executor.Session) error { cancel(); return nil }, context.Canceled},
		"close":   {func(_ context.CancelFunc, _ executor.Executor, s executor.Session) error { return s.Close() }, executor.ErrClosed},
		"detach":  {func(_ context.CancelFunc, _ executor.Executor, s executor.Session) error { return s.Detach() }, executor.ErrClosed},
		"all":     {func(_ context.CancelFunc, x executor.Executor, _ executor.Session) error { return x.Close() }, executor.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				m := withFiles(cl)
				b := newBody()
				m.read = func(context.Context, string) (io.ReadCloser, error) { return b, nil }
				x := cl.open(t)
				s := create(t, x, executor.Spec{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f, err := s.Files().Read(ctx, "a")
				if err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := f.Read(make([]byte, 1))
					wantError(t, err, "files.read", c.kind, executor.RanNo)
				})
				synctest.Wait()
				begin := time.Now()
				if err := c.end(cancel, x, s); err != nil || time.Since(begin) != 0 {
					t.Errorf("got %v after %v", err, time.Since(begin))
				}
				wg.Wait()
				<-b.closed
				_, err = f.Read(make([]byte, 1))
				wantError(t, err, "files.read", c.kind, executor.RanNo)
				// The caller never closes it.
			})
		})
	}
}

func TestFilesAndRuns(t *testing.T) {
	for name, c := range map[string]struct {
		lacks []executor.Feature
		busy  bool
	}{
		"together": {nil, false},
		"apart":    {[]executor.Feature{executor.FeatureFilesDuringRun}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud()
				cl.caps = without(full, c.lacks...)
				m := withFiles(cl)
				m.files["/workspace/a"], m.files["/workspace/x"] = "x", "x"
				s := cl.session(t, executor.Spec{})
				check := func(op string, err error) {
					t.Helper()
					if c.busy {
						wantError(t, err, op, executor.ErrBusy, executor.RanNo)
					} else if err != nil {
						t.Errorf("%s: got %v", op, err)
					}
				}
				f, err := s.Files().Read(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.Run(t.Context(), code, nil)
				check("run", err)
				_, err = s.Install(t.Context(), executor.Packages{Names: []string{"x"}}, nil)
				check("install", err)
				if _, err := s.Files().Stat(t.Context(), "a"); err != nil {
					t.Errorf("transfers beside each other: got %v", err)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}

				end := make(chan struct{})
				cl.run = func(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
					err := started(emit)
					<-end
					return driver.Exit{}, err
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := s.Run(t.Context(), code, nil); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				for op, err := range everyCall(t.Context(), nil, s, executor.Handle{}) {
					if strings.HasPrefix(op, "files.") && op != "files.mkdir" {
						check(op, err)
					}
				}
				close(end)
				wg.Wait()
				if _, err := s.Files().Stat(t.Context(), "a"); err != nil {
					t.Errorf("afterwards: got %v", err)
				}
			})
		})
	}
}
