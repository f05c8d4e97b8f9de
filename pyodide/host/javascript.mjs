// Runs cells of JavaScript in the scrubbed realm. There is no second realm for the code. What the
// host needs is fixed in this realm, and anything else that the code can break belongs only to its
// own session.
import { Buffer } from "execbroker:buffer";
import { types } from "execbroker:util";
import { console } from "./console.mjs";
import { fileCalls } from "./files.mjs";
import { fileSystem } from "./fs.mjs";
import { Disk, nanoseconds } from "./memfs.mjs";
import { Modules } from "./modules.mjs";
import { environment, os, utilities } from "./process.mjs";
import { constants, describe, evaluate, evaluation, exitCode, harden, listeners, represent, stacks, text, url } from "./realm.mjs";
import { EINTR } from "./ring.mjs";
import { finish, kept } from "./scrub.mjs";
import { restoreCalls, sendChanges, sendEnd } from "./spool.mjs";
import { Timers } from "./timers.mjs";
import { BACK, cell, CONSTANT, IMPORT, RUN, sound, VALUE } from "./transform.mjs";
import { ERRNO, Volume } from "./volume.mjs";
import { Address } from "./web.mjs";
import { CHANNEL, credit, pack, TYPE } from "./wire.mjs";

const WORKDIR = "/workspace";
const CELL = `${WORKDIR}/cell.js`; // the file name of the code
const INTERRUPTED = 130;
const MAX_FILES = 10_000; // the most changed files that are reported for a run

// Stop is thrown through code that must end, because it was interrupted or has called exit.
class Stop extends Error {
  name = "Stop";
}

// Value is the value of the last expression of a cell. It is an object, because a promise would be
// awaited too early.
class Value {
  constructor(value) {
    this.value = value;
  }
}

// stripped returns the JavaScript of a cell in TypeScript. The module that does this is as large as
// everything else that a session loads.
async function stripped(source) {
  sound(); // otherwise changes that code has made to the language could mislead it
  const { strip } = await import("./typescript.mjs");
  return strip(source);
}

// Interpreter is a realm with one session in it.
export class Interpreter {
  #sender;
  #cell = 0;
  #run = null; // the run in progress
  #active = null; // the run to which the currently executing code belongs
  #constants = new Set(); // constant names of the top level
  #encoder = new TextEncoder();
  #volume = new Volume();
  #disk;
  #cwd = WORKDIR;
  #timers = new Timers(() => this.#active, (run, f) => this.#as(run, f));
  #modules;
  #surroundings; // the environment of the code
  #require;
  calls;
  version = "ECMAScript";

  static async start(sender) {
    const it = new Interpreter();
    it.#sender = sender;
    finish();
    stacks();
    it.calls = { __proto__: null, begin: (options) => it.#begin(options) };
    return it;
  }

  // begin makes this the interpreter of a session.
  #begin({ disk, nodes, env }) {
    const { queueMicrotask: later } = globalThis;
    this.#files(disk, nodes);
    this.#globals(env);
    evaluation();
    harden();
    kept.addEventListener("unhandledrejection", (e) => this.#uncaught(e.reason, e.promise));
    // An exception from a listener of the code would end the worker.
    kept.addEventListener("error", (e) => {
      e.preventDefault();
      const [run, { error }] = [this.#active, e];
      later(() => this.#as(run, () => {
        throw error;
      }));
    });
    listeners();
    return {};
  }

