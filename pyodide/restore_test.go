package pyodide

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// describeFiles is a program that prints all properties of the files of a session.
const describeFiles = `
import hashlib, os
for top in ("/workspace", "/tmp", "/opt"):
    for dir, dirs, files in os.walk(top):
        dirs.sort()
        for name in sorted(dirs + files):
            p = os.path.join(dir, name)
            s = os.lstat(p)
            what = os.readlink(p) if os.path.islink(p) else hashlib.sha256(open(p, "rb").read()).hexdigest() if os.path.isfile(p) else ""
            print(p, oct(s.st_mode), s.st_size if not os.path.isdir(p) else "", s.st_mtime_ns, what)
`

// lose kills the process of the session.
func lose(t *testing.T, s executor.Session) {
	t.Helper()
	if r := runCode(t, s, "import os; os.abort()"); !r.StateLost || r.FilesLost {
		t.Fatalf("got %s, lost %v %v", describeResult(r), r.StateLost, r.FilesLost)
	}
}

// After a process is lost, the files are exactly those after the last completed run.
func TestFilesSurviveTheProcess(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	steps := []struct{ name, code string }{
		{"several-kinds", `
import os, random
os.makedirs("a/b/c")
open("a/b/c/deep", "w").write("deep")
open("empty", "w").close()
open("large", "wb").write(random.randbytes(3_000_000))
os.symlink("large", "link"); os.symlink("/nowhere", "dangling"); os.symlink("..", "a/up")
open("mode", "w").close(); os.chmod("mode", 0o600); os.chmod("a/b", 0o500)
open("old", "w").close(); os.utime("old", (1e9, 1e9)); os.utime("a", (1e9, 1e9))
open("/tmp/t", "w").write("t"); open("/tmp/home/h", "w").write("h"); os.mkdir("/opt"); open("/opt/o", "w").write("o")
open("ünïcödé \U0001f600", "w").write("name"); open("__proto__", "w").write("name"); open("new\nline", "w").write("name")`},
		{"changed-in-the-middle", `
with open("large", "r+b") as f:
    f.seek(1_000_000); f.write(b"changed"); f.seek(0, 2); f.write(b"longer" * 1000)`},
		{"moved", `os.chmod("a/b", 0o700); os.rename("a", "moved"); os.rename("large", "moved/large"); os.replace("old", "empty")`},
		{"removed", `
import shutil
shutil.rmtree("moved/b"); os.remove("mode"); os.remove("/tmp/t"); os.remove("link")`},
		{"replaced-by-another-kind", `os.mkdir("mode"); open("link", "w").write("a file now"); os.remove("dangling"); os.mkdir("dangling")`},
		{"truncated-and-longer", `
with open("moved/large", "r+b") as f: f.truncate(10)
with open("moved/large", "r+b") as f: f.truncate(100_000)`},
		{"sparse", `
with open("sparse", "wb") as f: f.seek(5_000_000); f.write(b"end")`},
		{"mapped", `
import mmap
with open("moved/large", "r+b") as f, mmap.mmap(f.fileno(), 0) as m: m[50:60] = b"0123456789"; m.flush()`},
		{"nothing", "pass"},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			output(t, s, "import os\n"+step.code)
			before := output(t, s, describeFiles)
			lose(t, s)
			after := output(t, s, describeFiles)
			if before == after {
				return
			}
			b, a := strings.Split(before, "\n"), strings.Split(after, "\n")
			for i := range max(len(a), len(b)) {
				if i >= len(a) || i >= len(b) || a[i] != b[i] {
					t.Fatalf("line %d:\ngot  %q\nwant %q", i, a[min(i, len(a)-1)], b[min(i, len(b)-1)])
				}
			}
		})
	}
}

// Files that were written from outside are kept too, without a run in between.
func TestUploadsSurviveTheProcess(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if err := s.Files().Write(t.Context(), "dir/data.bin", bytes.NewReader(data), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := s.Files().Write(t.Context(), "gone", strings.NewReader("x"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Files().Remove(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	r := runCode(t, s, "open('dir/data.bin', 'w').close()"+stubborn, within(500*time.Millisecond))
	if !r.StateLost {
		t.Fatalf("got %s", describeResult(r))
	}
	f, err := s.Files().Read(t.Context(), "dir/data.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	f.Close()
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(data))
	}
	if got := output(t, s, "import os; print(oct(os.stat('dir/data.bin').st_mode), os.listdir())"); got != "0o100640 ['dir']\n" {
		t.Errorf("got %q", got)
	}
}
