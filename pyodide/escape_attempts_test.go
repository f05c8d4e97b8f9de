package pyodide

import (
	"time"

	"github.com/execbroker/execbroker/executor"
)

// The hosts that are weakened on purpose. In these, attempts are known to work.
const (
	plainHost      = "plain"       // unchanged Pyodide, in Deno with all permissions
	permissionHost = "permissions" // unchanged Pyodide, in Deno that can only read Pyodide
	noEvalHost     = "no-eval"     // like plain, but the engine makes no code from strings
	systemHost     = "system"      // like plain, but behind the layer of the operating system
	realmHost      = "realm"       // for JavaScript: our realm, in Deno with all permissions
)

// attempt is code that tries to escape. It prints ESCAPED if it succeeds. Those here are in Python;
// those in JavaScript are in escape_javascript_test.go.
//
// The variables SECRET_FILE, MARKER and PORT are set: a file of the host, a file that the code must
// not be able to create, and a port of the host's loopback interface.
type attempt struct {
	name string
	code string
	// works lists the weakened hosts in which the attempt succeeds. In the others, a remaining
	// layer stops it. An attempt with an empty list is not run in weakened hosts: it is about
	// something that only our host has, or about harm instead of an escape.
	works []string

	// What the attempt may do to its own session. If any of this is set, it gets a separate
	// session.
	lost  bool          // the state may be gone, or end with the run
	fails bool          // an error that nothing catches ends the run
	tidy  bool          // as in attemptGroup
	wall  time.Duration // the wall time, if it should run out
	want  func(*executor.Result) bool
}

var (
	anywhere   = []string{plainHost, permissionHost, noEvalHost, systemHost}
	evaluating = []string{plainHost, permissionHost, systemHost} // stopped only by the engine's flag
	reaching   = []string{plainHost, noEvalHost}                 // stopped by permissions and the operating system
	scripted   = []string{plainHost}                             // stopped by all of them
)

// evaluation attempts make JavaScript code from strings, which the engine's flag prevents.
var evaluation = []attempt{
	{name: "eval", works: evaluating, code: `g = await realm(); escaped(g.eval("6*7"))`},
	{name: "eval-of-js", works: evaluating, code: `escaped(js.eval("6*7"))`},
	{name: "run-js", works: evaluating, code: `from pyodide.code import run_js; escaped(run_js("6*7"))`},
	{name: "function-constructor", works: evaluating, code: `escaped(pyodide_js.loadPackage.constructor("return 6*7")())`},
	{name: "function-of-an-array", works: evaluating, code: `escaped(function_of_javascript("return 6*7")())`},
	{name: "async-function-constructor", works: evaluating, code: `
f = pyodide_js.loadPackage.constructor
A = pyodide_js.runPythonAsync.constructor
escaped(await A.new("return 6*7")())`},
	{name: "reflect-construct", works: evaluating, code: `
g = await realm()
escaped(g.Reflect.construct(g.Function, to_js(["return 6*7"]))())`},
	{name: "run-script-string", works: evaluating, code: `
import ctypes
f = ctypes.CDLL(None).emscripten_run_script_string
f.restype = ctypes.c_char_p
r = f(b"'e'+'valuated'")
if r == b"evaluated": escaped(r)`, lost: true},
	{name: "run-script-int", code: `
import ctypes
r = ctypes.CDLL(None).emscripten_run_script_int(b"6*7")
if r == 42: escaped(r)`, lost: true},
	{name: "timer-of-text", code: `
g = await realm()
g.setTimeout("globalThis.evaluated = 1", 0)
await asyncio.sleep(0.1)
if getattr(g, "evaluated", None): escaped()`},
	{name: "import-data", works: evaluating, code: `m = await script("import('data:text/javascript,export default 42')"); escaped(m.default)`},
	{name: "import-blob", works: evaluating, code: `
m = await script("import(URL.createObjectURL(new Blob(['export default 42'], {type: 'text/javascript'})))")
escaped(m.default)`},
	// A WebAssembly library may contain JavaScript that its loader evaluates.
	{name: "code-in-a-library", works: evaluating, code: sideModule + `
open("/tmp/side.so", "wb").write(library(b"globalThis.brought = 42"))
await patient(pyodide_js._api.loadDynlib("/tmp/side.so", True))
g = await realm()
if getattr(g, "brought", None) == 42: escaped()`, lost: true},
}

