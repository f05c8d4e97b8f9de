package cell

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestChanges runs steps in a directory and checks what changes reports after each of them.
func TestChanges(t *testing.T) {
	const program = `
import json, os, sys
cell = type(sys)("cell")
exec(open("cell.py").read() + open("report.py").read(), cell.__dict__)
os.chdir(sys.argv[1])
out = []
for step in json.load(sys.stdin):
    state = cell.scan(".")
    exec(step)
    found = cell.changes(".", state)
    assert all(os.stat(n).st_size == s and os.stat(n).st_mtime_ns == m for n, s, m in found if os.path.exists(n))
    out.append(" ".join(n for n, _, _ in found))
print(json.dumps(out))
`
	steps := []struct{ code, want string }{
		{"open('a', 'w').write('1')", "a"},
		{"pass", ""},
		{"open('a', 'w').write('2')", "a"}, // immediately, and with the same length
		{"open('a', 'w').write('3'); os.utime('a', (1, 1))", "a"},
		{"os.utime('a', (1, 1))", "a"}, // cannot be distinguished from a write that resets the time
		{"os.makedirs('d/e'); open('d/e/f', 'w').close()", "d/e/f"},
		{"os.rename('d', 'g')", "g/e/f"},
		{"os.remove('a')", ""},
		{"os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'dir'); os.symlink('.', 'self')", ""},
		{"os.mkfifo('fifo')", ""},
		{"os.makedirs('__pycache__'); open('__pycache__/x.pyc', 'w').close()", ""},
		{"open('.hidden', 'w').close()", ".hidden"},
		{"open('.execbroker-part', 'w').close()", ""},
		{"os.mkdir('locked', 0)", ""},
		{"open('name with space', 'w').close()", "name with space"},
		{"for i in range(3): open('n%d' % i, 'w').close()", "n0 n1 n2"},
		{"os.mkdir('many'); [open('many/%05d' % i, 'w').close() for i in range(10050)]; cell.MAX_FILES = 3", "many/00000 many/00001 many/00002"},
	}
	var codes []string
	for _, s := range steps {
		codes = append(codes, s.code)
	}
	in, err := json.Marshal(codes)
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range pythons(t) {
		cmd := exec.CommandContext(t.Context(), python, "-I", "-c", program, t.TempDir())
		cmd.Stdin = strings.NewReader(string(in))
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", python, err)
		}
		var got []string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			if got[i] != s.want {
				t.Errorf("%s: %s: got %q, want %q", python, s.code, got[i], s.want)
			}
		}
	}
}
