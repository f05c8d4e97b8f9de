// The modules for code of a session with JavaScript. Modules that need nothing of the machine are
// Node's own, in Deno's version. Modules that belong to the session are implemented here. There are
// no others.
import util from "execbroker:util";
import events from "execbroker:events";
import buffer from "execbroker:buffer";
import { evaluate } from "./realm.mjs";
import { kept } from "./scrub.mjs";
import { script, sound } from "./transform.mjs";
import { Address } from "./web.mjs";

// These are loaded when code first mentions them. The second group takes three times as long as the
// first.
const LIGHT = ["assert", "assert/strict", "path", "path/posix", "querystring", "string_decoder", "url", "util/types"];
const HEAVY = ["stream", "stream/promises", "crypto"];

const CRYPTO = ["createHash", "createHmac", "getHashes", "hash", "Hash", "Hmac", "randomBytes", "randomFill", "randomFillSync", "randomInt", "timingSafeEqual"];
const BUFFER = ["Buffer", "SlowBuffer", "atob", "btoa", "constants", "isAscii", "isUtf8", "kMaxLength", "kStringMaxLength", "transcode"];
const bare = (name) => name.replace(/^node:/, "");
const isPath = (name) => /^(\.{0,2}\/|\.{1,2}$)/.test(name);
const some = (from, names) => Object.fromEntries(names.filter((name) => name in from).map((name) => [name, from[name]]));

// Random numbers come from the host, because Deno's module would look for a global named crypto,
// which code may define.
const random = () => {
  const { getRandomValues, randomUUID } = { getRandomValues: (a) => kept.getRandomValues(a), randomUUID: () => kept.randomUUID() };
  return { getRandomValues, randomUUID, webcrypto: Object.freeze({ getRandomValues, randomUUID }) };
};

// The environment that Deno's modules expect from the program that loads them.
const surroundings = {
  __proto__: null, args: [], build: { __proto__: null, arch: "x86_64", os: "linux", standalone: false }, cwd: () => "/workspace",
  env: { __proto__: null, get: () => undefined, toObject: () => ({}) }, execPath: () => "/usr/local/bin/node", mainModule: "file:///workspace/cell.js", noColor: true, pid: 1, ppid: 0, version: { __proto__: null, deno: "", v8: "" },
};

// Modules are the modules of one session. own maps names to the modules that are made for it.
// read(path) returns the text of a file of the session, or undefined if there is none.
export class Modules {
  #there = { __proto__: null, buffer: some(buffer, BUFFER), events, util: util };
  #cache = { __proto__: null }; // modules from files
  #read;
  #loading = Promise.resolve();

