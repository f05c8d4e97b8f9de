package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func withNode(c *Config) {
	c.Languages = []executor.Language{executor.JavaScript}
}

func (s *sandbox) js(t testing.TB, code string) result {
	t.Helper()
	return s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: code})
}

func TestJavaScript(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		js := func(code string) executor.Request {
			return executor.Request{Language: executor.JavaScript, Code: code}
		}
		in := func(code, stdin string) executor.Request {
			return executor.Request{Language: executor.JavaScript, Code: code, Stdin: strings.NewReader(stdin)}
		}
		for _, c := range []struct {
			name string
			req  executor.Request
			want outcome
		}{
			{"value", js("1 + 1"), outcome{value: "2"}},
			{"value-semicolon", js("const s = 'é'; s;"), outcome{value: "'é'"}},
			{"print", js("console.log('hello', {a: 1}); console.error('oops')"), outcome{stdout: "hello { a: 1 }\n", stderr: "oops\n"}},
			{"state", js("const a = 1; let b = 2; var c = 3; function f() { return a + b + c } class X {}"), outcome{}},
			{"state-used", js("f()"), outcome{value: "6"}},
			{"declared-again", js("const a = 10; let b = 20; class X { y = 1 }; a"), outcome{value: "10"}},
			{"loop-has-no-value", js("for (let i = 0; i < 3; i++) i"), outcome{}},
			{"undefined", js("undefined"), outcome{}},
			{"null", js("null"), outcome{value: "null"}},
			{"bigint", js("123n"), outcome{value: "123n"}},
			{"nan", js("-0"), outcome{value: "-0"}},
			{"empty", js(""), outcome{}},
			{"await-state", js("let w = 1; const { a: q, b: [z] } = await Promise.resolve({a: 2, b: [3]}); function g() { return w + q + z } class K {}"), outcome{}},
			{"await-state-used", js("[g(), typeof K, await g()]"), outcome{value: "[ 6, 'function', 6 ]"}},
			{"await-in-loop", js("for (let i = 0; i < 2; i++) await null"), outcome{}},
			{"for-await", js("const seen = []; for await (const i of [Promise.resolve(1), 2]) seen.push(i); seen"), outcome{value: "[ 1, 2 ]"}},
			{"await-inside-only", js("async function h() { return await 4 }; typeof h"), outcome{value: "'function'"}},
			{"object-value", js("await null; ({a: 1})"), outcome{value: "{ a: 1 }"}},
			{"await", js("const v = await new Promise(r => setTimeout(() => r(7), 5)); v"), outcome{value: "7"}},
			{"main", js("async function main() { await new Promise(r => setTimeout(r, 5)); console.log('in main'); return 5 }\nmain()"), outcome{stdout: "in main\n", value: "5"}},
			{"require", js("require('node:path').basename('/a/b')"), outcome{value: "'b'"}},
			{"import-static", js("import fs, { existsSync as e } from 'node:fs';\nimport * as os\n  from 'os'\nimport 'path'\n;[typeof fs.readFileSync, e('/'), typeof os.cpus]"), outcome{value: "[ 'function', true, 'function' ]"}},
			{"import-dynamic", js("const { basename } = await import('path'); basename('/x/y') + 'import(1)'"), outcome{value: "'yimport(1)'"}},
			{"import-file", js("require('fs').writeFileSync('m.mjs', 'export const z = 3'); (await import('./m.mjs')).z"), outcome{value: "3"}},
			{"throw", js("throw new TypeError('boo')"), outcome{code: 1, exception: "TypeError"}},
			{"throw-later", js("await null; null.x"), outcome{code: 1, exception: "TypeError"}},
			{"throw-text", js("throw 'text'"), outcome{code: 1, exception: "string"}},
			{"syntax", js("let x = ;"), outcome{code: 1, exception: "SyntaxError"}},
			{"rejected", js("Promise.reject(new RangeError('r'))"), outcome{code: 1, exception: "RangeError"}},
			{"rejected-unhandled", js("Promise.reject(new RangeError('r')); 1"), outcome{code: 1, exception: "RangeError", value: "1"}},
			{"state-after-errors", js("a"), outcome{value: "10"}},
			{"exit", js("try { process.exit(3) } finally { console.log('no') }"), outcome{code: 3}},
			{"exit-later", js("await null; setTimeout(() => process.exit(4), 5); await new Promise(() => {})"), outcome{code: 4}},
			{"exit-code", js("process.exitCode = 5; 1"), outcome{code: 5, value: "1"}},
			{"state-after-exit", js("a"), outcome{value: "10"}},
			{"stdin", in("let text = ''; for await (const c of process.stdin) text += c; text", "héllo"), outcome{value: "'héllo'"}},
			{"stdin-sync", in("require('fs').readFileSync(0, 'utf8')", "hello"), outcome{value: "'hello'"}},
			{"stdin-sync-import", in("import { readFileSync } from 'fs'; readFileSync('/dev/stdin').toString()", "hello"), outcome{value: "'hello'"}},
			{"stdin-lines", in("const rl = require('readline').createInterface({input: process.stdin}); const l = []; for await (const x of rl) l.push(x); l", "a\nb"), outcome{value: "[ 'a', 'b' ]"}},
			{"stdin-unread", in("1", strings.Repeat("x", 3<<20)), outcome{value: "1"}},
			{"stdin-large", in("require('fs').readFileSync(0).length", strings.Repeat("y", 3<<20)), outcome{value: "3145728"}},
			{"stdin-none", js("require('fs').readFileSync(0).length"), outcome{value: "0"}},
			{"order", js("console.log('a'); require('child_process').execSync('echo b', {stdio: 'inherit'}); console.log('c')"), outcome{stdout: "a\nb\nc\n"}},
			{"fork", js("require('fs').writeFileSync('child.js', 'console.log(1)'); require('child_process').execFileSync(process.execPath, ['child.js']).toString()"), outcome{value: "'1\\n'"}},
			{"worker", js("const { Worker } = require('worker_threads'); await new Promise(r => new Worker('require(\"worker_threads\").parentPort.postMessage(6)', {eval: true}).on('message', r))"), outcome{value: "6"}},
			{"dir", executor.Request{Language: executor.JavaScript, Code: "process.cwd()", Dir: "/usr"}, outcome{value: "'/usr'"}},
			{"env", executor.Request{Language: executor.JavaScript, Code: "process.env.A", Env: map[string]string{"A": "b"}}, outcome{value: "'b'"}},
			{"env-restored", js("process.env.A"), outcome{}},
			{"crash", js("require('child_process').execSync('kill -SEGV ' + process.pid); for (;;);"), outcome{code: -1, reason: "signal", signal: "SIGSEGV", lost: true}},
			{"after-crash", js("typeof a"), outcome{value: "'undefined'"}},
			{"console-replaced", js("console.log = 1; globalThis.setTimeout = 1; globalThis.Buffer = 1; globalThis.Promise = 1; Object.defineProperty(process, 'stdout', {value: 1}); 7"), outcome{value: "7"}},
			{"console-replaced-next", js("8"), outcome{value: "8"}},
		} {
			t.Run(c.name, func(t *testing.T) { s.do(t.Context(), c.req).want(t, c.want) })
		}
	})
}

