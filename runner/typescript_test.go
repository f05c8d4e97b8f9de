package runner

import (
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestTypeScript(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		do := func(l executor.Language, code string) result {
			return s.do(t.Context(), executor.Request{Language: l, Code: code})
		}
		for _, c := range []struct {
			name, code string
			want       outcome
		}{
			{"types", "interface P { x: number }\ntype Q = P & { y?: string };\nconst p: Q = { x: 6 };\nfunction twice<T extends P>(v: T): number { return v.x * 2 }\ntwice(p as P)", outcome{value: "12"}},
			{"state", "twice<Q>({ x: 1 }!) satisfies number", outcome{value: "2"}},
			{"enum", "enum Color { Red, Green = 5, Blue }\nconst enum Size { S = 's' }\n[Color.Blue, Color[5], Size.S]", outcome{value: "[ 6, 'Green', 's' ]"}},
			{"parameter-property", "class A { private z = 1; constructor(readonly x: number, protected y: string = 'b') { } show(): string { return this.x + this.y + this.z } }\nnew A(1).show()", outcome{value: "'1b1'"}},
			{"await", "const v: number = await Promise.resolve<number>(3); v!", outcome{value: "3"}},
			{"import", "import type { Stats } from 'node:fs';\nimport { type PathLike, existsSync } from 'node:fs';\nimport os = require('node:os');\n[existsSync('/' as PathLike), typeof os.cpus]", outcome{value: "[ true, 'function' ]"}},
			{"ambient", "declare const nothing: string;\ndeclare namespace N { namespace M { const x: 1 } }\ndeclare global { interface Array<T> { y: T } }\nabstract class B { abstract f(): void }\ntypeof B", outcome{value: "'function'"}},
			{"overloads", "function g(a: string): string;\nfunction g(a: number): number;\nfunction g(a: any): any { return a }\ng(1)", outcome{value: "1"}},
			{"generic-arrow", "const id = <T,>(x: T): T => x; id<number>(4)", outcome{value: "4"}},
			{"no-semicolons", "const b = 7\ntype T = string\n;[b][0]", outcome{value: "7"}},
			{"javascript", "const q = 1 < 2, r = `${ 'a' }`; [q, r]", outcome{value: "[ true, 'a' ]"}},
			{"exception", "type X = {\n  a: string\n}\nthrow new TypeError('x')", outcome{code: 1, exception: "TypeError"}},
			{"syntax", "const x: = 3", outcome{code: 1, exception: "SyntaxError"}},
			{"namespace", "1\nnamespace N { export const x = 1 }", outcome{code: 1, exception: "SyntaxError"}},
			{"after-errors", "twice(p)", outcome{value: "12"}},
		} {
			t.Run(c.name, func(t *testing.T) { do(executor.TypeScript, c.code).want(t, c.want) })
		}
		do(executor.JavaScript, "Color.Red + twice({ x: 1 })").want(t, outcome{value: "2"})
		do(executor.JavaScript, "let z: number = 1").want(t, outcome{code: 1, exception: "SyntaxError"})
	})
}

var cells = regexp.MustCompile(`<cell \d+>`)

// Whoever reads an error finds its line and column in what was written.
func TestTypeScriptTraceback(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, c := range []struct {
			name, code, message, traceback string
			line                           int
		}{
			{"exception", "interface X {\n  a: string;\n}\nfunction f<T>(x: X, y?: T): never { throw new Error('e') }\n\nf<number>({} as X)", "e", "at f (<cell>:4:43)\n    at <cell>:6:1", 4},
			{"arrow", "const g = (x: {\n  a: string;\n}): {\n  b: number\n} => { throw new Error('e') }\ng(null!)", "e", "at g (<cell>:5:", 5},
			{"syntax", "type X = 1\nlet y: = 2", "Unexpected token", "<cell>:2\n", 2},
			{"syntax-of-javascript", "type X = 1\nlet y: number = 2\nlet y = 3 4", "Unexpected token", "<cell>:3\n", 3},
			{"namespace", "type X = 1\nnamespace N { let x = 1 }", "namespace is not supported here", "<cell>:2\n", 2},
			{"decorator", "\n\n@d class X {}", "decorators are not supported here", "<cell>:3\n", 3},
			{"deep", strings.Repeat("(", 200_000), "", "", 0},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := s.do(t.Context(), executor.Request{Language: executor.TypeScript, Code: c.code})
				if e := r.Exception; e == nil || r.Code != 1 || e.Line != c.line || !strings.Contains(e.Message, c.message) || !strings.Contains(cells.ReplaceAllString(e.Traceback, "<cell>"), c.traceback) || strings.Contains(e.Traceback, "node:") {
					t.Errorf("got exit code %d, %+v", r.Code, r.Exception)
				}
			})
		}
	})
}
