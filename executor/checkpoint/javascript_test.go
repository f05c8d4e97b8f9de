package checkpoint_test

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

// script is a conversation in JavaScript. The names of its parts differ.
var script = []struct {
	name  string
	cells []string
	show  string // prints the same in every session that has the state
	want  string
	code  bool // it has functions, which only Node.js carries
}{
	{"numbers", []string{"let a1 = [1, -0, NaN, Infinity, 2n ** 70n, 1e-320]"}, "console.log(a1.map((x) => Object.is(x, -0) ? '-0' : String(x)).join())", "1,-0,NaN,Infinity,1180591620717411303424,1e-320", false},
	{"texts", []string{"const a2 = 'ä\\ud800'; var b2 = ''"}, "console.log(escape(a2), b2 === '')", "%E4%uD800 true", false},
	{"nothing", []string{"let a3 = undefined, b3 = null, c3 = { x: undefined }, d3 = [, 1]"}, "console.log(typeof a3, b3, 'x' in c3, 0 in d3, d3.length)", "undefined null true false 2", false},
	{"cycles", []string{"const a4 = []; a4.push(a4); const b4 = { a4 }; b4.self = b4"}, "console.log(a4[0] === a4, b4.self === b4, b4.a4 === a4)", "true true true", false},
	{"collections", []string{"const a5 = new Map([['k', { v: 1 }]]); const b5 = new Set([a5, 1]); a5.set(a5, b5)"}, "console.log(a5.get('k').v, a5.get(a5) === b5, b5.has(a5), a5.size)", "1 true true 2", false},
	{"binary", []string{"const a6 = new Uint8Array([1, 2, 3]); const b6 = new Float64Array(a6.buffer.byteLength); b6[1] = 0.5; const c6 = a6.subarray(1); const d6 = new DataView(a6.buffer, 1, 2)"}, "c6[0] = 9; console.log(a6.join(), b6.join(), c6.buffer === a6.buffer, d6.getUint8(0), a6 instanceof Uint8Array)", "1,9,3 0,0.5,0 true 9 true", false},
	{"library", []string{"const a7 = new Date(1e12); const b7 = /a+/gi; b7.lastIndex = 2; const c7 = new RangeError('bad', { cause: a7 }); const d7 = Object('x')"}, "console.log(a7.toISOString(), String(b7), b7.lastIndex, c7.name, c7.message, c7.cause === a7, c7 instanceof RangeError, typeof d7)", "2001-09-09T01:46:40.000Z /a+/gi 2 RangeError bad true true object", false},
	{"symbols", []string{"const a8 = { [Symbol.for('k')]: 1, [Symbol.toStringTag]: 'T' }"}, "console.log(a8[Symbol.for('k')], String(a8))", "1 [object T]", false},
	{"await", []string{"const a9 = await Promise.resolve([1])"}, "a9.push(2); console.log(a9.join())", "1,2", false},
	{"assigned", []string{"globalThis.a10 = { x: 1 }; a11 = 2"}, "console.log(a10.x, a11)", "1 2", false},
	{"functions", []string{"let n12 = 1; function f12(x) { return x + n12 }\nconst g12 = (x) => f12(x) * 2; f12.calls = [g12]; async function h12() { return 3 }\nfunction* i12() { yield* [1, 2] }", "n12 = 5"}, "console.log(f12(1), g12(1), f12.calls[0] === g12, await h12(), [...i12()].join(), f12.name)", "6 12 true 3 1,2 f12", true},
	{"classes", []string{"class B13 extends Array { twice() { return this.length * 2 } static made = 0; static make() { B13.made++; return new C13(4) } get half() { return this.length / 2 } }\nclass A13 { constructor(v) { this.v = v } }", "class C13 extends A13 { add(n) { return this.v + n } }\nB13.made = 3; const c13 = B13.make()"}, "console.log(c13.add(1), c13 instanceof A13, c13 instanceof C13, B13.made, c13.constructor === C13)", "5 true true 4 true", true},
	{"prototypes", []string{"function P14(x) { this.x = x }\nP14.prototype.get = function () { return this.x }; const p14 = new P14([7]); const m14 = { inc(x) { return x + 1 } }"}, "console.log(p14.get()[0], p14 instanceof P14, m14.inc(1))", "7 true 2", true},
}

