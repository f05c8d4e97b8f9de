// Restores the variables that make.js has written: a line of JSON, and then the graph of values. It
// writes which of them it could not restore. It is the body of a function of args.
const { Array, ArrayBuffer, BigInt, DataView, Date, JSON, Map, Number, Object, Reflect, RegExp, Set, Symbol, globalThis: root } = globalThis;
const { Buffer } = require("buffer");
const fs = require("fs");

const text = fs.readFileSync(args.path, "utf8");
const { names, nodes } = JSON.parse(text.slice(text.indexOf("\n") + 1));
const made = new Array(nodes.length);
const failed = new Map(); // places in nodes, and why
const omitted = [];

function decode(v) {
  if (!Array.isArray(v)) return v;
  switch (v[0]) {
    case "u":
      return undefined;
    case "n":
      return Number(v[1]);
    case "b":
      return BigInt(v[1]);
    case "s":
      return Symbol.for(v[1]);
    case "k":
      return Symbol[v[1]];
  }
  return made[v[1]];
}

// The source of a method is no expression of its own.
function evaluated(source) {
  const all = eval; // in the global scope
  try {
    return all(`(${source}\n)`);
  } catch (e) {
    if (!(e instanceof SyntaxError)) throw e;
    return Object.values(all(`({${source}\n})`))[0];
  }
}

function shell(n) {
  switch (n.t) {
    case "Object":
      return {};
    case "Bare":
      return Object.create(null);
    case "Array":
      return new Array(n.n);
    case "Date":
      return new Date(decode(n.v));
    case "RegExp":
      return Object.assign(new RegExp(n.v, n.f), { lastIndex: n.n });
    case "Map":
      return new Map();
    case "Set":
      return new Set();
    case "ArrayBuffer": {
      const data = Buffer.from(n.v, "base64");
      const buffer = new ArrayBuffer(data.length);
      new Uint8Array(buffer).set(data);
      return buffer;
    }
    case "Buffer":
      return Buffer.from(n.v, "base64");
    case "Boxed":
      return Object(decode(n.v));
    case "Error": {
      const e = new root[n.c]();
      for (const k of Reflect.ownKeys(e)) delete e[k];
      return Object.defineProperty(e, "stack", { value: n.s, writable: true, configurable: true, enumerable: false });
    }
    case "Global":
      if (typeof root[n.v] !== "function") throw new TypeError(`there is no ${n.v}`);
      return root[n.v];
    case "Function":
      return evaluated(n.v);
  }
  return undefined;
}

const bound = new Map(names.filter(([, v]) => Array.isArray(v) && v[0] === "@").map(([name, v]) => [v[1], name]));
const put = (name, value) => Object.defineProperty(root, name, { value, writable: true, enumerable: true, configurable: true });

// A class that extends another one is made after it: those that fail are tried again while others
// succeed.
let left = nodes.map((_, i) => i).filter((i) => !["Typed", "DataView", "Instance"].includes(nodes[i].t));
for (let before = -1; left.length && left.length !== before; ) {
  before = left.length;
  left = left.filter((i) => {
    try {
      made[i] = shell(nodes[i]);
      failed.delete(i);
      if (nodes[i].t === "Function" && bound.has(i)) put(bound.get(i), made[i]);
      return false;
    } catch (e) {
      failed.set(i, `${e?.name}: ${e?.message}`);
      return true;
    }
  });
}
nodes.forEach((n, i) => {
  try {
    if (n.t === "Typed") made[i] = new root[n.c](decode(n.v), n.o, n.n);
    if (n.t === "DataView") made[i] = new DataView(decode(n.v), n.o, n.n);
    if (n.t === "Instance") made[i] = Object.create(decode(n.of).prototype);
  } catch (e) {
    failed.set(i, `${e?.name}: ${e?.message}`);
  }
});

// references are the places that a node leads to.
const references = (v, found = []) => {
  if (Array.isArray(v) && v[0] === "@") found.push(v[1]);
  else if (Array.isArray(v)) for (const x of v) references(x, found);
  return found;
};
const all = (n) => references([n.p ?? [], n.m ?? [], n.of ?? null, n.b ?? null, Array.isArray(n.v) ? n.v : null]);
// lacking returns why something that a value leads to could not be made.
function lacking(start) {
  const seen = new Set(references(start));
  for (const i of seen) {
    if (failed.has(i)) return failed.get(i);
    for (const next of all(nodes[i])) seen.add(next);
  }
  return "";
}

const fill = (object, properties = []) => {
  for (const [k, v, hidden] of properties) Object.defineProperty(object, decode(k), { value: decode(v), writable: true, enumerable: !hidden, configurable: true });
};
nodes.forEach((n, i) => {
  if (failed.has(i) || n.t === "Global") return;
  try {
    if (n.t === "Map") for (const [k, v] of n.v) made[i].set(decode(k), decode(v));
    if (n.t === "Set") for (const v of n.v) made[i].add(decode(v));
    fill(made[i], n.p);
    if (n.m) fill(made[i].prototype, n.m);
  } catch (e) {
    failed.set(i, `${e?.name}: ${e?.message}`);
  }
});
for (const [name, v] of names) {
  const why = lacking([v]);
  if (why) {
    delete root[name];
    omitted.push({ name, kind: "variable", reason: why.slice(0, 500).replace(/[\u0000-\u001f\u007f]/g, "?") });
  } else put(name, decode(v));
}
if (args.all && omitted.length) for (const [name] of names) delete root[name];
fs.writeFileSync(`${args.path}.out`, `${JSON.stringify({ omitted })}\n`);
