// Runs cells of JavaScript in the scrubbed realm. There is no second realm below it: what the host needs is fixed in this one, and what
// the code can spoil nevertheless is its own session.
import { types } from "execbroker:util";
import { console, show } from "./console.mjs";
import { constants, describe, evaluate, evaluation, harden, listeners, stacks, syntax, text, url } from "./realm.mjs";
import { EINTR } from "./ring.mjs";
import { finish, kept } from "./scrub.mjs";
import { BACK, cell, CONSTANT, IMPORT, RUN, VALUE } from "./transform.mjs";
import { strip } from "./typescript.mjs";
import { FROM_HOST, json, number } from "./wire.mjs";

const INTERRUPTED = 130;

// Stop is thrown through code that has to end: it has been interrupted, or it has called exit.
class Stop extends Error {
  name = "Stop";
}

// Value is that of the last expression of a cell. It is an object, because a promise in its place would be awaited where it is too early.
class Value {
  constructor(value) {
    this.value = value;
  }
}

// Interpreter is a realm with one session in it.
export class Interpreter {
  #sender;
  #cell = 0;
  #run = null; // in progress
  #constants = new Set(); // names of the top level
  #active = null; // the run that the code belongs to which is executed now
  #encoder = new TextEncoder();
  // There are no files, and nothing that calls could do.
  calls = { __proto__: null, sync: () => [{}] };
  version = "ECMAScript";

  static async start(sender) {
    const it = new Interpreter();
    it.#sender = sender;
    finish();
    stacks();
    it.#globals();
    evaluation();
    harden();
    kept.addEventListener("unhandledrejection", (e) => it.#uncaught(e.reason));
    listeners();
    return it;
  }

  #globals() {
    const global = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    for (const [name, value] of Object.entries(kept.harmless)) global(name, value);
    const write = (type, line) => this.#write(type === "stderr" ? FROM_HOST.STDERR : FROM_HOST.STDOUT, line);
    global("console", console(write, (warning) => write("stderr", `(node:1) Warning: ${warning}\n`)));
    global("display", (value) => this.#display(false, value));
    global("exit", (code = 0) => this.#exit(code));
    const { clearTimeout, setTimeout } = globalThis;
    const timer = (set, once) => (f, ms, ...args) => {
      if (typeof f !== "function") throw new TypeError("the first argument must be a function");
      const run = this.#active;
      const id = set(() => {
        if (once) this.#timers.delete(id);
        this.#as(run, () => f(...args));
      }, ms);
      this.#timers.set(id, { __proto__: null, run, once });
      return id;
    };
    global("setTimeout", timer(setTimeout, true));
    global("setInterval", timer(setInterval, false));
    this.#clear = (id) => {
      this.#timers.delete(id);
      clearTimeout(id);
    };
    this.#later = setTimeout;
    global("clearTimeout", (id) => this.#clear(id));
    global("clearInterval", (id) => this.#clear(id));
    const { queueMicrotask } = globalThis;
    global("queueMicrotask", (f) => {
      const run = this.#active;
      queueMicrotask(() => this.#as(run, f));
    });
    // What waits for a promise by a callback goes on as the run that it belonged to. For await transform.mjs sees to that.
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
      [IMPORT]: async () => {
        throw new TypeError("import: there are no modules in this sandbox");
      },
      [VALUE]: (value) => new Value(value),
      [CONSTANT]: () => {
        throw new TypeError("Assignment to constant variable.");
      },
    });
  }

  #clear;
  #later;
  #timers = new Map(); // by id: the run that each belongs to, and whether it is for once

  // as calls f as code of a run. What fails in there fails the run, if it is still the one in progress.
  #as(run, f) {
    this.#active = run;
    try {
      f();
    } catch (e) {
      this.#uncaught(e);
    } finally {
      this.#active = this.#run; // what follows from it, unless it says otherwise
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

  #uncaught(e) {
    const run = this.#active;
    if (!run || run !== this.#run) return;
    try {
      if (e instanceof Stop) return;
      run.settle({ __proto__: null, exit_code: 1, exception: describe(e), interrupted: false });
    } catch {} // what was thrown fails again
  }

  // write sends text of the run that the code belongs to. What earlier code left running prints into nothing.
  #write(type, line) {
    const run = this.#active;
    this.#check(run);
    if (!run || run !== this.#run) return;
    this.#guard(run, () => {
      const data = this.#encoder.encode(line);
      for (let at = 0; at < data.length; ) at += this.#sender.stream(type, run.id, data.subarray(at));
    });
  }

  #display(main, value) {
    const run = this.#active;
    this.#check(run);
    if (!run || run !== this.#run) return;
    const bundle = show(value);
    this.#guard(run, () => this.#sender.long(FROM_HOST.OUTPUT, run.id, encode(main, bundle)));
  }

  // check ends code that has to end.
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

  // stop ends a run: its timers are gone, and whatever of it goes on fails at the next await, output or timer.
  #stop(run, end = { exit_code: INTERRUPTED, interrupted: true }) {
    if (run.stop) return;
    run.stop = new Stop();
    for (const [id, timer] of this.#timers) if (timer.run === run) this.#clear(id);
    run.settle({ __proto__: null, exit_code: end.exit_code, exception: null, interrupted: end.interrupted });
  }

  #exit(code) {
    const run = this.#active;
    const n = Number(code);
    if (!Number.isInteger(n)) throw new TypeError("exit: the code must be an integer");
    if (!run) return;
    this.#stop(run, { exit_code: n & 255, interrupted: false });
    throw run.stop;
  }

