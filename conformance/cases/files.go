package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// filesCase makes a case about Session.Files, whose negative form is that every method refuses.
func filesCase(id, doc string, programs []string, positive func(t *T, s executor.Session, f executor.Files)) Case {
	return Case{
		ID: "files/" + id, Feature: executor.FeatureFiles, Doc: doc, Programs: programs,
		Positive: emptied(func(t *T, s executor.Session) { positive(t, s, s.Files()) }),
		Negative: noFiles,
	}
}

// empties removes all that is in the working directory, and reports whether nothing is left.
func (t *T) empties(f executor.Files) bool {
	names := func() (all []string, err error) {
		for i, err := range f.List(t.Context(), ".") {
			if err != nil {
				return nil, err
			}
			all = append(all, i.Name)
		}
		return all, nil
	}
	left, err := names()
	for _, name := range left {
		err = errors.Join(err, f.Remove(t.Context(), name))
	}
	if err == nil && len(left) > 0 {
		left, err = names()
	}
	return err == nil && len(left) == 0
}

// noFiles checks that every method of Files refuses.
func noFiles(t *T) {
	f := t.Shared().Files()
	ctx, missing := t.Context(), executor.FeatureFiles
	t.Refused("files.read", errorOf(f.Read(ctx, "a")), missing)
	t.Refused("files.write", f.Write(ctx, "a", strings.NewReader("x"), 0), missing)
	t.Refused("files.stat", errorOf(f.Stat(ctx, ".")), missing)
	t.Refused("files.list", onlyError(t, f.List(ctx, ".")), missing)
	t.Refused("files.mkdir", f.Mkdir(ctx, "a"), missing)
	t.Refused("files.rename", f.Rename(ctx, "a", "b"), missing)
	t.Refused("files.remove", f.Remove(ctx, "a"), missing)
}

// put writes a file, or ends the case.
func (t *T) put(f executor.Files, name, content string) {
	t.must(f.Write(t.Context(), name, strings.NewReader(content), 0), "write %q", name)
}

// holds checks the content of a file.
func (t *T) holds(f executor.Files, name, want string) {
	got, err := t.get(f, name)
	if err != nil {
		t.Errorf("read %q: %v", name, err)
	} else if got != want {
		t.Errorf("%q: got %s, want %s", name, excerpt(got), excerpt(want))
	}
}

// get reads a file.
func (t *T) get(f executor.Files, name string) (string, error) {
	r, err := f.Read(t.Context(), name)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(r)
	return string(data), errors.Join(err, r.Close())
}

// opens opens a file, or ends the case.
func (t *T) opens(f executor.Files, name string) io.ReadCloser {
	r, err := f.Read(t.Context(), name)
	t.must(err, "read %q", name)
	return r
}

// missing checks that there is no file.
func (t *T) missing(f executor.Files, name string) {
	t.isNo(fmt.Sprintf("stat of %q, which is not there", name), errorOf(f.Stat(t.Context(), name)), fs.ErrNotExist)
}

// names lists a directory.
func (t *T) names(f executor.Files, dir string) (names []string) {
	for i, err := range f.List(t.Context(), dir) {
		t.must(err, "list %q", dir)
		names = append(names, i.Name)
	}
	return names
}

// lists checks the names in a directory.
func (t *T) lists(f executor.Files, dir string, want ...string) {
	equalLists(t, "list "+dir, t.names(f, dir), want)
}

// oddNames are names that quoting, encoding or sorting go wrong with.
var oddNames = []string{
	" leading blank", "-rf", ".hidden", "..double", "a\"quote'`", "back\\slash", "dollar $HOME $(id)", "new\nline", "per%41cent%",
	"question?star*[x]", "semi;colon&pipe|", "tab\there", "trailing blank ", "z" + strings.Repeat("0123456789", 25), "\u00e9 composed",
	"e\u0301 decomposed", "渐😀",
}

