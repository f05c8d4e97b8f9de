package pyodide

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// likeNode are programs that must print the same here as in Node.js.
var likeNode = []struct{ name, code string }{
	{"files", `
const fs = require("fs")
fs.writeFileSync("a.txt", "héllo\n"); fs.appendFileSync("a.txt", "more")
console.log(fs.readFileSync("a.txt", "utf8"), fs.readFileSync("a.txt").length, fs.existsSync("none"), fs.statSync("a.txt").size, (fs.statSync("a.txt").mode & 0o777).toString(8))
fs.mkdirSync("d/e/f", {recursive: true}); fs.writeFileSync("d/e/x.json", '{"q": [1, 2]}')
console.log(fs.readdirSync("."), fs.readdirSync("d", {withFileTypes: true}).map((e) => [e.name, e.isDirectory()]), require("./d/e/x.json"), require("./d/e/x").q)
fs.renameSync("a.txt", "d/b.txt"); fs.copyFileSync("d/b.txt", "c.txt"); fs.copyFileSync("c.txt", "./c.txt"); fs.cpSync("d", "copy", {recursive: true})
console.log(fs.readdirSync("copy"), fs.readFileSync("copy/b.txt", "latin1"))
fs.symlinkSync("c.txt", "l"); console.log(fs.readlinkSync("l"), fs.lstatSync("l").isSymbolicLink(), fs.readFileSync("l", "utf8").length)
fs.truncateSync("c.txt", 2); fs.utimesSync("c.txt", 1, 2); fs.chmodSync("c.txt", 0o600)
console.log(fs.readFileSync("c.txt"), fs.statSync("c.txt").mtimeMs, fs.statSync("c.txt", {bigint: true}).mtimeNs, fs.statSync("none", {throwIfNoEntry: false}))
fs.rmSync("d", {recursive: true}); fs.rmSync("none", {force: true}); fs.unlinkSync("l"); console.log(fs.readdirSync("."))`},
	{"file-errors", `
const fs = require("fs"), fails = (f) => { try { f(); console.log("worked", String(f)) } catch (e) { console.log(e.name, e.code, e.message, e.errno, e.syscall, e.path, e.dest) } }
fs.mkdirSync("d"); fs.writeFileSync("d/x", ""); fs.writeFileSync("f", "")
for (const f of [() => fs.readFileSync("none"), () => fs.rmdirSync("d"), () => fs.unlinkSync("none"), () => fs.mkdirSync("d"), () => fs.readdirSync("f"), () => fs.readFileSync("d"), () => fs.writeFileSync("no/x", ""),
  () => fs.openSync("f", "wx"), () => fs.readFileSync(), () => fs.accessSync("none"), () => fs.renameSync("none", "y"), () => fs.readFile("x"), () => fs.readFileSync("f", "no-encoding"), () => fs.readFileSync("a\0b"),
  () => fs.closeSync(99), () => fs.mkdirSync("f/x"), () => fs.rmSync("none"), () => fs.readlinkSync("f"), () => fs.copyFileSync("none", "z"), () => fs.statSync("f/"), () => fs.writeFileSync("f", 5)]) fails(f)`},
	{"callbacks-and-promises", `
const fs = require("node:fs"), {readFile, open} = require("node:fs/promises")
async function main() {
  fs.writeFileSync("c", "callback")
  await new Promise((done) => fs.readFile("c", "utf8", (e, d) => { console.log(e, d); done() }))
  await new Promise((done) => fs.readFile("none", (e, d) => { console.log(e.code, d); done() }))
  console.log(await readFile("c", {encoding: "hex"}), await readFile("none").catch((e) => e.code))
  const h = await open("h", "w+"); await h.write("abc"); await h.writeFile("def"); console.log((await h.stat()).size, (await h.read(Buffer.alloc(3), 0, 3, 1)).buffer.toString()); await h.close()
  const fd = fs.openSync("h", "r+"), b = Buffer.alloc(4); console.log(fs.readSync(fd, b, 0, 4, 1), b.toString()); fs.writeSync(fd, "ZZ", 0); fs.closeSync(fd); console.log(fs.readFileSync("h", "latin1"))
  for await (const e of await fs.promises.opendir(".")) if (e.name === "c") console.log(e.name, e.isFile())
  console.log((await fs.promises.mkdtemp("t-")).length, await fs.promises.access("c"), await fs.promises.rm("c"))
}
main()`},
	{"streams", `
const fs = require("fs"), {Readable, Transform, PassThrough, pipeline} = require("stream"), {pipeline: piped, finished} = require("stream/promises")
async function main() {
  const w = fs.createWriteStream("s"); w.write("one\n"); w.end("two\n"); await finished(w); console.log(w.bytesWritten)
  for await (const c of fs.createReadStream("s", {encoding: "utf8", highWaterMark: 3})) console.log(JSON.stringify(c))
  await piped(fs.createReadStream("s", {start: 1, end: 4}), new Transform({transform(c, e, done) { done(null, String(c).toUpperCase()) }}), fs.createWriteStream("s2"))
  console.log(JSON.stringify(fs.readFileSync("s2", "utf8")))
  console.log(await Readable.from([1, 2, 3]).map((x) => x * 2).toArray())
  await new Promise((done) => fs.createReadStream("none").on("error", (e) => { console.log(e.code); done() }))
  pipeline(Readable.from(["x"]), new PassThrough(), async function* (all) { for await (const c of all) console.log(String(c)) }, (e) => console.log("end", e))
}
main()`},
	{"utilities", `
const util = require("util"), {EventEmitter, once} = require("events"), path = require("path"), url = require("url"), qs = require("querystring"), {StringDecoder} = require("string_decoder")
async function main() {
  console.log(util.inspect({a: new Map([[1, {b: {c: {}}}]])}), util.format("%s-%d", "a", 5), util.isDeepStrictEqual({a: 1}, {a: 1}), util.types.isDate(new Date()), await util.promisify(setTimeout)(5, "slept"))
  class A extends EventEmitter {}
  const a = new A(); a.once("x", (v) => console.log("x", v)); console.log(a.emit("x", 1), a.emit("x"), a.listenerCount("x"))
  setTimeout(() => a.emit("y", 7), 1); console.log(await once(a, "y"))
  console.log(path.join("a", "..", "b"), path.resolve("/a", "b"), path.extname("x.tar.gz"), path.relative("/a/b", "/a/c"), path.parse("/x/y.z").name, path.posix.sep)
  console.log(url.fileURLToPath("file:///a%20b"), new url.URL("http://x/y?z=1").searchParams.get("z"), url.pathToFileURL("/a b").href, qs.parse("a=1&b=2").b, qs.stringify({q: [1, 2]}), new StringDecoder("utf8").write(Buffer.from("é")))
  console.log(Buffer.from("aGk=", "base64").toString(), Buffer.concat([Buffer.from([1]), Buffer.alloc(2)]), Buffer.byteLength("é"), Buffer.from("ff", "hex").readUInt8(0))
  util.inherits(function B() {}, EventEmitter)
  console.log(util.styleText === undefined || true, util.stripVTControlCharacters("\u001b[1mx"), new util.TextEncoder().encode("é").length)
}
main()`},
	{"digests", `
const crypto = require("crypto")
for (const kind of ["md5", "sha1", "sha256", "sha512"]) console.log(kind, crypto.createHash(kind).update("a").update(Buffer.from("b")).digest("hex"), crypto.createHmac(kind, "key").update("x").digest("base64"))
console.log(crypto.randomBytes(8).length, crypto.randomUUID().length, crypto.randomInt(1) === 0, crypto.timingSafeEqual(Buffer.from("a"), Buffer.from("a")))
try { crypto.createHash("none") } catch (e) { console.log(e.name) }`},
	{"assertions", `
const assert = require("assert"), strict = require("node:assert/strict")
for (const f of [() => assert(0, "said"), () => strict.equal(1, 2), () => assert.throws(() => {}), () => assert.fail(), () => strict.notEqual(1, 1, "same")]) try { f() } catch (e) { console.log(e.name, e.code, e.message, e instanceof assert.AssertionError) }
assert.deepEqual({a: [1]}, {a: ["1"]}); strict.rejects(Promise.reject(new Error("x")), /x/); console.log("held")`},
	{"timers", `
const timers = require("timers/promises")
async function main() {
  const log = []
  const t = setTimeout(() => log.push("never"), 10); clearTimeout(t); clearTimeout(undefined); clearTimeout(12345)
  const i = setInterval(() => { log.push("i"); if (log.length > 2) clearInterval(i) }, 1)
  setImmediate((v) => log.push(v), "immediate")
  console.log(await timers.setTimeout(500, "slept"), log.sort(), typeof t, t.hasRef(), t.unref() === t, t.hasRef(), typeof +t)
  for await (const x of timers.setInterval(1, 7)) { console.log(x); break }
  const a = new AbortController(); setTimeout(() => a.abort(), 1)
  await timers.setTimeout(1e6, 0, {signal: a.signal}).catch((e) => console.log(e.name, e.code))
  try { setTimeout("text") } catch (e) { console.log(e.name, e.code) }
}
main()`},
	{"process", `
console.log(process.argv.length, process.platform, typeof process.hrtime.bigint(), process.hrtime().length, typeof process.uptime(), process.exitCode, typeof process.version, require.main === module, typeof exports, this === globalThis || true)
process.nextTick((v) => console.log("tick", v), 1)
process.env.NUMBER = 5; console.log(process.env.NUMBER === "5", process.env.MISSING)
process.stdout.write("out "); process.stdout.write(Buffer.from("bytes\n")); process.stdout.write("end\n", () => console.log("written"))
process.on("uncaughtException", (e) => console.log("caught", e.message)); setTimeout(() => { throw new Error("late") }, 1)`},
	{"uncaught", `
console.log(__filename === process.argv[1], require("path").dirname(__filename) === __dirname, __dirname === process.cwd())
process.on("uncaughtException", (e, origin) => console.log("caught", e.message, origin)); setTimeout(() => console.log("goes on"), 1); throw new Error("x")`},
	{"callbacks", `
const util = require("util")
util.callbackify(async (v) => v)(5, (e, v) => console.log("value", e, v)); util.callbackify(async () => { throw null })((e) => console.log(e.code, e.reason))
const old = util.deprecate(function (v) { return [this.n, v] }, "old", "X1"); console.log(Reflect.apply(old, {n: 1}, [2]), old.length, new (util.deprecate(class { n = 3 }, "class"))().n)`},
	{"web", `
for (const args of [["x"], ["x", "y"]]) try { new URL(...args) } catch (e) { console.log(String(e), e.code, e.input, e.base) }
class Mine extends URL {}
console.log(new URL("http://u:p@h:81/p?q=1#f"), new Mine("http://h").constructor.name, new URL("http://h").constructor === URL, require("url").URL === URL, URL.canParse("x"))
const t = new EventTarget(), c = new AbortController()
t.addEventListener("x", (e) => { console.log(e.detail, e.target === t, e instanceof Event); e.preventDefault() }, { once: true })
console.log(t.dispatchEvent(new CustomEvent("x", { detail: 5, cancelable: true })), t.dispatchEvent(new CustomEvent("x")))
t.addEventListener("y", () => console.log("y"), { signal: c.signal }); t.dispatchEvent(new Event("y")); c.abort(); t.dispatchEvent(new Event("y"))
console.log(c.signal.reason.message, AbortSignal.abort().reason.name, AbortSignal.abort("r").reason)
process.on("uncaughtException", (e) => console.log("caught", e.message)); t.addEventListener("z", () => { throw new Error("listener") }); t.dispatchEvent(new Event("z")); console.log("after")`},
	{"words-of-errors", `
"use strict"
class K { get g() { return 1 } }
for (const f of [() => { Object.freeze({ a: 1 }).a = 2 }, () => { new K().g = 2 }, () => { delete Object.freeze({ a: 1 }).a }, () => { class X extends ({}) {} }, () => { new Map([1]) }]) try { f() } catch (e) { console.log(e.message) }
const o = {}; o.toString = () => "own"; console.log(String(o), String({}))`},
	{"modules-of-one's-own", `
const fs = require("fs")
fs.mkdirSync("lib/sub", {recursive: true})
fs.writeFileSync("lib/index.js", "#!/usr/bin/env node\nconst b = require('./sub/b'); exports.twice = (x) => b(x) * 2; exports.here = [typeof __dirname, require('path').basename(__filename), module.exports === exports]")
fs.writeFileSync("lib/sub/b.js", "module.exports = (x) => x + require('../data.json').n")
fs.writeFileSync("lib/data.json", '{"n": 1}')
fs.writeFileSync("lib/bad.js", "throw new Error('bad')")
const lib = require("./lib"); console.log(lib.twice(4), lib.here, require("./lib/index.js") === lib)
for (const n of ["./lib/bad", "./none"]) try { require(n) } catch (e) { console.log(e.message.split("\n")[0], e.code) }`},
}

