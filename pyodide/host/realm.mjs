// Prepares the realm of JavaScript sessions: what the host uses cannot be replaced, evaluated code
// passes through transform.mjs, and stacks have only the user's frames.
import { inspect, types } from "execbroker:util";
import { meaning } from "./cell.mjs";
import { fix, unnamed } from "./fixed.mjs";
import { kept } from "./scrub.mjs";
import { EVAL, OURS, script, TEXT } from "./transform.mjs";

const indirect = kept.evaluate;
const define = (o, key, value) => Object.defineProperty(o, key, { value, writable: false, configurable: false, enumerable: false });
export { define };

// evaluate runs a script of the host in the global scope.
export const evaluate = (text) => indirect(text);

// The names that the modules of the host use while code runs. The parser is one of these modules:
// code that it called could mislead it. TestFixedNames reads the modules and reports missing names.
const FIXED = `
  Object Function Array Number BigInt Boolean String Symbol Promise RegExp Error AggregateError EvalError RangeError
  ReferenceError SyntaxError TypeError URIError JSON Math ArrayBuffer
  SharedArrayBuffer Atomics Uint8Array Int32Array DataView Map Set WeakMap WeakSet Reflect Proxy TextEncoder TextDecoder isFinite parseInt
  parseFloat
`.split(/\s+/).filter(Boolean);

// harden fixes the properties of the language's own objects. New ones can be added.
export function harden() {
  const objects = unnamed();
  objects.add(globalThis.Iterator?.prototype);
  for (const name of FIXED) {
    const o = globalThis[name];
    define(globalThis, name, o);
    objects.add(o);
    for (let p = o.prototype; p; p = Object.getPrototypeOf(p)) objects.add(p);
  }
  objects.add(Object.getPrototypeOf(Uint8Array));
  for (const o of objects) if (o) fix(o, true);
  // Every object inherits from this one: a property "then" would be called for every message that
  // arrives.
  Object.preventExtensions(Object.prototype);
}

// listeners fixes the objects with which the host listens. Code can find them: the engine keeps
// them in the global object, under a symbol.
export function listeners() {
  for (const key of Object.getOwnPropertySymbols(globalThis)) {
    for (const all of Object.values(globalThis[key]?.listeners ?? {})) {
      for (const l of all) define(l, "callback", l.callback);
    }
  }
}

// constants defines constants of the global scope. They are not properties of the global object:
// only code that names them can use them.
export function constants(values) {
  globalThis[OURS] = values;
  const [, failure] = kept.script(`const {${Object.keys(values).join(",")}} = ${OURS}`, "execbroker:constants");
  if (!Reflect.deleteProperty(globalThis, OURS) || failure) throw new Error("the constants of the sandbox cannot be made");
}

// evaluation replaces eval and the function constructors by versions that check their arguments.
// The engine's own eval is used for calls of eval that were transformed, because these must see the
// scope around them.
export function evaluation() {
  const compile = (text) => indirect(script(text));
  const f = { eval: (x) => (typeof x === "string" ? compile(x) : x) }.eval;
  delete globalThis.eval;
  constants({ eval: indirect, [EVAL]: f, [TEXT]: (x) => (typeof x === "string" ? script(x, true) : x) });
  define(globalThis, "eval", f);
  for (const [kind, f] of [
    ["function", function () {}],
    ["async function", async function () {}],
    ["function*", function* () {}],
    ["async function*", async function* () {}],
  ]) {
    const prototype = Object.getPrototypeOf(f);
    const old = prototype.constructor;
    const make = function (...args) {
      const body = args.length ? `${args.pop()}` : "";
      return compile(`(${kind} anonymous(${args.map((a) => `${a}`).join(",")}\n) {\n${body}\n})`);
    };
    Object.defineProperty(make, "name", { value: old.name });
    Object.defineProperty(make, "prototype", { value: prototype, writable: false });
    if (kind === "function") Object.defineProperty(globalThis, "Function", { value: make, writable: true, configurable: true, enumerable: false });
    Object.defineProperty(prototype, "constructor", { value: make, writable: true, configurable: true, enumerable: false });
  }
}

const SCRIPT = /^cell-(\d+)$/;
const frames = new WeakMap(); // the frames of errors

const lines = new Map(); // the number of lines of cells

// url is the name of a cell for the engine.
export function url(cell, source) {
  lines.set(String(cell), source.split(/\r\n|[\n\r\u2028\u2029]/).length);
  return `\n//# sourceURL=cell-${cell}`;
}

// stacks makes stacks that have only frames of cells.
export function stacks() {
  Error.stackTraceLimit = 50;
  define(Error, "prepareStackTrace", (error, sites) => {
    const found = [];
    for (const s of sites) {
      const [, cell] = SCRIPT.exec(s.getScriptNameOrSourceURL() ?? s.getFileName() ?? "") ?? [];
      // The call of the function around a cell comes after the cell's last line.
      if (cell && s.getLineNumber() <= lines.get(cell)) found.push({ __proto__: null, cell: Number(cell), line: s.getLineNumber() ?? 0, text: frame(s, cell) });
    }
    if (Object(error) === error) frames.set(error, found);
    return heading(error) + found.map((f) => "\n" + f.text).join("");
  });
}

function frame(site, cell) {
  const where = `<cell ${cell}>:${site.getLineNumber() ?? 0}`;
  const name = site.getFunctionName();
  const of = name === "eval" ? null : name; // null means the top level
  return `    at ${site.isAsync() ? "async " : ""}${of ? `${site.isConstructor() ? "new " : ""}${of} (${where})` : where}`;
}

// text converts a value that code may have set. Converting may run code and fail.
export function text(value, otherwise) {
  try {
    return typeof value === "symbol" ? String(value) : `${value}`;
  } catch {
    return otherwise;
  }
}

function heading(error) {
  const name = text(error?.name ?? "Error", "Error");
  const message = text(error?.message ?? "", "");
  return message ? `${name}: ${message}` : name;
}

const encoder = new TextEncoder();
const { isProxy } = types;

// What a cell means is the same in Node.
export const { describe, exitCode, represent } = meaning({
  inspect,
  isProxy,
  encode: (text) => encoder.encode(text),
  decode(digits) {
    const binary = kept.harmless.atob(digits);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  },
  // The text of a stack may be the user's. The frames are those that were found when it was made.
  stack(error, text, cell) {
    const found = frames.get(error) ?? [];
    return { before: "", frames: found.slice(0, 40).map((f) => f.text.slice(0, 300)), line: found.find((f) => f.cell === cell)?.line ?? 0 };
  },
});
