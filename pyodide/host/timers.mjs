// The timers of JavaScript sessions. Each belongs to the run whose code made it.
import { wrong } from "./fs.mjs";
import { kept } from "./scrub.mjs";

const CUSTOM = Symbol.for("nodejs.util.promisify.custom");

// Timers are the timers of one session. run() returns the run whose code executes, and as(run, f)
// calls f as code of a run.
export class Timers {
  #all = new Map(); // timers by number
  #next = 1;
  #run;
  #as;
  #set = setTimeout;
  #clear = clearTimeout;

  constructor(run, as) {
    this.#run = run;
    this.#as = as;
  }

  // start makes a timer. With repeat it repeats until it is cleared.
  start(f, ms, args, repeat = false) {
    if (typeof f !== "function") throw wrong("callback", "of type function", f);
    ms = +ms;
    const timer = { __proto__: null, run: this.#run(), f, args, ms: ms >= 1 && ms < 2 ** 31 ? ms : 1, repeat, held: true, id: this.#next++ };
    this.#arm(timer);
    return new Timeout(this, timer);
  }

  #arm(timer) {
    this.#clear(timer.real);
    this.#all.set(timer.id, timer);
    timer.real = this.#set(() => {
      if (timer.repeat) this.#arm(timer);
      else this.#all.delete(timer.id);
      this.#as(timer.run, () => Reflect.apply(timer.f, undefined, timer.args));
    }, timer.ms);
  }

  // soon calls f in a separate turn of the event loop, before timers with a time.
  soon(f, args = []) {
    const timer = { __proto__: null, run: this.#run(), f, args, ms: 0, repeat: false, held: true, id: this.#next++ };
    this.#arm(timer);
    return new Timeout(this, timer);
  }

  stop(timer) {
    this.#clear(timer?.real);
    this.#all.delete(timer?.id);
  }

  again(timer) {
    if (this.#all.has(timer.id)) this.#arm(timer);
  }

  // clear ends a timer, which code passes as an object or a number.
  clear(of) {
    if (of === null || of === undefined) return;
    const id = typeof of === "object" ? Timeout.id(of) : Number(of);
    this.stop(this.#all.get(id));
  }

  // end ends the timers of a run.
  end(run) {
    for (const timer of this.#all.values()) if (timer.run === run) this.stop(timer);
  }

  // waits reports whether a run has a timer for which it must wait.
  waits(run) {
    for (const timer of this.#all.values()) if (timer.run === run && !timer.repeat && timer.held) return true;
    return false;
  }

  // names names the timers, at most a few.
  names() {
    const names = [];
    for (const timer of this.#all.values()) if (names.length < 21) names.push(timer.repeat ? "interval" : "timer");
    return names;
  }

  // sleep resolves after a number of milliseconds, for the host.
  sleep(ms) {
    return new Promise((resolve) => this.#set(resolve, ms));
  }

  // globals returns the functions that code calls.
  globals() {
    const clear = { clear: (t) => this.clear(t) }.clear;
    const functions = {
      setTimeout: (f, ms, ...args) => this.start(f, ms, args),
      setInterval: (f, ms, ...args) => this.start(f, ms, args, true),
      setImmediate: (f, ...args) => {
        if (typeof f !== "function") throw wrong("callback", "of type function", f);
        return this.soon(f, args);
      },
      clearTimeout: (t) => clear(t),
      clearInterval: (t) => clear(t),
      clearImmediate: (t) => clear(t),
    };
    const { setTimeout, setImmediate, wait } = this.promises();
    Object.defineProperty(functions.setTimeout, CUSTOM, { value: setTimeout });
    Object.defineProperty(functions.setImmediate, CUSTOM, { value: setImmediate });
    void wait;
    return functions;
  }

  // promises returns the module timers/promises.
  promises() {
    const promise = (start, value, o) => new Promise((resolve, reject) => {
      const { signal, ref = true } = o ?? {};
      const abort = () => {
        this.clear(timer);
        const reason = Object.assign(new Error("The operation was aborted", { cause: signal.reason }), { name: "AbortError", code: "ABORT_ERR" });
        reject(reason);
      };
      let timer;
      if (signal?.aborted) return abort();
      timer = start(() => {
        signal?.removeEventListener("abort", abort);
        resolve(value);
      });
      if (!ref) timer.unref();
      signal?.addEventListener("abort", abort);
    });
    const timers = this;
    const all = {
      setTimeout: (ms, value, o) => promise((f) => this.start(f, ms, []), value, o),
      setImmediate: (value, o) => promise((f) => this.soon(f), value, o),
      async *setInterval(ms, value, o) {
        for (;;) yield await promise((f) => timers.start(f, ms, []), value, o);
      },
    };
    all.scheduler = { wait: (ms, o) => all.setTimeout(ms, undefined, o), yield: () => all.setImmediate() };
    return all;
  }
}

// Timeout is the object that code gets.
class Timeout {
  #timers;
  #timer;
  constructor(timers, timer) {
    this.#timers = timers;
    this.#timer = timer;
  }
  static id(of) {
    return #timer in of ? of.#timer.id : undefined;
  }
  ref() {
    this.#timer.held = true;
    return this;
  }
  unref() {
    this.#timer.held = false;
    return this;
  }
  hasRef() {
    return this.#timer.held;
  }
  refresh() {
    this.#timers.again(this.#timer);
    return this;
  }
  close() {
    this.#timers.stop(this.#timer);
    return this;
  }
  [Symbol.toPrimitive]() {
    return this.#timer.id;
  }
  [kept.dispose]() {
    this.close();
  }
}
