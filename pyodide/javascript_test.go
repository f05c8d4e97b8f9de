package pyodide

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// script creates a session with JavaScript.
func script(t testing.TB, l executor.Limits) executor.Session {
	t.Helper()
	if !javascriptHere {
		t.Skip("there are no sessions with JavaScript on this system")
	}
	return one(t, executor.Spec{Languages: []executor.Language{executor.JavaScript}, Limits: l})
}

func asScript(r *executor.Request) { r.Language = executor.JavaScript }

func runScript(t testing.TB, s executor.Session, code string, edit ...func(*executor.Request)) *executor.Result {
	t.Helper()
	return runCode(t, s, code, append(edit, asScript)...)
}

// The cells run one after the other in one session, and the last one prints.
func TestScriptState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		cells []string
		want  string
	}{
		{"const", []string{"const a = 1, b = a + 1", "console.log(a, b)"}, "1 2\n"},
		{"again", []string{"const a = 1; let b = 2", "const a = 3; let b", "console.log(a, b)"}, "3 undefined\n"},
		{"pattern", []string{"const {x: {y = 5}, ...rest} = {x: {}, p: 1, q: 2}, [h, , ...t] = [1, 2, 3, 4]", "console.log(y, rest.q, h, t.length)"}, "5 2 1 2\n"},
		{"class", []string{"class A { f() { return B.g() } }\nclass B { static g() { return 'g' } }", "console.log(new A().f(), A.name)"}, "g A\n"},
		{"function", []string{"var r = f(2)\nfunction f(n) { return n ? f(n - 1) + 1 : 0 }", "console.log(r, f(3))"}, "2 3\n"},
		{"function-again", []string{"function f() { return g() }\nfunction g() { return 1 }", "function g() { return 2 }", "console.log(f())"}, "2\n"},
		{"strict", []string{"'use strict'\nconst a = 1\nfunction f() { return this === undefined }", "console.log(a, f())"}, "1 true\n"},
		{"loops", []string{"for (var i = 0, n = 3; i < n; i++) var last = i\nfor (var k in {z: 1}) ;\nfor (let j of [1]) ;", "console.log(i, last, k, typeof j)"}, "3 2 z undefined\n"},
		{"no-semicolons", []string{"const f = () => 1\nlet g = f\nif (f()) var a = 1\nelse var a = 2\nclass C {}\n[1].length", "console.log(a, g.name, C.name)"}, "1 f C\n"},
		{"await", []string{"const p = new Promise(r => setTimeout(r, 30, 7))\nlet q = await p, r = await Promise.all([p, q])", "console.log(q, r[0], await p)"}, "7 7 7\n"},
		{"for-await", []string{"async function* g() { yield 1; yield 2 }\nfor await (const v of g()) var sum = (sum ?? 0) + v", "console.log(sum)"}, "3\n"},
		{"failed", []string{"const kept = 'k'\nthrow 1", "console.log(kept)"}, "k\n"},
		{"hashbang", []string{"#!/usr/bin/env node\nconsole.log('run')"}, "run\n"},
		{"html-comments", []string{"--> not code\nlet h = 1 <!-- + 1\nfunction f() { return h }\n--> nor this", "console.log(h, f())"}, "1 1\n"},
		{"constant", []string{"const c = 1; let d = 2", "try { c = 2 } catch (e) { console.log(e.message) }\ntry { c++ } catch (e) { console.log(e.name) }\nd++; { const c = 7; let d = c; d = 8 }",
			"console.log(c, d)", "let c = 5; c = 6; console.log(c)"}, "6\n"},
		{"early", []string{"try { late } catch (e) { console.log(e.name, e.message) }\nlet late = 1; console.log(late)"}, "ReferenceError Cannot access 'late' before initialization\n1\n"},
		{"no-properties", []string{"let hidden = 1; const [also] = [2]; class Third {}", "console.log(Object.keys(globalThis).filter((k) => ['hidden', 'also', 'Third'].includes(k)).length, hidden, also, Third.name)"}, "0 1 2 Third\n"},
		{"direct-eval", []string{"function f(a) { let b = 1; return eval('a + b') }\nclass P { #p = 4; get() { return eval('this.#p') } }\nfor (let i = 7; i < 8; i++) var g = eval('i')",
			"console.log(f(41), new P().get(), g, (function () { 'use strict'; eval('var own = 1'); return typeof own })(), (function () { eval('var own = 1'); return typeof own })())"}, "42 4 7 undefined number\n"},
		{"eval-by-other-names", []string{"const o = {eval}, [e] = [eval]; let {eval: h = 1} = globalThis",
			"console.log(o.eval('1 + 1'), e('2'), h('3'), eval.name, typeof eval, (function () { let x = 1; return (0, eval)('typeof x') })())"}, "2 2 3 eval function undefined\n"},
		{"left-running", []string{"setTimeout(() => { console.log('late') }, 20); setTimeout(async () => { await 1; console.log('late') }, 20);\n" +
			"(async () => { for (;;) { await new Promise(r => setTimeout(r, 5)); console.log('late') } })();\n" +
			"void new Promise(r => setTimeout(r, 20)).then(() => console.log('late'))",
			"await new Promise(r => setTimeout(r, 100)); console.log('mine')"}, "mine\n"},
		{"begun-before", []string{"var p = new Promise(r => setTimeout(r, 60, 'x'))", "console.log(await p); await p.then(v => console.log(v))"}, "x\nx\n"},
		{"evaluated", []string{"eval('var e = 1'); var f = new Function('a', 'b', 'return a + b')", "console.log(e, f(1, 2), f.name, f instanceof Function)"}, "1 3 anonymous true\n"},
		{"usual-tricks", []string{"function Old() {}\nOld.prototype.toString = () => 'old'\nArray.prototype.second = function () { return this[1] }\nconst e = new Error('x'); e.name = 'Odd'",
			"console.log(`${new Old()}`, [1, 2].second(), String(e))"}, "old 2 Odd: x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := script(t, executor.Limits{})
			var r *executor.Result
			for _, code := range c.cells {
				r = runScript(t, s, code, atOnce)
			}
			if got := string(r.Stdout); got != c.want || r.Status != executor.StatusOK {
				t.Errorf("got %s, want %q", describeResult(r), c.want)
			}
		})
	}
}

