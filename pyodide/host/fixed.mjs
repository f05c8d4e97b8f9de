// Fixes objects of the language, so that code cannot put something of its own in the place of what the host calls.

// Assigning to an object what these prototypes have is common. It must work although they cannot be changed.
const ASSIGNABLE = new Set([Object.prototype, Function.prototype, Set.prototype]);
for (const e of [Error, AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError]) ASSIGNABLE.add(e.prototype);

// With these it is common by symbols as well: modules of Deno do so.
const BY_SYMBOLS = new Set([Set.prototype]);

// unnamed returns the objects that no global leads to but by a call: the prototypes of iterators and of the other kinds of functions.
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

// fix makes the properties of an object unchangeable. New ones can be added. With open what says of which kind an object is stays as it
// is: util.inspect looks for it, and so do the messages of the engine.
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

// Deno takes this one away for a moment, to find its own below it.
const MOVING = "queueMicrotask";

// fixAll fixes all that the globals lead to, by properties, accessors and prototypes, and adds nothing more to it. What the host uses of the
// language, whatever that is, is among it.
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
