package complete

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestStatement(t *testing.T) {
	for _, c := range []struct {
		l    executor.Language
		src  string
		want bool
	}{
		{"python", "1", true},
		{"python", "x = [1,", false},
		{"python", "x = [1,\n2]", true},
		{"python", "x = [1,\n\n", false},
		{"python", "x = )", true},
		{"python", "def f():", false},
		{"python", "def f():\n    return 1", false},
		{"python", "def f():\n    return 1\n", true},
		{"python", "def f(): return 1", true},
		{"python", "for i in x: # comment", false},
		{"python", "if x: # comment\n  y\n  ", true},
		{"python", "@cache", false},
		{"python", "@cache\ndef f():\n    pass\n", true},
		{"python", "x = {'a':\n1}", true},
		{"python", "x = {'a':", false},
		{"python", "s = '''a", false},
		{"python", "s = '''a\nb'''", true},
		{"python", `s = """a \"""`, false},
		{"python", "s = 'a", true},
		{"python", `s = 'a\`, false},
		{"python", "s = 'a\\\nb'", true},
		{"python", `x = 1 + \`, false},
		{"python", "x = 1 + \\\n2", true},
		{"python", "s = ':'", true},
		{"python", "s = '#('", true},
		{"python", "# def f():", true},
		{"python", "s = 'it\\'s ('", true},
		{"python", "", true},
		{"javascript", "1", true},
		{"javascript", "function f() {", false},
		{"javascript", "function f() {\n}", true},
		{"javascript", "f(1,\n", false},
		{"javascript", "s = '{'", true},
		{"javascript", "s = `a", false},
		{"javascript", "s = `a\n`", true},
		{"javascript", "s = `a ${f({", false},
		{"javascript", "s = `a ${f({})} b", false},
		{"javascript", "s = `a ${f({b: `c`})} d`", true},
		{"javascript", "// {", true},
		{"javascript", "{ // }", false},
		{"javascript", "/* {", false},
		{"javascript", "/* { */", true},
		{"javascript", "x = /[/{]/", true},
		{"javascript", `x = /\/{/`, true},
		{"javascript", "a / b; {", false},
		{"javascript", "}", true},
		{"javascript", "s = 'a", true},
		{"r", "1", true},
		{"r", `1 \`, false},
	} {
		if got := Statement(c.l, strings.Split(c.src, "\n")); got != c.want {
			t.Errorf("%s %q: got %v", c.l, c.src, got)
		}
	}
}

func FuzzStatement(f *testing.F) {
	f.Add("def f():\n  '''x", "s = `a ${f({b: `c`})} d`")
	f.Fuzz(func(t *testing.T, python, javascript string) {
		Statement(executor.Python, strings.Split(python, "\n"))
		Statement(executor.JavaScript, strings.Split(javascript, "\n"))
	})
}