// sideModule makes a library in the format of Emscripten. It contains the text of a JavaScript
// function.
const sideModule = `
def leb(n):
    out = b""
    while True:
        n, low = n >> 7, n & 127
        out += bytes([low | (128 if n else 0)])
        if not n: return out

def vec(*items): return leb(len(items)) + b"".join(items)
def text(s): return leb(len(s)) + s
def section(i, body): return bytes([i]) + leb(len(body)) + body

def library(js):
    data = b"()<::>0, " + js + b"\0" # the loader makes a function of it, and that is all it should
    info = leb(len(data)) + leb(0) + leb(0) + leb(0)
    dylink = text(b"dylink.0") + b"\1" + leb(len(info)) + info
    return (b"\0asm\1\0\0\0" + section(0, dylink)
        + section(2, vec(text(b"env") + text(b"memory") + b"\2\0\0",
                         text(b"env") + text(b"__memory_base") + b"\3\x7f\0"))
        + section(6, vec(b"\x7f\0\x41\0\x0b"))
        + section(7, vec(text(b"__em_js__bring") + b"\3" + leb(1)))
        + section(11, vec(b"\0\x23\0\x0b" + leb(len(data)) + data)))
`

// surroundings attempts use the host's environment, files and programs, which the scrubbed realm
// and Deno's permissions prevent.
var surroundings = []attempt{
	{name: "process-env", works: reaching, code: `g = await realm(); escaped(g.process.env.EXECBROKER_ESCAPE_SECRET.upper())`},
	{name: "deno-env", works: reaching, code: `g = await realm(); escaped(g.Deno.env.get("EXECBROKER_ESCAPE_SECRET").upper())`},
	{name: "python-env", code: `
for k, v in os.environ.items():
    if "ESCAPE" in k: escaped(k)`},
	{name: "emscripten-env", code: `
for k in pyodide_js._module.ENV.object_keys():
    if "ESCAPE" in k: escaped(k)`},
	{name: "deno-read", works: reaching, code: `g = await realm(); escaped(await g.Deno.readTextFile(SECRET_FILE))`},
	{name: "deno-write", works: reaching, code: `g = await realm(); await g.Deno.writeTextFile(MARKER, "x"); escaped()`},
	{name: "deno-run", works: reaching, code: `
g = await realm()
o = g.Deno.Command.new("/bin/echo", to_js({"args": ["ran"]}, dict_converter=g.Object.fromEntries)).outputSync()
escaped(bytes(o.stdout.to_py()))`},
	{name: "deno-net", works: reaching, code: `
g = await realm()
c = await g.Deno.connect(to_js({"hostname": "127.0.0.1", "port": PORT}, dict_converter=g.Object.fromEntries))
escaped(); c.close()`},
	{name: "deno-kill", code: `
g = await realm()
g.Deno.kill(g.Deno.ppid, "SIGKILL"); escaped()`},
	{name: "process-exit", code: `g = await realm(); g.process.exit(0)`},
	{name: "deno-exit", code: `g = await realm(); g.Deno.exit(0)`},
	{name: "builtin-fs", works: reaching, code: `
g = await realm()
escaped(g.process.getBuiltinModule("node:fs").readFileSync(SECRET_FILE, "utf8"))`},
	{name: "builtin-child-process", works: reaching, code: `
g = await realm()
r = g.process.getBuiltinModule("node:child_process").spawnSync("/bin/sh", to_js(["-c", "echo x > " + MARKER]))
if r.status == 0: escaped()`},
	{name: "binding", code: `g = await realm(); escaped(g.process.binding("fs"))`},
	{name: "mount-node-fs-read", works: reaching, code: `
os.makedirs("/mnt/read", exist_ok=True)
pyodide_js.mountNodeFS("/mnt/read", os.path.dirname(SECRET_FILE))
escaped(open("/mnt/read/" + os.path.basename(SECRET_FILE)).read())`},
	{name: "node-fs-write", works: reaching, code: `
FS = pyodide_js.FS
g = await realm()
os.makedirs("/mnt/write", exist_ok=True)
FS.mount(FS.filesystems.NODEFS, to_js({"root": os.path.dirname(MARKER)}, dict_converter=g.Object.fromEntries), "/mnt/write")
f = os.open("/mnt/write/" + os.path.basename(MARKER), os.O_CREAT | os.O_WRONLY)
os.write(f, b"x"); escaped()`},
	{name: "mount-native-fs", code: `
os.makedirs("/mnt/native", exist_ok=True)
class Handle:
    kind = "directory"
await patient(pyodide_js.mountNativeFS("/mnt/native", create_proxy(Handle()))); escaped()`},
	{name: "mount-idb", code: `
os.makedirs("/mnt/idb", exist_ok=True)
FS = pyodide_js.FS
FS.mount(FS.filesystems.IDBFS, to_js({}), "/mnt/idb")
done = asyncio.get_running_loop().create_future()
FS.syncfs(True, create_proxy(lambda e: done.set_result(e)))
if not await patient(done): escaped()`},
	{name: "os-system", works: reaching, code: `
if 7 in (os.system("echo x > " + MARKER + "; exit 7"), os.system("exit 7") >> 8): escaped()`},
	{name: "subprocess", code: `
import subprocess
escaped(subprocess.run(["/bin/echo", "x"], capture_output=True).stdout)`},
	{name: "popen", code: `
if os.popen("echo ran").read(): escaped()`},
	{name: "fork", code: `
if os.fork() >= 0: escaped()`},
	{name: "exec", code: `os.execv("/bin/sh", ["sh", "-c", "echo x > " + MARKER])`},
	{name: "posix-spawn", code: `os.posix_spawn("/bin/sh", ["sh", "-c", "echo x > " + MARKER], {}); escaped()`},
	{name: "multiprocessing", code: `
import multiprocessing
p = multiprocessing.Process(target=print); p.start(); escaped()`},
	{name: "open-files", code: `
for name in (SECRET_FILE, "/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/environ", "/proc/self/mem", "/dev/mem"):
    try: escaped(open(name, "rb").read(100))
    except OSError: pass`},
	{name: "symbolic-link", code: `
os.symlink(SECRET_FILE, "/workspace/link")
try: escaped(open("/workspace/link").read())
finally: os.remove("/workspace/link")`},
	{name: "dot-dot", code: `
escaped(open("/workspace" + "/.." * 40 + SECRET_FILE).read())`},
	{name: "fetch-file", works: reaching, code: `
g = await realm()
escaped(await (await patient(g.fetch("file://" + SECRET_FILE))).text())`},
	{name: "import-file", works: scripted, code: `m = await script("import('file://" + SECRET_MODULE + "')"); escaped(m.default)`},
	{name: "import-node", works: []string{plainHost, permissionHost, systemHost}, code: `m = await script("import('node:fs')"); escaped(m.readFileSync)`},
	{name: "import-bare", code: `m = await script("import('fs')"); escaped(m.readFileSync)`},
	{name: "import-sqlite", code: `m = await script("import('node:sqlite')"); escaped(m.DatabaseSync)`},
	{name: "import-npm", code: `m = await script("import('npm:left-pad')"); escaped(m)`},
	{name: "import-jsr", code: `m = await script("import('jsr:@std/assert')"); escaped(m)`},
	{name: "storage", works: anywhere, code: `
g = await realm()
for name in ("caches", "localStorage", "indexedDB", "sessionStorage"):
    if getattr(g, name, None): escaped(name)`},
	{name: "globals", works: anywhere, code: `
g = await realm()
for name in ("Deno process Buffer fetch XMLHttpRequest WebSocket WebSocketStream EventSource Worker SharedWorker importScripts postMessage close "
             "MessageChannel MessagePort BroadcastChannel navigator WorkerGlobalScope WorkerNavigator caches Cache CacheStorage GPU Blob File "
             "FileReader Request Response require module global MessageEvent Event EventTarget __bootstrap prompt alert reportError").split():
    if getattr(g, name, None) is not None: escaped(name)`},
	{name: "call-sites", code: `
g = await realm()
def prepare(error, sites):
    for s in sites:
        for o in (s.getThis(), s.getFunction()):
            if o is not None and hasattr(o, "Object"): escaped("the global object")
    return "prepared"
g.Error.prepareStackTrace = create_proxy(prepare)
try: print(g.Error.new("x").stack)
finally: g.Error.prepareStackTrace = None`},
	{name: "stacks", works: anywhere, code: `
import traceback
g = await realm()
stacks = [g.Error.new("x").stack]
for f in (lambda: pyodide_js._api.nothing(), lambda: pyodide_js.FS.readFile("/nowhere"), lambda: pyodide_js.unpackArchive(1, "zip"), lambda: pyodide_js.FS.stat()):
    try: f()
    except BaseException as e: stacks += [getattr(e, "stack", ""), repr(e), *traceback.format_exception(e)]
try: await patient(pyodide_js.loadPackage("nothing"))
except BaseException as e: stacks += [getattr(e, "stack", ""), repr(e)]
for s in stacks:
    print(s)
    if "file:" in str(s) or "asm.mjs:" in str(s): escaped(s)`},
	// The test searches their output for the path of the host program.
	{name: "paths", code: `
print(sys.path, sys.argv, sys.executable, sys.orig_argv, sys.prefix, dict(os.environ), os.getcwd())
for o in (pyodide_js._api.config, pyodide_js._api.lockfile_info, pyodide_js._api):
    for name in o.object_keys():
        v = getattr(o, name, None)
        if isinstance(v, str): print(name, v[:1000])
for name in ("thisProgram", "arguments", "locateFile", "API", "wasmBinaryFile"): print(name, str(getattr(pyodide_js._module, name, None))[:1000])`},
	{name: "this-of-callbacks", code: `
g = await realm()
got = []
p = create_proxy(lambda this, *a: got.append(this), capture_this=True)
js.setTimeout(p, 0)
to_js([1, 2]).forEach(p)
to_js([1, 2]).map(p)
await asyncio.sleep(0.01)
if not hasattr(js, "Object"):
    for o in got:
        if hasattr(o, "Object") or hasattr(o, "globalThis"): escaped(str(o))`},
}