func TestScriptOutput(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	r := runScript(t, s, `console.log("%s is %d%%", "x", 4.5, {a: [1]}, null); console.info(new Map([[1, 2]])); console.debug(1n, Symbol("s"))
console.warn("w"); console.error(new RangeError("e").message); console.group("g"); console.log("a\nb")`)
	if got, want := string(r.Stdout), "x is 4.5% { a: [ 1 ] } null\nMap(1) { 1 => 2 }\n1n Symbol(s)\ng\n  a\n  b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(r.Stderr), "w\ne\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The console writes the same as that of Node.js 20.
func TestScriptConsole(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct{ code, out, err string }{
		{`console.table([{a: 1, b: "xyz"}, {a: [1, 2], c: {d: 1}}])`, `┌─────────┬──────────┬───────┬──────────┐
│ (index) │ a        │ b     │ c        │
├─────────┼──────────┼───────┼──────────┤
│ 0       │ 1        │ 'xyz' │          │
│ 1       │ [ 1, 2 ] │       │ { d: 1 } │
└─────────┴──────────┴───────┴──────────┘
`, ""},
		{`console.table(new Map([["ä", {x: 1}]]))`, `┌───────────────────┬─────┬──────────┐
│ (iteration index) │ Key │ Values   │
├───────────────────┼─────┼──────────┤
│ 0                 │ 'ä' │ { x: 1 } │
└───────────────────┴─────┴──────────┘
`, ""},
		{`console.table([{a: 1, b: "界"}], ["b"]); console.table(5)`, `┌─────────┬──────┐
│ (index) │ b    │
├─────────┼──────┤
│ 0       │ '界' │
└─────────┴──────┘
5
`, ""},
		{`console.group("a", "b"); console.log({x: "1\n2"}, "y\nz"); console.group(); console.error("e"); console.groupEnd(); console.groupEnd(); console.log("end")`,
			"a b\n  { x: '1\\n2' } y\n  z\nend\n", "    e\n"},
		{`console.log("%s %d %i %f %j %o %O%c %%", {a: 1}, "5", 4.7, "1.5", {a: 1}, [1], {b: 2}, "css"); console.log("%d", 1n, "%s"); console.log("%")`,
			"{ a: 1 } 5 4 1.5 {\"a\":1} [ 1, [length]: 1 ] { b: 2 } %\n1n %s\n%\n", ""},
		{`console.assert(true); console.assert(false); console.assert(0, "x %d", 4)`, "", "Assertion failed\nAssertion failed: x 4\n"},
		{`console.count(); console.count("b"); console.count(); console.countReset(); console.count(); console.countReset("none")`,
			"default: 1\nb: 1\ndefault: 2\ndefault: 1\n", "(node:1) Warning: Count for 'none' does not exist\n"},
		{`console.dir({a: {b: {c: {}}}}, {depth: 0}); console.dirxml([1], 2); console.log(-0, [,], new Map([[{a: 1}, new Set("ab")]]), Object.create(null), class A {}, [1.5, "x"])`,
			"{ a: [Object] }\n[ 1 ] 2\n-0 [ <1 empty item> ] Map(1) { { a: 1 } => Set(2) { 'a', 'b' } } [Object: null prototype] {} [class A] [ 1.5, 'x' ]\n", ""},
		{`console.timeEnd("t"); console.time("t"); console.time("t")`, "", "(node:1) Warning: No such label 't' for console.timeEnd()\n(node:1) Warning: Label 't' already exists for console.time()\n"},
		{`const {log} = console; log.call(null, Promise.resolve(1), Symbol("s"), new (class Odd { x = 1 })())`, "Promise { 1 } Symbol(s) Odd { x: 1 }\n", ""},
	} {
		r := runScript(t, s, c.code, atOnce)
		if string(r.Stdout) != c.out || string(r.Stderr) != c.err || r.Status != executor.StatusOK {
			t.Errorf("%s\ngot %s\nwant %s%s", c.code, describeResult(r), c.out, c.err)
		}
	}
	r := runScript(t, s, "console.time('t2'); console.timeLog('t2', 1); console.timeEnd('t2')", atOnce)
	if ok, _ := regexp.Match(`^t2: [\d.]+ms 1\nt2: [\d.]+ms\n$`, r.Stdout); !ok {
		t.Errorf("got %s", describeResult(r))
	}
}

func TestScriptValues(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct{ code, plain, json string }{
		{"1 + 1", "2", "2"},
		{"const a = 1\n;[a, 'x'] // end", `[ 1, 'x' ]`, `[1, "x"]`},
		{"(await 5);;", "5", "5"},
		{"({toJSON() { return 1 }})", "{ toJSON: [Function: toJSON] }", ""},
		{"Promise.resolve(3)", "3", "3"},
		{"(async () => { await 1; return [2] })()", "[ 2 ]", "[2]"},
		{"return 4", "", ""},
		{"NaN", "NaN", ""},
		{"[[1, , 2]]", "[ [ 1, <1 empty item>, 2 ] ]", ""},
		{"new Array(2 ** 32 - 1)", "[ <4294967295 empty items> ]", ""},
		{"'use strict'", `'use strict'`, `"use strict"`},
		{"undefined", "", ""},
		{"var v = 1", "", ""},
		{"if (1) { 5 }", "", ""},
	} {
		r := runScript(t, s, c.code)
		var plain, json string
		for _, o := range r.Outputs {
			plain, json = string(o.Data["text/plain"]), string(o.Data["application/json"])
		}
		if plain != c.plain || json != c.json || len(r.Outputs) > 0 != (c.plain != "") {
			t.Errorf("%s: got %q %q\n%s", c.code, plain, json, describeResult(r))
		}
	}
}

func TestScriptErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, kind, message string
		line                int
		traceback           string
	}{
		{"\nthrow new TypeError('m')", "TypeError", "m", 2, "TypeError: m\n    at <cell 1>:2\n"},
		{"function f() {\n null.x }\n\nf()", "TypeError", "Cannot read properties of null (reading 'x')", 2, "TypeError: Cannot read properties of null (reading 'x')\n    at f (<cell 1>:2)\n    at <cell 1>:4\n"},
		{"const a = 1\nconst {b} = await Promise.resolve(1)\nasync function g() { await 1\nthrow new Error('deep') }\nawait g()", "Error", "deep", 4, "Error: deep\n    at g (<cell 1>:4)\n    at async <cell 1>:5\n"},
		{"let x = 1\nlet x = 2", "SyntaxError", "Identifier 'x' has already been declared", 2, "<cell 1>:2\nlet x = 2\n    ^\nSyntaxError: Identifier 'x' has already been declared\n"},
		{"missing", "ReferenceError", "missing is not defined", 1, "ReferenceError: missing is not defined\n    at <cell 1>:1\n"},
		{"throw {a: 1}", "Object", "{ a: 1 }", 0, "Object: { a: 1 }\n"},
		{"throw 'text'", "string", "'text'", 0, "string: 'text'\n"},
		{"throw null", "object", "null", 0, "object: null\n"},
		// Reading the thrown value fails.
		{"throw new Proxy(new Error('x'), {getPrototypeOf() { throw 1 }})", "Error", "x", 0, "Error: x\n    at <cell 1>:1\n"},
		{"throw {[Symbol.for('Deno.customInspect')]() { throw 3 }}", "Object", "", 0, "Object\n"},
		{"const JSON = 1", "SyntaxError", "JSON belongs to the sandbox and cannot be declared", 0, "SyntaxError: JSON belongs to the sandbox and cannot be declared\n"},
		{"const e = new Error('own'); e.stack = 'at forged (/etc/passwd:1)'\nthrow e", "Error", "own", 0, "Error: own\n"},
		{"(class eval {})", "SyntaxError", "Unexpected eval or arguments in strict mode", 0, "SyntaxError: Unexpected eval or arguments in strict mode\n"},
		{"export const a = 1", "SyntaxError", "a cell has nobody to export to", 1, "<cell 1>:1\nexport const a = 1\n^\nSyntaxError: a cell has nobody to export to\n"},
		{"\nimport.meta.url", "SyntaxError", "Cannot use 'import.meta' outside a module", 2, "<cell 1>:2\nimport.meta.url\n^\nSyntaxError: Cannot use 'import.meta' outside a module\n"},
	} {
		s := script(t, executor.Limits{})
		r := runScript(t, s, c.code)
		e := r.Exception
		if e == nil || r.ExitCode != 1 {
			t.Errorf("%s: got %s, want an exception", c.code, describeResult(r))
			continue
		}
		if e.Type != c.kind || e.Message != c.message || e.Line != c.line || e.Traceback != c.traceback {
			t.Errorf("%s\ngot  %s %q line %d\n%s\nwant %s %q line %d\n%s", c.code, e.Type, e.Message, e.Line, e.Traceback, c.kind, c.message, c.line, c.traceback)
		}
	}
}

