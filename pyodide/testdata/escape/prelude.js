// What every attempt starts with. The same attempts run in a sandbox and in hosts that are weakened on purpose, where they work.
var escaped = (what = "") => console.log("ESCAPED", String(what));

var attempt = async (f) => {
  try {
    await f();
  } catch (e) {
    console.log("refused:", String(e?.name), String(e?.message).replaceAll("\n", " ").slice(0, 300));
  }
  console.log("TRIED");
};

var pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// patient waits for a promise, but not for ever. It leaves no timer, for which a run would wait.
var patient = async (p) => {
  let timer;
  const late = new Promise((_, reject) => timer = setTimeout(() => reject(new Error("too late")), 5000));
  try {
    return await Promise.race([p, late]);
  } finally {
    clearTimeout(timer);
  }
};

// A module that everybody can load who can load any, and what is in it.
var MODULE = "data:text/javascript,export default 42";
var loaded = async (p) => {
  const m = await patient(p);
  if (m.default === 42) escaped("a module");
};

// walk visits what can be reached from a value and gives seen each object, with the way to it.
var walk = (root, seen, most = 50_000) => {
  const known = new Set();
  const queue = [[root, ""]];
  for (let at = 0; at < queue.length && known.size < most; at++) {
    const [o, path] = queue[at];
    if (Object(o) !== o || known.has(o)) continue;
    known.add(o);
    if (seen(o, path)) return;
    let keys = [];
    try {
      keys = Reflect.ownKeys(o);
      queue.push([Reflect.getPrototypeOf(o), path + ".__proto__"]);
    } catch {}
    for (const key of keys.slice(0, 500)) {
      const d = Reflect.getOwnPropertyDescriptor(o, key);
      for (const kind of ["value", "get", "set"]) if (d && d[kind]) queue.push([d[kind], `${path}.${String(key)}`]);
    }
  }
};

// What only the host has: whoever finds one of these has got out of what the code is given.
var POWERS = ["Deno", "reallyExit", "dlopen", "binding", "_linkedBinding", "core", "ops", "internalRequire", "getBuiltinModule", "permissions", "fetch", "Worker", "postMessage", "importScripts"];
var powers = (root) => walk(root, (o, path) => {
  const found = POWERS.find((name) => Object.hasOwn(o, name));
  if (found) escaped(`${path}.${found}`);
  return found;
});