func TestJavaScriptTraceback(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		s.js(t, "function f(x) {\n  return x.y.z\n}")
		r := s.js(t, "\n\nf({})")
		if r.Exception == nil || r.Exception.Line != 3 || !strings.Contains(r.Exception.Traceback, "at f (<cell 1>:2:14)\n    at <cell 2>:3:1") || strings.Contains(r.Exception.Traceback, "node:") {
			t.Errorf("got %+v", r.Exception)
		}
		r = s.js(t, "1\nlet = = 2")
		if r.Exception == nil || r.Exception.Line != 2 || !strings.Contains(r.Exception.Traceback, "<cell 3>:2") {
			t.Errorf("got %+v", r.Exception)
		}
		r = s.js(t, "await null\nthrow new Error('outer', {cause: new Error('\\x1b[31minner')})")
		if r.Exception == nil || r.Exception.Line != 2 || !strings.Contains(r.Exception.Traceback, "Caused by: Error: inner") {
			t.Errorf("got %+v", r.Exception)
		}
	})
}

func TestJavaScriptOutputs(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		r := s.js(t, `console.log('first');
display({'text/html': '<b>', 'image/png': 'iVBORw=='}, {raw: true});
display([1, {a: null}]);
({[Symbol.for('Jupyter.display')]: () => ({'text/markdown': '*x*'})})`)
		if r.err != nil || len(r.outputs) != 3 {
			t.Fatalf("got %+v", r)
		}
		if d := r.outputs[0].Data; d["text/html"].String() != "<b>" || string(d["image/png"]) != "\x89PNG" {
			t.Errorf("raw: got %q", d)
		}
		if d := r.outputs[1].Data; d["application/json"].String() != `[1, {"a": null}]` || d["text/plain"].String() != "[ 1, { a: null } ]" {
			t.Errorf("display: got %q", d)
		}
		if o := r.outputs[2]; !o.Main || o.Data["text/markdown"].String() != "*x*" {
			t.Errorf("value: got %q", o.Data)
		}
	})
}