func TestScriptExit(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct {
		code string
		want int
	}{
		{"var kept = 1; console.log('before'); process.exit(3); console.log('after')", 3},
		{"console.log('before'); try { process.exit(0) } catch {} console.log('after')", 0},
		{"console.log('before'); setTimeout(() => process.exit(4), 10); await new Promise(() => {})", 4},
	} {
		r := runScript(t, s, c.code)
		if string(r.Stdout) != "before\n" || r.ExitCode != c.want || r.Exception != nil || r.StateLost {
			t.Errorf("%s: got %s", c.code, describeResult(r))
		}
	}
	if r := runScript(t, s, "console.log(kept)"); string(r.Stdout) != "1\n" {
		t.Errorf("got %s", describeResult(r))
	}
}

// Code that waits can be stopped. Stopping code that computes loses the state. The result says
// which.
func TestScriptStop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		lost       bool
		edit       func(*executor.Request)
		reason     executor.Reason
	}{
		{"await", "await new Promise(r => setTimeout(r, 1e7))", false, within(200 * time.Millisecond), executor.ReasonWallTime},
		{"await-swallowed", "for (;;) try { await new Promise(r => setTimeout(r, 5)) } catch {}", false, within(200 * time.Millisecond), executor.ReasonWallTime},
		{"loop", "for (;;);", true, within(200 * time.Millisecond), executor.ReasonWallTime},
		{"flood", "for (;;) console.log('x'.repeat(1000))", false, func(r *executor.Request) { r.Limits.OutputBytes = 10_000 }, executor.ReasonOutput},
		{"display-flood", "for (;;) display(1)", false, func(r *executor.Request) { r.Limits.OutputBytes = 10_000 }, executor.ReasonOutput},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script(t, executor.Limits{})
			runScript(t, s, "const kept = 'kept'")
			r := runScript(t, s, c.code, c.edit)
			if r.Reason != c.reason || r.StateLost != c.lost {
				t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
			}
			want := "kept\n"
			if r.StateLost {
				want = "none\n"
			}
			next := runScript(t, s, "console.log(typeof kept === 'string' ? kept : 'none')")
			if string(next.Stdout) != want || next.StateFresh != r.StateLost {
				t.Errorf("then got %s, fresh %v", describeResult(next), next.StateFresh)
			}
		})
	}
}

