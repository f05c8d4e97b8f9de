// A process that runs cells of JavaScript with the user's rights. The code in it may do whatever it likes with this as well.
//
// Cells are evaluated through V8's inspector in its mode for consoles: the value of the last statement, and declarations that stay and
// may be made again. Node has inside what makes await work as in its own console, and a parser with which import is rewritten. (The
// mode for consoles can await as well, but a promise that is never settled ends the process when it is collected.)

'use strict';

// Code may replace what is global.
const { Array, ArrayBuffer, Atomics, BigInt, Int32Array, Math, Number, Object, Promise, Reflect, RegExp, SharedArrayBuffer } = globalThis;
const { String, Symbol, SyntaxError, TypeError, process, setImmediate } = globalThis;
const { Buffer } = require('node:buffer');
const fs = require('node:fs');
const inspector = require('node:inspector');
const { Module, createRequire, syncBuiltinESMExports } = require('node:module');
const net = require('node:net');
const path = require('node:path');
const { Readable, Writable } = require('node:stream');
const { pathToFileURL } = require('node:url');
const timers = require('node:timers');
const util = require('node:util');
const { promiseHooks } = require('node:v8');
const { compileFunction } = require('node:vm');
const { Worker } = require('node:worker_threads');

const [OPEN, STARTED, OUTPUT, DONE, MORE] = [5, 9, 10, 11, 1]; // see package wire
const ASKS = 1; // channel of a frame that the supervisor answers
const [CONTROL, OUT, ERR, FEED, SIDE] = [3, 4, 5, 6, 7]; // descriptors
const MAX_PAYLOAD = 1 << 20;
const MAX_STACK = 64 << 10; // that is looked at

const { read, readFileSync, readSync, writeSync } = fs;
const { clearTimeout, setInterval, setTimeout } = timers;
const { _getActiveHandles: activeHandles, _getActiveRequests: activeRequests, getActiveResourcesInfo } = process;
const workdir = process.cwd();

// Cells are the code of one module, which is the main one.
const filename = path.join(workdir, 'cell.js');
const main = Object.assign(new Module('.', null), { filename, paths: Module._nodeModulePaths(workdir) });
process.mainModule = main;
const userRequire = Object.defineProperties(function require(id) {
  return main.require(id);
}, Object.getOwnPropertyDescriptors({ ...createRequire(filename), main }));

// What this thread shares with a worker that hears of interrupts while this one is busy. The worker terminates what runs here, but only
// code of the user: whatever of ours must not be torn runs in between enter and leave.

const shared = new Int32Array(new SharedArrayBuffer(20));
const [MODE, ANSWERS, HEARD, NEVER, CELL] = [0, 1, 2, 3, 4];
const [OURS, USERS, DOOMED] = [0, 1, 2]; // modes

function enter() {
  if (Atomics.compareExchange(shared, MODE, USERS, OURS) === DOOMED) for (;;) Atomics.wait(shared, NEVER, 0); // it ends here
}

function leave() {
  Atomics.store(shared, MODE, USERS);
}

// inside returns a module of Node's own. Without those that are asked for, there is no import in cells, and every statement may have a
// value.
function inside(name) {
  try {
    return require(name);
  } catch {
    return null;
  }
}

// Frames. Their values are in values.mjs, which follows this file.

const { pack, unpack } = values();

function writeAll(fd, data) {
  for (let i = 0; i < data.length; ) {
    try {
      i += writeSync(fd, data, i);
    } catch (e) {
      if (e.code !== 'EAGAIN') throw e;
      Atomics.wait(shared, NEVER, 0, 0.2); // which an interrupt ends, unlike a write
    }
  }
}

let asked = 0; // answers

// send sends a frame. If that asks for an answer, it returns when what the frame holds is passed on.
function send(type, fields, asks = false) {
  let payload = pack(fields);
  const users = Atomics.load(shared, MODE) !== OURS;
  if (users) enter();
  do {
    const piece = payload.subarray(0, MAX_PAYLOAD);
    payload = payload.subarray(MAX_PAYLOAD);
    const head = Buffer.alloc(12);
    head.writeUInt8(type, 0);
    head.writeUInt8(payload.length ? MORE : 0, 1);
    head.writeUInt16BE(asks ? ASKS : 0, 2);
    head.writeUInt32BE(1, 4);
    head.writeUInt32BE(piece.length, 8);
    writeAll(CONTROL, Buffer.concat([head, piece]));
  } while (payload.length);
  if (asks) asked++;
  if (users) leave();
  // An interrupt ends this, too. The answer then comes when nobody waits for it, and counts as what it is.
  for (let n; asks && (n = Atomics.load(shared, ANSWERS)) < asked; ) Atomics.wait(shared, ANSWERS, n);
}