// network attempts make connections. None may succeed, not even to a listener of the test.
var network = []attempt{
	{name: "fetch", works: reaching, code: `
g = await realm()
escaped(await (await patient(g.fetch(f"http://127.0.0.1:{PORT}/"))).text())`},
	{name: "pyfetch", works: reaching, code: `
from pyodide.http import pyfetch
escaped(await (await patient(pyfetch(f"http://127.0.0.1:{PORT}/"))).text())`},
	{name: "open-url", code: `
from pyodide.http import open_url
escaped(open_url(f"http://127.0.0.1:{PORT}/").read())`},
	{name: "xml-http-request", code: `
g = await realm()
r = g.XMLHttpRequest.new(); r.open("GET", f"http://127.0.0.1:{PORT}/", False); r.send(); escaped(r.responseText)`},
	{name: "web-socket", works: reaching, code: `
g = await realm()
w = g.WebSocket.new(f"ws://127.0.0.1:{PORT}/socket")
done = asyncio.get_running_loop().create_future()
w.onclose = w.onerror = create_proxy(lambda e: done.done() or done.set_result(0))
await patient(done)
await asyncio.sleep(0.05)
import urllib.parse
if "socket" in await (await g.fetch(f"http://127.0.0.1:{PORT}/seen")).text(): escaped()`},
	{name: "event-source", works: reaching, code: `
g = await realm()
e = g.EventSource.new(f"http://127.0.0.1:{PORT}/events")
done = asyncio.get_running_loop().create_future()
e.onmessage = create_proxy(lambda m: done.done() or done.set_result(m.data))
e.onerror = create_proxy(lambda m: done.done() or done.set_result(None))
if await patient(done): escaped()
e.close()`},
	{name: "worker", works: anywhere, code: `
g = await realm()
o = to_js({"type": "module"}, dict_converter=g.Object.fromEntries)
w = g.Worker.new("data:text/javascript,postMessage(42)", o)
done = asyncio.get_running_loop().create_future()
w.onmessage = create_proxy(lambda m: done.done() or done.set_result(m.data))
escaped(await patient(done)); w.terminate()`},
	{name: "import-scripts", code: `g = await realm(); g.importScripts(f"http://127.0.0.1:{PORT}/module.js"); escaped()`},
	{name: "import-http", works: scripted, code: `m = await script(f"import('http://127.0.0.1:{PORT}/module.js')"); escaped(m.default)`},
	{name: "import-https", code: `m = await script(f"import('https://127.0.0.1:{PORT}/module.js')"); escaped(m.default)`},
	{name: "socket", code: `
import socket
s = socket.create_connection(("127.0.0.1", PORT), 2)
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
if s.recv(10): escaped()`},
	{name: "node-sockets", code: `
await patient(pyodide_js.useNodeSockFS())
import urllib.request
escaped(urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=3).read())`},
	{name: "urllib", code: `
import urllib.request
if b"reached" in urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=3).read(): escaped()`},
	{name: "asyncio-connection", code: `
r, w = await patient(asyncio.open_connection("127.0.0.1", PORT)); w.write(b"GET / HTTP/1.0\r\n\r\n")
if await patient(r.read(1)): escaped()`},
	{name: "load-package", code: `
await patient(pyodide_js.loadPackage(f"http://127.0.0.1:{PORT}/evil-1.0-py3-none-any.whl"))
import evil; escaped()`},
	{name: "lazy-file", code: `
pyodide_js.FS.createLazyFile("/tmp", "lazy", f"http://127.0.0.1:{PORT}/", True, False)
if open("/tmp/lazy").read(): escaped()`, lost: true},
	{name: "remote-library", code: `
import ctypes
ctypes.CDLL(f"http://127.0.0.1:{PORT}/library.so"); escaped()`, lost: true},
	{name: "wasm-streaming", code: `
g = await realm()
await patient(g.WebAssembly.instantiateStreaming(g.fetch(f"http://127.0.0.1:{PORT}/x.wasm"))); escaped()`},
}

