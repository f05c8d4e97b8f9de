// Writes the variables of the interpreter to a file: a line of JSON with names and what is omitted, and
// then a graph of values. It is the body of a function of args. It runs no code of the conversation
// but traps of proxies: values are read by their descriptors.
const { Array, ArrayBuffer, BigInt, Boolean, DataView, Date, Error, Function, JSON, Map, Number, Object, Reflect, RegExp, Set, String, Symbol, globalThis: root } = globalThis;
const typed = Object.getPrototypeOf(Uint8Array);
const { Buffer } = require("buffer");
const { types } = require("util");

// What interpreters have themselves, besides functions of the language.
const system = new Set(
  ("Infinity NaN undefined globalThis global self eval Function JSON Math Intl Reflect Atomics WebAssembly Temporal console process module exports require display Buffer crypto performance fetch location navigator " +
    "AbortController AbortSignal CustomEvent DOMException Event EventTarget TextDecoder TextEncoder URL URLSearchParams " +
    "structuredClone queueMicrotask clearImmediate setImmediate clearInterval clearTimeout setInterval setTimeout atob btoa __filename __dirname __import__").split(" "),
);

class Refusal extends Error {}
const refuse = (why) => {
  throw new Refusal(why);
};

// The protocol of debuggers tells the names of the top level and where functions find theirs.
let post = null;
try {
  const { Session } = require("inspector");
  const session = new Session();
  session.connect();
  post = (method, params) => {
    let result = null;
    session.post(method, params, (error, r) => (result = error ? null : r));
    return result;
  };
} catch {}
const lexical = post?.("Runtime.globalLexicalScopeNames", {})?.names ?? [];
const native = (f) => typeof f === "function" && /\{\s*\[native code\]\s*\}$/.test(Function.prototype.toString.call(f));

function candidates() {
  const own = post ? Object.keys(root) : Object.getOwnPropertyNames(root);
  return [...new Set([...lexical, ...own])].filter((n) => !system.has(n));
}

// itself reports whether a scope has nothing but a function under its own name, as that of a class.
function itself(f, scope) {
  const inner = post("Runtime.getProperties", { objectId: scope?.objectId, ownProperties: true })?.result ?? [null];
  return inner.every((p) => p?.name === f.name && p.value?.description === Function.prototype.toString.call(f));
}

// closed reports whether a function may use variables of one around it.
function closed(f) {
  if (!post) return true;
  const temporary = "execbroker checkpoint";
  root[temporary] = f;
  const object = post("Runtime.evaluate", { expression: `globalThis[${JSON.stringify(temporary)}]` })?.result;
  delete root[temporary];
  const inner = post("Runtime.getProperties", { objectId: object?.objectId, ownProperties: true })?.internalProperties;
  const scopes = inner?.find((p) => p.name === "[[Scopes]]")?.value?.objectId;
  const around = scopes && post("Runtime.getProperties", { objectId: scopes, ownProperties: true })?.result;
  return !around || around.some(({ value }) => !["Script", "Global"].includes(value?.description) && !itself(f, value));
}

const nodes = [];
const known = new Map(); // objects, and their places in nodes
const classes = new Map(); // prototypes, and the functions that they are of

// kind says what a value is, for a person.
function kind(v) {
  if (v === null || typeof v !== "object") return typeof v;
  const c = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(v) ?? {}, "constructor")?.value;
  return typeof c === "function" && typeof c.name === "string" ? c.name || "object" : "object";
}

function encode(v) {
  switch (typeof v) {
    case "string":
    case "boolean":
      return v;
    case "undefined":
      return ["u"];
    case "bigint":
      return ["b", String(v)];
    case "number":
      return Number.isFinite(v) && !Object.is(v, -0) ? v : ["n", Object.is(v, -0) ? "-0" : String(v)];
    case "symbol": {
      const key = Symbol.keyFor(v);
      if (key !== undefined) return ["s", key];
      const name = Object.getOwnPropertyNames(Symbol).find((n) => Symbol[n] === v);
      return name ? ["k", name] : refuse("a symbol of its own has no other form");
    }
  }
  if (v === null) return null;
  if (!known.has(v)) {
    const at = nodes.push(null) - 1;
    known.set(v, at);
    nodes[at] = node(v);
  }
  return ["@", known.get(v)];
}

// properties returns the own properties of an object, without those that its kind has in any case.
function properties(v, without = []) {
  if (!Object.isExtensible(v)) refuse("it is frozen or sealed");
  return Reflect.ownKeys(v)
    .filter((k) => !without.includes(k))
    .map((k) => {
      const d = Object.getOwnPropertyDescriptor(v, k);
      if (!("value" in d)) refuse(`its property ${String(k)} is computed`);
      if (!d.writable || !d.configurable) refuse(`its property ${String(k)} is constant`);
      return d.enumerable ? [encode(k), encode(d.value)] : [encode(k), encode(d.value), 1];
    });
}

const bytes = (buffer) => Buffer.from(buffer).toString("base64");
const numbered = (v) => Array.from({ length: v.length }, (_, i) => String(i));