func TestScriptCancel(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Run(ctx, executor.Request{Language: executor.JavaScript, Code: "console.log('on'); await new Promise(() => {})"}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.StateLost {
		t.Errorf("got %v, %+v", err, r)
	}
}

// Both kinds of memory are limited: the engine's heap and memory outside of it.
func TestScriptMemory(t *testing.T) {
	t.Parallel()
	const limit = 128 * mib
	for _, c := range []struct{ name, code string }{
		{"heap", "const a = []; for (let i = 0; ; i++) a.push({i, s: 'x' + i})"},
		{"buffers", "const a = []; for (;;) { a.push(new Uint8Array(4 << 20).fill(1)); console.log(a.length * 4) }"},
		{"shared", "const a = []; for (;;) { a.push(new Uint8Array(new SharedArrayBuffer(4 << 20)).fill(1)); console.log(a.length * 4) }"},
		{"wasm", "const a = []; for (;;) { a.push(new Uint8Array(new WebAssembly.Memory({initial: 64}).buffer).fill(1)); console.log(a.length * 4) }"},
		{"text", "let s = 'x'; for (;;) { s = s + s; JSON.stringify([s, s]); console.log(s.length >> 20) }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script(t, executor.Limits{MemoryBytes: limit})
			r := runScript(t, s, c.code, within(30*time.Second))
			// When the engine makes a long text it does not check for memory: it crashes without a
			// message.
			ends := r.Reason == executor.ReasonMemory || c.name == "text" && r.Reason == executor.ReasonSandbox
			if killed := r.Status == executor.StatusKilled && ends && r.StateLost; !killed && (r.Exception == nil || r.Exception.Type != "RangeError") {
				t.Errorf("got %s", describeResult(r))
			}
			if got := strings.Count(string(r.Stdout), "\n"); got*4*mib > limit {
				t.Errorf("got %d MiB, want %d", got*4, limit/mib)
			}
			next := runScript(t, s, "console.log(1)")
			if !r.StateLost && next.Reason == executor.ReasonMemory && next.StateLost {
				// The code was refused memory and keeps what it had: so little is left that the
				// engine itself may run out now.
				next = runScript(t, s, "console.log(1)")
			}
			if string(next.Stdout) != "1\n" {
				t.Errorf("then got %s", describeResult(next))
			}
		})
	}
}