  // run executes one cell and sends all that comes of it.
  async run(id, request, source) {
    const sender = this.#sender;
    let settle;
    const ended = new Promise((resolve) => (settle = resolve));
    const { linger, types: typed } = JSON.parse(request);
    const run = { __proto__: null, id, stop: null, most: linger, typed, settle };
    this.#run = this.#active = run;
    sender.send(FROM_HOST.STARTED, id, number.u32(++this.#cell));
    this.#execute(run, source, this.#cell);
    const end = await ended;
    this.#run = this.#active = null;
    sender.clearInterrupt();
    sender.long(FROM_HOST.END, id, json({ __proto__: null, ...end, left: this.#left() }));
    sender.send(FROM_HOST.SYNCED, id);
  }

  // linger waits for the timers of a run, and for the promises that depend on them.
  async #linger(run) {
    const end = run.most < 0 ? Infinity : performance.now() + run.most * 1000;
    const waits = () => {
      for (const timer of this.#timers.values()) if (timer.once && timer.run === run) return true;
      return false;
    };
    // Whatever goes on without a timer has done so after one turn of the event loop.
    for (let pause = 0; !run.stop && performance.now() < end; pause = Math.min(2 * pause + 1, 20)) {
      await new Promise((resolve) => this.#later(resolve, Math.min(pause, end - performance.now())));
      if (!waits()) return;
    }
  }

  // left names what goes on.
  #left() {
    const names = [];
    for (const timer of this.#timers.values()) if (names.length < 21) names.push(timer.once ? "timer" : "interval");
    return names;
  }

  async #execute(run, source, n) {
    const ok = { __proto__: null, exit_code: 0, exception: null, interrupted: false };
    const failed = (exception) => run.settle({ __proto__: null, exit_code: 1, exception, interrupted: false });
    let parts;
    try {
      parts = cell(run.typed ? strip(source) : source, this.#constants);
      for (const [name, kind] of parts.names) declare(name, kind);
    } catch (e) {
      return failed(e?.loc ? syntax(e, source, n) : describe(e));
    }
    try {
      const variables = parts.names.filter(([, kind]) => kind === "var");
      if (variables.length) evaluate("var " + variables.map(([name]) => name).join(","));
      if (parts.hoisted) evaluate(parts.hoisted + url(n, source));
      let value = await evaluate(parts.body + url(n, source));
      value = value instanceof Value ? value.value : undefined;
      // "main();" at the end is how most programs begin.
      if (types.isPromise(value)) value = await value;
      if (run.stop) return;
      this.#active = run;
      if (value !== undefined) this.#display(true, value);
      await this.#linger(run);
      run.settle(ok);
    } catch (e) {
      if (!run.stop) failed(describe(e));
    }
  }

  // interrupt is called when the loop is free: the run waits for something.
  interrupt(id) {
    if (this.#run?.id !== id) return;
    this.#sender.clearInterrupt();
    this.#stop(this.#run);
  }

  changed() {}
}

// declare makes a name of the top level. Names that code cannot have are refused: assignments to them would be ignored. One of let, const
// or class has no value until its declaration assigns it.
function declare(name, kind) {
  const old = Object.getOwnPropertyDescriptor(globalThis, name);
  const property = (d) => Object.defineProperty(globalThis, name, { configurable: true, enumerable: false, ...d });
  if (old && !old.configurable) {
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

// encode makes the message of a value: u8 main, u16 count, and for each form u16 length, type, u32 length, data.
function encode(main, bundle) {
  let size = 3;
  for (const [mime, data] of bundle) size += 6 + mime.length + data.length;
  const b = new Uint8Array(size);
  const v = new DataView(b.buffer);
  b[0] = main ? 1 : 0;
  v.setUint16(1, bundle.length, true);
  let at = 3;
  for (const [mime, data] of bundle) {
    v.setUint16(at, mime.length, true);
    for (let i = 0; i < mime.length; i++) b[at + 2 + i] = mime.charCodeAt(i);
    at += 2 + mime.length;
    v.setUint32(at, data.length, true);
    b.set(data, at + 4);
    at += 4 + data.length;
  }
  return b;
}