function node(v) {
  if (types?.isProxy?.(v)) refuse("it is a proxy");
  if (typeof v === "function") return definition(v);
  const proto = Object.getPrototypeOf(v);
  if (proto === null || proto === Object.prototype) return { t: proto ? "Object" : "Bare", p: properties(v) };
  if (classes.has(proto)) {
    for (let p = proto; p !== Object.prototype; p = Object.getPrototypeOf(p)) {
      const c = classes.get(p) ?? refuse(`${classes.get(proto).name} extends what the language has`);
      if (/#[\p{ID_Start}$_]/u.test(Function.prototype.toString.call(c))) refuse(`${c.name} has private fields`);
    }
    return { t: "Instance", of: encode(classes.get(proto)), p: properties(v) };
  }
  switch (proto) {
    case Array.prototype:
      return { t: "Array", n: v.length, p: properties(v, ["length"]) };
    case Date.prototype:
      return { t: "Date", v: encode(v.getTime()), p: properties(v) };
    case RegExp.prototype:
      return { t: "RegExp", v: v.source, f: v.flags, n: v.lastIndex, p: properties(v, ["lastIndex"]) };
    case Map.prototype:
      return { t: "Map", v: Array.from(Map.prototype.entries.call(v), ([k, x]) => [encode(k), encode(x)]), p: properties(v) };
    case Set.prototype:
      return { t: "Set", v: Array.from(Set.prototype.values.call(v), encode), p: properties(v) };
    case ArrayBuffer.prototype:
      return v.resizable ? refuse("its size may change") : { t: "ArrayBuffer", v: bytes(v), p: properties(v) };
    case DataView.prototype:
      return { t: "DataView", v: encode(v.buffer), o: v.byteOffset, n: v.byteLength, p: properties(v) };
    case Buffer.prototype:
      return { t: "Buffer", v: bytes(v), p: properties(v, numbered(v)) };
    case Boolean.prototype:
    case Number.prototype:
    case BigInt.prototype:
      return { t: "Boxed", v: encode(v.valueOf()), p: properties(v) };
    case String.prototype:
      return { t: "Boxed", v: encode(v.valueOf()), p: properties(v, [...numbered(v), "length"]) };
  }
  const c = Object.getOwnPropertyDescriptor(proto, "constructor")?.value;
  if (ArrayBuffer.isView(v) && Object.getPrototypeOf(proto) === typed.prototype) return { t: "Typed", c: c.name, v: encode(v.buffer), o: v.byteOffset, n: v.length, p: properties(v, numbered(v)) };
  if (v instanceof Error && native(c) && root[c.name] === c) {
    const stack = typeof v.stack === "string" ? v.stack : "";
    return { t: "Error", c: c.name, s: stack, p: properties(v, ["stack"]) };
  }
  return refuse(`a value of the kind ${kind(v)} cannot be carried`);
}

// definition carries a function or a class by its source.
function definition(f) {
  if (native(f)) return root[f.name] === f ? { t: "Global", v: f.name } : refuse("it is a function of the interpreter");
  const v = Function.prototype.toString.call(f);
  if (closed(f)) refuse(post ? "it may use variables of a function around it" : "this interpreter does not tell whether it uses variables of a function around it");
  const own = { t: "Function", v, p: properties(f, ["length", "name", "prototype", "arguments", "caller"].concat(Reflect.ownKeys(f).filter((k) => native(f[k]))).concat(methods(f, v))) };
  const d = Object.getOwnPropertyDescriptor(f, "prototype");
  if (d && d.value && d.writable) {
    if (Object.getPrototypeOf(d.value) !== Object.prototype && !/^(async\s*)?function\s*\*/.test(v)) refuse("its prototype inherits");
    if (!/^(async\s*)?function\s*\*/.test(v)) own.m = properties(d.value, ["constructor"]);
  }
  const base = Object.getPrototypeOf(f);
  if (/^class\b/.test(v) && base !== Function.prototype) own.b = encode(base);
  return own;
}

// methods are the static methods of a class, which its source makes again.
function methods(f, source) {
  return /^class\b/.test(source) ? Reflect.ownKeys(f).filter((k) => { const d = Object.getOwnPropertyDescriptor(f, k); return !("value" in d) || (typeof d.value === "function" && !d.enumerable); }) : [];
}

const modules = new Set(post ? require("module").builtinModules : []);
const names = [];
const omitted = [];
let size = 0;
const values = new Map();
const read = (name) => {
  const d = lexical.includes(name) ? undefined : Object.getOwnPropertyDescriptor(root, name);
  if (d && !("value" in d)) refuse("it is computed");
  return d ? d.value : (0, eval)(name);
};
for (const name of candidates()) {
  try {
    const v = read(name);
    if (native(v) && v.name === name) continue; // of the language
    if (modules.has(name) && require(name) === v) continue; // that interpreters declare for the user
    values.set(name, v);
    if (typeof v === "function" && v.prototype && !native(v)) classes.set(v.prototype, v);
  } catch (e) {
    omitted.push({ name, kind: "variable", reason: e instanceof Refusal ? e.message : `it cannot be read: ${e?.name}` });
  }
}
for (const [name, v] of values) {
  const mark = nodes.length;
  let why = "";
  let value;
  try {
    value = encode(v);
    const more = JSON.stringify([value, nodes.slice(mark)]).length;
    if (size + more > args.limit) why = "it is larger than what is left of the bound of the archive";
    else size += more;
  } catch (e) {
    why = e instanceof Refusal ? e.message : `${e?.name}: ${e?.message}`;
  }
  if (why) {
    for (const [o, at] of known) if (at >= mark) known.delete(o);
    nodes.length = mark;
    omitted.push({ name, kind: kind(v), reason: why });
  } else names.push({ name, kind: kind(v), value });
}
const clean = (s) => String(s).slice(0, 500).replace(/[\u0000-\u001f\u007f]/g, "?");
const head = { names: names.map(({ name, kind }) => ({ name, kind: clean(kind) })), omitted: omitted.map((o) => ({ name: clean(o.name) || "?", kind: clean(o.kind), reason: clean(o.reason) })) };
require("fs").writeFileSync(args.path, `${JSON.stringify(head)}\n${JSON.stringify({ names: names.map((n) => [n.name, n.value]), nodes })}`);
