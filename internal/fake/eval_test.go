package fake

import (
	"regexp"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"github.com/execbroker/execbroker/executor"
)

// parsed parses and compiles a program and executes nothing of it. It returns the error of its
// syntax, if any.
func parsed(t *testing.T, src string, await bool) *thrown {
	t.Helper()
	thread := new(starlark.Thread)
	thread.Cancel("not to be executed")
	_, err := evaluate(thread, src, await, starlark.StringDict{})
	bad, ok := ending(err).(*thrown)
	switch {
	case ok && bad.typ == "SyntaxError":
		return bad
	case !ok || !strings.HasSuffix(bad.msg, "not to be executed"):
		t.Errorf("got %v", err)
	}
	return nil
}

// FuzzParse checks that any program is parsed, or refused with a line number that exists. To
// Starlark a carriage return ends a line as well.
func FuzzParse(f *testing.F) {
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		for _, src := range Programs(l) {
			f.Add(src)
		}
	}
	f.Add("x = = 1")
	f.Add("if a:\n\tb\nelse:")
	f.Add("return 1")
	f.Add("\"unterminated")
	f.Add("print(\"\\q\")")
	for _, deep := range []string{"(", "if x:", "-", "not ", "lambda:", "1 + ", "1 - 1", "f()", "if x: y\n", "elif x: y\n", "for x in x "} {
		f.Add(strings.Repeat(deep, 100_000))
		f.Add("if x: y\n" + strings.Repeat(deep, 100_000))
		f.Add("[x " + strings.Repeat(deep, 100_000) + "]")
	}
	f.Fuzz(func(t *testing.T, src string) {
		for _, await := range []bool{true, false} {
			if bad := parsed(t, src, await); bad != nil && (bad.line < 1 || bad.line > 1+strings.Count(src, "\n")+strings.Count(src, "\r") || bad.msg == "") {
				t.Errorf("got the error %q on line %d", bad.msg, bad.line)
			}
		}
	})
}

func TestProgramsParse(t *testing.T) {
	hole := regexp.MustCompile(`\{\{[a-z]+\}\}`)
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		for name, src := range Programs(l) {
			if strings.HasSuffix(name, "syntax-error") || name == "package-name" || strings.HasPrefix(name, "command-") {
				continue
			}
			if bad := parsed(t, hole.ReplaceAllString(src, `"1"`), true); bad != nil {
				t.Errorf("%s: %s: line %d: %s", l, name, bad.line, bad.msg)
			}
		}
	}
}
