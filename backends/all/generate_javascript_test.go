package all_test

import (
	"fmt"

	"github.com/execbroker/execbroker/executor"
)

var javascriptFamilies = []family{
	{executor.JavaScript, "arithmetic", func(g *generator) {
		for range 4 + g.IntN(5) {
			g.try("console.log(" + g.jsNumber(3) + ")")
		}
	}},
	{executor.JavaScript, "bigint", func(g *generator) {
		g.line("const a = %sn, b = %sn;", g.integer(), g.integer())
		for range 5 {
			g.try("console.log(" + pick(g, "a + b", "a * b", "a / b", "a % b", "a ** 3n", "a << 5n", "-a & b", "a > b", "a == 1", "BigInt.asIntN(16, a)", "a.toString(7)", "Number(b)", "a + 1", "[a, b].sort()", "typeof a", "BigInt(Number(a))") + ")")
		}
	}},
	{executor.JavaScript, "format", func(g *generator) {
		for range 6 {
			n := g.IntN(25)
			g.try(fill("console.log(($1)."+pick(g, "toFixed($2)", "toPrecision($2)", "toExponential($2)", "toString($2)", "toLocaleString('en-US')")+")", pick(g, g.integer(), g.float()), fmt.Sprint(n)))
		}
		g.line("console.log(%q, %s, %s)", pick(g, "%s %d", "%i|%f", "%j %o", "%O%%", "%c%s", "%x %s"), g.jsValue(1), g.jsValue(1))
	}},
	{executor.JavaScript, "text", func(g *generator) {
		g.line("const s = %s;", g.jsText())
		for range 6 {
			g.try("console.log([s" + g.several(1, 3, "", func() string {
				return pick(g, ".toUpperCase()", ".trim()", ".slice(1, 4)", ".normalize('NFD')", ".padStart(9, 'é')", ".replace(/a|b/g, '<$&>')", ".repeat(2)", ".substring(5, 1)", ".replaceAll(' ', '')", ".at(-1)", ".concat(s)", ".split('').reverse().join('')", ".toLowerCase()")
			}) + "])")
		}
		g.line("console.log(s.length, [...s].length, [...s].map((c) => c.codePointAt(0).toString(16)), encodeURIComponent(s), JSON.stringify(s), s.localeCompare('b'), s.split(/\\W/))")
	}},
	{executor.JavaScript, "inspect", func(g *generator) {
		for range 4 {
			g.line("console.log(%s, %s)", g.jsValue(4), g.jsValue(1))
		}
		g.line("console.log(%s)", g.jsText())
	}},
	{executor.JavaScript, "arrays", func(g *generator) {
		g.line("const a = %s;", g.jsList(0))
		for range 8 {
			g.try(fill(pick(g, "a.push($1)", "console.log(a.pop())", "a.reverse()", "console.log(a.indexOf($1), a.includes($1))", "a.splice($2, 1, $1)", "console.log(a.sort())", "console.log(a.map(typeof_))", "console.log(a.flat())", "console.log(a.slice(-$2), a.at($2))", "a.length = $2", "console.log(a.reduce((x, y) => x + y))", "console.log(a.findIndex((x) => x > 0), a.join('|'))", "a[$2 + 3] = 1", "console.log(Object.keys(a))", "console.log(a.toSorted().with(0, $1))", "console.log(Object.groupBy ? 1 : 1, [...a.entries()].length)"), g.jsValue(0), fmt.Sprint(g.IntN(4))))
		}
		g.line("console.log(a);\nfunction typeof_(x) { return typeof x; }")
	}},
	{executor.JavaScript, "objects", func(g *generator) {
		g.line("const o = { a: %s, ['b' + 1]: %s, get c() { return this.a; }, %q: 1 };", g.jsValue(2), g.jsValue(1), g.word())
		for range 5 {
			g.try(fill(pick(g, "o.x = $1", "delete o.a", "console.log(o.c, 'a' in o)", "console.log(Object.entries(o))", "const { a, ...rest } = o; console.log(rest)", "console.log({ ...o, a: 0 })", "console.log(JSON.stringify(o))", "Object.freeze(o)", "o.self = o; console.log(o)", "console.log(o.a.b.c)", "console.log(o?.x?.y, o.n ?? 'none')", "console.log(structuredClone(o))"), g.jsValue(1)))
		}
	}},
	{executor.JavaScript, "collections", func(g *generator) {
		g.line("const m = new Map(%s.map((x, i) => [x, i])), s = new Set(%s);", g.jsList(1), g.jsList(0))
		for range 5 {
			g.try(fill(pick(g, "m.set($1, $2)", "s.add($1)", "console.log(m.get($1), s.has($1))", "m.delete($1)", "console.log([...m.keys()].length, s.size)", "console.log(Object.fromEntries(m))", "for (const x of s) console.log(typeof x)", "console.log(new Map([...m].reverse()))", "new WeakMap().set($1, 1)"), g.jsValue(0), g.jsValue(1)))
		}
		g.line("console.log(m, s)")
	}},
	{executor.JavaScript, "flow", func(g *generator) {
		g.line("function f(n) {\n  const log = [];")
		g.jsBlock("  ", 3)
		g.line("  return log;\n}\nfor (const n of [0, 1, 5, -3]) console.log(n, f(n));")
	}},
	{executor.JavaScript, "errors", func(g *generator) {
		g.line("class Own extends %s { constructor(m, x) { super(m); this.name = 'Own'; this.x = x; } }", pick(g, "Error", "TypeError", "RangeError"))
		raise := pick(g, "throw new Own('own', 1)", "null.x", "undefined()", "nowhere", "throw new Error('e', { cause: new TypeError('c') })", "new Array(-1)", "JSON.parse('{')", "'x'.repeat(-1)", "Symbol() + ''", "1n + 1", "decodeURI('%')", "console.log('fine')", "throw new AggregateError([new Error('a')], 'many')", "(() => { 'use strict'; Object.freeze([]).push(1); })()")
		for range g.IntN(4) {
			raise = fill(pick(g, "try { $1 } catch (e) { console.log(e.name, e.message) }", "try { $1 } finally { console.log('finally') }", "try { $1 } catch (e) { console.log('again', e instanceof Own); throw e }", "try { $1 } catch (e) { throw new Own(e.message) }", "(() => { $1 })()", "[1].forEach(() => { $1 })"), raise)
		}
		g.line("console.log('before');\n%s;\nconsole.log('after');", raise)
	}},
	{executor.JavaScript, "classes", func(g *generator) {
		n := 2 + g.IntN(3)
		for i := range n {
			parent := ""
			if i > 0 {
				parent = fmt.Sprintf(" extends C%d", g.IntN(i))
			}
			g.line("class C%d%s { #p = %d; x%d = %s; static s = %d; f() { return [%d, this.#p].concat(super.f ? super.f() : []); } get g() { return this.x%d; } toString() { return 'C%d'; } }", i, parent, i, i, g.jsValue(1), g.IntN(9), i, i, i)
		}
		g.line("for (const C of [%s]) { const c = new C(); console.log(c, c.f(), `${c}`, C.s, C.name, Object.keys(c), c instanceof C0); }", g.several(n, n, ", ", func() string { return fmt.Sprintf("C%d", g.IntN(n)) }))
	}},
	{executor.JavaScript, "generators", func(g *generator) {
		g.line("function* a(n) { for (let i = 0; i < n; i++) { const x = yield i; if (x) console.log('sent', x); } return 'end'; }\nfunction* b() { try { const r = yield* a(%d); yield r; } finally { console.log('closed'); } }\nconst it = b();", g.IntN(4))
		for range 2 + g.IntN(4) {
			g.try(pick(g, "console.log(it.next())", "console.log(it.next(5))", "console.log(it.return(7))", "it.throw(new Error('thrown'))", "console.log([...b()])", "const [x, ...y] = b(); console.log(x, y)", "for (const x of b()) { console.log(x); break; }"))
		}
	}},
	{executor.JavaScript, "patterns", func(g *generator) {
		g.line("const s = %s;", g.jsText())
		for range 4 {
			p := g.several(1, 4, "", func() string {
				return pick(g, "a", "b*", "[a-e]+", `\w`, `\d+?`, ".", "(x|a)", `\b`, "(?=b)", "(?<!a)", "^", "$", "[^a ]{1,2}", "(", ")", "*", `\p{L}`)
			})
			g.try(fmt.Sprintf("const re = new RegExp(%q, %q); console.log(s.match(re), s.replace(re, '<>'), s.split(re))", p, pick(g, "", "g", "iu", "gs", "y", "u")))
		}
	}},
	{executor.JavaScript, "times", func(g *generator) {
		g.line("const d = new Date(Date.UTC(%d, %d, %d, %d, %d));", 1900+g.IntN(200), g.IntN(14)-1, g.IntN(40)-4, g.IntN(30), g.IntN(70))
		g.line("console.log(d, d.toISOString(), +d, d.getUTCDay(), JSON.stringify({ d }), new Date(d - 864e5 * %d).toUTCString(), d.toString(), d.toLocaleDateString('en-US', { timeZone: 'UTC' }), Date.parse(%q));", g.IntN(5000), pick(g, "2024-02-30", "2024-01-01T00:00:00+02:00", "1 Jan 2020 UTC", "nonsense", "2024-06"))
	}},
	{executor.JavaScript, "typed", func(g *generator) {
		g.line("const a = new %s(%s.map(Number).filter(Number.isFinite));\nconsole.log(a, a.byteLength, a.slice(1), [...a].length);", pick(g, "Uint8Array", "Int16Array", "Float64Array", "Uint8ClampedArray", "Float32Array"), g.jsList(0))
		g.line("const v = new DataView(new ArrayBuffer(16));\nv.setFloat64(0, %s);\nv.setInt32(8, %s, true);\nconsole.log(new Uint8Array(v.buffer), v.getUint16(9));", g.float(), g.integer())
	}},
	{executor.JavaScript, "promises", func(g *generator) {
		g.line("const wait = (ms, v) => new Promise((r) => setTimeout(r, ms, v)), log = (...a) => console.log(...a);\nlog('begin');")
		// The first line of a script takes up to 100 ms. Then each timer has a different time, far
		// enough from the others to allow for pauses of the machine.
		for i := range 4 + g.IntN(4) {
			g.line("%s;", fill(pick(g, "setTimeout(log, $1, 'timer', $1)", "Promise.resolve($1).then((x) => log('then', x))", "queueMicrotask(() => log('micro', $1))", "wait($1, 'w').then(log)", "Promise.reject(new Error('r$1')).catch((e) => log(e.message)).finally(() => log('finally'))", "(async () => { log('in', $1); await null; log('out', $1); })()", "Promise.allSettled([wait($1, 1), Promise.reject(2)]).then((r) => log(r))", "Promise.any([Promise.reject(1), wait($1, $1)]).then(log)", "Promise.race([wait($1, 'slow'), wait(900, 'never')]).then(log)", "log('now', $1)"), fmt.Sprint(50+100*(i*5%8))))
		}
	}},
	{executor.JavaScript, "cells", func(g *generator) {
		g.line("let a = %s;\nfunction f(x) { return [x, a]; }", g.jsList(1))
		for range 3 + g.IntN(3) {
			g.WriteString(cellMark)
			g.WriteString(pick(g, "a.push("+g.jsValue(1)+");\na", "const b = a.slice(0, 2);\nb", "b", "a = "+g.jsList(1)+";\na.length", "f(1)", "class A { x = a; }\nnew A()", "a.no.such", "a[", "null", "({ a })", "for (const x of a) console.log(x);", "var c = 1; c", "Promise.resolve(a)", "await 5", "let a = 2; a", "function f() { return 'new'; }", "typeof c") + "\n")
		}
	}},
	{executor.JavaScript, "files", func(g *generator) {
		g.line("const fs = require('fs'), path = require('path');\nconst names = ['a.txt', 'd/b.txt', 'd/e/c é.bin'];\nfs.mkdirSync('d/e', { recursive: true });")
		for range 8 {
			n, m := g.IntN(3), g.IntN(3)
			g.try(fill(pick(g, "fs.writeFileSync(names[$1], $3)", "fs.appendFileSync(names[$1], Buffer.from([1, 200, 0]))", "console.log(fs.readFileSync(names[$1], 'utf8'))", "console.log(fs.readFileSync(names[$1]))", "fs.renameSync(names[$1], names[$2])", "fs.unlinkSync(names[$1])", "console.log(fs.statSync(names[$1]).size)", "fs.copyFileSync(names[$1], names[$2])", "fs.rmdirSync('d/e')", "console.log(fs.readdirSync(path.dirname(names[$1])).filter((n) => !n.startsWith('main.')).sort())"), fmt.Sprint(n), fmt.Sprint(m), g.jsText()))
		}
	}},
	{executor.JavaScript, "input", func(g *generator) {
		g.WriteString(inputMark + g.several(0, 6, "\n", func() string { return pick(g, g.integer(), g.word(), g.float()) }) + pick(g, "", "\n") + "\x00")
		g.WriteString(pick(g, "const rl = require('readline').createInterface({ input: process.stdin });\nrl.on('line', (l) => console.log([l, Number(l)])).on('close', () => console.log('end'));\n", "let t = '';\nprocess.stdin.setEncoding('utf8').on('data', (d) => (t += d)).on('end', () => console.log([t], t.split('\\n').length));\n", "console.log(require('fs').readFileSync(0, 'utf8').split('\\n'));\n"))
	}},
	{executor.JavaScript, "exits", func(g *generator) {
		g.line("console.log('before');\n%s;\nconsole.log('after');", pick(g, fmt.Sprintf("process.exit(%d)", g.IntN(300)), fmt.Sprintf("process.exitCode = %d", g.IntN(100)), fmt.Sprintf("setTimeout(() => process.exit(%d), 5)", g.IntN(9)), "setTimeout(() => { throw new Error('late') }, 5)", "Promise.reject(new TypeError('unhandled'))", "process.stdout.write('no line')", "try { process.exit(3) } finally { console.log('never') }", "process.exitCode = 2; throw new Error('now')"))
	}},
}