func TestScriptLikeNode(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node to compare with")
	}
	for _, c := range likeNode {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := script(t, executor.Limits{})
			// require looks in the directory of its own file, and a cell is in the working
			// directory.
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, ".cell.cjs"), []byte(c.code), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), node, ".cell.cjs")
			cmd.Dir = dir
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			want := strings.ReplaceAll(string(out), "'.cell.cjs', ", "")
			r := runScript(t, s, c.code)
			if r.Status != executor.StatusOK || string(r.Stdout) != want {
				t.Errorf("got %s\nwant\n%s", describeResult(r), want)
			}
		})
	}
}

func TestScriptStdin(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct{ code, want string }{
		{`for await (const c of process.stdin) process.stdout.write("[" + c + "]")`, "[ab\ncd]"},
		{`console.log(require("fs").readFileSync(0, "utf8"))`, "ab\ncd\n"},
		{`console.log(require("fs").readFileSync("/dev/stdin").length)`, "5\n"},
		{`process.stdin.setEncoding("utf8").on("data", (d) => console.log(d.length)).on("end", () => console.log("end"))`, "5\nend\n"},
		{`const b = Buffer.alloc(3); console.log(require("fs").readSync(0, b), b.toString())`, "3 ab\n\n"},
	} {
		r := runScript(t, s, c.code, func(r *executor.Request) { r.Stdin = strings.NewReader("ab\ncd") })
		if string(r.Stdout) != c.want || r.Status != executor.StatusOK {
			t.Errorf("%s: got %s, want %q", c.code, describeResult(r), c.want)
		}
		if r := runScript(t, s, "console.log(require('fs').readFileSync(0).length)"); string(r.Stdout) != "0\n" {
			t.Errorf("without input: got %s", describeResult(r))
		}
	}
	// A wait for input can be stopped.
	r := runScript(t, s, `console.log(require("fs").readFileSync(0))`, within(200*time.Millisecond), func(r *executor.Request) { r.Stdin = blocked{t.Context().Done()} })
	if r.Reason != executor.ReasonWallTime || r.StateLost {
		t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
	}
}