  constructor(own, read) {
    Object.assign(this.#there, own);
    this.#read = read;
  }

  // get returns a loaded module of the sandbox, or undefined.
  get(name) {
    return this.#there[name];
  }

  // prepare loads what a cell may require while it runs, because require cannot wait.
  async prepare(source) {
    if (/\b(require|import)\b/.test(source)) await this.#load(LIGHT);
    const other = /\brequire\b(?!\s*\(\s*["'`])|\b(eval|Function)\b/.test(source) && /\brequire\b/.test(source);
    if (other || /stream|crypto|stdin|pipeline/i.test(source)) await this.#load(HEAVY);
  }

  // load loads modules, one group after the other: each group needs its environment until it is
  // complete.
  #load(names) {
    const loaded = this.#loading.then(() => this.#group(names));
    this.#loading = loaded.catch(() => {});
    return loaded;
  }

  async #group(names) {
    if (names[0] in this.#there) return;
    sound(); // otherwise changes that code has made to the language could mislead them
    const found = [];
    globalThis.Deno = surroundings;
    try {
      for (const name of names) found.push((await import(`execbroker:${name}`)).default);
    } finally {
      Reflect.deleteProperty(globalThis, "Deno");
    }
    const ours = { __proto__: null, crypto: (m) => ({ ...some(m, CRYPTO), ...random() }), url: (m) => ({ ...m, URL: Address }) };
    for (let i = 0; i < names.length; i++) this.#there[names[i]] = names[i] in ours ? ours[names[i]](found[i]) : found[i];
  }

  // has reports whether the sandbox has a module.
  #has(name) {
    return name in this.#there || LIGHT.includes(name) || HEAVY.includes(name);
  }

  #refused(name) {
    const all = [...Object.keys(this.#there), ...LIGHT, ...HEAVY].filter((n, i, names) => names.indexOf(n) === i).sort();
    return Object.assign(new Error(`Cannot find module '${name}': this sandbox has ${all.join(", ")}, and files of the session by their path`), { code: "MODULE_NOT_FOUND" });
  }

  // require returns the function require for code in the directory cwd.
  require(cwd, main) {
    const require = (name) => {
      if (typeof name !== "string") throw Object.assign(new TypeError('The "id" argument must be of type string.'), { code: "ERR_INVALID_ARG_TYPE" });
      if (isPath(name)) return this.#file(this.#resolve(name, cwd()), main);
      const module = bare(name);
      const found = this.#there[module];
      if (found !== undefined) return found;
      if (this.#has(module)) throw new Error(`the module '${module}' is loaded before a cell that names it: write require("${module}") in the cell itself`);
      throw this.#refused(name);
    };
    require.resolve = (name) => {
      if (isPath(name)) return this.#resolve(name, cwd());
      if (!this.#has(bare(name))) throw this.#refused(name);
      return name;
    };
    require.resolve.paths = (name) => (this.#has(bare(String(name))) ? null : []); // no directory contains packages
    require.cache = this.#cache;
    require.main = main;
    return require;
  }

  #resolve(name, dir) {
    const at = [];
    for (const part of (name.startsWith("/") ? name : `${dir}/${name}`).split("/")) {
      if (part === "..") at.pop();
      else if (part !== "" && part !== ".") at.push(part);
    }
    const path = "/" + at.join("/");
    for (const end of ["", ".js", ".cjs", ".json", "/index.js"]) if (this.#read(path + end) !== undefined) return path + end;
    throw Object.assign(new Error(`Cannot find module '${name}'`), { code: "MODULE_NOT_FOUND" });
  }

  // file returns the exports of a file.
  #file(path, main) {
    if (this.#cache[path]) return this.#cache[path].exports;
    const source = this.#read(path).replace(/^\ufeff/, "");
    const module = (this.#cache[path] = { id: path, filename: path, exports: {}, loaded: false });
    try {
      if (path.endsWith(".json")) module.exports = JSON.parse(source);
      else if (path.endsWith(".mjs")) throw new SyntaxError(`${path}: a file cannot be a module with import and export here; require takes CommonJS`);
      else {
        const dir = path.slice(0, path.lastIndexOf("/")) || "/";
        const f = evaluate(script(`(function (exports, require, module, __filename, __dirname) {${source.replace(/^#!/, "//")}\n})`));
        Reflect.apply(f, module.exports, [module.exports, this.require(() => dir, main), module, path, dir]);
      }
    } catch (e) {
      delete this.#cache[path];
      throw e;
    }
    module.loaded = true;
    return module.exports;
  }

  // import returns the namespace of a module.
  async import(name, require) {
    name = `${name}`;
    const module = bare(name);
    if (LIGHT.includes(module)) await this.#load(LIGHT);
    if (HEAVY.includes(module)) await this.#load(HEAVY);
    const exports = require(name.startsWith("file:///") ? kept.decode(name.slice(7)) : name);
    const names = Object(exports) === exports ? Object.keys(exports).filter((n) => n !== "default") : [];
    const space = { __proto__: null };
    for (const n of names) space[n] = exports[n];
    space.default = exports;
    return Object.freeze(Object.defineProperty(space, Symbol.toStringTag, { value: "Module" }));
  }
}
