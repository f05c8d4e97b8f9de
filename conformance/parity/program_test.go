package parity

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/execbroker/execbroker/executor"
)

func TestLoad(t *testing.T) {
	programs, err := Load(fstest.MapFS{
		"b/two.py": {Data: []byte("# Two cells,\n# and input.\n# differs on there: it is so.\n# %% the first\n# stdin: \"A\\nB\"\nx = 1\n# %%\nx\n")},
		"a.js":     {Data: []byte("// One.\nlet x = 1\n// %%\nx // %% not a mark\n")},
		"README":   {Data: []byte("not a program")},
		"c.txtar":  {Data: []byte("A comment.\n-- x.mjs --\nawait 1\n-- notes.txt --\nno program\n-- y.py --\n# file d.csv: \"a,b\\n\"\n# Note: no file.\nprint(1)\n")},
		"d.jsonl":  {Data: []byte(`{"id": "one", "language": "python", "code": "print(1)"}` + "\n")},
	})
	none := map[string]string{}
	want := []Program{
		{Name: "a.js", Language: executor.JavaScript, Doc: "One.", Differs: none, Files: none, Cells: []Cell{{Code: "// One.\nlet x = 1"}, {Code: "x // %% not a mark\n"}}},
		{
			Name: "b/two.py", Language: executor.Python, Doc: "Two cells, and input.", Differs: map[string]string{"there": "it is so."}, Files: none,
			Cells: []Cell{{Code: "# stdin: \"A\\nB\"\nx = 1", Stdin: "A\nB"}, {Code: "x\n"}},
		},
		{Name: "c/x.mjs", Language: executor.JavaScript, Module: true, Differs: none, Files: none, Cells: []Cell{{Code: "await 1\n"}}},
		{
			Name: "c/y.py", Language: executor.Python, Doc: "Note: no file.", Differs: none, Files: map[string]string{"d.csv": "a,b\n"},
			Cells: []Cell{{Code: "# file d.csv: \"a,b\\n\"\n# Note: no file.\nprint(1)\n"}},
		},
		{Name: "d/one", Language: executor.Python, Cells: []Cell{{Code: "print(1)"}}},
	}
	if err != nil || !reflect.DeepEqual(programs, want) {
		t.Errorf("got %+v, %v", programs, err)
	}
}

func TestLoadErrors(t *testing.T) {
	_, err := Load(fstest.MapFS{
		"a.py": {Data: []byte("# differs on pyodide\n")},
		"b.py": {Data: []byte("x\n# %%\n# stdin: A\nx")},
	})
	for _, want := range []string{`a.py: "differs on pyodide": want "differs on TYPE: why"`, `b.py: cell 2: stdin: invalid character`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	for want, fsys := range map[string]fstest.MapFS{
		`file ../x: want`:                  {"a.py": {Data: []byte("# file ../x: \"\"\n")}},
		`file x: invalid character`:        {"a.py": {Data: []byte("# file x: \"\\q\"\n")}},
		`two programs are called "a/b.py"`: {"a.txtar": {Data: []byte("-- b.py --\n-- b.py --\n")}},
		`a.py: more than`:                  {"a.py": {Data: make([]byte, maxLine+1)}},
		`a.py: 201 cells`:                  {"a.py": {Data: []byte(strings.Repeat("# %%\nx\n", 201))}},
		`a.jsonl: line 1: no "id"`:         {"a.jsonl": {Data: []byte(`{"language": "python", "code": ""}`)}},
	} {
		if _, err := Load(fsys); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(want, "file ../x", `file "../x"`)) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if _, err := Load(fstest.MapFS{"a.txt": {}}); err == nil {
		t.Error("a directory without programs was accepted")
	}
}