// fileCases are about Session.Files and the files that code sees.
func fileCases() []Case {
	return []Case{
		filesCase("write-then-code", "What Write writes code reads, under the same name, absolute or relative to the working directory.",
			[]string{"read-file"}, func(t *T, s executor.Session, f executor.Files) {
				t.put(f, "in.txt", "naïve 渐\n")
				t.says(s, t.Program("read-file", "name", "in.txt"), "naïve 渐\n")
				t.put(f, executor.Workdir+"/sub/../in.txt", "again")
				t.says(s, t.Program("read-file", "name", executor.Workdir+"/in.txt"), "again")
			}),
		filesCase("code-then-read", "What code writes Read reads.",
			[]string{"write-file"}, func(t *T, s executor.Session, f executor.Files) {
				t.ok(s, t.Program("write-file", "name", "out.txt", "text", "naïve 渐\n"))
				t.holds(f, "out.txt", "naïve 渐\n")
				t.holds(f, executor.Workdir+"/./out.txt", "naïve 渐\n")
			}),
		filesCase("bytes", "Contents of any bytes and of sizes around those of buffers come back as they were.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				for _, size := range []int{0, 1, 4095, 4096, 32<<10 + 1, 64 << 10, 1<<20 + 1} {
					name := "size-" + strconv.Itoa(size)
					want := string(pattern(size))
					t.put(f, name, want)
					t.holds(f, name, want)
					if i, err := f.Stat(t.Context(), name); err != nil || i.Size != int64(size) || i.Name != name || !i.Mode.IsRegular() {
						t.Errorf("stat %q: got %+v, %v", name, i, err)
					}
				}
			}),
		filesCase("large", "A file of 24 MiB goes up and comes down unchanged.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				data := pattern(24 << 20)
				t.must(f.Write(t.Context(), "large", bytes.NewReader(data), 0), "write")
				got, err := t.get(f, "large")
				if err != nil || got != string(data) {
					t.Errorf("got %d bytes, error %v, want the %d that were written", len(got), err, len(data))
				}
			}),
		filesCase("odd-names", "Names may hold any characters but NUL and the slash, and are listed in byte order as they are.",
			[]string{"read-file"}, func(t *T, s executor.Session, f executor.Files) {
				for _, name := range oddNames {
					t.put(f, "odd/"+name, name)
				}
				t.lists(f, "odd", slices.Sorted(slices.Values(oddNames))...)
				for _, name := range oddNames {
					t.holds(f, "odd/"+name, name)
					t.says(s, t.Program("read-file", "name", "odd/"+name), name)
				}
				for _, name := range oddNames {
					t.noError(f.Remove(t.Context(), "odd/"+name), "remove %q", name)
				}
				t.lists(f, "odd")
			}),
		filesCase("bad-names", "Names that no file can have, and relative names that climb above the working directory, are fs.ErrInvalid.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				for _, name := range []string{"", "nul\x00", "not utf-8 \xff", "../above", "a/../../above", strings.Repeat("n", 256), strings.Repeat("n/", 2048)} {
					t.isNo(fmt.Sprintf("read %s", excerpt(name)), errorOf(f.Read(t.Context(), name)), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("write %s", excerpt(name)), f.Write(t.Context(), name, strings.NewReader("x"), 0), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("stat %s", excerpt(name)), errorOf(f.Stat(t.Context(), name)), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("mkdir %s", excerpt(name)), f.Mkdir(t.Context(), name), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("rename to %s", excerpt(name)), f.Rename(t.Context(), "a", name), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("remove %s", excerpt(name)), f.Remove(t.Context(), name), fs.ErrInvalid)
				}
				for _, name := range []string{".", "/", executor.Workdir} {
					t.isNo(fmt.Sprintf("remove %q", name), f.Remove(t.Context(), name), fs.ErrInvalid)
					t.isNo(fmt.Sprintf("rename %q", name), f.Rename(t.Context(), name, "elsewhere"), fs.ErrInvalid)
				}
			}),
		filesCase("not-there", "A missing file is fs.ErrNotExist and never ErrNotFound, which is the session; removing one is not an error.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				ctx := t.Context()
				_, err := f.Read(ctx, "none")
				t.isNo("read", err, fs.ErrNotExist)
				if errors.Is(err, executor.ErrNotFound) {
					t.Errorf("read: a missing file is ErrNotFound: %v", err)
				}
				t.missing(f, "none/none")
				t.isNo("rename", f.Rename(ctx, "none", "other"), fs.ErrNotExist)
				t.isNo("list", onlyError(t, f.List(ctx, "none")), fs.ErrNotExist)
				for _, name := range []string{"none", "none/none"} {
					t.noError(f.Remove(ctx, name), "remove of the missing %q", name)
				}
			}),
		filesCase("wrong-kinds", "Reading a directory or a device, and listing a file, fails with one of the errors of files.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				t.put(f, "dir/file", "x")
				for _, name := range []string{"dir", "/dev/zero"} {
					r, err := f.Read(t.Context(), name)
					if err == nil {
						_, err = io.CopyN(io.Discard, r, 1<<20)
						r.Close()
					}
					fileError(t, "read of "+name, err)
				}
				for _, err := range f.List(t.Context(), "dir/file") {
					fileError(t, "list of a file", err)
				}
				fileError(t, "write below a file", f.Write(t.Context(), "dir/file/below", strings.NewReader("x"), 0))
				fileError(t, "write onto a directory", f.Write(t.Context(), "dir", strings.NewReader("x"), 0))
				t.holds(f, "dir/file", "x")
			}),
		filesCase("mkdir", "Mkdir makes a directory and those above it, and fails with fs.ErrExist if the name exists; Write makes them too.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				ctx := t.Context()
				t.must(f.Mkdir(ctx, "a/b/c"), "mkdir")
				if i, err := f.Stat(ctx, "a/b/c"); err != nil || !i.Mode.IsDir() || i.Name != "c" {
					t.Errorf("stat of the directory: got %+v, %v", i, err)
				}
				t.put(f, "a/d/e/file", "x")
				t.lists(f, "a", "b", "d")
				for _, name := range []string{"a", "a/b/c", "a/d/e/file", "."} {
					t.isNo("mkdir of what exists", f.Mkdir(ctx, name), fs.ErrExist)
				}
				t.holds(f, "a/d/e/file", "x")
			}),
		filesCase("rename", "Rename moves a file or a tree at once and replaces a file.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				ctx := t.Context()
				t.put(f, "from", "new")
				t.put(f, "to", "old")
				t.put(f, "tree/sub/file", "deep")
				for _, names := range [][2]string{{"from", "to"}, {"tree", "moved"}} {
					t.noError(f.Rename(ctx, names[0], names[1]), "rename %q to %q", names[0], names[1])
					t.missing(f, names[0])
				}
				t.holds(f, "to", "new")
				t.holds(f, "moved/sub/file", "deep")
			}),
		filesCase("remove", "Remove removes a file or a whole tree, and nothing beside it.",
			nil, func(t *T, s executor.Session, f executor.Files) {
				t.put(f, "dir/sub/file", "x")
				t.put(f, "dir2/file", "y")
				t.put(f, "file", "z")
				for _, name := range []string{"dir", "file"} {
					t.noError(f.Remove(t.Context(), name), "remove %q", name)
					t.missing(f, name)
				}
				t.holds(f, "dir2/file", "y")
			}),
		filesCase("modes", "Write sets the permission bits that were asked for, and no others; zero means 0644.",
			[]string{"file-mode"}, func(t *T, s executor.Session, f executor.Files) {
				for _, m := range []struct{ ask, want fs.FileMode }{
					{0, 0o644}, {0o600, 0o600}, {0o755, 0o755}, {0o444, 0o444}, {0o666, 0o666}, {0o640 | fs.ModeSetuid | fs.ModeSticky, 0o640},
				} {
					name := fmt.Sprintf("mode-%o", uint32(m.ask))
					t.must(f.Write(t.Context(), name, strings.NewReader("x"), m.ask), "write with mode %v", m.ask)
					if i, err := f.Stat(t.Context(), name); err != nil || i.Mode != m.want {
						t.Errorf("mode %v: got %v, %v, want %v", m.ask, i.Mode, err, m.want)
					}
					t.says(s, t.Program("file-mode", "name", name), fmt.Sprintf("%o", m.want))
				}
			}),
		filesCase("list", "List yields the entries of a directory in byte order, each once, without those below; the loop may be left.",
			[]string{"make-files"}, func(t *T, s executor.Session, f executor.Files) {
				t.ok(s, t.Program("make-files", "dir", "many", "count", 700))
				want := make([]string, 700)
				for i := range want {
					want[i] = fmt.Sprintf("f%04d", i)
				}
				t.lists(f, "many", want...)
				t.put(f, "many/f0000/../sub/below", "x")
				if got := t.names(f, "many"); len(got) != 701 || got[700] != "sub" {
					t.Errorf("got %d entries, want 701 with the directory as the last", len(got))
				}
				for i, err := range f.List(t.Context(), "many") {
					t.noError(errorOf(f.Stat(t.Context(), "many/"+i.Name)), "stat within the loop")
					if err != nil || i.Name != "f0000" {
						t.Errorf("got %q, %v as the first entry, want f0000", i.Name, err)
					}
					break
				}
				t.must(f.Mkdir(t.Context(), "none"), "mkdir")
				t.lists(f, "none")
			}),
		filesCase("symlinks", "Symbolic links are shown as what they are, and removing or moving one leaves its target alone.",
			[]string{"symlink", "read-file"}, symlinks),
		filesCase("replace", "A file that is replaced stays as it was until all of the new content is there, and for readers that have it open.",
			nil, replaces),
		filesCase("failed-write", "A Write that fails leaves the old content, or no file, and nothing else behind.",
			nil, failedWrites),
		filesCase("reader", "A reader may be closed early, and one whose context ends fails.",
			[]string{"print"}, readers),
		filesCase("parallel", "Many files are written and read at the same time.",
			nil, parallelFiles),
		filesCase("fs", "FS gives the same files as an fs.FS that keeps its rules.",
			nil, walksFS),
		{
			ID: "files/host", PerLanguage: true, Programs: []string{"read-file", "symlink"},
			Doc:      "No file of the host is seen through a session, by its own name, by one that climbs, or through a symbolic link.",
			Unsuited: noHostFiles,
			Positive: hostFiles,
		},
		{
			ID: "files/during-run", PerLanguage: true, Feature: executor.FeatureFilesDuringRun, Programs: []string{"wait-for-file", "spin", "print"},
			Doc: "Files work while code runs; where they do not they are refused with ErrBusy then.",
			Positive: func(t *T) {
				if !t.Has(executor.FeatureFiles) {
					noFiles(t)
					return
				}
				s := t.Shared()
				t.must(s.Files().Remove(t.Context(), "go.txt"), "remove")
				run := t.begin(s, limited(t.Program("wait-for-file", "name", "go.txt"), 25*time.Second))
				t.put(s.Files(), "go.txt", "written during the run")
				t.holds(s.Files(), "go.txt", "written during the run")
				t.mentions(run.ends("the run", 5*time.Second, executor.StatusOK, ""), "written during the run")
			},
			Negative: emptied(func(t *T, s executor.Session) {
				run := t.spins(s)
				err := s.Files().Write(t.Context(), "busy.txt", strings.NewReader("x"), 0)
				_, serr := s.Files().Stat(t.Context(), ".")
				run.stop()
				if !t.Has(executor.FeatureFiles) {
					t.Refused("files.write", err, executor.FeatureFiles)
					return
				}
				t.isNo("write while code runs", err, executor.ErrBusy)
				t.isNo("stat while code runs", serr, executor.ErrBusy)
				t.missing(s.Files(), "busy.txt")
				t.put(s.Files(), "free.txt", "x")
				r, err := s.Files().Read(t.Context(), "free.txt")
				t.must(err, "read")
				t.runFails("a run while a file is being transferred", s, t.Program("print", "text", "x"), executor.ErrBusy)
				r.Close()
				t.ok(s, t.Program("print", "text", "x"))
			}),
		},
	}
}
