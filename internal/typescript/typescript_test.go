package typescript

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A result is the output of strip for one program.
type result struct {
	Code, Message string
	Line, Column  int
}

// strip converts programs in Node.
func strip(t *testing.T, programs ...string) []result {
	t.Helper()
	const after = `
const results = JSON.parse(require('fs').readFileSync(0)).map((code) => {
  try {
    return { Code: typescript.strip(code) };
  } catch (e) {
    return { Message: e.message, Line: e.loc?.line, Column: e.loc?.column };
  }
});
process.stdout.write(JSON.stringify(results));`
	in, err := json.Marshal(programs)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "strip.cjs")
	if err := os.WriteFile(file, []byte(Script+after), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", file)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(programs) {
		t.Fatalf("got %d results of %d: %v", len(results), len(programs), err)
	}
	return results
}

func TestStrip(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, code, want string }{
		{"types", "let x: number = <T>y as any;", "let x         =    y       ;"},
		{"lines", "type T = {\n  a: string\n}\nx", ";         \n           \n \nx"},
		{"ends-a-statement", "const a = b\ntype T = string\n(c)", "const a = b\n;              \n(c)"},
		{"operator-ends-a-statement", "let y = x as any\n[0]", "let y = x      ;\n[0]"},
		{"operator-in-a-call", "f(x as any\n, [0])", "f(x       \n, [0])"},
		{"not-null", "x!\n(y)", "x \n(y)"},
		{"arrow", "(x: {\n a: 1\n}): {\n b: 1\n} => x", "(x   \n     \n     \n     \n ) => x"},
		{"arrow-in-one-line", "(x: number): number => x", "(x        )         => x"},
		{"async-arrow", "async <T,>(x: T): Promise<T> => x", "async     (x   )             => x"},
		{"comments", "/* a: b */ f<T>(/* c */ x /* d */ as T) // e: f", "/* a: b */ f   (/* c */ x /* d */     ) // e: f"},
		{"texts", "`${x as T}: y` + 'a: b' + /c: <d>/g", "`${x     }: y` + 'a: b' + /c: <d>/g"},
		{"names", "var type = 1, as = 2, declare; type = as; of: for (;;) break of", "var type = 1, as = 2, declare; type = as; of: for (;;) break of"},
		{"wide", "let é渐😀 = 1; let 渐: T = '😀' as T", "let é渐😀 = 1; let 渐    = '😀'     "},
		{"hashbang", "#!/usr/bin/env node\nlet x: T", "#!/usr/bin/env node\nlet x   "},
		{"import", "import type { A } from 'a'; import { type B, c } from 'd'", "                            import {         c } from 'd'"},
		{"imports-stay", "import { a } from 'b'", "import { a } from 'b'"},
		{"ambient", "declare namespace A { namespace B { let x: 1 } }\ndeclare global { interface C { } }", ";                                               \n                                  "},
		{"members-with-such-names", "interface A { namespace: B; module?: C; global(): D }", ";                                                    "},
		{"class", "abstract class A<T> extends B<T> implements C { private x?: T; abstract f(): T; g!: T; [k: string]: T }",
			"         class A    extends B                 {         x    ; ;                g    ;                }"},
		{"this", "function f(this: A, x?: T): x is U { }", "function f(         x    )         { }"},
		{"overload", "function f(x: 1): 1\nfunction f(x) { }", "                   \nfunction f(x) { }"},
	}
	var programs []string
	for _, c := range tests {
		programs = append(programs, c.code)
	}
	for i, got := range strip(t, programs...) {
		if c := tests[i]; got.Code != c.want {
			t.Errorf("%s: got %q %s\nwant %q", c.name, got.Code, got.Message, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, code, message string
		line, column        int
	}{
		{"namespace", "type T = 1\n  namespace A.B { let x = 1 }", "TypeScript: namespace is not supported here", 2, 2},
		{"module", "module A { }", "TypeScript: module is not supported here", 1, 0},
		{"decorator", "class A { @b c() { } }", "TypeScript: decorators are not supported here", 1, 10},
		{"syntax", "let x: = 1", "Unexpected token", 1, 7},
		{"end", "f(\r\n(", "Unexpected token", 2, 1},
	}
	var programs []string
	for _, c := range tests {
		programs = append(programs, c.code)
	}
	for i, got := range strip(t, programs...) {
		if c := tests[i]; !strings.HasPrefix(got.Message, c.message) || got.Line != c.line || got.Column != c.column {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c)
		}
	}
}

// The JavaScript of this repository stays unchanged.
func TestJavaScriptStays(t *testing.T) {
	t.Parallel()
	hole := regexp.MustCompile(`\{\{[a-z]+\}\}`) // a placeholder in a program of the conformance suite
	var names, programs []string
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasPrefix(d.Name(), "typed") || d.Name() == "namespace.js" || strings.HasPrefix(d.Name(), "syntax"): // TypeScript, or neither language
		case strings.HasSuffix(path, ".js") || strings.HasSuffix(path, ".mjs") || strings.HasSuffix(path, ".cjs"):
			text, err := os.ReadFile(path)
			names, programs = append(names, path), append(programs, hole.ReplaceAllString(string(text), "(1)"))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(programs) < 90 {
		t.Fatalf("found %d programs", len(programs))
	}
	for i, got := range strip(t, programs...) {
		if got.Code != programs[i] {
			t.Errorf("%s is changed: %s", names[i], got.Message)
		}
	}
}