// Standard streams. Output goes to open files of our own, and is written at once.

// Which run what is running now was started in; undefined: not known, and taken for that in progress. (AsyncLocalStorage would know of
// every callback. But what an interrupt ends leaves its context behind there, and then Node ends the process.)
let from;
let thrower; // where the last exception came from that a callback threw
const origins = new WeakMap(); // of promises

function within(r, self, f, args) {
  const before = from;
  let ended = false;
  from = r;
  try {
    const v = Reflect.apply(f, self, args);
    ended = true;
    return v;
  } finally {
    if (!ended) thrower = r;
    from = before;
  }
}

// stray reports whether what belongs to a run was left running by it, or goes on although it has called exit.
const stray = (r) => run?.exited || (r !== undefined && r !== run);

promiseHooks.createHook({
  init: (promise) => from && origins.set(promise, from),
  before: (promise) => (from = origins.get(promise)),
  after: () => (from = undefined),
});

function following(start) {
  const wrapped = function (f, ...args) {
    const r = from;
    if (r === undefined || typeof f !== 'function') return Reflect.apply(start, this, [f, ...args]);
    const callback = function (...a) {
      return within(r, this, f, a);
    };
    const started = Reflect.apply(start, this, [callback, ...args]);
    if (stray(r)) started?.unref?.(); // it is not waited for
    return started;
  };
  return Object.defineProperties(wrapped, Object.getOwnPropertyDescriptors(start));
}
for (const name of ['setTimeout', 'setInterval', 'setImmediate']) timers[name] = globalThis[name] = following(timers[name]);
globalThis.queueMicrotask = following(globalThis.queueMicrotask);
process.nextTick = following(process.nextTick);

// What code leaves running. While a run waits for it, our own connection does not keep the event loop alive, and Node says itself when
// nothing does. What is never waited for, and what a run has left when it ends, does not keep the loop alive from then on.

const { decRefCount, timerListMap = {}, Timeout } = inside('internal/timers') ?? {};
const named = new WeakSet(); // timers that the code has, unlike those that Node makes for itself
const released = new Set(); // servers, sockets and the like that have been unreferenced
const workers = new Map(); // that run, and the run that started each
let stuck = []; // requests of earlier runs, which cannot be unreferenced
const { moduleLoadList } = process;
let torn = false; // code was ended by force, perhaps that of a timer
let waiting; // ends the wait of the run in progress

const { unref } = Timeout?.prototype ?? {};
if (unref) {
  Timeout.prototype.unref = {
    unref() {
      if (!/node:/.test(new Error().stack?.split?.('\n')[2])) named.add(this);
      return Reflect.apply(unref, this, []);
    },
  }.unref;
}

function* running() {
  for (const ms in timerListMap) {
    const list = timerListMap[ms];
    for (let t = list._idleNext, next; t && t !== list; t = next) {
      next = t._idleNext;
      yield t;
    }
  }
}

let first; // handles that were there before any code
// mend takes back the references of timers whose callbacks were ended by force: Node would count them for ever.
function mend() {
  let n = getActiveResourcesInfo?.().filter((kind) => kind === 'Timeout').length;
  for (const t of running()) if (t.hasRef()) n--;
  for (; n > 0; n--) decRefCount();
  torn = false;
}

const handles = () => activeHandles().filter((h) => !first.includes(h));

// endless reports whether something is never waited for: what listens, what that has accepted, and what watches.
const endless = (h) =>
  h instanceof net.Server || h.server instanceof net.Server || typeof h.bind === 'function' || /Watcher$/.test(h.constructor?.name);

function release(all) {
  for (const t of running()) {
    if (!t.hasRef() || (!all && t._repeat === null)) continue;
    named.add(t);
    Reflect.apply(unref, t, []);
  }
  for (const h of handles()) {
    if (!all && !endless(h)) continue;
    h.unref?.();
    if (h instanceof net.Server || h instanceof net.Socket || endless(h)) released.add(h);
  }
  if (all) for (const w of workers.keys()) w.unref();
}

// calm reports whether there is surely nothing to wait for. Without further modules there is nothing that Node does not list.
let calm = () => {
  const [listed, loaded] = [getActiveResourcesInfo?.().length, moduleLoadList?.length];
  calm = (code) =>
    workers.size === 0 &&
    process.listeners('beforeExit').every((f) => f === idle) &&
    getActiveResourcesInfo?.().length === listed &&
    moduleLoadList?.length === loaded &&
    !code.includes('WebAssembly') &&
    Object.keys(userRequire.cache).length === 0;
};