// blocked is input that never arrives.
type blocked struct{ done <-chan struct{} }

func (b blocked) Read([]byte) (int, error) {
	<-b.done
	return 0, io.EOF
}

// Modules can be loaded by require, import declarations and import calls. An error names a missing
// module, also after other modules were loaded.
func TestScriptImports(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{})
	for _, c := range []struct{ code, want string }{
		{"const both = await Promise.all(['u' + 'rl', 'cry' + 'pto', 'str' + 'eam'].map((n) => import(n))); console.log(both.map((m) => typeof m.default))", "[ 'object', 'object', 'function' ]\n"},
		{"import fs, {existsSync as there} from 'node:fs'; import * as p from 'path'\nimport 'url'\nconsole.log(there('/workspace'), fs.existsSync === there, p.basename('/a/b'), p.default.sep)", "true true b /\n"},
		{"console.log(there('/none'), typeof p.join)", "false function\n"},
		{"const {default: util, inspect} = await import('util'); console.log(util.inspect === inspect)", "true\n"},
		{"const name = ['cry', 'pto'].join(''); console.log(require(name).createHash('md5').update('').digest('hex').length)", "32\n"},
		{"const {TextEncoder, TextDecoder} = require('util'), {performance} = require('perf_hooks'), process = require('process'), console2 = require('console'); console2.log(new TextEncoder().encode('x').length, performance.now() > 0, process.pid)", "1 true 1\n"},
		{"for (const n of ['http', 'node:child_process', 'lodash', '@a/b']) try { require(n) } catch (e) { console.log(e.code, e.message.slice(0, 40)) }",
			"MODULE_NOT_FOUND Cannot find module 'http': this sandbox \nMODULE_NOT_FOUND Cannot find module 'node:child_process':\n" +
				"MODULE_NOT_FOUND Cannot find module 'lodash': this sandbo\nMODULE_NOT_FOUND Cannot find module '@a/b': this sandbox \n"},
		{"await import('net').catch((e) => console.log(e.message.slice(0, 25)))", "Cannot find module 'net':\n"},
	} {
		if r := runScript(t, s, c.code); string(r.Stdout) != c.want || r.Status != executor.StatusOK {
			t.Errorf("%s: got %s, want %q", c.code, describeResult(r), c.want)
		}
	}
}