// protocol attempts send messages of the host's protocol.
var protocol = []attempt{
	{name: "console", works: anywhere, code: `g = await realm(); g.console.log("ESCAPED to standard output")`},
	{name: "post-message", code: `g = await realm(); g.postMessage(to_js([1])); escaped()`},
	{name: "frames-on-stdout", code: `
for nonce in (b"", bytes(16), b"\xff" * 16):
    for kind in range(1, 20):
        for number in (0, 1, 2, 99):
            frame = nonce + bytes([kind, 0, 0, 0]) + number.to_bytes(4, "big") + bytes([0, 0, 0, 5]) + b"m" + bytes(4)
            sys.stdout.buffer.write(frame)
            os.write(2, frame)
os.write(1, b"\xff" * 64)
print()`},
	{name: "frames-on-the-device", code: `
f = os.open("/dev/output", os.O_WRONLY)
os.write(f, b""); os.write(f, b"\xff" * 100)`, lost: true},
	{name: "messages-by-event", code: `
g = await realm()
a = g.AbortController.new()
got = []
a.signal.onabort = create_proxy(lambda e: got.append(e.constructor))
a.abort()
E = got[0]
for data in ({"op": "run", "id": 1}, {"op": "call", "id": 0}, {"shared": 1, "assets": 2, "options": 3}):
    e = E.new("message")
    e.data = to_js(data, dict_converter=g.Object.fromEntries)
    e.ports = to_js([])
    g.dispatchEvent(e)`},
	{name: "listener-for-messages", code: `
g = await realm()
def seen(e): escaped("a message of the host")
g.addEventListener("message", create_proxy(seen))
await asyncio.sleep(0.05)`},
	{name: "ring-by-prototype", code: capture + `
# Whatever goes through the ring now is nonsense, and so is all that the control words say.
for a in rings:
    if a.buffer.constructor.name == "SharedArrayBuffer" and a.length > 1000:
        for i in range(0, a.length, 64): a[i] = 255
print("x" * 100_000)`, lost: true},
	{name: "frames-in-the-ring", code: capture + `
# A frame of another run, of a type that only the trusted half may send.
for a in rings:
    if a.buffer.constructor.name == "SharedArrayBuffer" and a.length > 1000:
        for kind in range(1, 16):
            for at in range(0, a.length - 12, 12):
                for i, b in enumerate((kind, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0)): a[at + i] = b
            print(end="", flush=True)`, lost: true, wall: 3 * time.Second},
	{name: "credit-without-end", code: `
g = await realm()
I = g.Int32Array.prototype
A = g.Atomics
try: A.load = create_proxy(lambda *a: -2**31)
except BaseException: pass
print("x" * 3_000_000)`, lost: true},
	{name: "fatal-of-pyodide", code: `pyodide_js._api.fatal_error(pyodide_js._api.NoGilError.new("mine"))`, lost: true},
	{name: "fatal-replaced", code: `
pyodide_js._api.on_fatal = create_proxy(lambda e: None)
import ctypes; ctypes.memset(0, 255, 1 << 20)`, lost: true, wall: 2 * time.Second},
}

