// Fixes objects of the language, so that code cannot replace what the host calls.

// Code often assigns properties that these prototypes have to its own objects. That must work
// although the prototypes cannot be changed.
const ASSIGNABLE = new Set([Object.prototype, Function.prototype, Set.prototype]);
for (const e of [Error, AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError]) ASSIGNABLE.add(e.prototype);

// For these, code also often does that with symbols, for example modules of Deno.
const BY_SYMBOLS = new Set([Set.prototype]);

// unnamed returns the objects that are reachable from globals only by a call: the prototypes of
// iterators and of the other kinds of functions.
export function unnamed() {
  const sample = function* () {};
  const objects = new Set();
  for (const o of [[].keys(), new Map().keys(), new Set().keys(), ""[Symbol.iterator](), "".matchAll(/a/g), sample(), sample, (async function* () {})(), async function* () {}, async function () {}]) {
    for (let p = Object.getPrototypeOf(o); p && p !== Object.prototype; p = Object.getPrototypeOf(p)) objects.add(p);
  }
  return objects;
}

// kind reports whether a property says of which kind an object is.
const kind = (o, key) => (key === "constructor" && ASSIGNABLE.has(o)) || (key === "toString" && o === Object.prototype);

// fix makes the properties of an object unchangeable. New ones can be added. With open, properties
// that say of which kind an object is stay changeable, because util.inspect and the messages of the
// engine use them.
export function fix(o, open = false) {
  for (const key of Reflect.ownKeys(o)) {
    const d = Object.getOwnPropertyDescriptor(o, key);
    if (!d.configurable || key === "stackTraceLimit" || open && kind(o, key)) continue;
    if (!("value" in d)) {
      Object.defineProperty(o, key, { configurable: false });
    } else if (!(typeof key === "symbol" ? BY_SYMBOLS : ASSIGNABLE).has(o)) {
      Object.defineProperty(o, key, { writable: false, configurable: false });
    } else {
      const { value } = d;
      Object.defineProperty(o, key, {
        get: () => value,
        set(v) {
          if (this !== o && Object(this) === this) Object.defineProperty(this, key, { value: v, writable: true, enumerable: true, configurable: true });
        },
        configurable: false,
      });
    }
  }
}

// Deno removes this one temporarily, to find its own below it.
const MOVING = "queueMicrotask";

// fixAll fixes everything that is reachable from the globals by properties, accessors and
// prototypes, and makes these objects non-extensible. That includes everything of the language that
// the host uses.
export function fixAll() {
  const found = new Set(unnamed());
  const add = (v) => {
    if (v !== globalThis && (typeof v === "function" || (typeof v === "object" && v !== null))) found.add(v);
  };
  for (const key of Reflect.ownKeys(globalThis)) if (typeof key === "string") add(globalThis[key]);
  for (const o of found) {
    add(Object.getPrototypeOf(o));
    for (const key of Reflect.ownKeys(o)) {
      const d = Object.getOwnPropertyDescriptor(o, key);
      for (const v of [d.value, d.get, d.set]) add(v);
    }
  }
  for (const o of found) {
    fix(o);
    Object.preventExtensions(o);
  }
  for (const key of Reflect.ownKeys(globalThis)) {
    if (typeof key === "string" && key !== MOVING && Object.getOwnPropertyDescriptor(globalThis, key).configurable) {
      Object.defineProperty(globalThis, key, { value: globalThis[key], writable: false, configurable: false });
    }
  }
}