// try writes a statement whose errors are printed.
func (g *generator) try(statement string) {
	g.WriteString("try { " + statement + "; } catch (e) { console.log(e.name + ': ' + e.message); }\n")
}

// jsText returns a string literal.
func (g *generator) jsText() string {
	return pick(g, "'"+g.word()+"'", "`"+g.word()+"`", "\"it's "+g.word()+"\"")
}

// jsNumber returns an expression of numbers.
func (g *generator) jsNumber(depth int) string {
	if depth == 0 || g.IntN(5) == 0 {
		return pick(g, g.integer(), g.float(), "NaN", "true", "null", "'7'", "Infinity")
	}
	return fill(pick(g, "($1 + $2)", "($1 - $2)", "($1 * $2)", "($1 / $2)", "($1 % $2)", "($1 & $2)", "($1 << 3)", "($1 >>> 1)", "(-$1)", "(~$1)", "Math.abs($1)", "Math.round($1)", "Math.trunc($1)", "($1 < $2)", "parseInt($1)", "Math.max($1, $2)", "($1 ? $2 : 0)", "($1 ?? $2)", "Math.sqrt($1)", "(($1) ** 2)", "Math.fround($1)", "Number.isInteger($1)", "($1 == $2)", "Math.hypot($1, 3)"), g.jsNumber(depth-1), g.jsNumber(depth-1))
}

