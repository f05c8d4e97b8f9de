package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/tool"
)

// python returns a tool over Pyodide.
func python(t *testing.T) *tool.Tool {
	t.Helper()
	x, err := pyodide.Open(t.Context(), driver.Env{Owner: "tool"}, pyodide.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.WithoutCancel(t.Context())) })
	tl, err := tool.New(x, m, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func TestCases(t *testing.T) {
	tl := python(t)
	for name, s := range map[string]tool.Suite{
		"python": {Function: "f", Code: `
def f(what, *args):
    if what == "sum": return sum(args)
    if what == "tuple": return (1, {"a": None})
    if what == "third": return 1 / 3
    if what == "raise": raise ValueError("bad " + str(args[0]))
    if what == "exit": raise SystemExit(3)
    if what == "print":
        print("said")
        return "é\n\"'"
    if what == "spin":
        while True: pass
    if what == "big": return 2 ** 64
    if what == "object": return object()
`},
		"javascript": {Language: executor.JavaScript, Function: "o.f", Code: `
const o = {f: async (what, ...args) => {
  switch (what) {
  case "sum": return args.reduce((a, b) => a + b, 0)
  case "tuple": return [1, {a: null}]
  case "third": return 1 / 3
  case "raise": throw new TypeError("bad " + args[0])
  case "exit": throw new Error("exit")
  case "print": console.log("said"); return "é\n\"'"
  case "spin": while (true);
  case "big": return 18446744073709551616
  case "object": throw new Error("object")
  }
}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			s.Timeout = 2 * time.Second
			s.Cases = []tool.Case{
				{Name: "right", Args: []any{"sum", 1, 2, 3.5}, Want: 6.5},
				{Name: "wrong", Args: []any{"sum", 1, 2}, Want: 4},
				{Args: []any{"tuple"}, Want: []any{1, map[string]any{"a": nil}}},
				{Args: []any{"third"}, Want: 0.3333333333333333148},
				{Name: "text", Args: []any{"print"}, Want: "é\n\"'"},
				{Name: "raises", Args: []any{"raise", 7}, Want: nil},
				{Name: "exits", Args: []any{"exit"}, Want: nil},
				{Name: "spins", Args: []any{"spin"}, Want: nil},
				{Name: "after", Args: []any{"sum", 20, 22}, Want: 42},
				{Name: "none", Args: []any{"nothing"}, Want: nil},
				{Name: "object", Args: []any{"object"}, Want: nil},
			}
			r, err := tl.Test(t.Context(), tool.Conversation{}, s)
			if err != nil {
				t.Fatal(err)
			}
			var got []tool.Verdict
			for _, v := range r.Results {
				got = append(got, v.Verdict)
			}
			want := []tool.Verdict{tool.Passed, tool.Wrong, tool.Passed, tool.Passed, tool.Passed, tool.Raised, tool.Raised, tool.TimedOut, tool.Passed, tool.Passed, tool.Raised}
			if !reflect.DeepEqual(got, want) || r.Passed != 6 || r.Total != len(want) {
				t.Errorf("got %v, want %v: %+v", got, want, r)
			}
			if text, _ := json.Marshal(r.Results[1].Got); string(text) != "3" {
				t.Errorf("got %s", text)
			}
			has(t, "output", r.Results[4].Stdout, "said")
			has(t, "error", r.Results[5].Error, "bad 7")
		})
	}
	// If the code defines nothing, every case is not run, and the result says why.
	r, err := tl.Test(t.Context(), tool.Conversation{}, tool.Suite{Code: "def f(:", Function: "f", Cases: []tool.Case{{}}})
	if err != nil || r.Setup.Success || r.Results[0].Verdict != tool.NotRun {
		t.Errorf("got %+v, %v", r, err)
	}
	has(t, "error", r.Setup.Error, "SyntaxError")
	for name, s := range map[string]tool.Suite{
		"function": {Code: "1", Function: "f(); g", Cases: []tool.Case{{}}},
		"no-cases": {Code: "1", Function: "f"},
		"values":   {Code: "1", Function: "f", Cases: []tool.Case{{Args: []any{func() {}}}}},
		"language": {Code: "1", Function: "f", Language: "cobol", Cases: []tool.Case{{}}},
		"many":     {Code: "1", Function: "f", Cases: make([]tool.Case, tool.MaxCases+1)},
	} {
		if _, err := tl.Test(t.Context(), tool.Conversation{}, s); !errors.As(err, new(*tool.InputError)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestRepair(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		c := tool.Conversation{ID: "c"}
		var seen []string
		mend := func(next ...string) func(context.Context, []tool.Attempt) (string, error) {
			return func(_ context.Context, tried []tool.Attempt) (string, error) {
				seen = append(seen, tried[len(tried)-1].Output.Error)
				return next[len(tried)-1], nil
			}
		}
		// The code is corrected twice, and the model sees each time what is wrong.
		tried, err := w.Repair(w.Context(), c, `print(a)`, 5, mend("```python\nthrow(\"ValueError\", \"bad\")\n```", `{"code": "print(42)"}`), nil)
		if err != nil || len(tried) != 3 || !tried[2].Output.Success || tried[2].Output.Stdout != "42\n" || tried[0].Input.Code != "print(a)" {
			w.Errorf("got %+v, %v", tried, err)
		}
		has(w, "errors", strings.Join(seen, "\n"), "NameError", "ValueError: bad")
		// The loop ends at the limit, when the model gives up or changes nothing, and when mend
		// fails.
		if tried, err := w.Repair(w.Context(), c, `x1`, 2, mend("x2", "x3"), nil); err != nil || len(tried) != 2 || tried[1].Output.Success {
			w.Errorf("got %+v, %v", tried, err)
		}
		if tried, err := w.Repair(w.Context(), c, `x1`, 9, mend(""), nil); err != nil || len(tried) != 1 {
			w.Errorf("got %+v, %v", tried, err)
		}
		if tried, err := w.Repair(w.Context(), c, `x1`, 9, mend("x1"), nil); err == nil || len(tried) != 1 {
			w.Errorf("got %+v, %v", tried, err)
		}
		broken := errors.New("no model")
		if tried, err := w.Repair(w.Context(), c, `x1`, 9, func(context.Context, []tool.Attempt) (string, error) { return "", broken }, nil); err != broken || len(tried) != 1 {
			w.Errorf("got %+v, %v", tried, err)
		}
		n := 0
		if tried, err := w.Repair(w.Context(), c, `x0`, 1000, func(context.Context, []tool.Attempt) (string, error) { n++; return "x" + strings.Repeat("0", n+1), nil }, nil); err != nil || len(tried) != tool.MaxAttempts {
			w.Errorf("got %d attempts, %v", len(tried), err)
		}
		// A call that may have run is not repeated after a failure of the infrastructure.
		w.b.Fail("run", 1, &executor.Error{Kind: executor.ErrUnavailable, Ran: executor.RanMaybe})
		if tried, err := w.Repair(w.Context(), c, `print(1)`, 5, mend("print(2)"), nil); err == nil || len(tried) != 1 {
			w.Errorf("got %+v, %v", tried, err)
		}
	})
}