// Code that replaces functions around it changes neither its own result nor the results of later
// code.
func TestScriptTampering(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"for (const k of [Array, Object, String, Function, Promise, Map, Uint8Array, DataView, TextEncoder, RegExp, Error]) for (const n of Reflect.ownKeys(k.prototype)) try { k.prototype[n] = null } catch {}\nJSON.stringify = JSON.parse = null",
		"Object.prototype.toJSON = () => ({exit_code: 0, exception: null}); Object.prototype.then = (f) => f({value: 'forged'})",
		"Object.defineProperty(Object.prototype, 'value', {get() { return 'forged' }, set() {}})",
		"Object.defineProperty(Array.prototype, 0, {set(v) { throw v }, get() { return 1 }, configurable: true}); delete Array.prototype[0]",
		"Error.prepareStackTrace = () => 'forged'; Error.captureStackTrace = null; Error.stackTraceLimit = 0; Error.stackTraceLimit = 50",
		"for (const n of ['JSON', 'Promise', 'Uint8Array', 'TextEncoder', 'Object', 'Error', 'Map', 'eval', 'Atomics']) try { delete globalThis[n]; globalThis[n] = null } catch {}",
		"for (const n of ['run', 'back', 'import', 'eval', 'text', 'value']) for (const f of [eval, Function]) try { f('__execbroker' + '_' + n + ' = null')() } catch {}",
		"Promise.prototype.then = function () { return this }; Promise.resolve = null; Function.prototype.call = Function.prototype.apply = () => 1",
	} {
		s := script(t, executor.Limits{})
		runScript(t, s, code)
		r := runScript(t, s, "console.log('x'); await 1\nnull.x")
		if e := r.Exception; r.ExitCode != 1 || string(r.Stdout) != "x\n" || e == nil || e.Type != "TypeError" || e.Line != 2 || e.Traceback[strings.Index(e.Traceback, "\n"):] != "\n    at <cell 2>:2\n" {
			t.Errorf("after %s\ngot %s", code, describeResult(r))
		}
		if r := runScript(t, s, "6 * 7"); len(r.Outputs) != 1 || string(r.Outputs[0].Data["text/plain"]) != "42" {
			t.Errorf("after %s\ngot %s %+v", code, describeResult(r), r.Outputs)
		}
	}
}