// The file system is limited in bytes and entries, and its contents survive a killed process.
func TestScriptDisk(t *testing.T) {
	t.Parallel()
	s := script(t, executor.Limits{DiskBytes: minDisk})
	for name, code := range map[string]string{
		"bytes":     `const b = Buffer.alloc(1 << 16); fd = fs.openSync("f", "w"); for (;;) fs.writeSync(fd, b)`,
		"whole":     `fs.writeFileSync("g", Buffer.alloc(1 << 28))`,
		"holes":     `fs.truncateSync("f", 2 ** 50)`,
		"far":       `fd = fs.openSync("f", "r+"); fs.writeSync(fd, "x", 2 ** 52)`,
		"entries":   `fs.mkdirSync("many"); for (let i = 0; ; i++) fs.writeFileSync("many/" + i, "")`,
		"links":     `for (let i = 0; ; i++) fs.symlinkSync("x".repeat(4000), "l" + i)`,
		"in-stages": `for (let i = 0; ; i++) fs.appendFileSync("h", "x".repeat(100_000))`,
	} {
		r := runScript(t, s, `var fs = require("fs"), fd = 0; fs.writeFileSync("f", ""); try {`+code+`} catch (e) { console.log(e.code) } finally { fs.closeSync(fd); for (const n of fs.readdirSync(".")) fs.rmSync(n, {recursive: true}) }`)
		if string(r.Stdout) != "ENOSPC\n" || r.Status != executor.StatusOK {
			t.Errorf("%s: got %s", name, describeResult(r))
		}
	}
	runScript(t, s, `require("fs").writeFileSync("kept", "k")`)
	if r := runScript(t, s, `require("fs").writeFileSync("lost", "l"); for (;;);`, within(200*time.Millisecond)); !r.StateLost {
		t.Errorf("got %s", describeResult(r))
	}
	if r := runScript(t, s, `console.log(require("fs").readdirSync("."))`); string(r.Stdout) != "[ 'kept' ]\n" || !r.StateFresh {
		t.Errorf("then got %s", describeResult(r))
	}
	r := runScript(t, s, `try { for (let i = 0, fs = require("fs"); ; i++) fs.openSync("/dev/null") } catch (e) { console.log(e.code) }`)
	if string(r.Stdout) != "EMFILE\n" {
		t.Errorf("descriptors: got %s", describeResult(r))
	}
}