// linger waits for at most that many milliseconds for what the run has started.
function linger(most) {
  return new Promise((resolve) => {
    if (!process.listeners('beforeExit').includes(idle)) process.prependListener('beforeExit', idle);
    if (torn) quiet(mend);
    let looks = 0;
    const look = () => {
      release(false);
      // As long as an earlier run has requests, Node does not say that there is nothing.
      const only = stuck.length && !handles().length && activeRequests().every((q) => stuck.includes(q)) && ![...running()].some((t) => t.hasRef());
      looks = only ? looks + 1 : 0;
      if (looks > 1) waiting?.();
    };
    const clocks = [setInterval(look, 50).unref()];
    if (most < 2 ** 31) clocks.push(setTimeout(() => waiting?.(), most).unref());
    waiting = () => {
      control.ref();
      waiting = undefined;
      clocks.forEach(clearTimeout);
      resolve();
    };
    control.unref();
    look();
  });
}

// idle is called when nothing keeps the loop alive. Other listeners may start more.
function idle() {
  control.ref();
  const before = getActiveResourcesInfo?.().length;
  queueMicrotask(() => (waiting && getActiveResourcesInfo?.().length > before ? control.unref() : waiting?.()));
}

// halt stops what the run in progress waits for.
function halt() {
  for (const t of running()) if (t.hasRef()) clearTimeout(t);
  for (const h of handles()) if (!endless(h)) (h.destroy ?? h.kill ?? h.close)?.call(h);
  for (const [w, r] of workers) if (r === run) w.terminate();
}

// kids reports whether there may have been processes that this one has started.
const kids = () => threads || moduleLoadList === undefined || moduleLoadList.includes('Internal Binding spawn_sync');
let threads = false; // of the code

function left() {
  const names = [];
  for (const t of running()) if (named.has(t)) names.push(t._repeat === null ? 'timer' : 'interval');
  for (const h of released) {
    if (h.destroyed || h._handle === null || h.listening === false) released.delete(h);
    else if (h instanceof net.Socket) names.push(`socket ${h.remoteAddress ?? ''}:${h.remotePort ?? ''}`);
    else if (!h.address) names.push('watcher');
    else {
      const at = quiet(() => h.address()); // one of datagrams that is closed has none
      if (at) names.push(`server ${at.address ? `${at.address}:${at.port}` : at}`);
      else released.delete(h);
    }
  }
  for (const w of workers.keys()) names.push(`worker ${w.threadId}`);
  for (const q of activeRequests()) names.push(`request ${q.constructor?.name}`);
  return names.slice(0, 21).join('\n');
}