  // files makes the file system. Files that exist before the disk is attached belong to the system.
  #files(bytes, nodes) {
    const volume = this.#volume;
    for (const dir of ["/dev", "/tmp", "/tmp/home", WORKDIR]) volume.mkdir(dir, dir === "/tmp" ? 0o1777 : 0o755);
    for (const kind of ["null", "stdin", "stdout", "stderr"]) volume.device(`/dev/${kind}`, kind);
    this.#disk = new Disk(volume, bytes, nodes);
    this.calls = { __proto__: null, ...fileCalls(volume, this.#disk), ...restoreCalls(volume, this.#disk) };
  }

  #globals(env) {
    const global = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    for (const [name, value] of Object.entries({ ...kept.harmless, URL: Address })) global(name, value);
    const write = (stream, line) => this.#write(stream === "stderr" ? CHANNEL.STDERR : CHANNEL.STDOUT, line);
    const host = {
      env,
      cwd: () => this.#cwd,
      chdir: (path) => this.#chdir(path),
      exit: (code) => this.#exit(code),
      output: (fd, data) => this.#write(fd === 2 ? CHANNEL.STDERR : CHANNEL.STDOUT, data),
      input: (most) => this.#input(most),
      later: (f) => this.#timers.soon(f),
      soon: (f, args) => queueMicrotask(() => Reflect.apply(f, undefined, args)),
      unique: () => Array.from(kept.getRandomValues(new Uint8Array(6)), (n) => "abcdefghijklmnopqrstuvwxyzABCDEF"[n & 31]).join(""),
      stream: () => this.#modules.get("stream") ?? this.#require("stream"),
    };
    const fs = fileSystem(this.#volume, host);
    this.#surroundings = environment(host, CELL);
    const { process } = this.#surroundings;
    const log = console(write, (warning) => process.emitWarning(warning));
    const timers = this.#timers.globals();
    const promises = this.#timers.promises();
    const own = { fs, "fs/promises": fs.promises, process, util: utilities(process), os: os(process), console: log, timers: { ...timers, promises }, "timers/promises": promises, perf_hooks: { performance } };
    this.#modules = new Modules(own, (path) => {
      try {
        return fs.readFileSync(path, "utf8");
      } catch {
        return undefined;
      }
    });
    const module = { id: ".", exports: {}, filename: CELL, loaded: false, children: [], paths: [] };
    this.#require = module.require = this.#modules.require(() => this.#cwd, module);
    const { clearTimeout, setTimeout, ...others } = timers;
    for (const [name, value] of Object.entries({ ...others, clearTimeout, setTimeout, console: log, process, Buffer, global: globalThis, module, exports: module.exports, require: this.#require, __filename: CELL, __dirname: WORKDIR })) global(name, value);
    global("display", (value, options) => this.#display(false, value, options));
    const { queueMicrotask: real } = globalThis;
    global("queueMicrotask", (f) => {
      if (typeof f !== "function") throw new TypeError('The "callback" argument must be of type function.');
      const run = this.#active;
      real(() => this.#as(run, f));
    });
    // A callback that waits for a promise continues as part of the run that it belonged to. For
    // await, transform.mjs does that.
    const { then } = Promise.prototype;
    const keep = (f, run) => (typeof f === "function" && run ? (v) => this.#within(run, f, v) : f);
    const { apply } = Reflect;
    Promise.prototype.then = {
      then(done, failed) {
        return apply(then, this, [keep(done, active()), keep(failed, active())]);
      },
    }.then;
    const active = () => this.#active;
    constants({
      [RUN]: active,
      [BACK]: (run, value) => this.#back(run, value),
      [IMPORT]: (name) => this.#modules.import(name, this.#require),
      [VALUE]: (value) => new Value(value),
      [CONSTANT]: () => {
        throw new TypeError("Assignment to constant variable.");
      },
    });
  }

  // as calls f as code of a run. An exception in it fails the run, if the run is still in progress.
  #as(run, f) {
    this.#active = run;
    try {
      f();
    } catch (e) {
      this.#uncaught(e);
    } finally {
      this.#active = this.#run; // later code belongs to the run in progress, unless it sets another one
    }
  }

  #within(run, f, v) {
    const before = this.#active;
    this.#active = run;
    try {
      return f(v);
    } finally {
      this.#active = before;
    }
  }

  // back is called after each await.
  #back(run, value) {
    if (run?.stop) throw run.stop;
    this.#active = run;
    return value;
  }

  // told passes an error that would end a script to the code, and reports whether the code handles
  // it. It rethrows what the handler throws. rejected is the promise of an unhandled rejection.
  #told(e, rejected) {
    const { heard } = this.#surroundings;
    if (rejected && heard("unhandledRejection", e, rejected)) return true;
    const event = rejected ? "unhandledRejection" : "uncaughtException";
    heard("uncaughtExceptionMonitor", e, event);
    return heard("uncaughtException", e, event);
  }

  // uncaught fails the run, unless the code has a listener for uncaught errors.
  #uncaught(e, rejected) {
    const run = this.#active;
    if (!run || run !== this.#run) return;
    try {
      if (e instanceof Stop) return;
      try {
        if (this.#told(e, rejected)) return;
      } catch (another) {
        e = another;
      }
      run.settle({ __proto__: null, exit_code: 1, exception: describe(e, run.cell), interrupted: false });
    } catch {} // reading the thrown value fails again
  }

  // write sends text of the run that the code belongs to. Output of code that an earlier run left
  // running is dropped.
  #write(channel, data) {
    const run = this.#active;
    this.#check(run);
    if (!run || run !== this.#run) return;
    this.#guard(run, () => {
      if (typeof data === "string") data = this.#encoder.encode(data);
      for (let at = 0; at < data.length; ) at += this.#sender.text(channel, run.id, data, at, data.length - at);
    });
  }

