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
	})
	want := []Program{
		{Name: "a.js", Language: executor.JavaScript, Doc: "One.", Cells: []Cell{{Code: "// One.\nlet x = 1"}, {Code: "x // %% not a mark\n"}}},
		{
			Name: "b/two.py", Language: executor.Python, Doc: "Two cells, and input.", Differs: map[string]string{"there": "it is so."},
			Cells: []Cell{{Code: "# stdin: \"A\\nB\"\nx = 1", Stdin: "A\nB"}, {Code: "x\n"}},
		},
	}
	if err != nil || !reflect.DeepEqual(programs, want) {
		t.Errorf("got %q, %v", programs, err)
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
	if _, err := Load(fstest.MapFS{"a.txt": {}}); err == nil {
		t.Error("a directory without programs was accepted")
	}
}