function output(fd, number) {
  const stream = new Writable();
  // An interrupt would leave the machinery of a Writable in the middle of a write for good. Here nothing has a middle.
  stream.write = (data, encoding, done) => {
    if (typeof encoding === 'function') [encoding, done] = ['utf8', encoding];
    if (typeof data === 'string') data = Buffer.from(data, encoding ?? 'utf8');
    else if (!ArrayBuffer.isView(data)) throw new TypeError('The "chunk" argument must be of type string or an instance of Buffer or Uint8Array.');
    if (!stray(from)) writeAll(fd, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    if (typeof done === 'function') process.nextTick(done);
    return true;
  };
  stream.end = (data, encoding, done) => {
    if (typeof data === 'function') [data, done] = [undefined, data];
    if (typeof encoding === 'function') [encoding, done] = ['utf8', encoding];
    if (data !== undefined && data !== null) stream.write(data, encoding);
    process.nextTick(() => {
      stream.emit('finish');
      if (typeof done === 'function') done();
    });
    return stream; // it is not for one part of a program to close
  };
  stream.fd = number;
  stream._type = 'pipe';
  return stream;
}

// Standard input comes in frames of run, length and data, because a descriptor cannot be replaced here. A length of zero is the end.
const input = {
  run: 0,
  ended: true,
  rest: Buffer.alloc(0),
  got: 0, // bytes, rest included
  begin(run, some) {
    this.run = run;
    this.got = 0;
    this.ended = !some;
    this.rest = Buffer.alloc(0);
    const stream = new Readable({ read: () => this.push(stream) });
    stream.fd = 0;
    Object.defineProperty(process, 'stdin', { value: stream, configurable: true, enumerable: true, writable: true });
  },
  take(head, data) {
    if (head.readUInt32BE(0) !== this.run) return; // of an earlier run
    this.got += data.length;
    if (head.readUInt32BE(4) === 0) this.ended = true;
    else this.rest = Buffer.concat([this.rest, data]);
  },
  // read fills b and returns how much there was, 0 at the end.
  read(b) {
    while (this.rest.length === 0 && !this.ended) {
      const head = readFull(8);
      this.take(head, readFull(head.readUInt32BE(4)));
    }
    const n = this.rest.copy(b);
    this.rest = this.rest.subarray(n);
    return n;
  },
  async push(stream) {
    const run = this.run;
    while (this.rest.length === 0 && !this.ended && run === this.run) {
      const head = await readFullAsync(8);
      this.take(head, await readFullAsync(head.readUInt32BE(4)));
    }
    const data = this.rest;
    this.rest = Buffer.alloc(0);
    stream.push(data.length && run === this.run ? data : null);
  },
};


function readFull(n) {
  const b = Buffer.alloc(n);
  for (let i = 0; i < n; ) {
    const m = readSync(FEED, b, i, n - i, null);
    if (m === 0) process.reallyExit(0);
    i += m;
  }
  return b;
}

function readFullAsync(n) {
  const b = Buffer.alloc(n);
  return new Promise((resolve) => {
    (function more(i) {
      if (i === n) resolve(b);
      else read(FEED, b, i, n - i, null, (e, m) => (e || m === 0 ? process.reallyExit(0) : more(i + m)));
    })(0);
  });
}

fs.readSync = function (fd, buffer, offset, length, position) {
  if (fd !== 0) return Reflect.apply(readSync, fs, arguments);
  const o = typeof offset === 'object' && offset !== null ? offset : { offset, length };
  const from = o.offset ?? 0;
  return input.read(Buffer.from(buffer.buffer, buffer.byteOffset + from, o.length ?? buffer.byteLength - from));
};
fs.readFileSync = function (name, options) {
  if (name !== 0 && name !== '/dev/stdin') return Reflect.apply(readFileSync, fs, arguments);
  const parts = [];
  for (;;) {
    const b = Buffer.alloc(1 << 16);
    const n = input.read(b);
    if (n === 0) break;
    parts.push(b.subarray(0, n));
  }
  const all = Buffer.concat(parts);
  const encoding = typeof options === 'string' ? options : options?.encoding;
  return encoding && encoding !== 'buffer' ? all.toString(encoding) : all;
};
syncBuiltinESMExports();

// Values. What a cell means is in cell.mjs, which follows this file.

const { describe, exitCode, represent } = meaning({
  inspect: util.inspect,
  isProxy: util.types.isProxy,
  encode: (text) => Buffer.from(text),
  decode: (digits) => Buffer.from(digits, 'base64'),
  stack,
});

// show sends a value. What follows the last one of a cell travels on the same way; what is written after another takes one of its own.
function show(main, forms) {
  if (!stray(from)) send(OUTPUT, { main, data: Object.fromEntries(forms) }, !main);
}

// display shows a value, or with {raw: true} an object of media types and data.
function display(value, options) {
  const forms = represent(value, options);
  return util.types.isPromise(forms) ? (async () => show(false, await forms))() : show(false, forms);
}

// Code.

const acorn = inside('internal/deps/acorn/acorn/dist/acorn');
const { processTopLevelAwait } = inside('internal/repl/await') ?? {};

// RETURN stands for a return outside of functions until the code is in one.
const RETURN = 'throw/*execbroker*/';

// prepare returns what to evaluate, whether its value is that of an expression, and whether that is wrapped in a promise.
function prepare(code, cell) {
  code = code.replace(/^#!/, '//');
  let tree;
  try {
    const options = { ecmaVersion: 'latest', allowAwaitOutsideFunction: true, allowReturnOutsideFunction: true, allowHashBang: true };
    try {
      tree = acorn.parse(code, { ...options, sourceType: 'script' });
    } catch {
      tree = acorn.parse(code, { ...options, sourceType: 'module' });
    }
  } catch {
    return { code, shows: true }; // V8 knows better, or says what is wrong
  }
  const edits = [];
  const literal = (node) => code.slice(node.start, node.end);
  const lines = (start, end) => '\n'.repeat(code.slice(start, end).split('\n').length - 1);
  const loads = (node) => edits.push([node.start, node.end, `await __import__(${literal(node.source)});${lines(node.start, node.end)}`]);
  let returns = false;
  (function walk(node, inside) {
    if (node === null || typeof node !== 'object') return;
    if (Array.isArray(node)) return node.forEach((n) => walk(n, inside));
    if (/Function/.test(node.type)) inside = true;
    if (node.type === 'ImportExpression') edits.push([node.start, node.start + 'import'.length, '__import__']);
    if (node.type === 'MetaProperty' && node.meta.name === 'import') edits.push([node.start, node.end, '__import__.meta']);
    if (node.type === 'ReturnStatement' && !inside) {
      returns = true;
      edits.push([node.start, node.start + 'return'.length, RETURN + (node.argument ? 'void(' : '0')]);
      if (node.argument) edits.push([node.argument.end, node.argument.end, ')']);
    }
    // What is exported has nobody to import it.
    if (/^Export/.test(node.type) && node.source) return loads(node);
    if (node.type === 'ExportNamedDeclaration' || node.declaration?.id) {
      const end = (node.declaration ?? { start: node.end }).start;
      edits.push([node.start, end, lines(node.start, end)]);
    } else if (node.type === 'ExportDefaultDeclaration') {
      edits.push([node.start, node.start + /^export\s+default/.exec(literal(node))[0].length, 'void 0,'], [node.end, node.end, ';']);
    }
    if (node.type === 'ImportDeclaration') {
      const names = [];
      let space = '';
      for (const s of node.specifiers) {
        if (s.type === 'ImportNamespaceSpecifier') space = s.local.name;
        else names.push(`${s.type === 'ImportDefaultSpecifier' ? 'default' : literal(s.imported)}: ${s.local.name}`);
      }
      const load = `await __import__(${literal(node.source)})`;
      const to = [];
      if (space) to.push(`${space} = ${load}`);
      if (names.length) to.push(`{${names.join(', ')}} = ${space || load}`);
      edits.push([node.start, node.end, `${to.length ? `const ${to.join(', ')}` : load};${lines(node.start, node.end)}`]);
      return;
    }
    for (const k in node) if (k !== 'type') walk(node[k], inside);
  })(tree.body);
  const at = tree.body.findLast((node) => node.directive)?.end ?? 0;
  if (returns) edits.push([at, at, ';if(0)await 0;']);
  edits.sort((a, b) => b[0] - a[0]);
  for (const [start, end, text] of edits) code = code.slice(0, start) + text + code.slice(end);
  const shows = tree.body.at(-1)?.type === 'ExpressionStatement';
  const wrapped = code.includes('await') && processTopLevelAwait?.(code);
  if (!wrapped) return { code, shows };
  ends.set(cell, code.split('\n').length);
  return { code: wrapped.replaceAll(RETURN, 'return ').replace(/}\)\(\)$/, '\n$&'), shows, wraps: true };
}