// jsValue returns a literal of any type.
func (g *generator) jsValue(depth int) string {
	if depth > 0 && g.IntN(2) == 0 {
		v := g.jsValue(depth - 1)
		return pick(g, g.jsList(depth-1), "{ k: "+v+" }", "{ a: "+v+", 'b-c': "+g.jsText()+", 1: null }", "new Map([["+g.jsText()+", "+v+"]])", "new Set(["+v+"])", "[["+v+"], { x: "+v+" }]", "Object.create(null)", "(x) => x", "class K {}", "new Date(0)", "/x/g", "Symbol('s')", "{ get g() { return 1; }, m() {} }", "new (class P { z = "+v+"; })()", "Promise.resolve("+v+")", "new Error('e').message", "Array.from({ length: 12 }, (_, i) => i * 1e5)", "'long '.repeat(20)", "[,"+v+"]", "Object.assign(() => 1, { p: "+v+" })", "new Uint8Array(3)")
	}
	return pick(g, g.integer(), g.float(), g.jsText(), "true", "null", "undefined", "NaN", "5n")
}

// jsList returns a list literal.
func (g *generator) jsList(depth int) string {
	return "[" + g.several(1, 7, ", ", func() string { return g.jsValue(depth) }) + "]"
}

// jsBlock writes the statements of a function with the parameter n that logs what it does.
func (g *generator) jsBlock(indent string, depth int) {
	for range 1 + g.IntN(3) {
		n := fmt.Sprint(g.IntN(6))
		if depth == 0 || g.IntN(4) == 0 {
			g.WriteString(indent + fill(pick(g, "log.push(n * $1);", "log.push(n / $1);", "log.push(String(n).padStart($1, '0'));", "n -= $1;", "log.push([...log].length);", "log.push(n ?? $1);", "log.push(n.x?.y);", "n++;", "log.push(typeof n.toFixed($1));"), n) + "\n")
			continue
		}
		kind := g.IntN(5)
		g.line("%s%s", indent, fill([]string{"if (n > $1) {", "for (let i = 0; i < $1; i++) {", "try {", "for (const x of [n, $1, 'x']) {", "do {"}[kind], n))
		g.jsBlock(indent+"  ", depth-1)
		g.line("%s  log.push(%d);", indent, g.IntN(100))
		switch kind {
		case 0:
			g.line("%s} else {\n%s  log.push('else');\n%s}", indent, indent, indent)
		case 2:
			g.line("%s  if (log.length > %s) throw new RangeError('many');\n%s} catch (e) {\n%s  log.push(e.name);\n%s} finally {\n%s  log.push('f');\n%s}", indent, n, indent, indent, indent, indent, indent)
		case 4:
			g.line("%s} while (log.length < %s);", indent, n)
		default:
			g.line("%s  if (log.length > 40) %s\n%s}", indent, pick(g, "break;", "return log;", "continue;"), indent)
		}
	}
}