// capture replaces the method that copies bytes to shared memory by one that keeps its receiver.
const capture = `
rings = []
g = await realm()
P = g.Uint8Array.prototype
real = P.set
def captured(this, *args):
    if len(rings) < 100: rings.append(this)
    return real.call(this, *args)
P.set = create_proxy(captured, capture_this=True)
print("now", flush=True)
`

// pollution attempts change objects of the language that the host's own code uses.
var pollution = []attempt{
	{name: "object-prototype", lost: true, code: `
g = await realm()
for name in ("op", "id", "then", "payload", "errno", "error", "size", "type"):
    setattr(g.Object.prototype, name, "polluted")`},
	{name: "promise-then", lost: true, wall: 2 * time.Second, code: `
g = await realm()
g.Promise.prototype.then = create_proxy(lambda *a: None)`},
	{name: "array-methods", lost: true, wall: 2 * time.Second, code: `
g = await realm()
for name in ("push", "map", "pop", "slice", "shift", "indexOf"): setattr(g.Array.prototype, name, create_proxy(lambda *a: 7))`},
	{name: "json", lost: true, code: `
g = await realm()
g.JSON.parse = create_proxy(lambda *a: None)
g.JSON.stringify = create_proxy(lambda *a: "{}")`},
	{name: "map-and-set", lost: true, wall: 2 * time.Second, code: `
g = await realm()
for c in (g.Map, g.Set, g.WeakMap):
    for name in ("get", "has", "add", "set"): setattr(c.prototype, name, create_proxy(lambda *a: None))`},
	{name: "typed-arrays", lost: true, wall: 2 * time.Second, code: `
g = await realm()
T = g.Object.getPrototypeOf(g.Uint8Array.prototype)
for name in ("subarray", "set", "slice", "fill"): setattr(T, name, create_proxy(lambda *a: to_js(b"forged")))`},
	{name: "frozen", code: `
g = await realm()
for o in (g.Atomics, g.SharedArrayBuffer.prototype, g.TextEncoder.prototype, g.TextDecoder.prototype, g.Object.getPrototypeOf(g.Object.getPrototypeOf(g.AbortController.new().signal))):
    if not g.Object.isFrozen(o): escaped(str(o))`},
	{name: "host-modules", lost: true, wall: 2 * time.Second, code: `
import execbroker_session, execbroker_cell
for m in (execbroker_session, execbroker_cell):
    for k in list(vars(m)):
        if not k.startswith("__"): setattr(m, k, None)
sys.modules.clear()`},
	{name: "host-lies", lost: true, code: `
import gc, execbroker_session
for o in gc.get_objects():
    if type(o).__name__ == "_Session":
        type(o).run = lambda *a: '{"exit_code": 0, "exception": null, "interrupted": false, "changes": [["../../../etc/passwd", 1, 1]]}'
        type(o)._end = lambda *a: '{"exit_code": 0, "exception": null, "interrupted": false, "changes": [["../../../etc/passwd", 1, 1]]}'`},
	{name: "end-of-nonsense", lost: true, code: `
import gc, execbroker_session
for o in gc.get_objects():
    if type(o).__name__ == "_Session": type(o)._end = lambda *a: '[' * 100_000`},
	{name: "end-without-end", lost: true, code: `
import gc, execbroker_session
for o in gc.get_objects():
    if type(o).__name__ == "_Session": type(o)._end = lambda *a: '"' + 'x' * (40 << 20)`},
	{name: "builtins", lost: true, wall: 2 * time.Second, code: `
import builtins, json
os.write = lambda f, d: len(d)
json.dumps = lambda *a, **k: "{}"
for name in ("isinstance", "getattr", "len", "type"): setattr(builtins, name, lambda *a: 0)`},
	{name: "secrets-in-memory", code: `
import ctypes, gc, re
# Neither the name of the host's variable with a value, nor its file's content, nor the name of the directory of the host program.
pattern = re.compile(rb"EXECBROKER_ESCAPE_SECRE[T]\W{1,4}[0-9a-f]{16}|content-of-the-secre[t]-file|/pyodide/host[-][0-9a-f]{8}")
memory = pyodide_js._module.HEAPU8
size = memory.length
for at in range(0, size - 1024, 1 << 20):
    if m := pattern.search(ctypes.string_at(at + (at == 0), min((1 << 20) + 64, size - at - 1))): escaped(hex(at))`},
}

