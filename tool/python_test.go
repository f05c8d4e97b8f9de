package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/tool"
)

// TestPython checks the assumptions of the rules for Python against Python itself: its error
// messages, and what a program is.
func TestPython(t *testing.T) {
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
	tl, err := tool.New(x, m, tool.Options{Languages: []executor.Language{executor.Python}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, in      string
		value         string // JSON
		stdout        string
		errors, notes []string
	}{
		{name: "fresh", in: "Let's begin:\n```python\nx = {'a': [1, 2.5, None]}\nprint('hi')\nx\n```", value: `{"a":[1,2.5,null]}`, stdout: "hi\n"},
		{name: "state", in: `{"code": "len(x)"}`, value: "1"},
		{name: "text", in: "object", value: `"\u003cclass 'object'\u003e"`},
		{name: "string", in: "import json\\njson.dumps(x)", value: `"{\"a\": [1, 2.5, null]}"`},
		{name: "frames", in: "import json\ndef f(s):\n    return json.loads(s)\nf('{')", value: "null", errors: []string{"line 4", "line 3, in f", "return json.loads(s)", "JSONDecodeError: Expecting property name"}},
		{name: "column", in: "x['b']", value: "null", errors: []string{"KeyError: 'b'", "print(list(d))"}},
		{name: "module", in: "import nonesuch", value: "null", errors: []string{"ModuleNotFoundError", `"packages": ["nonesuch"]`}},
		{name: "file", in: `{"code": "open('b.csv')", "files": {"a.csv": "1"}}`, value: "null", errors: []string{"FileNotFoundError", `in /workspace there are: "a.csv".`}},
		{name: "name", in: "python\nprint(1)", value: "null", errors: []string{"the first line is the name of a language"}},
		{name: "magic", in: "y = 1\n!pip install x", value: "null", errors: []string{"UsageError: !pip: packages are installed before the code runs"}},
		{name: "indented", in: "\n    s = '''a\n  b'''\n    if s:\n        len(s)\n    s", value: `"a\n  b"`},
		{name: "input", in: "name = input()", value: "null", errors: []string{"nobody to answer input()"}},
		{name: "artifact", in: "open('out.txt', 'w').write('abc')", value: "3"},
		{name: "timeout", in: `{"code": "print('before')\nwhile True: pass", "timeout": 1}`, value: "null", stdout: "before\n", errors: []string{"stopped by its timeout", "Variables and files are still there."}},
		{name: "kept", in: "x['a'][0]", value: "1"},
	}
	for _, test := range tests { // in order, because they are one conversation
		t.Run(test.name, func(t *testing.T) {
			out, err := tl.Call(t.Context(), tool.Conversation{ID: "chat"}, test.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if out.Success != (test.errors == nil) {
				t.Errorf("got success %v: %s", out.Success, out.Error)
			}
			value, err := json.Marshal(out.ReturnValue)
			if err != nil {
				t.Fatal(err)
			}
			if string(value) != test.value {
				t.Errorf("got value %s, want %s", value, test.value)
			}
			if out.Stdout != test.stdout {
				t.Errorf("got stdout %q, want %q", out.Stdout, test.stdout)
			}
			has(t, "error", out.Error, test.errors...)
			has(t, "notes", out.Stderr, test.notes...)
			if strings.Contains(out.Error, "site-packages") || strings.Contains(out.Error, "/lib/python") {
				t.Errorf("got error %q, want no frames of libraries", out.Error)
			}
			if test.name == "artifact" && (len(out.Files) != 1 || string(out.Files[0].Base64) != "abc") {
				t.Errorf("got files %+v, want out.txt", out.Files)
			}
		})
	}
	// The programs that must stay unchanged are valid programs.
	t.Run("programs", func(t *testing.T) {
		for name, code := range programs {
			if name == "syntax-error" || name == "magic" || name == "indented" || name == "fence-in-open" { // Python reports the errors in these
				continue
			}
			quoted, err := json.Marshal(code)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tl.Call(t.Context(), tool.Conversation{ID: "chat"}, arguments(t, map[string]any{"code": "compile(" + string(quoted) + ", 'x', 'exec') and None"}), nil)
			if err != nil || !out.Success {
				t.Errorf("%s: %v %s", name, err, out.Error)
			}
		}
	})
}