  // input returns bytes of standard input, or none at its end. While code waits for them, it blocks
  // the interpreter.
  #input(most) {
    const run = this.#active;
    this.#check(run);
    if (!run || run !== this.#run) return new Uint8Array();
    let data;
    this.#guard(run, () => {
      data = this.#sender.input(most, (room) => this.#sender.send(TYPE.CREDIT, run.id, credit(room)));
    });
    return data;
  }

  #chdir(path) {
    const to = typeof path === "string" && !path.startsWith("/") ? `${this.#cwd}/${path}` : path;
    const fail = (code, text) => {
      throw Object.assign(new Error(`${code}: ${text}, chdir '${this.#cwd}' -> '${path}'`), { code, syscall: "chdir", path: this.#cwd, dest: path });
    };
    let node;
    try {
      ({ node } = this.#volume.find(`${to}`, { follow: true }));
    } catch (e) {
      if (e.errno === ERRNO.NOTDIR) fail("ENOTDIR", "not a directory");
      fail("ENOENT", "no such file or directory");
    }
    if (!this.#volume.isDir(node.mode)) fail("ENOTDIR", "not a directory");
    this.#cwd = this.#volume.path(node);
  }

  // display shows a value. It returns a promise if a method of the value does.
  #display(main, value, options) {
    const run = this.#active;
    this.#check(run);
    if (!run || run !== this.#run) return;
    const send = (forms) => {
      if (run.stop) throw run.stop;
      if (run !== this.#run) return;
      const data = { __proto__: null };
      for (const [type, bytes] of forms) data[type] = bytes;
      this.#guard(run, () => this.#sender.long(TYPE.OUTPUT, run.id, pack({ __proto__: null, main, data })));
    };
    const forms = represent(value, options);
    return types.isPromise(forms) ? forms.then(send) : send(forms);
  }

  // check ends code that must end.
  #check(run) {
    if (!run) return;
    if (!run.stop && run === this.#run && this.#sender.interrupted) this.#stop(run);
    if (run.stop) throw run.stop;
  }

  #guard(run, f) {
    try {
      f();
    } catch (e) {
      if (e !== EINTR) throw e;
      this.#stop(run);
      throw run.stop;
    }
  }

  // stop ends a run. Its timers are removed, and the rest of it fails at the next await, output or
  // timer.
  #stop(run, end = { exit_code: INTERRUPTED, interrupted: true }) {
    if (run.stop) return;
    run.stop = new Stop();
    this.#timers.end(run);
    run.settle({ __proto__: null, exit_code: end.exit_code, exception: null, interrupted: end.interrupted });
  }

  #exit(code) {
    const run = this.#active;
    if (!run) return;
    this.#stop(run, { exit_code: exitCode(code), interrupted: false });
    throw run.stop;
  }

  // run executes one cell and sends its output and result.
  async run(id, request, source) {
    const sender = this.#sender;
    const { dir, env, artifacts, linger, typescript: typed } = request;
    let settle;
    const ended = new Promise((resolve) => (settle = resolve));
    const run = { __proto__: null, id, cell: ++this.#cell, stop: null, most: Number(linger ?? -1) / 1e6, typed, settle };
    this.#run = this.#active = run;
    sender.send(TYPE.STARTED, id, pack({ __proto__: null, cell: run.cell }));
    const before = artifacts ? this.#disk.files(WORKDIR + "/") : undefined;
    const cwd = this.#cwd;
    const leave = this.#surroundings.begin(env);
    this.#execute(run, source, dir);
    const end = await ended;
    this.#run = this.#active = null;
    if (dir) this.#cwd = cwd;
    leave();
    if (end.exit_code === 0 && !end.interrupted && !run.stop) end.exit_code = exitCode(this.#surroundings.code());
    sender.clearInterrupt();
    const left = this.#timers.names().join("\n");
    sendEnd(sender, id, before ? this.#changes(before) : []);
    this.changed(id);
    sender.long(TYPE.DONE, id, pack({ __proto__: null, exit: end.exit_code, exception: end.exception, left }));
  }

  // changes lists the files that a run has changed: name, size and time in ns.
  #changes(before) {
    const found = [];
    for (const [name, { node, tick }] of this.#disk.files(WORKDIR + "/")) {
      const old = before.get(name);
      if (old?.node !== node || old.tick !== tick) found.push([name, node.usedBytes, nanoseconds(Math.trunc(node.mtime))]);
    }
    return found.sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_FILES);
  }

  // linger waits for the timers of a run, and for the promises that depend on them.
  async #linger(run) {
    const end = run.most < 0 ? Infinity : kept.time() + run.most;
    // Anything that continues without a timer has done so after one turn of the event loop.
    for (let pause = 0; !run.stop && kept.time() < end; pause = Math.min(2 * pause + 1, 20)) {
      await this.#timers.sleep(Math.min(pause, end - kept.time()));
      if (!this.#timers.waits(run)) return;
    }
  }

  async #execute(run, source, dir) {
    const ok = { __proto__: null, exit_code: 0, exception: null, interrupted: false };
    const failed = (exception) => run.stop || run.settle({ __proto__: null, exit_code: 1, exception, interrupted: false });
    let rejected;
    let parts;
    try {
      parts = cell(run.typed ? await stripped(source) : source, this.#constants);
      for (const [name, kind] of parts.names) declare(name, kind);
    } catch (e) {
      // The parser adds the place to its message.
      if (e?.loc) e.message = text(e.message, "").replace(/ \(\d+:\d+\)$/, "");
      return failed(describe(e, run.cell, e?.loc && { ...e.loc, source }));
    }
    try {
      if (dir) this.#chdir(dir);
      await this.#modules.prepare(source);
      if (run.stop) return;
      this.#active = run;
      const variables = parts.names.filter(([, kind]) => kind === "var");
      if (variables.length) evaluate("var " + variables.map(([name]) => name).join(","));
      if (parts.hoisted) evaluate(parts.hoisted + url(run.cell, source));
      let value = await evaluate(parts.body + url(run.cell, source));
      value = value instanceof Value ? value.value : undefined;
      // Most programs begin by calling "main();" at their end.
      if (types.isPromise(value)) {
        rejected = value;
        value = await rejected;
        rejected = undefined;
      }
      if (run.stop) return;
      this.#active = run;
      if (value !== undefined) await this.#display(true, value);
    } catch (e) {
      if (run.stop) return;
      this.#active = run;
      try {
        if (!this.#told(e, rejected)) return failed(describe(e, run.cell));
      } catch (another) {
        return failed(describe(another, run.cell));
      }
    }
    await this.#linger(run);
    run.settle(ok);
  }

  // interrupt is called when the event loop is free because the run waits for something.
  interrupt(id) {
    if (this.#run?.id !== id) return;
    this.#sender.clearInterrupt();
    this.#stop(this.#run);
  }

  // changed sends the changed files.
  changed(id) {
    sendChanges(this.#sender, this.#disk, id);
  }
}

// Code often takes these from a module under their own names. They are the same objects as the
// globals.
const SAME = new Set(["TextEncoder", "TextDecoder"]);

// declare declares a name of the top level. It refuses names that code cannot declare, because
// assignments to them would be ignored. A name of let, const or class has no value until its
// declaration assigns it.
function declare(name, kind) {
  const old = Object.getOwnPropertyDescriptor(globalThis, name);
  const property = (d) => Object.defineProperty(globalThis, name, { configurable: true, enumerable: false, ...d });
  if (old && !old.configurable) {
    if (SAME.has(name)) return;
    if (!old.writable) throw new SyntaxError(`${text(name, "")} belongs to the sandbox and cannot be declared`);
  } else if (kind === "let" || kind === "const") {
    const early = () => {
      throw new ReferenceError(`Cannot access '${name}' before initialization`);
    };
    property({ get: early, set: (value) => void property({ value, writable: kind === "let" }) });
  } else if (old && (old.get || !old.writable)) {
    property({ value: old.value, writable: true });
  }
}
