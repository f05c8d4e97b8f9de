package pyodide

import (
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// The attempts in JavaScript. In these sessions code is evaluated, so the engine's flag is not one
// of the layers. The layers are the realm, with the transformation of evaluated code; Deno's
// permissions; and the operating system.

// unscrubbed are the hosts in which an escape needs neither permissions nor the operating system:
// only the realm stops it.
var unscrubbed = []string{plainHost, permissionHost, systemHost}

// modules attempts use import, which is the only way to code that was not transformed and to the
// modules of Node.
var modules = []attempt{
	{name: "import-node", works: unscrubbed, code: `const m = await import("node:vm"); escaped(m.runInThisContext)`},
	{name: "import-node-and-read", works: reaching, code: `const m = await import("node:fs"); escaped(m.readFileSync(SECRET_FILE, "utf8"))`},
	{name: "import-node-and-run", works: reaching, code: `
const m = await import("node:child_process")
if (m.spawnSync("/bin/sh", ["-c", "echo x > " + MARKER]).status === 0) escaped()`},
	{name: "import-bare", code: `const m = await import("vm"); escaped(m.runInThisContext)`},
	{name: "import-sqlite", works: unscrubbed, code: `const m = await import("node:sqlite"); escaped(m.DatabaseSync)`},
	{name: "import-internal", code: `const m = await import("ext:core/mod.js"); escaped(Object.keys(m))`},
	{name: "import-file", works: reaching, code: "await loaded(import(`file://${SECRET_MODULE}`))"},
	{name: "import-host-program", code: `for (const n of ["scrub", "realm", "main", "ring"]) { const m = await import("./" + n + ".mjs"); escaped(Object.keys(m)) }`},
	{name: "import-http", works: reaching, code: "await loaded(import(`http://127.0.0.1:${PORT}/module.js`))"},
	{name: "import-https", code: "await loaded(import(`https://127.0.0.1:${PORT}/module.js`))"},
	{name: "import-npm", code: `const m = await import("npm:left-pad"); escaped(m)`},
	{name: "import-jsr", code: `const m = await import("jsr:@std/assert"); escaped(m)`},
	{name: "import-data", works: unscrubbed, code: `await loaded(import(MODULE))`},
	{name: "import-blob", works: unscrubbed, code: `await loaded(import(URL.createObjectURL(new Blob(["export default 42"], {type: "text/javascript"}))))`},
	{name: "import-by-eval", works: unscrubbed, code: "await loaded(eval(`import('${MODULE}')`))"},
	{name: "import-by-indirect-eval", works: unscrubbed, code: "await loaded((0, eval)(`import('${MODULE}')`))"},
	{name: "import-by-eval-in-eval", works: unscrubbed, code: "await loaded(eval('eval(\"import(`' + MODULE + '`)\")'))"},
	{name: "import-by-function", works: unscrubbed, code: `await loaded(new Function("m", "return import(m)")(MODULE))`},
	{name: "import-by-default-parameter", works: unscrubbed, code: "await loaded(new Function(`a = import('${MODULE}')`, 'return a')())"},
	{name: "import-by-subclass-of-function", works: unscrubbed, code: `await loaded(new (class extends Function { constructor() { super("m", "return import(m)") } })()(MODULE))`},
	{name: "import-by-constructor-of-a-function", works: unscrubbed, code: `await loaded([].map.constructor("m", "return import(m)")(MODULE))`},
	{name: "import-by-constructor-of-a-class", works: unscrubbed, code: `await loaded((class {}).constructor("m", "return import(m)")(MODULE))`},
	{name: "import-by-async-function", works: unscrubbed, code: `await loaded((async () => {}).constructor("m", "return await import(m)")(MODULE))`},
	{name: "import-by-generator", works: unscrubbed, code: `await loaded((function* () {}).constructor("m", "yield import(m)")(MODULE).next().value)`},
	{name: "import-by-async-generator", works: unscrubbed, code: `
const f = Object.getPrototypeOf(async function* () {}).constructor
await loaded(f("m", "yield await import(m)")(MODULE).next().then((r) => r.value))`},
	{name: "import-by-reflection", works: unscrubbed, code: `await loaded(Reflect.construct(Reflect.get(console.log, "constructor"), ["m", "return import(m)"])(MODULE))`},
	{name: "import-by-bound-function", works: unscrubbed, code: `await loaded(Function.bind(null, "m")("return import(m)")(MODULE))`},
	{name: "import-by-webassembly-export", works: unscrubbed, code: wasmModule + `
await loaded(instance.exports.f.constructor("m", "return import(m)")(MODULE))`},
	{name: "import-by-error-of-the-platform", works: unscrubbed, code: `
const errors = []
for (const f of [() => structuredClone(() => {}), () => atob("*"), () => new URL("x"), () => new TextDecoder("no-such"), () => crypto.getRandomValues(new Uint8Array(1e6)), () => null.x])
  try { f() } catch (e) { errors.push(e) }
for (const e of errors) await loaded(e.constructor.constructor("m", "return import(m)")(MODULE))`},
	{name: "import-in-a-template", works: unscrubbed, code: "await loaded(eval('let p; `${p = import(\"' + MODULE + '\")}`; p'))"},
	{name: "import-in-a-class-field", works: unscrubbed, code: "await loaded(eval(`new (class { [\"x\"] = import('${MODULE}') })().x`))"},
	{name: "import-in-a-static-block", works: unscrubbed, code: "await loaded(eval(`(class A { static p; static { A.p = import('${MODULE}') } }).p`))"},
	{name: "import-behind-a-comment", works: unscrubbed, code: "await loaded(eval(`import/* ( */\\n// )\\n('${MODULE}')`))"},
	// HTML comments, which only one of two parsers may support.
	{name: "import-behind-a-html-comment", works: unscrubbed, code: "await loaded(eval(`let p\\n<!-- p = 1\\np = import('${MODULE}')\\n--> p = 1\\np`))"},
	{name: "import-behind-a-regular-expression", works: unscrubbed, code: "await loaded(eval(`let g = 1, p; 4 /g/ (p = import('${MODULE}')); p`))"},
	{name: "import-with-options", works: unscrubbed, code: "await loaded(eval(`import('${MODULE}', {with: {}})`))"},
	{name: "import-escaped", code: "await loaded(eval(`imp\\\\u006frt('${MODULE}')`))"},
	{name: "import-phases", code: "for (const how of ['import.defer', 'import.source']) await loaded(eval(`${how}('${MODULE}')`))"},
	{name: "import-of-a-torn-comment", code: "await loaded(new Function('/*', `*/){ return import('${MODULE}') }, function (`)())"},
	{name: "import-of-a-torn-body", fails: true, code: "await loaded(new Function(`}, import('${MODULE}'), function () {`)())"},
	{name: "import-of-changing-text", code: `
let n = 0
await loaded(new Function({ toString: () => n++ ? "return import(MODULE)" : "return 1" })())`},
	{name: "other-modules", works: []string{plainHost, systemHost, permissionHost}, code: `
const load = globalThis.require ?? process.getBuiltinModule
const names = "child_process cluster dgram dns http http2 https inspector module net repl sqlite test tls tty v8 vm wasi worker_threads zlib internal/util bootstrap".split(" ")
for (const name of names) for (const n of [name, "node:" + name, "execbroker:" + name, "./../" + name, "ext:deno_node/" + name]) {
  try { if (load(n)) escaped(n) } catch {}
  try { if (await eval("import(n)")) escaped(n) } catch {}
}`},
	{name: "modules-by-strange-names", code: `
for (const n of ["__proto__", "constructor", "toString", "hasOwnProperty", "node:__proto__", "", ".", "..", "/", "/etc/passwd", "file:///etc/passwd", "../../etc/passwd", "/proc/self/environ", {toString: () => "fs"}])
  try { const m = require(n); if (m) escaped(String(n)) } catch {}`},
	{name: "modules-loaded-among-traps", lost: true, code: `
const got = []
for (const name of ["Proxy", "Set", "Map", "WeakMap", "Date", "Intl", "URL", "AbortController", "WeakRef", "FinalizationRegistry", "BigInt64Array", "Float64Array", "Deno", "process", "Buffer"])
  try { const real = globalThis[name]; globalThis[name] = new Proxy(real ?? function () {}, {apply: (f, self, args) => (got.push(self, ...args), Reflect.apply(f, self, args)), construct: (f, args) => (got.push(...args), Reflect.construct(f, args)), get: (o, k, r) => (got.push(o, r), Reflect.get(o, k, r))}) } catch {}
for (const name of ["listeners", "emit", "on"]) try { Object.defineProperty(Object.prototype, name, {set(v) { got.push(this, v) }, get() { got.push(this) }}) } catch {}
for (let i = 0; i < 4; i++) Object.defineProperty(Array.prototype, i, {configurable: true, set(v) { got.push(this, v) }, get() { got.push(this) }})
let m
try { m = await eval("import('stream')"); got.push(m, await eval("import('crypto')")) } finally {
  for (let i = 0; i < 4; i++) delete Array.prototype[i]
  for (const o of got) powers(o)
}`},
	{name: "emitters-replaced", lost: true, code: `
const {EventEmitter} = require("events"), stream = require("stream")
const got = []
for (const o of [EventEmitter.prototype, stream.Readable.prototype, stream.Writable.prototype, Buffer.prototype, Buffer, require("util"), require("util").inspect])
  for (const name of Reflect.ownKeys(o)) {
    const real = Reflect.getOwnPropertyDescriptor(o, name).value
    if (typeof real === "function" && name !== "constructor") try { o[name] = function (...args) { got.push(this, ...args); return Reflect.apply(real, this, args) } } catch {}
  }
const e = new EventEmitter()
for (let i = 0; i < 20; i++) e.on("x", () => {})
process.emitWarning("w")
await new Promise((done) => stream.pipeline(stream.Readable.from(["a"]), new stream.PassThrough(), done))
require("crypto").randomBytes(4, () => {})
console.log({a: 1})
await pause(20)
for (const o of got) powers(o)`},
	{name: "timer-of-text", code: `
for (const set of [setTimeout, setInterval]) try { set("globalThis.evaluated = 1", 0) } catch {}
await pause(20)
if (globalThis.evaluated) escaped()`},
	{name: "import-statement", code: `eval("import fs from 'node:fs'"); escaped()`},
	{name: "import-meta", code: `escaped(eval("import.meta.url"))`},
	// Elements that the parser adds to its lists are removed, so that it changes nothing.
	{name: "import-by-inherited-elements", lost: true, code: `
for (let i = 0; i < 4; i++) Object.defineProperty(Array.prototype, i, {
  configurable: true,
  get() { return this.length === i + 1 ? [0, 0, ""] : undefined },
  set(v) {
    if (Array.isArray(v) && String(v[2]).includes("import")) return
    Object.defineProperty(this, i, {value: v, writable: true, configurable: true, enumerable: true})
  },
})
await loaded(eval("import('data:text/javascript,export default 42')"))`},
	{name: "import-by-fixed-elements", lost: true, code: `
Object.defineProperty(Array.prototype, 0, {get() { return [0, 0, ""] }, set() {}})
await loaded(eval("import('data:text/javascript,export default 42')"))`},
	{name: "import-by-code-within-the-parser", lost: true, code: `
const elements = () => Object.defineProperty(Array.prototype, 0, {
  configurable: true,
  get() { return this.length === 1 ? [0, 0, ""] : undefined },
  set(v) { if (!Array.isArray(v) || !String(v[2]).includes("import")) Object.defineProperty(this, 0, {value: v, writable: true, configurable: true, enumerable: true}) },
})
for (const name of ["parseFloat", "parseInt", "BigInt", "String", "Number", "Array", "Object", "RegExp"]) {
  const real = globalThis[name]
  try { globalThis[name] = new Proxy(real, {apply: (f, self, args) => { elements(); return Reflect.apply(f, self, args) }}) } catch {}
}
await loaded(eval("1.5, 0x10, 10n, import('data:text/javascript,export default 42')"))`},
	{name: "import-after-pollution", lost: true, code: `
for (const c of [Array, String, RegExp, Map, Set, Object, Function]) for (const name of Reflect.ownKeys(c.prototype)) {
  if (["constructor", "push", "defineProperty"].includes(name)) continue
  try { c.prototype[name] = () => undefined } catch {}
}
await loaded(eval("import('data:text/javascript,export default 42')"))`},
}

// wasmModule makes an instance of a module that exports a function.
const wasmModule = `
const bytes = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 4, 1, 2, 0, 11]
const instance = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes)))`

// scriptSurroundings attempts use the host's environment, files and programs.
var scriptSurroundings = []attempt{
	{name: "process-env", works: reaching, code: `escaped(process.env.EXECBROKER_ESCAPE_SECRET.toUpperCase())`},
	{name: "deno-env", works: reaching, code: `escaped(Deno.env.get("EXECBROKER_ESCAPE_SECRET").toUpperCase())`},
	{name: "deno-read", works: reaching, code: `escaped(await Deno.readTextFile(SECRET_FILE))`},
	{name: "deno-write", works: reaching, code: `await Deno.writeTextFile(MARKER, "x"); escaped()`},
	{name: "deno-run", works: reaching, code: `escaped(new TextDecoder().decode(new Deno.Command("/bin/echo", {args: ["ran"]}).outputSync().stdout))`},
	{name: "deno-library", works: []string{plainHost, systemHost}, code: `escaped(Deno.dlopen("libc.so.6", {getpid: {parameters: [], result: "i32"}}).symbols.getpid())`},
	{name: "deno-system", works: []string{plainHost, systemHost}, code: `escaped(Deno.osRelease())`},
	{name: "deno-process", works: unscrubbed, code: `escaped(Deno.pid + Deno.mainModule)`},
	{name: "deno-internal", works: unscrubbed, code: `if (Deno[Deno.internal]) escaped()`},
	{name: "deno-kill", code: `Deno.kill(Deno.ppid, "SIGKILL"); escaped()`},
	{name: "deno-exit", code: `Deno.exit(0)`},
	{name: "process-exit", lost: true, code: `process.exit(0)`},
	{name: "process-abort", code: `process.abort()`},
	{name: "process-binding", code: `escaped(process.binding("fs"))`},
	{name: "builtin-fs", works: reaching, code: `escaped(process.getBuiltinModule("node:fs").readFileSync(SECRET_FILE, "utf8"))`},
	{name: "builtin-child-process", works: reaching, code: `
if (process.getBuiltinModule("node:child_process").spawnSync("/bin/sh", ["-c", "echo x > " + MARKER]).status === 0) escaped()`},
	{name: "builtin-require", works: reaching, code: `escaped(process.getBuiltinModule("node:module").createRequire("file:///")("node:fs").readFileSync(SECRET_FILE, "utf8"))`},
	{name: "builtin-vm", works: unscrubbed, code: `escaped(process.getBuiltinModule("node:vm").runInNewContext("6*7"))`},
	{name: "builtin-v8", works: unscrubbed, code: `process.getBuiltinModule("node:v8").setFlagsFromString("--expose-gc"); escaped()`},
	{name: "fetch-file", works: reaching, code: "escaped(await (await patient(fetch(`file://${SECRET_FILE}`))).text())"},
	{name: "storage", works: unscrubbed, code: `for (const name of ["caches", "localStorage", "indexedDB", "sessionStorage"]) if (globalThis[name]) escaped(name)`},
	{name: "events-of-the-global-object", lost: true, code: `
for (const type of ["message", "messageerror", "error", "unhandledrejection", "rejectionhandled", "close", "unload"]) {
  for (const data of [null, [], {}, { op: "run", id: 1 }, new Uint8Array(64).fill(255)]) {
    try {
      const event = Object.assign(new Event(type, { cancelable: true }), { data, ports: [], reason: data, error: data, promise: Promise.resolve() });
      EventTarget.prototype.dispatchEvent.call(globalThis, event);
    } catch {}
  }
}
const seen = [];
try { EventTarget.prototype.addEventListener.call(globalThis, "message", (e) => seen.push(e)) } catch {}
await new Promise((done) => setTimeout(done, 50));
if (seen.length > 0) escaped(seen);`},
	{name: "globals", works: unscrubbed, code: `
for (const name of ("Deno fetch XMLHttpRequest WebSocket WebSocketStream EventSource Worker SharedWorker importScripts postMessage onmessage close "
  + "MessageChannel MessagePort BroadcastChannel navigator WorkerGlobalScope WorkerNavigator caches Cache CacheStorage GPU Blob File FileReader Request Response "
  + "MessageEvent __bootstrap prompt alert reportError ShadowRealm").split(" ")) if (globalThis[name] != null) escaped(name)`},
	{name: "globals-in-evaluated-code", works: unscrubbed, code: `for (const f of [eval, (s) => new Function("return " + s)()]) if (f("typeof Deno") !== "undefined") escaped()`},
	{name: "globals-of-sloppy-functions", works: unscrubbed, code: `const self = new Function("return this")(); if (self.Deno || self.process?.binding) escaped()`},
	{name: "location", works: unscrubbed, code: `if (location.href.length > "file:///".length) escaped(location.href)`},
	{name: "other-sessions", code: `walk(globalThis, (o, path) => { if (Object.hasOwn(o, "bystander_state")) escaped(path) })`},
}

// scriptNetwork attempts make connections. None may succeed, not even to a listener of the test.
var scriptNetwork = []attempt{
	{name: "fetch", works: reaching, code: "escaped(await (await patient(fetch(`http://127.0.0.1:${PORT}/`))).text())"},
	{name: "xml-http-request", code: "const r = new XMLHttpRequest(); r.open('GET', `http://127.0.0.1:${PORT}/`, false); r.send(); escaped(r.responseText)"},
	{name: "web-socket", works: reaching, code: `
const w = new WebSocket("ws://127.0.0.1:" + PORT + "/socket")
await patient(new Promise((resolve) => { w.onclose = w.onerror = resolve }))
if ((await (await fetch("http://127.0.0.1:" + PORT + "/seen")).text()).includes("socket")) escaped()`},
	{name: "event-source", works: reaching, code: `
const e = new EventSource("http://127.0.0.1:" + PORT + "/events")
if (await patient(new Promise((resolve) => { e.onmessage = (m) => resolve(m.data); e.onerror = () => resolve() }))) escaped()
e.close()`},
	{name: "deno-connect", works: reaching, code: `const c = await Deno.connect({hostname: "127.0.0.1", port: PORT}); escaped(); c.close()`},
	{name: "deno-listen", works: reaching, code: `const l = Deno.listen({hostname: "127.0.0.1", port: 0}); escaped(l.addr.port); l.close()`},
	{name: "node-net", works: reaching, code: `
const c = process.getBuiltinModule("node:net").connect(PORT, "127.0.0.1")
if (await patient(new Promise((resolve) => { c.on("connect", () => resolve(true)); c.on("error", () => resolve(false)) }))) escaped()
c.destroy()`},
	{name: "node-http", works: reaching, code: `
const r = process.getBuiltinModule("node:http").get("http://127.0.0.1:" + PORT + "/")
if (await patient(new Promise((resolve) => { r.on("response", () => resolve(true)); r.on("error", () => resolve(false)) }))) escaped()`},
	{name: "worker", works: unscrubbed, code: `
const w = new Worker("data:text/javascript,postMessage(42)", {type: "module"})
escaped(await patient(new Promise((resolve) => { w.onmessage = (m) => resolve(m.data) })))
w.terminate()`},
	{name: "worker-of-a-blob", works: unscrubbed, code: `
const w = new Worker(URL.createObjectURL(new Blob(["postMessage(42)"], {type: "text/javascript"})), {type: "module"})
escaped(await patient(new Promise((resolve) => { w.onmessage = (m) => resolve(m.data) })))
w.terminate()`},
	{name: "import-scripts", code: "importScripts(`http://127.0.0.1:${PORT}/module.js`); escaped()"},
	{name: "wasm-streaming", code: "await patient(WebAssembly.instantiateStreaming(fetch(`http://127.0.0.1:${PORT}/x.wasm`))); escaped()"},
	{name: "broadcast-channel", works: unscrubbed, code: `const c = new BroadcastChannel("x"); c.postMessage(1); c.close(); escaped()`},
	{name: "message-channel", works: unscrubbed, code: `const c = new MessageChannel(); c.port1.close(); escaped()`},
}

// realms attempts use objects of the host that code sees briefly, and objects that these lead to.
var realms = []attempt{
	{name: "powers-of-the-global-object", works: unscrubbed, code: `powers(globalThis)`},
	{name: "powers-of-inspection", code: `
for (const hook of ["Deno.customInspect", "Deno.privateCustomInspect", "nodejs.util.inspect.custom"]) {
  const o = {[Symbol.for(hook)](...args) { for (const a of args) powers(a); return "shown" }}
  console.log(o); console.log("%o", [o]); console.dir(o); display(o)
}`},
	{name: "powers-of-errors", code: `
const errors = []
for (const f of [() => structuredClone(() => {}), () => atob("*"), () => new URL("x"), () => eval("("), () => new WebAssembly.Module(new Uint8Array()), () => JSON.parse("{")])
  try { f() } catch (e) { errors.push(e) }
for (const e of errors) powers(e)`},
	{name: "powers-of-events", fails: true, code: `
const a = new AbortController()
a.signal.onabort = function (e) { powers(e); powers(this) }
a.abort()
addEventListener("unhandledrejection", (e) => powers(e))
Promise.reject(1)
await pause(20)`},
	{name: "powers-of-this", code: `
const got = []
const f = function (...args) { got.push(this, ...args) }
setTimeout(f, 0); queueMicrotask(f); Promise.resolve(1).then(f); [1].forEach(f)
display({[Symbol.for("Jupyter.display")]: function () { got.push(this, f.caller); return {} }})
await pause(20)
for (const o of got) powers(o)`},
	{name: "powers-of-the-caller", code: `
const f = new Function("got", "let c = arguments.callee.caller; for (let i = 0; c && i < 20; i++) { got.push(c, c.arguments); c = c.caller }")
const got = []
try { display({[Symbol.for("Jupyter.display")]() { f(got); return {} }}) } finally { for (const o of got) powers(o) }`},
	{name: "powers-of-modules", code: `
const ALL_MODULES = "assert assert/strict buffer console crypto events fs fs/promises os path perf_hooks process querystring stream stream/promises string_decoder timers timers/promises url util util/types".split(" ")
for (const name of ALL_MODULES) powers(require(name))
powers(process); powers(require); powers(module); powers(Buffer)
powers(require("stream").Readable.from([1])); powers(require("crypto").createHash("md5"))
for (const name of ALL_MODULES) powers(await import("node:" + name))`},
	{name: "call-sites", works: unscrubbed, code: `
let got = []
Error.prepareStackTrace = (e, sites) => { got = sites; return "" }
try { void new Error("x").stack } finally { Error.prepareStackTrace = undefined }
for (const s of got) if (s.getFileName()) escaped(s.getFileName())`},
	{name: "stacks", works: unscrubbed, code: `
const stacks = [new Error().stack]
const note = (f) => { try { f() } catch (e) { stacks.push(e.stack) } }
const thrower = { [Symbol.for("Deno.customInspect")]() { stacks.push(new Error().stack); return "" }, get x() { stacks.push(new Error().stack) }, toJSON() { stacks.push(new Error().stack) } }
console.log(thrower)
if (globalThis.display) display({[Symbol.for("Jupyter.display")]() { stacks.push(new Error().stack); return {} }})
for (const f of [() => null.x, () => eval("("), () => structuredClone(() => {}), () => atob("*"), () => new WebAssembly.Module(new Uint8Array()), () => console.log.apply(1, null)]) note(f)
const deep = () => { deep() }
note(deep)
const target = {}
Error.captureStackTrace(target)
stacks.push(target.stack)
await new Promise((resolve) => setTimeout(() => { stacks.push(new Error().stack); resolve() }, 0))
await Promise.resolve().then(() => stacks.push(new Error().stack))
for (const s of stacks) if (/file:|\.mjs|ext:/.test(s)) escaped(s)`},
	{name: "file-names-of-error-events", code: `
addEventListener("error", (e) => { e.preventDefault(); if (/file:|\.mjs/.test(e.filename)) escaped(e.filename) })
const a = new AbortController()
a.signal.addEventListener("abort", () => { throw new Error("x") })
a.abort()
setTimeout(() => { throw new Error("y") }, 0)
await pause(20)`, lost: true},
	{name: "console-internals", code: `
for (const s of Object.getOwnPropertySymbols(console)) if (s !== Symbol.toStringTag) escaped(String(s))`},
	{name: "source-of-the-host", code: `
for (const f of [display, exit, eval, Function, console.log, setTimeout]) if (/\.mjs|file:/.test(Function.prototype.toString.call(f))) escaped()`},
	{name: "real-constructors", works: unscrubbed, code: `
const kinds = [function () {}, async function () {}, function* () {}, async function* () {}]
for (const f of kinds) {
  const c = Object.getPrototypeOf(f).constructor
  if (/\[native code\]/.test(Function.prototype.toString.call(c))) escaped(c.name)
}`},
	{name: "finalizers", wall: 5 * time.Minute, code: `
const r = new FinalizationRegistry(function (held) { powers(this); powers(held) })
for (let i = 0; i < 1000; i++) r.register({}, {i})
for (let i = 0; i < 5; i++) { new Array(1e5).fill({}); await pause(1) }`},
}

// scriptProtocol attempts send messages of the host's protocol.
var scriptProtocol = []attempt{
	{name: "post-message", works: unscrubbed, code: `postMessage({op: "run", id: 1}); escaped()`},
	{name: "frames-on-the-console", code: `
for (const nonce of ["", "\0".repeat(16), "\xff".repeat(16)]) for (let kind = 1; kind < 20; kind++)
  for (const number of [0, 1, 2, 99]) console.log(nonce + String.fromCharCode(kind, 0, 0, 0, 0, 0, 0, number, 0, 0, 0, 5) + "m\0\0\0\0")`},
	{name: "messages-by-event", code: `
const a = new AbortController()
let E
a.signal.onabort = (e) => { E = e.constructor }
a.abort()
for (const data of [{op: "run", id: 1}, {op: "call", id: 0}, {shared: {}, assets: {}, options: {}}]) {
  const e = new E("message")
  e.data = data
  e.ports = []
  dispatchEvent(e)
}`},
	{name: "listener-for-messages", code: `
addEventListener("message", () => escaped("a message of the host"))
addEventListener("messageerror", () => escaped("a message of the host"))
await pause(50)`},
	{name: "shared-memory", lost: true, code: `
const got = []
const capture = (o, name) => {
  const d = Object.getOwnPropertyDescriptor(o, name)
  const real = d.value ?? d.get
  const f = function (...args) { got.push(this, ...args); return Reflect.apply(real, this, args) }
  try { Object.defineProperty(o, name, d.get ? {get: f} : {value: f}) } catch {}
}
const typed = Object.getPrototypeOf(Uint8Array.prototype)
for (const o of [typed, Uint8Array.prototype, Int32Array.prototype, DataView.prototype, Atomics, SharedArrayBuffer.prototype, TextEncoder.prototype])
  for (const name of Reflect.ownKeys(o)) if (name !== "constructor" && !Array.isArray(o[name])) try { capture(o, name) } catch {}
for (let i = 0; i < 8; i++) Object.defineProperty(Array.prototype, i, {configurable: true, get() {}, set(v) { got.push(v) }})
console.log("now")
display(1)
for (let i = 0; i < 8; i++) delete Array.prototype[i]
for (const o of got) if (o instanceof SharedArrayBuffer || o?.buffer instanceof SharedArrayBuffer) escaped("the ring")`},
	// The names of the host are not properties, and code that contains one is refused as a whole.
	{name: "names-of-the-host", works: unscrubbed, code: `
const ours = Reflect.ownKeys(globalThis).filter((k) => String(k).includes("execbroker"))
if (ours.length) escaped(ours)
const name = "__exec" + "broker_"
for (const n of ["run()", "back({id: 77, timers: new Set(), settle() {}}, 1)", "text", "value", "constant", "import", "eval"])
  for (const f of [eval, Function, (s) => eval(s), (s) => new Function("return " + s)(), (s) => setTimeout(s, 0), (s) => eval("\\u005f" + s.slice(1))])
    try { f(name + n); escaped(n) } catch {}`},
	{name: "eval-of-the-engine", works: unscrubbed, code: `
const found = []
const note = (f) => { try { found.push(f()) } catch {} }
note(() => { const {eval: e} = globalThis; return e })
note(() => { const o = {eval}; return o.eval })
note(() => { let e; ({eval: e = 1} = {}); return [eval].pop() })
note(() => ((e) => e)(eval))
note(() => eval("eval"))
note(() => eval("(() => eval)()"))
note(() => (function () { return arguments[0] })(eval))
note(() => new Function("return eval")())
note(() => new Function("eval", "return eval")(eval))
note(() => eval.bind(null))
note(() => { with ({get e() { return eval }}) return e })
for (const e of found) if (typeof e === "function") for (const text of ["import('" + MODULE + "')", "(() => import('" + MODULE + "'))()"])
  try { const m = await e(text); if (m.default === 42) escaped("a module") } catch {}`},
	{name: "eval-of-one's-own", code: `
const calls = []
const text = "import('" + MODULE + "')"
calls.push(() => { const eval = (s) => s; return eval(text) })
calls.push(() => { with ({eval: (s) => s}) return eval(text) })
calls.push(() => ((eval) => eval(text))((s) => s))
calls.push(() => { eval("var eval = (s) => s"); return eval(text) })
calls.push(() => eval(...[text]))
calls.push(() => eval(text, 1))
calls.push(() => eval?.(text))
calls.push(() => eval({toString: () => text}))
calls.push(() => eval(new String(text)))
calls.push(() => (0, eval)(text))
calls.push(() => eval.call(null, text))
calls.push(() => Reflect.apply(eval, null, [text]))
calls.push(() => eval("eval(" + JSON.stringify(text) + ")"))
for (const f of calls) try { const m = await f(); if (m?.default === 42) escaped(f) } catch {}`},
	{name: "host-functions-replaced", code: `
for (const name of ["eval", "JSON", "Promise"]) {
  try { globalThis[name] = () => 7 } catch {}
  try { delete globalThis[name] } catch {}
  if (Object.getOwnPropertyDescriptor(globalThis, name)?.writable !== false) escaped(name)
}`},
	{name: "display-of-lies", code: `
const lying = (length) => Object.assign(Object.create(Uint8Array.prototype), {slice: () => ({length})})
class Sliced extends Uint8Array { slice() { return {length: 1e6, 0: 1} } }
for (const data of [lying(-1), lying(2**40), lying("x"), new Sliced(4)]) try { display({[Symbol.for("Jupyter.display")]: () => ({"image/png": data})}) } catch {}`},
	{name: "display-of-types", code: `
const forms = {}
for (let i = 0; i < 5000; i++) forms["text/x" + i] = "x"
forms["../../etc/passwd"] = forms["text/plain\r\nx: y"] = forms["x".repeat(70000) + "/y"] = "x"
for (const [type, data] of [["", forms], ...Object.entries(forms).slice(-5)]) {
  try { display({[Symbol.for("Jupyter.display")]: () => type ? {[type]: data} : data}); if (!type) escaped("too many") } catch {}
}`},
	{name: "thrown-proxies", code: `
const traps = new Proxy({}, {get: () => () => { throw traps }})
for (const base of [{}, new Error("x"), function () {}]) {
  const thrown = new Proxy(base, traps)
  setTimeout(() => { throw thrown }, 0)
  Promise.reject(thrown)
  await pause(5)
}`},
}

// scriptPollution attempts change objects of the language that the host's own code uses. Changes
// are either impossible or harm only the attempt's own session.
var scriptPollution = []attempt{
	{name: "frozen", works: unscrubbed, code: `
for (const o of [Atomics, SharedArrayBuffer.prototype, TextEncoder.prototype, TextDecoder.prototype, Object.getPrototypeOf(Object.getPrototypeOf(new AbortController().signal))])
  if (!Object.isFrozen(o)) escaped(o)`},
	{name: "object-prototype", works: unscrubbed, code: `
for (const name of ["op", "id", "payload", "errno", "error", "size", "type", "toJSON", "settle"]) {
  try { Object.prototype[name] = "polluted" } catch {}
  if (name in {}) escaped(name)
  delete Object.prototype[name]
}`},
	{name: "methods", works: unscrubbed, code: `
for (const [o, name] of [[Array.prototype, "push"], [Array.prototype, Symbol.iterator], [String.prototype, "slice"], [RegExp.prototype, "exec"], [RegExp.prototype, Symbol.split],
  [Promise.prototype, "then"], [Promise, "resolve"], [Map.prototype, "get"], [Set.prototype, "has"], [WeakMap.prototype, "get"], [JSON, "stringify"], [Reflect, "apply"],
  [Object, "keys"], [Object, "defineProperty"], [Function.prototype, "call"], [Object.getPrototypeOf(Uint8Array.prototype), "subarray"], [DataView.prototype, "setUint32"],
  [Error, "captureStackTrace"], [Object.getPrototypeOf([][Symbol.iterator]()), "next"]]) {
  const real = o[name]
  try { o[name] = () => 7 } catch {}
  const changed = o[name] !== real
  try { o[name] = real } catch {}
  if (changed) escaped(String(name))
}`},
	{name: "everything-replaced", code: replaceEverything + `
const shown = [new Map([[1, new Date(0)]]), [1.5, 10n, /x/g], new Error("shown"), {a: new Set([1]), b: new Uint8Array(2), c: Symbol("s"), d: function () {}}]
try {
replace()
print(shown[0], shown[1], shown[2], shown[3])
show({a: [1, "x"], b: null})
show({[Symbol.for("Jupyter.display")]: () => ({"text/html": "<b>", "image/png": "AAAA"})})
script("1.5, 0x10, 10n, /x/g, ` + "`${1}`" + `, [...[1]]"); new evaluate("a = 1", "return a")()
for (const f of [() => null.x, () => script("(")]) try { f() } catch (e) { print(e) }
await Promise.resolve(1).then((v) => v)
await new Promise((resolve) => timer(resolve, 1))
print("replaced", done.join(" "))
} finally { console.log = print }
timer(() => { throw new Error("uncaught") }, 0)
await new Promise((resolve) => timer(resolve, 10000))`, fails: true, want: func(r *executor.Result) bool {
		return len(r.Outputs) == 2 && strings.Contains(string(r.Stdout), "Map(1)") && r.Exception != nil && r.Exception.Message == "uncaught"
	}},
	{name: "species", code: `
for (const c of [Array, Promise, Map, Set, RegExp, Object.getPrototypeOf(Uint8Array)]) {
  try { Object.defineProperty(c, Symbol.species, {get: () => function () { escaped(c.name); return {} }}) } catch {}
}
console.log([1].map(String)); display([1, 2])
await Promise.resolve(1)`},
	{name: "globals-of-the-language", works: unscrubbed, code: `
for (const name of ["JSON", "Promise", "Uint8Array", "TextEncoder", "Object", "Error", "Map", "Atomics", "parseInt", "parseFloat", "BigInt"]) {
  const d = Object.getOwnPropertyDescriptor(globalThis, name)
  if (d && (d.writable || d.configurable)) escaped(name)
}`},
}

// replaceEverything defines replace, which replaces every function that globals and evaluated code
// lead to by a hostile one, if that is possible. The arguments of these functions must belong to
// the code.
const replaceEverything = `
const {log: print} = console, timer = setTimeout, show = display, script = eval, evaluate = Function
const {ownKeys, getOwnPropertyDescriptor, defineProperty} = Reflect
const done = []
const mine = {console, setTimeout, escaped, attempt}
let inside = false
const look = (o) => {
  if (inside) return
  inside = true
  try { if (o instanceof SharedArrayBuffer || o?.buffer instanceof SharedArrayBuffer) print("ESCAPED the ring") } catch {} finally { inside = false }
}
const hostile = (name) => function () {
  look(this)
  for (let i = 0; i < arguments.length; i++) look(arguments[i])
  throw {name, message: "was called"}
}
const objects = []
const samples = [globalThis, [].keys(), new Map().keys(), new Set().keys(), ""[Symbol.iterator](), "".matchAll(/a/g), (function* () {})(), (async function* () {})(),
  async function () {}, new AbortController().signal, Promise.resolve(), new Error()]
for (let i = 0; i < samples.length; i++) walk(samples[i], (o) => void objects.push(o))
const replace = () => {
  for (let i = 0; i < objects.length; i++) {
    const o = objects[i], keys = ownKeys(o)
    if (o === mine || o === objects || o === samples || o === done) continue
    for (let j = 0; j < keys.length; j++) {
      const key = keys[j], d = getOwnPropertyDescriptor(o, key)
      if (!d || o === globalThis && (key in mine || typeof key === "symbol") || typeof d.value !== "function" && !d.get) continue
      const name = typeof key === "symbol" ? "a symbol" : key
      const f = hostile(name)
      if (defineProperty(o, key, "value" in d ? {value: f} : {get: f, set: f})) done[done.length] = name
    }
  }
}`

// scriptHarm attempts damage their own session, and must damage only that one.
var scriptHarm = []attempt{
	{name: "loop", lost: true, wall: 200 * time.Millisecond, code: `for (;;);`, want: timedOut},
	{name: "loop-of-promises", lost: true, wall: 200 * time.Millisecond, code: `for (;;) await Promise.resolve()`, want: timedOut},
	{name: "chain-of-promises", lost: true, wall: 5 * time.Minute, code: `const f = () => Promise.resolve().then(f); await f()`, want: outOfMemory}, // each promise keeps the previous one
	{name: "loop-in-a-finally", lost: true, wall: 200 * time.Millisecond, code: `try { await new Promise(() => {}) } finally { for (;;); }`, want: timedOut},
	{name: "regexp", lost: true, wall: 200 * time.Millisecond, code: `/(a+)+$/.test("a".repeat(60) + "b")`, want: timedOut},
	{name: "atomics-wait", lost: true, wall: 200 * time.Millisecond, code: `Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)`, want: timedOut},
	{name: "atomics-wait-async", code: `
const a = new Int32Array(new SharedArrayBuffer(4))
for (let i = 0; i < 10_000; i++) Atomics.waitAsync(a, 0, 0, 1)
await pause(20)`},
	{name: "timers", lost: true, wall: 2 * time.Second, code: `for (let i = 0; i < 50_000; i++) setInterval(() => {}, 0)`},
	{name: "endless-output", lost: true, code: `for (;;) console.log("x".repeat(10_000))`, want: func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput }},
	{name: "endless-displays", lost: true, code: `for (;;) display("x".repeat(100_000))`, want: func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput }},
	{name: "rejections", lost: true, wall: 5 * time.Second, code: `for (let i = 0; i < 50_000; i++) Promise.reject(new Error("x"))`},
	{name: "deep-recursion", code: `
let n = 0
const f = () => { n++; f() }
try { f() } catch (e) { if (!(e instanceof RangeError)) throw e }`},
	{name: "deep-recursion-into-the-host", lost: true, wall: 5 * time.Second, code: `
const f = () => { try { f() } catch { console.log("x"); throw 1 } }
for (let i = 0; i < 20; i++) try { f() } catch {}`},
	{name: "deep-source", code: "try { eval('('.repeat(100_000)) } catch {}\ntry { eval('[' .repeat(5000) + ']'.repeat(5000)) } catch {}"},
	{name: "memory-of-the-engine", lost: true, code: `const a = []; for (let i = 0; ; i++) a.push({i, s: "x" + i})`, want: outOfMemory},
	{name: "memory-of-buffers", lost: true, code: `const a = []; for (;;) a.push(new Uint8Array(4 << 20).fill(1))`},
	{name: "memory-of-webassembly", lost: true, code: `const a = []; for (;;) a.push(new Uint8Array(new WebAssembly.Memory({initial: 64}).buffer).fill(1))`},
}

func outOfMemory(r *executor.Result) bool { return r.Reason == executor.ReasonMemory }
