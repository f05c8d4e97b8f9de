package pyodide

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func asTypes(r *executor.Request) { r.Language = executor.TypeScript }

// A cell without its types is a cell of the same session.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct {
		name, code, want string
	}{
		{"types", "interface P { x: number }\ntype Q = P & { y?: string };\nconst p: Q = { x: 6 };\nfunction twice<T extends P>(v: T): number { return v.x * 2 }\nconsole.log(twice(p as P))", "12\n"},
		{"state", "console.log(twice<Q>({ x: 1 }!) satisfies number)", "2\n"},
		{"enum", "enum Color { Red, Green = 5, Blue }\nconsole.log(Color.Blue, Color[5])", "6 Green\n"},
		{"parameter-property", "class A { constructor(readonly x: number, protected y = 'b') { } }\nconsole.log(new A(1).y)", "b\n"},
		{"await", "const v: number = await Promise.resolve<number>(3); console.log(v!)", "3\n"},
		{"ambient", "declare const nothing: string;\nabstract class B { abstract f(): void }\nconsole.log(typeof B)", "function\n"},
	} {
		if res := runCode(t, s, c.code, asTypes); res.Status != executor.StatusOK || string(res.Stdout) != c.want {
			t.Errorf("%s: got %q %+v, want %q", c.name, res.Stdout, res.Exception, c.want)
		}
	}
	if res := runScript(t, s, "console.log(Color.Red + twice({ x: 1 }))"); res.Status != executor.StatusOK || string(res.Stdout) != "2\n" {
		t.Errorf("JavaScript: got %q %+v", res.Stdout, res.Exception)
	}
	for _, c := range []struct {
		name, code, message, traceback string
		line                           int
	}{
		{"exception", "interface X {\n  a: string;\n}\nfunction f<T>(x: X, y?: T): never { throw new Error('e') }\n\nf<number>({} as X)", "e", ":4)", 4},
		{"syntax", "type X = 1\nlet y: = 2", "Unexpected token", ":2\nlet y: = 2\n       ^", 2},
		{"syntax-of-javascript", "type X = 1\nlet y: number = 2\nlet y = 3 4", "Unexpected token", ":3\n", 3},
		{"namespace", "type X = 1\nnamespace N { let x = 1 }", "namespace is not supported here", ":2\n", 2},
		{"deep", strings.Repeat("(", 200_000), "", "", 0},
	} {
		res := runCode(t, s, c.code, asTypes)
		if e := res.Exception; e == nil || res.ExitCode != 1 || e.Line != c.line || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Traceback, c.traceback) {
			t.Errorf("%s: got exit code %d, %+v", c.name, res.ExitCode, res.Exception)
		}
	}
}