func TestReview(t *testing.T) {
	tl := python(t)
	c := tool.Conversation{ID: "c"}
	if out, err := tl.Call(t.Context(), c, "x = 41", nil); err != nil || !out.Success {
		t.Fatal(out, err)
	}
	for name, test := range map[string]struct {
		code string
		want map[int]string
	}{
		"clean":  {"import json\ndef f(a=None):\n    while True:\n        if a is None: break\n    return json.dumps(a)\nprint(f())", nil},
		"syntax": {"x = 1\ndef f(:\n    pass", map[int]string{2: "syntax"}},
		"many": {"import nonesuch\ntry:\n    x = input()\nexcept:\n    pass\nwhile True:\n    x = 1\ndef f(a=[]):\n    return 1\n    print(a)\nif x == None: pass",
			map[int]string{1: "module", 3: "input", 4: "bare-except", 6: "endless", 8: "mutable-default", 10: "unreachable", 11: "none"}},
		"quotes": {"s = '''\"\\n'''\nimport nonesuch # é", map[int]string{2: "module"}},
		"deep":   {strings.Repeat("(", 5000), map[int]string{1: "syntax"}},
	} {
		found, err := tl.Review(t.Context(), c, test.code)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[int]string{}
		for _, f := range found {
			got[f.Line] = f.Rule
		}
		if len(got) != len(test.want) || len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %v", name, found, test.want)
		}
	}
	// Review has run nothing and left nothing.
	if out, err := tl.Call(t.Context(), c, "print(x + 1, [n for n in globals() if 'execbroker' in n])", nil); err != nil || out.Stdout != "42 []\n" {
		t.Errorf("got %+v, %v", out, err)
	}
	// A forged answer from the sandbox is not accepted.
	if _, err := tl.Call(t.Context(), c, "import ast\ndef parse(*a): raise OSError('x')\nast.parse = parse", nil); err != nil {
		t.Fatal(err)
	}
	if found, err := tl.Review(t.Context(), c, "x"); !errors.Is(err, executor.ErrInternal) {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestNotebook(t *testing.T) {
	tl := python(t)
	c := tool.Conversation{ID: "c"}
	cells := []tool.NotebookCell{{Markdown: "# Weather\n\nof *Seattle*"}}
	for _, code := range []string{
		"print('é')\n{'a': [1, None]}",
		"import sys\nprint('warning', file=sys.stderr)\n'text'",
		"class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n0'\nP()",
		"1 / 0",
		"x = 1",
	} {
		in := tool.Input{Code: code, Language: executor.Python}
		out, err := tl.Run(t.Context(), c, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		cells = append(cells, tool.NotebookCell{Input: in, Output: &out})
	}
	cells = append(cells, tool.NotebookCell{Input: tool.Input{Code: "console.log(1)", Language: executor.JavaScript}}, tool.NotebookCell{Input: tool.Input{Code: "never run", Language: executor.Python}})
	data, err := tool.ExportNotebook(cells)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tool.ImportNotebook(data)
	if err != nil || len(got) != len(cells) {
		t.Fatalf("got %d cells, %v", len(got), err)
	}
	for i, cell := range cells {
		a, b := cell.Output, got[i].Output
		if got[i].Markdown != cell.Markdown || got[i].Input.Code != cell.Input.Code || got[i].Input.Language != cell.Input.Language || (a == nil) != (b == nil) {
			t.Errorf("cell %d: got %+v, want %+v", i, got[i], cell)
			continue
		}
		if a == nil {
			continue
		}
		x, _ := json.Marshal(a.ReturnValue)
		y, _ := json.Marshal(b.ReturnValue)
		var v, w any
		_ = json.Unmarshal(x, &v)
		_ = json.Unmarshal(y, &w)
		if a.Stdout != b.Stdout || a.Stderr != b.Stderr || a.Error != b.Error || a.Success != b.Success || !reflect.DeepEqual(v, w) || !reflect.DeepEqual(a.Images, b.Images) {
			t.Errorf("cell %d: got %+v, want %+v", i, *b, *a)
		}
	}

	// The format's own reader checks what was written.
	const reader = "/usr/bin/python3" // Debian's, which has Debian's packages
	if exec.Command(reader, "-c", "import nbformat").Run() != nil {
		t.Skip("needs python3-nbformat of Debian; go run ./internal/ci prepare installs it")
	}
	file := filepath.Join(t.TempDir(), "a.ipynb")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), reader, "-c", `
import json, sys, nbformat
nb = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(nb)
assert nb.nbformat == 4 and len(nb.cells) == 8, nb
print(json.dumps([[o.output_type for o in c.get("outputs", [])] for c in nb.cells]))
nbformat.write(nb, sys.argv[1] + ".again")`, file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if want := `[[], ["stream", "execute_result"], ["stream", "execute_result"], ["display_data"], ["error"], [], [], []]`; strings.TrimSpace(string(out)) != want {
		t.Errorf("got outputs %s, want %s", out, want)
	}
	// What the format's own library writes, with lists of lines, can be read.
	again, err := os.ReadFile(file + ".again")
	if err != nil {
		t.Fatal(err)
	}
	if back, err := tool.ImportNotebook(again); err != nil || !reflect.DeepEqual(got, back) {
		t.Errorf("got %+v, %v, want %+v", back, err, got)
	}
}

func TestNotebooksThatAreNone(t *testing.T) {
	for name, in := range map[string]string{
		"empty": "", "text": "x", "list": "[]", "old": `{"nbformat": 3, "worksheets": []}`, "cell": `{"nbformat": 4, "cells": [{"cell_type": "heading", "source": ""}]}`,
		"source": `{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}`, "language": `{"nbformat": 4, "metadata": {"kernelspec": {"language": "julia"}}, "cells": []}`,
	} {
		if cells, err := tool.ImportNotebook([]byte(in)); err == nil {
			t.Errorf("%s: got %+v", name, cells)
		}
	}
	if _, err := tool.ImportNotebook(make([]byte, tool.MaxNotebook+1)); err == nil {
		t.Error("a notebook of any size is read")
	}
}

func FuzzImportNotebook(f *testing.F) {
	data, err := tool.ExportNotebook([]tool.NotebookCell{{Markdown: "a"}, {Input: tool.Input{Code: "1"}, Output: &tool.Output{Stdout: "x", Error: "E: f", ReturnValue: 1.5, Images: []tool.Image{{Type: "image/png", Base64: []byte("\x89PNG\r\n\x1a\n")}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"nbformat":4,"cells":[{"cell_type":"code","source":["a\n","b"],"outputs":[{"output_type":"display_data","data":{"image/png":"AA=="}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cells, err := tool.ImportNotebook(data)
		if err != nil {
			return
		}
		if _, err := tool.ExportNotebook(cells); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
