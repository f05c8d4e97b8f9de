// Prepares the realm of JavaScript sessions: what the host uses cannot be replaced, evaluated code
// passes through transform.mjs, and stacks have only the user's frames.
import { fix, unnamed } from "./fixed.mjs";
import { kept } from "./scrub.mjs";
import { inspect } from "./console.mjs";
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
      if (cell && s.getLineNumber() <= lines.get(cell)) found.push({ __proto__: null, line: s.getLineNumber() ?? 0, text: frame(s, cell) });
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

const MOST = 64 << 10; // characters of a message

// describe describes how code failed: type, message, traceback, line. Reading the thrown value may
// run code, which may fail too.
export function describe(thrown) {
  try {
    return thrown instanceof Error ? failure(thrown) : uncaught(thrown);
  } catch {
    return { __proto__: null, type: "Error", message: "", traceback: "Error", line: 0 };
  }
}

function uncaught(value) {
  const message = inspect(value).slice(0, MOST);
  const type = value !== null && typeof value === "object" ? text(value.name ?? value.constructor?.name ?? "Object", "Object").slice(0, 200) : typeof value;
  return { __proto__: null, type, message, traceback: `${type}: ${message}`, line: 0 };
}

function failure(error) {
  let [found, coded] = [[], ""];
  const [type, message] = [text(error.name, "Error").slice(0, 200), text(error.message, "").slice(0, MOST)];
  try {
    const { stack, code } = error; // reading stack makes the frames
    found = frames.get(error) ?? [];
    // Errors of Node's modules have their code only there.
    if (typeof code === "string" && `${stack}`.startsWith(`${type} [${code}]`)) coded = ` [${code}]`;
  } catch {}
  const head = message ? `${type}${coded}: ${message}` : type + coded;
  const traceback = plain(head + found.slice(0, 40).map((f) => "\n" + f.text.slice(0, 300)).join(""));
  return { __proto__: null, type, message, traceback, line: found[0]?.line ?? 0 };
}

// plain removes escape sequences and other control characters.
function plain(s) {
  return s.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(\u0007|\u001b\\)?/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");
}

// syntax says where code cannot be parsed.
export function syntax(error, source, cell) {
  const message = text(error.message, "").replace(/ \(\d+:\d+\)$/, "").slice(0, MOST);
  const { line, column } = error.loc;
  const shown = source.split(/\r\n|[\n\r\u2028\u2029]/)[line - 1] ?? "";
  const pointer = shown.length <= 200 ? `\n${shown}\n${" ".repeat(column)}^` : "";
  return { __proto__: null, type: "SyntaxError", message, traceback: plain(`<cell ${cell}>:${line}${pointer}\nSyntaxError: ${message}`), line };
}