// fixed attempts replace functions that the host's own code calls, in any possible way. Afterwards
// these must be unchanged.
var fixed = []attempt{
	{name: "everything-replaced", code: replaceAll + `
for o in everything():
    replace(o)
if replaced: escaped(replaced[:20])`},
	{name: "set-of-typed-arrays", code: `
above = pyodide_js.constructor.getPrototypeOf
T = above(pyodide_js._module.HEAPU8.constructor.prototype)
old = T.set
try: T.set = create_proxy(lambda *a: None)
except BaseException as e: print(e)
if T.set != old: escaped("the ring")`},
	{name: "property-defined", code: `
O = pyodide_js.constructor
T = O.getPrototypeOf(pyodide_js._module.HEAPU8.constructor.prototype)
O.defineProperty(T, "set", to_js({"value": 1}, dict_converter=O.fromEntries)); escaped()`},
	{name: "property-deleted", code: `
O = pyodide_js.constructor
T = O.getPrototypeOf(pyodide_js._module.HEAPU8.constructor.prototype)
del T.set
if not hasattr(T, "set"): escaped()`},
	{name: "property-added", code: `
O = pyodide_js.constructor
O.prototype.then = create_proxy(lambda *a: None)
if hasattr(to_js([]), "then"): escaped()`},
	{name: "prototype-of-prototype", code: `
O = pyodide_js.constructor
T = O.getPrototypeOf(pyodide_js._module.HEAPU8.constructor.prototype)
O.setPrototypeOf(T, O.create(None)); escaped()`},
	{name: "prototype-of-iterators", code: `
O = pyodide_js.constructor
I = O.getPrototypeOf(to_js([]).values())
old = I.next
try: I.next = create_proxy(lambda *a: None)
except BaseException as e: print(e)
if I.next != old: escaped()`},
	{name: "constructor-of-arrays", code: `
A = to_js([]).constructor
old = A.prototype.constructor
try: A.prototype.constructor = pyodide_js.constructor
except BaseException as e: print(e)
if A.prototype.constructor != old: escaped()`},
	{name: "species", code: `
O = pyodide_js.constructor
U = pyodide_js._module.HEAPU8.constructor
g = await realm()
S = [s for s in O.getOwnPropertySymbols(O.getPrototypeOf(U)) if "species" in str(s.toString())]
O.defineProperty(O.getPrototypeOf(U), S[0], to_js({"value": O}, dict_converter=O.fromEntries)); escaped()`},
}