// javascript returns what the types of a cell leave of it. What does that comes with the cell.
let strip;
function javascript(m) {
  strip ??= compileFunction(`${require('node:zlib').gunzipSync(Buffer.from(m.typescript, 'base64'))};return typescript.strip`, [], {
    filename: 'node:execbroker/typescript',
  })();
  return strip(m.code);
}

async function importModule(name, options) {
  if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href, options);
  try {
    return await import(name, options);
  } catch (e) {
    if (e.code !== 'ERR_MODULE_NOT_FOUND') throw e;
    let found;
    try {
      found = userRequire.resolve(name);
    } catch {
      throw e;
    }
    return import(pathToFileURL(found).href, options);
  }
}

importModule.meta = Object.assign(Object.create(null), {
  dirname: workdir,
  filename,
  resolve: (name) => pathToFileURL(userRequire.resolve(name)).href,
  url: pathToFileURL(filename).href,
});

// ours matches the lines of a stack that are not the user's.
const ours = /^\s+at (.*[(\s])?(node:|\[eval\d*\])|^\s+at (async )?(new Promise|Session\.post) /;

// A cell that awaits is a function, which is called on a line behind the last one of the cell.
const ends = new Map(); // numbers of lines by cell
function calls(line) {
  const [, cell, at] = /\bcell:(\d+):(\d+)/.exec(line) ?? [];
  return ends.get(Number(cell)) < Number(at);
}

// stack finds in the stack of an error what is the user's. Its frames come after the message.
function stack(error, text, cell) {
  const message = String(error.message);
  const at = Math.max(text.indexOf(message), 0);
  const named = (s) => s.replace(/\bcell:(\d+)\b/g, '<cell $1>');
  const rest = text.slice(at + message.length).slice(0, MAX_STACK).split('\n');
  const frames = rest.filter((line) => /^\s+at /.test(line) && !ours.test(line) && !calls(line));
  const line = new RegExp(`\\bcell:${cell}:(\\d+)`).exec(frames.join('\n'));
  // For a file that cannot be parsed, its name and line are before the heading.
  const before = at ? text.slice(0, text.lastIndexOf('\n', at - 1) + 1) : '';
  return { before: named(before), frames: frames.map(named), line: line ? Number(line[1]) : 0 };
}

// placed returns where V8 could not parse a cell.
function placed(error, d, code, m) {
  if (!(error instanceof SyntaxError) || d.stackTrace) return undefined; // it was thrown
  const lines = m.code.split('\n');
  // At the end of the code V8 has read our own last line.
  const [line, column] = d.lineNumber < lines.length ? [d.lineNumber, d.columnNumber] : [lines.length - 1, lines[lines.length - 1].length];
  return { line: line + 1, column, source: code === m.code ? code : undefined };
}

const session = new inspector.Session();
session.connect();
let sink; // what the inspector holds, handed over in the same process
const hidden = Symbol('execbroker');
Object.defineProperty(globalThis, Symbol.for('execbroker'), { value: (v) => ((sink = v), undefined) });

// held returns the value behind what the inspector says about it.
function held(remote) {
  if (remote.objectId === undefined) {
    if (remote.type === 'bigint') return BigInt(remote.unserializableValue.slice(0, -1));
    if (remote.unserializableValue !== undefined) return Number(remote.unserializableValue);
    return remote.subtype === 'null' ? null : remote.value;
  }
  sink = hidden;
  session.post('Runtime.callFunctionOn', {
    functionDeclaration: 'function(v) { globalThis[Symbol.for("execbroker")](v) }',
    objectId: remote.objectId,
    arguments: [{ objectId: remote.objectId }],
    silent: true,
  });
  const v = sink;
  sink = undefined;
  return v;
}

// Up to version 21 Node remembers of every package.json that is not there that it is not. Packages come while it runs, and it keeps what
// it remembers to itself.
const remembered = (() => {
  const read = inside('internal/modules/package_json_reader')?.read;
  if (!read || Number.parseInt(process.versions.node, 10) > 21) return null;
  const ask = (method, params) => {
    let said;
    session.post(method, params, (_, answer) => (said = answer));
    return said;
  };
  const properties = (remote) => ask('Runtime.getProperties', { objectId: remote.objectId, ownProperties: true });
  globalThis.execbroker = read;
  const { result } = ask('Runtime.evaluate', { expression: 'execbroker' });
  delete globalThis.execbroker;
  const scopes = properties(result).internalProperties.find((p) => p.name === '[[Scopes]]');
  for (const scope of properties(scopes.value).result) {
    const cache = scope.value?.objectId && properties(scope.value).result.find((p) => p.name === 'cache');
    if (cache?.value?.subtype === 'map') return held(cache.value);
  }
  return null;
})();

function forget() {
  for (const [name, found] of remembered ?? []) if (!found.exists) remembered.delete(name);
}

// Runs.

let run; // in progress

function finish(r, fields) {
  if (r === undefined || r.fields) return;
  r.fields = fields;
  settle(r);
}

// settle ends a run, unless the worker is about to terminate something: that must not be what comes after the run.
function settle(r) {
  if (Atomics.compareExchange(shared, MODE, USERS, OURS) !== DOOMED) r.resolve(r.fields);
}

// quiet calls what looks at things that the code may have broken.
function quiet(f) {
  try {
    return f();
  } catch {
    return undefined;
  }
}

function evaluate(code) {
  return new Promise((resolve) => {
    session.post('Runtime.evaluate', { expression: code, replMode: true, objectGroup: 'cell' }, (error, answer) => resolve({ error, answer }));
  });
}

// tell gives the code an error that would end a script, in a turn of the loop that exit may end, and reports whether it wants it.
function tell(e, origin) {
  if (!heard(EXCEPTION) && !heard(MONITOR)) return false;
  return new Promise((resolve) =>
    setImmediate(() => {
      process.emit(MONITOR, e, origin);
      resolve(heard(EXCEPTION) && process.emit(EXCEPTION, e, origin));
    }),
  );
}

async function execute(m, r) {
  let typed = m.typescript; // it has types, which an error may be about
  try {
    const plain = typed ? javascript(m) : m.code;
    typed = false;
    const { code, shows, wraps } = prepare(plain, m.cell);
    const { error, answer } = await evaluate(`${code}\n//# sourceURL=cell:${m.cell}`);
    if (error) return; // terminated, by an interrupt or by exit: they say what it was
    if (answer.exceptionDetails) {
      const d = answer.exceptionDetails;
      const e = held(d.exception ?? {});
      if (!(await tell(e, EXCEPTION))) return finish(r, { exit: 1, exception: describe(e, m.cell, placed(e, d, code, m)) });
    }
    let value = answer.exceptionDetails ? undefined : held(answer.result);
    try {
      if (wraps) value = (await value)?.value;
      // "main();" at the end is how most programs begin.
      if (util.types.isPromise(value)) value = await value;
    } catch (e) {
      const rejected = value;
      value = undefined;
      if (heard(REJECTION)) process.emit(REJECTION, e, rejected);
      else if (!(await tell(e, REJECTION))) throw e;
    }
    if (shows && value !== undefined && !r.fields) show(true, await represent(value));
    // Rejections that nobody handles are known one turn later.
    await new Promise((resolve) => setImmediate(resolve));
    if (m.linger && !r.fields && !calm(m.code)) await linger(m.linger < 0 ? Infinity : Number(m.linger) / 1e6);
    finish(r, { exit: 0 });
  } catch (e) {
    finish(r, { exit: 1, exception: describe(e, m.cell, typed && e.loc && { ...e.loc, source: m.code }) });
  }
}

function serve(m) {
  const before = process.cpuUsage();
  const cwd = process.cwd();
  const env = {};
  const over = new Promise((resolve) => {
    run = { cell: m.cell, fields: null, resolve };
  });
  Atomics.store(shared, CELL, m.cell);
  input.begin(m.cell, m.stdin);
  for (const k in m.env) {
    env[k] = process.env[k];
    process.env[k] = m.env[k];
  }
  addPaths(m.paths);
  forget();
  if (first === undefined) {
    first = activeHandles();
    calm();
  }
  stuck = activeRequests();
  process.exitCode = undefined;
  send(STARTED, {});
  // An interrupt may come before the code is reached, and ends all that has called it: by then, what follows the run waits for it.
  const served = conclude(m, over, before, cwd, env);
  leave();
  try {
    if (m.dir) process.chdir(m.dir);
    within(run, undefined, execute, [m, run]);
  } catch (e) {
    finish(run, { exit: 1, exception: describe(e, m.cell) });
  }
  return served;
}

async function conclude(m, over, before, cwd, env) {
  const fields = await over;
  if (waiting !== undefined) {
    waiting();
    if (fields.interrupted) quiet(halt);
  }
  quiet(() => release(true));
  quiet(deafen);
  run = from = thrower = undefined; // an interrupt may have left the last two
  for (const k in env) {
    if (env[k] === undefined) delete process.env[k];
    else process.env[k] = env[k];
  }
  if (m.dir) {
    try {
      process.chdir(cwd);
    } catch {
      process.chdir(workdir);
    }
  }
  if (fields.exit === 0) fields.exit = exitCode(quiet(() => process.exitCode));
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  const { user, system } = process.cpuUsage(before);
  send(DONE, { ...fields, left: quiet(left) ?? '', kids: kids(), cpu: (user + system) * 1000, taken: input.got - input.rest.length });
}

const packages = []; // directories of them

function addPaths(paths) {
  const more = paths.filter((p) => !packages.includes(p));
  if (more.length === 0) return;
  packages.push(...more);
  // The variable is also how programs that the code starts find them. It is read only when it is told so.
  process.env.NODE_PATH = packages.join(path.delimiter);
  Module._initPaths();
}

// exit ends the run, not the interpreter. No handler and no finally of the code stops it.
process.exit = (code) => {
  if (code !== undefined) process.exitCode = code; // which newer versions check
  if (run === undefined) process.reallyExit(exitCode(process.exitCode));
  run.fields ??= { exit: exitCode(process.exitCode) };
  run.exited = torn = true;
  // What ends here may be the queue of microtasks, and what waits for a promise would go with it.
  setImmediate(settle, run);
  session.post('Runtime.terminateExecution');
  for (;;);
};
const failed = (r, e) => stray(r) || finish(run, { exit: 1, exception: describe(e, run?.cell) });
const [REJECTION, EXCEPTION, MONITOR] = ['unhandledRejection', 'uncaughtException', 'uncaughtExceptionMonitor'];
// heard reports whether the code has seen to such errors itself, besides us. It sees to those of the run that said so.
const heard = (event) => process.rawListeners(event).some((f) => !own.has(f));
process.on(REJECTION, (e, promise) => {
  if (heard(REJECTION)) return;
  if (heard(EXCEPTION)) process.emit(EXCEPTION, e, REJECTION);
  else failed(origins.get(promise), e);
});
process.on(EXCEPTION, (e) => {
  const r = thrower;
  thrower = undefined;
  if (!heard(EXCEPTION)) failed(r, e);
});
const own = new Set([REJECTION, EXCEPTION].flatMap((event) => process.rawListeners(event)));
function deafen() {
  for (const event of [REJECTION, EXCEPTION, MONITOR]) {
    for (const f of process.rawListeners(event)) if (!own.has(f)) process.removeListener(event, f);
  }
}
process.on('SIGINT', () => {}); // it is for the children; a worker sees to the code

// The worker hears of an interrupt, and of answers, while this thread is busy. If this thread is not, it ends the run itself. An interrupt
// names its cell: it may come when that has just ended and the next one has begun.
const worker = new Worker(
  `const { parentPort, workerData: shared } = require('node:worker_threads');
   const { Session } = require('node:inspector');
   const session = new Session();
   session.connectToMainThread();
   let waiting = 0; // the cell that is to end
   function terminate(cell) {
     if (waiting !== cell) return;
     if (Atomics.load(shared, ${HEARD}) !== 0 || Atomics.load(shared, ${CELL}) !== cell) {
       waiting = 0;
     } else if (Atomics.compareExchange(shared, ${MODE}, ${USERS}, ${DOOMED}) === ${USERS}) {
       waiting = 0;
       session.post('Runtime.terminateExecution', () => parentPort.postMessage({ cell, terminated: true }));
     } else setTimeout(terminate, 1, cell);
   }
   let left = 0; // bytes of a number
   let cell = 0;
   new (require('node:net').Socket)({ fd: ${SIDE} }).on('data', (data) => {
     for (const b of data) {
       if (left > 0) {
         cell = cell * 256 + b;
         if (--left > 0 || waiting === cell || cell !== Atomics.load(shared, ${CELL})) continue;
         waiting = cell;
         Atomics.store(shared, ${HEARD}, 0);
         parentPort.postMessage({ cell });
         setTimeout(terminate, 100, cell);
       } else if (b === 97) {
         Atomics.add(shared, ${ANSWERS}, 1);
         Atomics.notify(shared, ${ANSWERS});
       } else {
         left = 4;
         cell = 0;
       }
     }
   });`,
  { eval: true, execArgv: [], workerData: shared, stdout: false, stderr: false },
);
worker.on('message', ({ cell, terminated }) => {
  Atomics.store(shared, HEARD, 1);
  const r = run;
  if (r === undefined || r.cell !== cell) return;
  r.fields ??= { exit: 130, interrupted: true };
  torn ||= terminated;
  if (terminated) Atomics.compareExchange(shared, MODE, DOOMED, USERS);
  settle(r);
});
worker.unref();
process.on('worker', (w) => {
  if (w === worker) return;
  threads = true;
  workers.set(w, run);
  w.once('exit', () => workers.delete(w));
});

Object.defineProperty(process, 'stdout', { value: output(OUT, 1), configurable: true, enumerable: true, writable: true });
Object.defineProperty(process, 'stderr', { value: output(ERR, 2), configurable: true, enumerable: true, writable: true });
input.begin(0, false);
process.execArgv = [];
process.argv = [process.execPath, filename];
// Node makes the global module what it was when this program has been read.
process.nextTick(() => {
  const globals = { require: userRequire, module: main, exports: main.exports, __filename: filename, __dirname: workdir, display, __import__: importModule };
  for (const name in globals) Object.defineProperty(globalThis, name, { value: globals[name], configurable: true, writable: true, enumerable: false });
});

let received = Buffer.alloc(0);
let part = Buffer.alloc(0);
const control = new net.Socket({ fd: CONTROL })
  .on('data', async (data) => {
    received = Buffer.concat([received, data]);
    while (received.length >= 12) {
      const n = received.readUInt32BE(8);
      if (received.length < 12 + n) break;
      part = Buffer.concat([part, received.subarray(12, 12 + n)]);
      const [type, flags] = received;
      received = received.subarray(12 + n);
      if (flags & MORE) continue;
      const m = part;
      part = Buffer.alloc(0);
      if (type === OPEN) await serve(unpack(m));
    }
  })
  .on('close', () => process.reallyExit(0));
