// Takes away from the global object of the worker everything that is not on a list, before anything else is loaded into it.
//
// Without Deno and process Pyodide takes its surroundings for a browser's worker: it never gets hold of file system, network or processes
// of the host, so what builds on them (NODEFS, sockets, os.system) does not exist. The list names what may stay, not what must go, so
// that a new global of a later version is gone as well.

// What the language itself defines, but for eval.
const LANGUAGE = `
  Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp Error AggregateError
  EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError globalThis JSON Math Intl ArrayBuffer SharedArrayBuffer
  Atomics Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray Float16Array
  Float32Array Float64Array DataView Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect FinalizationRegistry WeakRef decodeURI
  decodeURIComponent encodeURI encodeURIComponent escape unescape isFinite isNaN DisposableStack AsyncDisposableStack WebAssembly
`;

// What Pyodide uses besides.
const SURROUNDINGS = `
  self location setTimeout clearTimeout setInterval clearInterval queueMicrotask TextEncoder TextDecoder URL AbortController AbortSignal
  DOMException crypto performance console
`;

// What it uses until it is up.
const START = `WorkerGlobalScope MessageChannel`;

const words = (s) => s.split(/\s+/).filter(Boolean);

// scrub removes everything else. What cannot be removed is an error: better no sandbox than half of one.
function scrub(allowed) {
  for (let o = globalThis; o !== eventTarget; o = Object.getPrototypeOf(o)) {
    for (const key of Reflect.ownKeys(o)) {
      // Symbols hold what Deno knows about the object as a target of events, and nothing to call but listeners.
      if (o === globalThis ? allowed.has(key) || typeof key === "symbol" : key === "constructor") continue;
      delete o[key];
      if (Reflect.ownKeys(o).includes(key)) throw new Error(`global ${String(key)} cannot be removed`);
    }
  }
}

const eventTarget = EventTarget.prototype;
const messagePort = MessagePort.prototype;
const { getRandomValues, randomUUID } = crypto;
const { now } = performance;
const timeOrigin = performance.timeOrigin;

// kept holds what the modules of the host need and the code must not have.
export const kept = {
  addEventListener: globalThis.addEventListener.bind(globalThis),
  // For sessions with JavaScript. In others the engine does not evaluate anything.
  evaluate: globalThis.eval,
  now: globalThis.Date.now,
  time: now.bind(performance), // ms since the start
  getRandomValues: getRandomValues.bind(crypto),
  randomUUID: randomUUID.bind(crypto),
  Date: globalThis.Date,
  decode: globalThis.decodeURIComponent,
  dispose: Symbol.dispose,
  script: Deno[Deno.internal].core.evalContext,
  harmless: { structuredClone, atob, btoa, URLSearchParams, EventTarget, Event, CustomEvent },
  web: { AbortController: globalThis.AbortController, AbortSignal: globalThis.AbortSignal, DOMException: globalThis.DOMException, URL: globalThis.URL },
};

const define = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });

scrub(new Set([...words(LANGUAGE), ...words(SURROUNDINGS), ...words(START)]));

// Of three objects only a part may stay.
for (const name of ["crypto", "performance", "location"]) delete globalThis[name];
define("crypto", Object.freeze({ __proto__: null, getRandomValues: (a) => kept.getRandomValues(a), randomUUID: () => kept.randomUUID() }));
define("performance", Object.freeze({ __proto__: null, now: () => kept.time(), timeOrigin }));
define("location", Object.freeze({ __proto__: null, href: "file:///", toString: () => "file:///" }));

// finish removes what was left for the start, and freezes what the messages of the host pass through.
export function finish() {
  scrub(new Set([...words(LANGUAGE), ...words(SURROUNDINGS)]));
  for (const o of [eventTarget, messagePort, Atomics, SharedArrayBuffer.prototype, TextEncoder.prototype, TextDecoder.prototype]) {
    Object.freeze(o);
  }
}

// unplaced makes stacks that name functions and not where they are: the path of the host program is no business of the code.
export function unplaced() {
  const value = (error, sites) => `${error}${sites.map((s) => `\n    at ${s.getFunctionName() ?? "<anonymous>"}`).join("")}`;
  Object.defineProperty(Error, "prepareStackTrace", { value, writable: false, configurable: false, enumerable: false });
}