func TestJavaScriptInterrupt(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s, hard := start(t, root, withNode), start(t, root, withNode, impatient)
		for name, c := range map[string]struct {
			code string
			lost bool
		}{
			"loop":       {"console.log('begin'); for (;;);", false},
			"await":      {"console.log('begin'); await new Promise(() => {})", false},
			"await-loop": {"await new Promise(r => setTimeout(r, 1)); console.log('begin'); for (;;);", false},
			"timer-loop": {"console.log('begin'); setTimeout(() => { for (;;); }, 1); await new Promise(() => {})", false},
			"swallow":    {"console.log('begin'); for (;;) { try { for (;;); } catch {} finally { continue } }", false},
			"child":      {"console.log('begin'); require('child_process').execSync('sleep 1000')", false},
			"native":     {"console.log('begin'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", true},
		} {
			t.Run(name, func(t *testing.T) {
				s, req := s, executor.Request{Language: executor.JavaScript, Context: name}
				if c.lost {
					s, req.Context = hard, ""
				}
				do := func(code string, wall time.Duration) result {
					req.Code, req.Limits.WallTime = code, wall
					if wall != 0 {
						return s.timesOut(t, req)
					}
					return s.do(t.Context(), req)
				}
				do("globalThis.x = 1", 0)
				r := do(c.code, time.Second)
				if r.err != nil || r.Reason != executor.ReasonWallTime || r.StateLost && !c.lost || r.stdout != "begin\n" {
					t.Errorf("got %+v", r)
				}
				if r := do("console.log(globalThis.x)", 0); !c.lost && r.stdout != "1\n" {
					t.Errorf("afterwards: got %+v", r)
				}
			})
		}
		t.Run("output-limit", func(t *testing.T) {
			r := s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: "for (;;) console.log('x'.repeat(1000))", Limits: executor.RunLimits{OutputBytes: 10000}})
			if r.err != nil || r.Reason != executor.ReasonOutput || r.StateLost || len(r.stdout) != 10000 {
				t.Errorf("got %q, lost %v, %d bytes", r.Reason, r.StateLost, len(r.stdout))
			}
		})
	})
}

// An interrupt may come while a cell is still read, before the first statement of it runs.
func TestInterruptBeforeTheCode(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		s.js(t, "globalThis.x = 1")
		long := strings.Repeat("1,", 500_000) // takes several times as long to read as an interrupt to come
		for _, code := range []string{"[" + long + "]; for (;;);", "await [" + long + "]; for (;;);"} {
			r := s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: code, Limits: executor.RunLimits{WallTime: time.Millisecond}})
			if r.err != nil || r.Reason != executor.ReasonWallTime || r.StateLost {
				t.Errorf("got %+v", r)
			}
			if r := s.js(t, "x"); r.err != nil || r.value() != "1" {
				t.Errorf("afterwards: got %+v", r)
			}
		}
	})
}

// What was interrupted while it waited is collected some time, which must disturb nothing.
func TestJavaScriptForgottenPromises(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode, func(c *Config) { c.Grace = 10 * time.Second }) // it heeds at once, if it gets a processor
		s.js(t, "globalThis.x = 1; require('v8').setFlagsFromString('--expose-gc'); globalThis.collect = require('vm').runInNewContext('gc')")
		for _, code := range []string{
			"await new Promise(() => {})",
			"for await (const x of {[Symbol.asyncIterator]: () => ({next: () => new Promise(() => {})})}) {}",
			"const y = await (async () => { await new Promise(() => {}) })(); y",
			"await new Promise((_, no) => { globalThis.no = no })",
			"new Promise(() => {})",
		} {
			r := s.do(t.Context(), executor.Request{Language: executor.JavaScript, Code: code, Limits: executor.RunLimits{WallTime: 100 * time.Millisecond}})
			if r.Reason != executor.ReasonWallTime || r.StateLost {
				t.Errorf("%s: got %+v", code, r)
			}
			r = s.js(t, "globalThis.no?.(new Error('late')); collect(); collect(); await new Promise(r => setTimeout(r, 50)); collect(); x")
			if r.err != nil || r.value() != "1" || r.stderr != "" {
				t.Errorf("after %s: got %+v %+v", code, r, r.Exception)
			}
		}
	})
}

func TestNoNode(t *testing.T) {
	t.Parallel()
	s := start(t, host, func(c *Config) { c.Env["PATH"] = "/nowhere" })
	if len(s.Info().Languages) != 1 {
		t.Errorf("got %q", s.Info().Languages)
	}
	if r := s.js(t, "1"); kindOf(r.err) != executor.ErrUnsupported {
		t.Errorf("got %v, want ErrUnsupported", r.err)
	}
}