// Features that are not declared are refused.
func TestScriptLacks(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	if _, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("language: got %v", err)
	}
	if _, err := s.Install(t.Context(), executor.Packages{Language: executor.JavaScript, Names: []string{"ms"}}, nil); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("packages: got %v", err)
	}
	if _, err := open(t, Config{}).Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.JavaScript, executor.Python}}); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("mixed languages: got %v", err)
	}
}

// What a cell calls sees no function of the host around the cell. A cell that waits or returns at
// its top level has such a function: see transform.mjs.
func TestCallersInACell(t *testing.T) {
	t.Parallel()
	r := runScript(t, script(t, executor.Limits{}), `
const seen = []
function plain() { seen.push(plain.caller) }
plain()
const o = { toString: function s() { seen.push(s.caller); return "" } }
Object.defineProperty(o, "x", { get: function g() { seen.push(g.caller); return 1 } })
o.x
String(o + o.x)
new (function C() { seen.push(C.caller) })()
;(function () { seen.push(arguments.callee.caller) })()
eval("(function e() { seen.push(e.caller) })()")
new Function("seen", "seen.push(arguments.callee.caller)")(seen)
for (const c of [1].map(function f() { return f.caller })) seen.push(c)
for (const c of seen) if (c && !/\[native code\]/.test(String(c))) console.log(String(c))
console.log("seen", seen.length)`)
	if got, want := string(r.Stdout), "seen 9\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A cell that waits or returns at its top level is the body of a function, as in Node's own REPL.
// What it calls sees that function, and none of the host behind it.
func TestCallersInACellThatWaits(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"await 1", "if (true) return 7", "await f(); return 7"} {
		r := runScript(t, script(t, executor.Limits{}), `
const seen = []
function f() {
	try {
		for (let c = f.caller; c; c = c.caller) seen.push(String(c))
	} catch (e) { if (!(e instanceof TypeError)) throw e } // an async function does not tell its caller
}
f(); [1].map(f); setTimeout(f); Promise.resolve().then(f)
await new Promise(r => setTimeout(r, 5))
f()
console.log(seen.filter(c => !c.startsWith("async()=>{") && !c.includes("[native code]")).join("\n---\n"))
console.log(seen.length)
`+last)
		if got := string(r.Stdout); !strings.HasPrefix(got, "\n") || r.ExitCode != 0 {
			t.Errorf("%s: the host is seen\n%s", last, describeResult(r))
		}
	}
}
