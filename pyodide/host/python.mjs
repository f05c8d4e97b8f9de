// Starts Pyodide in the scrubbed realm and runs cells in it.
import createPyodideModule from "pyodide-asm";
import { loadPyodide } from "pyodide";
import { fileCalls } from "./files.mjs";
import { Disk } from "./memfs.mjs";
import { fixAll } from "./fixed.mjs";
import { packageCalls } from "./packages.mjs";
import { EINTR } from "./ring.mjs";
import { finish, unplaced } from "./scrub.mjs";
import { restoreCalls, sendChanges, sendEnd } from "./spool.mjs";
import { CHANNEL, CHUNK, credit, pack, TYPE } from "./wire.mjs";

const HOME = "/tmp/home";
const WORKDIR = "/workspace";
const SITE = "/lib/python3.14/site-packages";
const DEVICE = 40; // the major number of our devices
const ERRNO_EINTR = 27;
const ERRNO_EIO = 29;
const PAGE = 4096; // of memory
const INTERRUPTED = '{"exit":130}';

// What Python finds in the module js. The realm contains little anyway; this is for Pyodide's own
// Python code.
function jsglobals() {
  const denied = () => {
    throw new EvalError("code generation from strings is off");
  };
  const { setTimeout, clearTimeout, setInterval, clearInterval } = globalThis;
  return Object.freeze({ __proto__: null, eval: denied, setTimeout, clearTimeout, setInterval, clearInterval });
}

// load starts Pyodide from assets that are in memory: nothing is downloaded.
async function load(assets, options) {
  const files = { "pyodide.asm.wasm": assets.wasm, "python_stdlib.zip": assets.stdlib };
  globalThis.fetch = async (url) => {
    const data = files[String(url).split("/").pop()];
    if (!data) throw new TypeError(`${url} is not one of the assets`);
    return { ok: true, data, arrayBuffer: async () => data.buffer };
  };
  const { instantiate, instantiateStreaming } = WebAssembly;
  WebAssembly.instantiateStreaming = async (response, imports) => {
    const { data } = await response;
    let memory;
    // The time zone is UTC. Emscripten would ask JavaScript's Date and name the zone "UTC-0000".
    imports.env._tzset_js = (offset, daylight, ...names) => {
      const view = new DataView(memory.buffer);
      for (const at of [offset, daylight]) view.setInt32(at >>> 0, 0, true);
      for (const at of names) new TextEncoder().encodeInto("UTC\0", new Uint8Array(memory.buffer, at >>> 0, 4));
    };
    const instance = await instantiate(data, imports);
    // A snapshot may be larger than the initial memory of the module.
    ({ memory } = instance.exports);
    const missing = (assets.snapshot?.byteLength ?? 0) - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    return { module: data, instance };
  };
  try {
    return await loadPyodide({
      indexURL: "file:///pyodide/",
      packageBaseUrl: "file:///pyodide/",
      lockFileContents: assets.lock,
      createPyodideModule: async (settings) => sparing(await createPyodideModule(settings)),
      jsglobals: jsglobals(),
      env: { HOME, TZ: "UTC", LANG: "C.UTF-8", PYTHONDONTWRITEBYTECODE: "1" },
      stdin: () => null,
      stdout: () => {},
      stderr: () => {},
      ...(assets.snapshot ? { _loadSnapshot: assets.snapshot } : {}),
      ...options,
    });
  } finally {
    delete globalThis.fetch;
    WebAssembly.instantiateStreaming = instantiateStreaming;
  }
}

// sparing makes a module leave the pages of its memory alone that are like those of a snapshot. Half
// of a snapshot is zeros, as fresh memory is, and a page takes no memory before something is written
// there.
function sparing(module) {
  const { restoreSnapshot } = module.API;
  module.API.restoreSnapshot = (snapshot) => {
    const heap = module.HEAP8;
    module.HEAP8 = { set: (bytes) => fill(heap, bytes) };
    try {
      return restoreSnapshot(snapshot);
    } finally {
      module.HEAP8 = heap;
    }
  };
  return module;
}

