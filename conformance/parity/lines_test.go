package parity

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestReadLines(t *testing.T) {
	programs, err := ReadLines(strings.NewReader(`
{"id": "a", "language": "python", "doc": "d", "code": "x", "stdin": "1", "stdout": "2", "exit_code": 3, "files": {"f": "t"}, "differs": {"y": "so"}}

{"id": "b", "language": "javascript", "module": true, "cells": [{"code": "x"}, {"code": "y", "stdin": "1"}]}
{"task_id": "T/0", "prompt": "def f():\n", "canonical_solution": "    return 1\n", "test": "def check(c):\n    assert c() == 1\n", "entry_point": "f", "more": 1}`))
	want := []Program{
		{
			Name: "a", Language: executor.Python, Doc: "d", Files: map[string]string{"f": "t"}, Differs: map[string]string{"y": "so"},
			Cells: []Cell{{Code: "x", Stdin: "1", Stdout: new("2"), ExitCode: new(3)}},
		},
		{Name: "b", Language: executor.JavaScript, Module: true, Cells: []Cell{{Code: "x"}, {Code: "y", Stdin: "1"}}},
		{Name: "T/0", Language: executor.Python, Cells: []Cell{{Code: "def f():\n    return 1\n\ndef check(c):\n    assert c() == 1\n\ncheck(f)\n", ExitCode: new(0)}}},
	}
	if err != nil || !reflect.DeepEqual(programs, want) {
		t.Errorf("got %+v, %v", programs, err)
	}
}

func TestReadLinesErrors(t *testing.T) {
	many := strings.Repeat("x\n", maxErrors+5)
	for text, want := range map[string]string{
		"":       "no programs",
		"\n[]\n": "line 2: json: cannot unmarshal array",
		"{}\n{":  "line 2: unexpected end",
		`{"id": "a", "language": "cobol", "code": ""}`:                                      `language "cobol"`,
		`{"id": "a", "language": "python"}`:                                                 `want "code" or "cells"`,
		`{"id": "a", "language": "python", "code": "", "cells": []}`:                        `want "code" or "cells"`,
		`{"id": "a", "language": "python", "cells": []}`:                                    `"cells" is empty`,
		`{"id": "a", "language": "python", "cells": [{}]}`:                                  `cell 1: no "code"`,
		`{"id": "a", "language": "python", "cells": [{"code": ""}], "stdin": "1"}`:          `belong into the "cells"`,
		`{"id": "a", "language": "python", "code": "", "tyop": 1}`:                          `unknown field "tyop"`,
		`{"id": "a", "language": "python", "code": "", "files": {"/etc/passwd": ""}}`:       `file "/etc/passwd"`,
		`{"id": "a", "language": "python", "code": "` + "\xff" + `"}`:                       "line 1: not UTF-8",
		strings.Repeat(`{"id": "a", "language": "python", "code": ""}`+"\n", 2):             `two programs are called "a"`,
		`{"id": "a", "language": "python", "code": "` + strings.Repeat("x", maxLine) + `"}`: fmt.Sprintf("line 1: more than %d bytes", maxLine),
		many: "and 5 more errors",
	} {
		if _, err := ReadLines(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, want %q in it", text, err, want)
		}
	}
}

// FuzzReadLines: whatever a file has, what is read is within bounds and has a name and cells.
func FuzzReadLines(f *testing.F) {
	f.Add([]byte(`{"id": "a", "language": "python", "code": "x", "stdin": "1", "stdout": "2"}`))
	f.Add([]byte(`{"id": "b", "language": "javascript", "cells": [{"code": "x"}], "files": {"a/b": ""}}` + "\n{}"))
	f.Add([]byte(`{"prompt": "a", "test": "b", "entry_point": "c"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		programs, _ := ReadLines(strings.NewReader(string(data)))
		for _, p := range programs {
			if p.Name == "" || len(p.Cells) == 0 || len(p.Cells) > maxCells || p.check() != nil {
				t.Errorf("got %+v", p)
			}
		}
	})
}
