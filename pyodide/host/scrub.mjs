// Removes everything from the worker's global object that is not on a list, before anything else is
// loaded.
//
// Without Deno and process, Pyodide thinks that it runs in a browser's worker. It never gets access
// to the host's file system, network or processes, so the features that use them (NODEFS, sockets,
// os.system) do not exist. The list names what may stay instead of what must go, so that a new
// global of a later version is removed too.

// The names that the language itself defines, except eval.
const LANGUAGE = `
  Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp Error AggregateError
  EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError globalThis JSON Math Intl ArrayBuffer SharedArrayBuffer
  Atomics Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray Float16Array
  Float32Array Float64Array DataView Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect FinalizationRegistry WeakRef decodeURI
  decodeURIComponent encodeURI encodeURIComponent escape unescape isFinite isNaN DisposableStack AsyncDisposableStack WebAssembly
`;

// The other names that Pyodide uses.
const SURROUNDINGS = `
  self location setTimeout clearTimeout setInterval clearInterval queueMicrotask TextEncoder TextDecoder URL AbortController AbortSignal
  DOMException crypto performance console
`;

// The names that Pyodide uses only until it is ready.
const START = `WorkerGlobalScope MessageChannel`;

const words = (s) => s.split(/\s+/).filter(Boolean);

// scrub removes everything else. If something cannot be removed, that is an error: an incomplete
// sandbox must not start.
function scrub(allowed) {
  for (let o = globalThis; o !== eventTarget; o = Object.getPrototypeOf(o)) {
    for (const key of Reflect.ownKeys(o)) {
      // Symbols contain what Deno knows about the object as a target of events, and nothing that
      // can be called except listeners.
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

// kept contains what the modules of the host need and the code must not have.
export const kept = {
  addEventListener: globalThis.addEventListener.bind(globalThis),
  // For sessions with JavaScript. In other sessions the engine evaluates nothing.
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

// Only a part of three objects may stay.
for (const name of ["crypto", "performance", "location"]) delete globalThis[name];
define("crypto", Object.freeze({ __proto__: null, getRandomValues: (a) => kept.getRandomValues(a), randomUUID: () => kept.randomUUID() }));
define("performance", Object.freeze({ __proto__: null, now: () => kept.time(), timeOrigin }));
define("location", Object.freeze({ __proto__: null, href: "file:///", toString: () => "file:///" }));

// finish removes what was needed only for the start, and freezes the objects that messages of the
// host use.
export function finish() {
  scrub(new Set([...words(LANGUAGE), ...words(SURROUNDINGS)]));
  for (const o of [eventTarget, messagePort, Atomics, SharedArrayBuffer.prototype, TextEncoder.prototype, TextDecoder.prototype]) {
    Object.freeze(o);
  }
}

// unplaced makes stacks that name functions but not files, so that the code does not see the path
// of the host program.
export function unplaced() {
  const value = (error, sites) => `${error}${sites.map((s) => `\n    at ${s.getFunctionName() ?? "<anonymous>"}`).join("")}`;
  Object.defineProperty(Error, "prepareStackTrace", { value, writable: false, configurable: false, enumerable: false });
}