function fill(heap, bytes) {
  const from = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const to = new Int32Array(heap.buffer, heap.byteOffset, from.length);
  for (let at = 0; at < to.length; at += PAGE / 4) {
    const end = at + PAGE / 4;
    let i = at;
    while (i < end && from[i] === to[i]) i++;
    if (i < end) to.set(from.subarray(at, end), at);
  }
}

// modules makes the modules of the host importable. A snapshot contains them already.
function modules(py, sources) {
  for (const [name, text] of Object.entries(sources)) py.FS.writeFile(`${SITE}/${name}.py`, text);
}

// prepare starts an interpreter that makes the files from which later ones start.
export async function prepare(sender, assets, mode) {
  const snapshot = mode === "snapshot";
  const py = await load(assets, snapshot ? { _makeSnapshot: true } : {});
  modules(py, assets.modules);
  const send = (id, bytes) => {
    for (let at = 0; at < bytes.length; at += CHUNK) {
      sender.send(TYPE.DATA, id, bytes.subarray(at, at + CHUNK), CHANNEL.CONTENTS);
    }
    return { size: bytes.length };
  };
  const calls = snapshot
    ? {
        snapshot(request, id) {
          py.runPython("import execbroker_session, execbroker_warm, gc; gc.collect()");
          return send(id, py.makeMemorySnapshot());
        },
      }
    : {
        compile(request, id) {
          const bytes = py.pyimport("execbroker_prepare").compile_library("/lib/python314.zip");
          return send(id, bytes.toJs());
        },
      };
  return { calls, version: py.version };
}

// Interpreter is Pyodide with one session in it. Everything that does not depend on the session is
// done at the start.
export class Interpreter {
  #sender;
  #py;
  #disk;
  #session; // the functions of session.py
  #run = 0; // id of the run in progress
  #cell = 0;
  #settle = null; // ends the run in progress
  #broken = false; // later output is Pyodide's own
  calls;