// replaceAll visits all of JavaScript's own objects that Python can reach and tries to replace each
// function.
const replaceAll = `
O = pyodide_js.constructor
replaced = []
forged = create_proxy(lambda *a: None)

def everything():
    samples = [O, to_js([]), to_js({1}), to_js({"a": 1}), to_js([]).values(), O.entries, pyodide_js.loadPackage(to_js([])),
               pyodide_js._module.HEAPU8, pyodide_js._module.HEAPU8.buffer, pyodide_js._module.HEAP32, pyodide_js._module.HEAPF64,
               pyodide_js.runPythonAsync, pyodide_js._api.NoGilError.prototype]
    seen = []
    for s in samples:
        for _ in range(6):
            s = O.getPrototypeOf(s)
            if s is None or any(s == o for o in seen): break
            seen.append(s)
            c = getattr(s, "constructor", None)
            if c is not None and not any(c == o for o in seen): seen.append(c)
    return [o for o in seen if "Api" not in str(o)]

def replace(o):
    for name in O.getOwnPropertyNames(o):
        if name in ("arguments", "caller", "stackTraceLimit", "prototype", "length", "name"): continue
        d = O.getOwnPropertyDescriptor(o, name)
        if getattr(d, "value", None) is None or not callable(d.value): continue
        try:
            O.defineProperty(o, name, to_js({"value": forged}, dict_converter=O.fromEntries))
            replaced.append(name)
        except BaseException: pass
`

// left attempts continue after the end of their run.
var left = []attempt{
	{name: "timer-that-burns", lost: true, wall: 2 * time.Second, code: `
def burn():
    while True: pass
asyncio.get_event_loop().call_later(0.2, burn)`},
	{name: "timer-that-burns-in-javascript", lost: true, wall: 2 * time.Second, code: `
import re
def burn(): re.match("(a+)+$", "a" * 60 + "b")
js.setTimeout(create_proxy(burn), 100)`},
	{name: "task-that-burns", lost: true, wall: 2 * time.Second, code: `
async def burn():
    await asyncio.sleep(0.1)
    while True:
        try:
            while True: pass
        except BaseException: pass
task = asyncio.ensure_future(burn())`},
	{name: "finalizer-that-burns", lost: true, wall: 2 * time.Second, code: `
class Burn:
    def __del__(self):
        while True: pass
def drop(): Burn()
asyncio.get_event_loop().call_soon(drop)`},
	{name: "timers-that-renew", lost: true, wall: 2 * time.Second, code: `
import time
def again():
    end = time.monotonic() + 0.5
    while time.monotonic() < end: pass
    asyncio.get_event_loop().call_soon(again)
asyncio.get_event_loop().call_later(0.1, again)`},
}

