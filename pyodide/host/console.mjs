// The console of JavaScript sessions, and the forms in which values are shown.
import { kept } from "./scrub.mjs";

// inspect shows values as Node.js does, which is what the other backends run.
const NODE = { colors: false, depth: 2, iterableLimit: 100, strAbbreviateSize: Infinity, quotes: ["'", '"', "`"] };
export const inspect = (value, options) => kept.inspect(value, { ...NODE, ...options });

// console makes a console that writes by write(stream, text).
export function console(write) {
  const counts = new Map();
  const timers = new Map();
  let indent = "";
  const print = (stream) => (...args) => {
    const text = format(args);
    write(stream, (indent ? text.split("\n").map((l) => indent + l).join("\n") : text) + "\n");
  };
  const out = print("stdout");
  const err = print("stderr");
  const elapsed = (label) => `${label}: ${(performance.now() - (timers.get(label) ?? performance.now())).toFixed(1)}ms`;
  const group = (...args) => {
    if (args.length) out(...args);
    if (indent.length < 100) indent += "  ";
  };
  return {
    log: out,
    info: out,
    debug: out,
    table: (value) => out(value),
    dir: (value, options) => out(inspect(value, Object(options) === options && Number.isInteger(options.depth) ? { depth: options.depth } : {})),
    warn: err,
    error: err,
    trace: (...args) => err(`Trace${args.length ? ": " + format(args) : ""}${new Error().stack.replace(/^[^\n]*/, "")}`),
    assert: (ok, ...args) => {
      if (!ok) err(`Assertion failed${args.length ? ": " + format(args) : ""}`);
    },
    count: (label = "default") => {
      counts.set(label, (counts.get(label) ?? 0) + 1);
      out(`${label}: ${counts.get(label)}`);
    },
    countReset: (label = "default") => void counts.delete(label),
    group,
    groupCollapsed: group,
    groupEnd: () => void (indent = indent.slice(2)),
    time: (label = "default") => void timers.set(label, performance.now()),
    timeLog: (label = "default", ...args) => out(elapsed(label), ...args),
    timeEnd: (label = "default") => {
      out(elapsed(label));
      timers.delete(label);
    },
  };
}

// format joins arguments as consoles do: a first text may have places for those that follow.
function format(args) {
  let rest = args;
  let text = "";
  if (typeof args[0] === "string" && args.length > 1) {
    let next = 1;
    text = args[0].replace(/%[sdifjoOc%]/g, (place) => {
      if (place === "%%") return "%";
      if (next >= args.length) return place;
      return convert(place, args[next++]);
    });
    rest = args.slice(next);
    if (!rest.length) return text;
    text += " ";
  }
  return text + rest.map((v) => (typeof v === "string" ? v : inspect(v))).join(" ");
}

function convert(place, value) {
  switch (place) {
    case "%s":
      return typeof value === "string" ? value : inspect(value, { depth: 1 });
    case "%d":
    case "%i":
    case "%f": {
      if (typeof value === "bigint") return `${value}n`;
      const n = typeof value === "symbol" || Object(value) === value ? NaN : Number(value);
      return String(place === "%i" ? Math.trunc(n) : n);
    }
    case "%j":
      return JSON.stringify(value) ?? "undefined";
    case "%c":
      return "";
  }
  return inspect(value);
}

const METHOD = Symbol.for("Jupyter.display");
const TYPE = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/;
const MAX_FORMS = 31; // besides text/plain
const MAX_JSON = 1 << 20; // characters

// show returns the forms of a value, each a media type and bytes. A value says them itself by a method.
export function show(value) {
  const encoder = new TextEncoder();
  const forms = [];
  const own = Object(value) === value ? value[METHOD] : undefined;
  if (typeof own === "function") {
    const bundle = Reflect.apply(own, value, []);
    for (const [kind, data] of Object.entries(Object(bundle)).slice(0, MAX_FORMS)) {
      const type = kind.split(";")[0].trim().toLowerCase();
      const bytes = TYPE.test(type) ? content(type, data, encoder) : undefined;
      if (bytes && !forms.some(([t]) => t === type)) forms.push([type, bytes]);
    }
    if (!forms.length) return forms;
  }
  if (!forms.some(([t]) => t === "text/plain")) forms.push(["text/plain", encoder.encode(inspect(value))]);
  if (typeof own !== "function") {
    const text = plain(value) ? JSON.stringify(value) : undefined;
    if (text !== undefined && text.length <= MAX_JSON) forms.push(["application/json", encoder.encode(text)]);
  }
  return forms;
}

// content returns the bytes of a form. Images are in base64, but for those that are text.
function content(type, data, encoder) {
  if (data instanceof Uint8Array) return data.slice();
  if (typeof data !== "string") return type.endsWith("json") ? encoder.encode(JSON.stringify(data) ?? "null") : undefined;
  if (!type.startsWith("image/") || type === "image/svg+xml") return encoder.encode(data);
  try {
    const binary = kept.harmless.atob(data);
    return Uint8Array.from(binary, (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

// plain reports whether a value consists of the language's plain containers and what JSON has.
function plain(value, depth = 0, budget = { left: 10_000 }) {
  if (--budget.left < 0 || depth > 100) return false;
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object") return false;
  if (Array.isArray(value)) return Object.getPrototypeOf(value) === Array.prototype && value.every((v) => plain(v, depth + 1, budget));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null || typeof value.toJSON === "function") return false;
  return Reflect.ownKeys(value).every((key) => {
    const d = Object.getOwnPropertyDescriptor(value, key);
    return typeof key === "string" && "value" in d && plain(d.value, depth + 1, budget);
  });
}