  static async start(sender, assets) {
    const it = new Interpreter();
    it.#sender = sender;
    const py = (it.#py = await load(assets, {}));
    if (!assets.snapshot) modules(py, assets.modules);
    it.#devices(py.FS);
    const { begin } = py.pyimport("execbroker_session");
    it.calls = { begin: (options) => it.#begin(begin, options) };
    py.setInterruptBuffer(sender.interruptBuffer);
    it.#fatal(py._api);
    // The buffers of the start are no longer needed. Free them explicitly.
    py._api.config._loadSnapshot = undefined;
    for (const b of [assets.snapshot, assets.stdlib]) b?.buffer.transfer(0);
    finish();
    unplaced();
    fixAll();
    return it;
  }

  get version() {
    return this.#py.version;
  }

  // begin makes this the interpreter of a session.
  #begin(begin, { disk, nodes, env }) {
    const { FS } = this.#py;
    for (const dir of [WORKDIR, HOME]) FS.mkdirTree(dir);
    for (const dir of [WORKDIR, HOME]) FS.chmod(dir, 0o755);
    FS.utime(HOME, Date.now(), Date.now()); // Pyodide has made it at the start
    FS.chdir(WORKDIR);
    const session = begin(
      (end) => this.#settle?.(end),
      (seconds) => this.#sleep(seconds * 1000),
      JSON.stringify(env),
    );
    this.#session = { run: session.run, interrupt: session.interrupt, leave: session.leave };
    this.#disk = new Disk(FS, disk, nodes);
    this.calls = { ...fileCalls(FS, this.#disk), ...restoreCalls(FS, this.#disk), ...packageCalls(this.#py, this.#disk, SITE) };
    this.calls.leave = () => ({ left: this.#session.leave() });
    return {};
  }

  // fatal decides what happens to the session when Pyodide can no longer be used.
  #fatal(api) {
    const { fatal_error: before } = api;
    api.fatal_error = (e) => {
      this.#broken = true; // Pyodide writes a traceback with names of the host
      return before(e);
    };
    api.on_fatal = (e) => {
      // os._exit is a normal end of the code. The rest needs no Python.
      if (Number.isInteger(e?.status) && this.#settle) return this.#settle({ status: e.status & 0xff });
      this.#sender.send(TYPE.BYE, 0, pack({ message: String(e?.message ?? e).slice(0, 1000) }));
    };
  }

  // devices connects the standard descriptors, and one for values, to the host.
  #devices(FS) {
    const bytes = (buffer, offset, length) => new Uint8Array(buffer.buffer, buffer.byteOffset + offset, length);
    const guarded = (f) => (_, buffer, offset, length) => {
      try {
        return f(buffer, offset, length);
      } catch (e) {
        throw new FS.ErrnoError(e === EINTR ? ERRNO_EINTR : ERRNO_EIO);
      }
    };
    const stream = (channel) => ({
      write: guarded((buffer, offset, length) => {
        // Output between runs is dropped.
        return this.#run && !this.#broken ? this.#sender.text(channel, this.#run, buffer, offset, length) : length;
      }),
    });
    const input = {
      read: guarded((buffer, offset, length) => {
        if (!this.#run) return 0;
        const data = this.#sender.input(length, (room) => this.#sender.send(TYPE.CREDIT, this.#run, credit(room)));
        bytes(buffer, offset, data.length).set(data);
        return data.length;
      }),
    };
    const output = {
      write: guarded((buffer, offset, length) => {
        if (this.#run) this.#sender.long(TYPE.OUTPUT, this.#run, bytes(buffer, offset, length));
        return length;
      }),
    };
    const make = (name, minor, ops) => {
      FS.registerDevice(FS.makedev(DEVICE, minor), ops);
      FS.mkdev(`/dev/${name}`, 0o666, FS.makedev(DEVICE, minor));
    };
    make("output", 3, output);
    for (const [fd, name, ops] of [[0, "stdin", input], [1, "stdout", stream(CHANNEL.STDOUT)], [2, "stderr", stream(CHANNEL.STDERR)]]) {
      FS.unlink(`/dev/${name}`);
      make(name, fd, ops);
      FS.closeStream(fd);
      if (FS.open(`/dev/${name}`, fd ? 1 : 0).fd !== fd) throw new Error(`descriptor ${fd} is taken`);
    }
  }

  #sleep(ms) {
    for (const end = performance.now() + ms; ; ) {
      try {
        return this.#sender.sleep(end - performance.now());
      } catch (e) {
        if (e !== EINTR) throw e;
        this.#py.checkInterrupt(); // raises KeyboardInterrupt, unless the code ignores the signal
      }
    }
  }

  // run executes one cell and sends its output and result.
  async run(id, { dir, env, artifacts, linger }, code) {
    const sender = this.#sender;
    const request = JSON.stringify({ dir, env, changes: artifacts, linger: Number(linger ?? -1) / 1e9 });
    this.#run = id;
    sender.send(TYPE.STARTED, id, pack({ cell: ++this.#cell }));
    let end;
    try {
      end = await new Promise((resolve, reject) => {
        this.#settle = resolve;
        this.#session.run.callPromising(code, this.#cell, request).then((r) => r !== undefined && resolve(r), reject);
      });
    } catch (e) {
      if (e?.type === "MemoryError") return sender.send(TYPE.BYE, 0, pack({ message: "out of memory: not even the end could be told" }));
      end = INTERRUPTED; // the signal came after the end of the cell, or before its beginning
    }
    this.#settle = null;
    sender.clearInterrupt();
    // A status means that the run has ended its interpreter.
    const exited = end.status !== undefined;
    const { changes, ...rest } = exited ? { exit: end.status, lost: true, changes: this.#disk.changed(WORKDIR) } : JSON.parse(end);
    sendEnd(sender, id, (changes ?? []).map(([name, size, mtime]) => [name, size, BigInt(mtime)]));
    this.#run = 0;
    sendChanges(sender, this.#disk, id);
    sender.long(TYPE.DONE, id, pack(rest));
  }

  // interrupt is called when the event loop is free because the run waits for something. again says
  // that the run was told before.
  interrupt(id, again) {
    if (this.#run !== id || !this.#settle) return;
    this.#sender.clearInterrupt();
    this.#session.interrupt(again);
  }

  // changed sends the changes of a call.
  changed(id) {
    sendChanges(this.#sender, this.#disk, id);
  }
}