// harm attempts damage their own session, and must damage only that one.
var harm = []attempt{
	{name: "hard-exit", lost: true, code: `os._exit(3)`},
	{name: "abort", lost: true, code: `os.abort()`},
	{name: "wild-read", lost: true, code: `import ctypes; ctypes.string_at(0xfffffff0, 100)`},
	{name: "wild-write", lost: true, wall: 2 * time.Second, code: `import ctypes; ctypes.memset(0, 255, 4 << 20)`},
	{name: "wild-call", lost: true, code: `import ctypes; ctypes.CFUNCTYPE(None)(0x7fffffff)()`},
	{name: "deep-recursion", lost: true, code: `
l = []
for i in range(1_000_000): l = [l]
repr(l); del l`},
	{name: "endless-output", lost: true, wall: 20 * time.Second, code: `
while True: print("x" * 10_000)`, want: func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput }},
	{name: "endless-displays", lost: true, wall: 20 * time.Second, code: `
while True: display("x" * 100_000)`, want: func(r *executor.Result) bool { return r.Reason == executor.ReasonOutput }},
	{name: "timers", lost: true, wall: 10 * time.Second, code: `
p = create_proxy(lambda: None)
for i in range(20_000): js.setInterval(p, 0)`},
	{name: "swallowed-interrupt", lost: true, wall: time.Second, code: `
while True:
    try:
        while True: pass
    except BaseException: pass`, want: timedOut},
	{name: "ignored-signal", lost: true, wall: time.Second, code: `
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass`, want: timedOut},
	{name: "interrupt-buffer-removed", lost: true, wall: time.Second, code: `
pyodide_js.setInterruptBuffer(None)
while True: pass`, want: timedOut},
	{name: "atomics-wait", lost: true, wall: time.Second, code: `
g = await realm()
g.Atomics.wait(g.Int32Array.new(g.SharedArrayBuffer.new(4)), 0, 0)`},
	{name: "regexp", lost: true, wall: time.Second, code: `
g = await realm()
g.RegExp.new("(a+)+$").test("a" * 60 + "b")`},
	{name: "memory", lost: true, code: `
l = []
while True: l.append(bytearray(16 << 20))`, want: func(r *executor.Result) bool { return r.Status != executor.StatusTimedOut }},
	{name: "wasm-memory", lost: true, wall: 10 * time.Second, code: `
g = await realm()
l = []
o = to_js({"initial": 1 << 14}, dict_converter=g.Object.fromEntries)
for i in range(64): l.append(g.WebAssembly.Memory.new(o))`},
	{name: "files", lost: true, code: `
for i in range(100_000): open(f"f{i}", "wb").write(bytes(1 << 20))`, want: noSpace},
	{name: "inodes", lost: true, code: `
for i in range(1_000_000): open(f"i{i}", "w").close()`, want: noSpace},
	{name: "quota-removed", lost: true, wall: 20 * time.Second, code: `
FS = pyodide_js.FS
FS.writeFile("/workspace/f", "x")
node = FS.lookupPath("/workspace/f").node
g = await realm()
node.stream_ops = g.Object.fromEntries(to_js([]))
l = []
for i in range(200): node.contents = g.Uint8Array.new(16 << 20); l.append(node.contents.fill(1)); node.usedBytes = 1 << 30`},
	{name: "descriptors", lost: true, code: `
l = []
for i in range(100_000): l.append(os.open("/dev/null", os.O_RDONLY))`},
	{name: "threads", code: `
import threading
t = threading.Thread(target=print); t.start(); escaped()`},
	{name: "tasks-that-stay", lost: true, wall: time.Second, code: `
async def stay():
    while True:
        try: await asyncio.sleep(0)
        except BaseException: pass
for i in range(10): asyncio.ensure_future(stay())`},
	{name: "others", code: `
for d, dirs, names in os.walk("/"):
    for n in names + dirs:
        if "bystander" in n: escaped(d + "/" + n)
import gc
for o in gc.get_objects():
    if type(o) is dict and o.get("bystander_state") == 4711: escaped("state")`},
}

func timedOut(r *executor.Result) bool { return r.Status == executor.StatusTimedOut }

// noSpace also accepts what the attempt prints about an exception, because the attempt catches all.
func noSpace(r *executor.Result) bool { return containsNoSpace(r.Stdout) }
