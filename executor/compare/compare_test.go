package compare

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestKnownDifferences(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range KnownDifferences() {
		if k.Why == "" || seen[k.Why] || !k.Left && (k.Got == nil) == (k.Apart == nil) || len(k.Types) == 0 && k.Lacks == "" && !k.Left {
			t.Errorf("%+v: want why, a pattern, and a type or a feature", k)
		}
		seen[k.Why] = true
	}
	if len(seen) == 0 {
		t.Error("there are none")
	}
}

func TestWithoutFrames(t *testing.T) {
	for _, c := range []struct {
		language     executor.Language
		stderr, want string
	}{
		{executor.Python, "mine\nTraceback (most recent call last):\n  File \"main.py\", line 1, in <module>\n    f()\n    ~^^\nValueError: x\n", "mine\nValueError: x"},
		{executor.Python, "  File \"main.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n", "SyntaxError: invalid syntax"},
		{executor.JavaScript, "/w/main.js:2\nthrow new Error('x')\n^\n\nError: x\n    at f (/w/main.js:2:7)\n    at node:internal\n\nNode.js v20.19.2\n", "Error: x"},
		{executor.JavaScript, "<cell 1>:3\nx = ;\n    ^\n\nSyntaxError: Unexpected token ';'\n", "SyntaxError: Unexpected token ';'"},
		{
			executor.Python, "  + Exception Group Traceback (most recent call last):\n  |   File \"cell.py\", line 2, in <module>\n  |     raise g\n  | ExceptionGroup: g (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: a\n    +------------------------------------\n",
			"| ExceptionGroup: g (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: a\n    +------------------------------------",
		},
		{executor.JavaScript, "node:fs:573\n  return binding.open(\n                 ^\n\nError: ENOENT: x\n    at y (cell.js:1:1) {\n  errno: -2,\n  path: 'x'\n}\n\nNode.js v20.1.0\n", "Error: ENOENT: x"},
		{executor.JavaScript, "Error: e\n    at f (<cell 1>:1:1)\nCaused by: TypeError: c\n    at f (<cell 1>:1:1)", "Error: e"},
		{executor.JavaScript, "AggregateError: many\n    at f (<cell 1>:1:1)\nOne of: Error: a\n    at f (<cell 1>:1:1)", "AggregateError: many"},
		{executor.JavaScript, "/w/cell.js:1\nx\n^\n\nError: e\n    ... 4 lines matching cause stack trace ...\n    at a (b:1:1) {\n  [cause]: TypeError: c\n      at x\n}\n\nNode.js v20\n", "Error: e"},
		{executor.JavaScript, "<cell 1>:3\nSyntaxError: Unexpected token ';'", "SyntaxError: Unexpected token ';'"},
		{executor.JavaScript, "<anonymous_script>:1\n{\n ^\n\nSyntaxError: Expected property name\n", "SyntaxError: Expected property name"},
		{executor.Python, "/workspace/cell.py:3: UserWarning: w\n  f()\nusage: cell.py [-h]\n", "<cell>:3: UserWarning: w\n  f()\nusage: <cell> [-h]"},
		{executor.Python, "<cell 1>:3: UserWarning: w\n", "<cell>:3: UserWarning: w"},
	} {
		if got := withoutFrames(c.language, c.stderr); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestClip(t *testing.T) {
	long := strings.Repeat("x", maxText)
	if got := Clip(long); got != long {
		t.Error("a text of the largest size was cut")
	}
	a, b := Clip(long+"a"), Clip(long+"b")
	if a == b || len(a) > maxText+200 {
		t.Errorf("got %d and %d bytes", len(a), len(b))
	}
	for text, want := range map[string]string{
		"\xff":                  "�",
		"<f at 0x7f0123456789>": "<f at 0x…>",
		"  _idleStart: 41,\n  [Symbol(asyncId)]: 7,\n  [Symbol(triggerId)]: 12": "  _idleStart: …,\n  [Symbol(asyncId)]: …,\n  [Symbol(triggerId)]: …",
		"Ran 1 test in 0.040s": "Ran 1 test in …s",
		"it took 0.040s":       "it took 0.040s",
	} {
		if got := Clip(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestClass: a class has no text from the sandbox, and a signature has it without names and
// numbers.
func TestClass(t *testing.T) {
	for _, c := range []struct {
		want, got        Fields
		class, signature string
	}{
		{Fields{"stdout": "1"}, Fields{"stdout": "2"}, "stdout differs", "stdout differs"},
		{Fields{"stdout": "12"}, Fields{"stdout": "1"}, "stdout ends early", "stdout ends early"},
		{
			Fields{"status": "ok"}, Fields{"status": "failed", "exception": "KeyError: 'ann' (line 3)", "errors": "KeyError: 'ann'"},
			"exception was not expected", "exception was not expected: KeyError: '…' (line N)",
		},
		{Fields{"status": "ok"}, Fields{"status": "timed_out wall-time"}, "status differs", "status differs: timed_out wall-time"},
		{Fields{"stderr": "a"}, Fields{}, "stderr is missing", "stderr is missing: a"},
	} {
		found := Differences([]Fields{c.want}, []Fields{c.got})
		if got := Class(found); got != c.class {
			t.Errorf("got %q, want %q", got, c.class)
		}
		if got := Signature(found); got != c.signature {
			t.Errorf("got %q, want %q", got, c.signature)
		}
	}
}

func TestFailed(t *testing.T) {
	lacks := &executor.Error{Kind: executor.ErrUnsupported, Missing: []string{"stdin", "env"}}
	if got := Failed(lacks); len(got) != 1 || got["refused"] != "env, stdin" {
		t.Errorf("got %v", got)
	}
	if got := Failed(&executor.Error{Kind: executor.ErrUnavailable}); len(got) != 1 || got["error"] == "" {
		t.Errorf("got %v", got)
	}
}