// unable is what JavaScript cannot carry: the cell, the name, and a part of the reason.
var unable = []struct {
	code, name, reason string
	node               bool // only Node.js says so
}{
	{"const u1 = (() => { let n = 0; return () => ++n })()", "u1", "function", false},
	{"const u2 = new WeakMap()", "u2", "WeakMap", false},
	{"const u3 = Promise.resolve(1)", "u3", "Promise", false},
	{"const u4 = Object.freeze([1])", "u4", "frozen", false},
	{"const u5 = { get x() { return 1 } }", "u5", "computed", false},
	{"class U6 { #p = 1 }\nconst u6 = new U6()", "u6", "private", true},
	{"class U11 extends Map {}\nconst u11 = new U11([[1, 2]])", "u11", "extends", true},
	{"const u12 = new Proxy({}, { ownKeys() { throw 1 } })", "u12", "proxy", true},
	{"const u7 = [1].values()", "u7", "cannot be carried", false},
	{"const u8 = 'x'.repeat(6 << 20)", "u8", "bound", false},
	{"const u9 = { deep: [Symbol('own')] }", "u9", "symbol", false},
	{"let u10 = []; for (let i = 0; i < 1e5; i++) u10 = [u10]", "u10", "RangeError", false},
}

// scripts are the sessions that conversations in JavaScript move along.
func scripts(t *testing.T) (node, web executor.Executor) {
	near, err := pyodide.Open(t.Context(), driver.Env{Owner: "test-" + strings.ToLower(rand.Text()), OneShot: true}, pyodide.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, near.Close()) })
	return local(t), near
}

// TestScripts carries a conversation in JavaScript between Node.js and Pyodide's interpreter, and
// finds what is not carried listed.
func TestScripts(t *testing.T) {
	node, web := scripts(t)
	spec := executor.Spec{Languages: []executor.Language{executor.JavaScript}}
	for _, way := range []struct {
		name     string
		from, to executor.Executor
		code     bool
	}{{"node-to-node", node, node, true}, {"pyodide-to-node", web, node, false}, {"node-to-pyodide", node, web, true}} {
		t.Run(way.name, func(t *testing.T) {
			k := talk{create(t, way.from, spec), ""}
			for _, c := range script {
				if way.code || !c.code {
					for _, code := range c.cells {
						k.says(t, code)
					}
				}
			}
			archive, r := k.made(t, checkpoint.Options{AllOrNothing: true})
			k.says(t, "1") // lives on
			next := talk{create(t, way.to, spec), ""}
			if r := next.restored(t, archive); len(r.Omitted) > 0 {
				t.Errorf("restored without %v", r.Omitted)
			}
			if len(r.Manifest.JavaScript) < 20 {
				t.Errorf("carried %v", r.Manifest.JavaScript)
			}
			for _, c := range script {
				if way.code || !c.code {
					if got := next.says(t, c.show); got != c.want {
						t.Errorf("%s: got %q, want %q", c.name, got, c.want)
					}
				}
			}
		})
	}
	for name, x := range map[string]executor.Executor{"node": node, "pyodide": web} {
		t.Run("unable-"+name, func(t *testing.T) {
			k := talk{create(t, x, spec), ""}
			k.says(t, "const good = [1]")
			for _, c := range unable {
				k.says(t, c.code)
			}
			var b bytes.Buffer
			r, err := checkpoint.Make(t.Context(), k, &b, checkpoint.Options{MaxBytes: 4 << 20})
			check(t, err)
			for _, c := range unable {
				if c.node && name != "node" {
					continue
				}
				if !slices.ContainsFunc(r.Omitted, func(o checkpoint.Omission) bool { return o.Name == c.name && strings.Contains(o.Reason, c.reason) }) {
					t.Errorf("%s is not listed with %q: %v", c.name, c.reason, r.Omitted)
				}
			}
			if got := k.says(t, "console.log(good.join(), typeof u1(), u10.length)"); got != "1 number 1" {
				t.Errorf("afterwards: %s", got)
			}
			if !slices.Contains(r.Names(), "good") {
				t.Errorf("carried %v", r.Names())
			}
		})
	}
}
