package cell

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// FuzzTransform runs the translation of notebooks on any text. A program that Python compiles must
// stay unchanged: alone, before a notebook line, and, except for indentation, when all its lines
// are indented.
func FuzzTransform(f *testing.F) {
	for _, seed := range []string{
		"x = 1\n", "%pwd", "%%time\nx", "%%capture a\n%%bash\nls", "x = !ls \\\n  a", "x??", "?x", "  if x:\n      y\n  z", "\tx\n\ty",
		"s = '''\n%pwd\n!ls\n'''", "s = f'''\n!{n:%Y}\n%a\n'''", "x = (a\n%b)", "x = a \\\n% b", "a = b = c\nx = a % b", "# %pwd\n\n# !ls", "if x: #\n\ty\n",
		"def f():\n    return 1\n\n\n@a\nclass B: pass", "x = 1;\n", "async with a: await b", "f'{x!r}'", "x = [\n  1,\n    2]", "\f\nx", "x\r\ny\ry", "x = 1 \\", "(", "'''", "\x00", "é = 'ü'\né",
	} {
		f.Add(seed)
	}
	check := translator(f)
	f.Fuzz(func(t *testing.T, source string) {
		if wrong := check(t, source); wrong != "" {
			t.Errorf("%q: %s", source, wrong)
		}
	})
}

// The work of translating a long cell must be linear in its length. With quadratic work these cells
// would take minutes.
func TestTransformOfLongCells(t *testing.T) {
	t.Parallel()
	check := translator(t)
	for name, source := range map[string]string{
		"blanks":    "a" + strings.Repeat(" ", 1<<20) + "b",
		"names":     strings.Repeat("a", 1<<20) + " b",
		"continued": "!" + strings.Repeat(strings.Repeat("a", 20)+"\\\n", 1<<15),
		"questions": strings.Repeat("?", 1<<20),
		"braces":    "!" + strings.Repeat("{", 1<<20),
	} {
		if wrong := check(t, source); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// translator starts testdata/transform.py and returns a function that asks it for errors in the
// translation of a cell.
func translator(t testing.TB) func(testing.TB, string) string {
	t.Helper()
	cmd := exec.Command("python3", "-I", "testdata/transform.py", "notebook.py")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: these tests need Python 3.9 or later", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	ask, answers := json.NewEncoder(in), json.NewDecoder(out)
	return func(t testing.TB, source string) (wrong string) {
		t.Helper()
		if err := ask.Encode(source); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&wrong); err != nil {
			t.Fatal(err)
		}
		return wrong
	}
}
