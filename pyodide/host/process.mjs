// The modules process and os for code of a session with JavaScript, with values that reveal nothing
// about the machine.
import { EventEmitter } from "execbroker:events";
import { Buffer } from "execbroker:buffer";
import util from "execbroker:util";
import { kept } from "./scrub.mjs";
import { wrong } from "./fs.mjs";

const { emit, listenerCount, removeAllListeners } = EventEmitter.prototype;
const HOME = "/tmp/home";
const VERSION = "24.0.0"; // the version of Node that the modules claim
const ERRORS = ["unhandledRejection", "uncaughtException", "uncaughtExceptionMonitor"];
const CODES = { name: "code", want: "an integer" };

// variables makes an environment: assigned values become text.
export function variables(values) {
  return new Proxy(Object.assign({}, values), {
    set: (o, name, value) => Reflect.set(o, name, typeof name === "symbol" ? value : `${value}`),
    defineProperty: (o, name, d) => Reflect.defineProperty(o, name, "value" in d ? { ...d, value: `${d.value}` } : d),
  });
}

// output makes a stream that writes immediately, like Node's streams to files.
function output(fd, write, later) {
  const stream = new EventEmitter();
  const end = (data, encoding, done) => {
    if (typeof data === "function") [data, done] = [undefined, data];
    if (typeof encoding === "function") [encoding, done] = [undefined, encoding];
    if (data !== undefined && data !== null) stream.write(data, encoding);
    later(() => {
      stream.emit("finish");
      done?.();
    });
    return stream; // parts of a program must not close it
  };
  return Object.assign(stream, {
    fd, end, isTTY: false, writable: true, writableLength: 0, writableHighWaterMark: 16384, writableNeedDrain: false, writableEnded: false, writableFinished: false,
    destroyed: false, _type: "pipe",
    write(data, encoding, done) {
      if (typeof encoding === "function") [encoding, done] = [undefined, encoding];
      if (typeof data === "string") data = encoding && !/^utf-?8$/i.test(encoding) ? Buffer.from(data, encoding) : data;
      else if (!ArrayBuffer.isView(data)) throw wrong("chunk", "of type string or an instance of Buffer, TypedArray, or DataView", data);
      write(fd, typeof data === "string" ? data : new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      if (typeof done === "function") later(() => done());
      return true;
    },
    cork() {}, uncork() {}, setDefaultEncoding: () => stream, destroy: () => stream, ref: () => stream, unref: () => stream,
  });
}

// environment makes process. host has env, cwd(), chdir(path), exit(code), output(fd, data),
// input(most), later(f), soon(f, args) and stream(). cell is the file name of the code.
export function environment(host, cell) {
  const began = kept.time();
  const process = new EventEmitter();
  const nanoseconds = () => BigInt(Math.round(kept.time() * 1e6));
  const hrtime = (since) => {
    const now = nanoseconds() - (since ? BigInt(since[0]) * 1000000000n + BigInt(since[1]) : 0n);
    return [Number(now / 1000000000n), Number(now % 1000000000n)];
  };
  hrtime.bigint = nanoseconds;
  const usage = (since = { user: 0, system: 0 }) => ({ user: Math.round((kept.time() - began) * 1000) - since.user, system: 0 });
  const none = () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 });
  none.rss = () => 0;
  Object.assign(process, {
    title: "node", version: `v${VERSION}`, versions: { node: VERSION }, arch: "x64", platform: "linux", release: { name: "node" }, features: {}, config: {},
    pid: 1, ppid: 0, argv: ["/usr/local/bin/node", cell], argv0: "node", execArgv: [], execPath: "/usr/local/bin/node", exitCode: undefined,
    cwd: host.cwd, chdir: host.chdir, hrtime, uptime: () => (kept.time() - began) / 1000, cpuUsage: usage, memoryUsage: none,
    exit(code = process.exitCode ?? 0) {
      const n = Number(code);
      if (!Number.isInteger(n)) throw wrong(CODES.name, CODES.want, code);
      host.exit(n);
    },
    nextTick(f, ...args) {
      if (typeof f !== "function") throw wrong("callback", "of type function", f);
      host.soon(f, args);
    },
    emitWarning(warning, type, code) {
      const name = warning?.name ?? (typeof type === "object" ? type?.type : type) ?? "Warning";
      code = warning?.code ?? (typeof type === "object" ? type?.code : code);
      host.output(2, `(node:1) ${code ? `[${code}] ` : ""}${name}: ${warning?.message ?? warning}\n`);
    },
    umask: () => 0o022, getuid: () => 1000, geteuid: () => 1000, getgid: () => 1000, getegid: () => 1000, getgroups: () => [1000],
    stdout: output(1, host.output, host.later), stderr: output(2, host.output, host.later),
  });
  let stdin;
  Object.defineProperty(process, "stdin", {
    configurable: true, enumerable: true,
    get: () => (stdin ??= Object.assign(new (host.stream().Readable)({
      highWaterMark: 65536,
      read() {
        host.later(() => {
          const data = host.input(65536);
          this.push(data.length ? Buffer.from(data) : null);
        });
      },
    }), { fd: 0, isTTY: false })),
  });
  Object.defineProperty(process, Symbol.toStringTag, { value: "process" });
  let env = variables(host.env);
  Object.defineProperty(process, "env", { configurable: true, enumerable: true, get: () => env, set: (v) => (env = variables(v)) });
  return { process, begin, code, heard };

  // begin prepares process for a run, with its own input, exit code and additional variables. The
  // returned function restores the variables. Who listens to errors does so for the same run.
  function begin(more) {
    stdin = undefined;
    quiet(() => void (process.exitCode = undefined));
    const old = [];
    for (const name of Object.keys(more ?? {})) {
      old.push([name, quiet(() => env[name])]);
      quiet(() => void (env[name] = more[name]));
    }
    return () => {
      for (const event of ERRORS) quiet(() => Reflect.apply(removeAllListeners, process, [event]));
      for (const [name, value] of old) quiet(() => void (value === undefined ? delete env[name] : (env[name] = value)));
    };
  }

  // code returns the exit code that was set.
  function code() {
    return quiet(() => process.exitCode);
  }

  // heard passes an event to its listeners, and reports whether there are any.
  function heard(event, ...args) {
    if (!Reflect.apply(listenerCount, process, [event])) return false;
    Reflect.apply(emit, process, [event, ...args]);
    return true;
  }
}

// quiet calls a function that reads things that code may have broken.
function quiet(f) {
  try {
    return f();
  } catch {
    return undefined;
  }
}

// utilities makes the module util. Two of its functions would ask Deno for its process.
export function utilities(process) {
  const said = new Set();
  const must = (f, name) => {
    if (typeof f !== "function") throw wrong(name, "of type function", f);
  };
  return {
    ...util,
    callbackify(original) {
      must(original, "original");
      return function (...args) {
        const done = args.pop();
        must(done, "last argument");
        const falsy = (reason) => Object.assign(new Error("Promise was rejected with falsy value"), { code: "ERR_FALSY_VALUE_REJECTION", reason });
        Reflect.apply(original, this, args).then((v) => process.nextTick(done, null, v), (e) => process.nextTick(done, e || falsy(e)));
      };
    },
    deprecate(f, message, code) {
      let told = false;
      const deprecated = function (...args) {
        if (!told && !said.has(code)) process.emitWarning(message, "DeprecationWarning", code);
        told = true;
        if (code !== undefined) said.add(code);
        return new.target ? Reflect.construct(f, args, new.target) : Reflect.apply(f, this, args);
      };
      Object.setPrototypeOf(deprecated, f);
      deprecated.prototype = f.prototype;
      return deprecated;
    },
  };
}

// os makes the module os.
export function os(process) {
  const constant = (value) => () => value;
  return {
    EOL: "\n", devNull: "/dev/null", arch: constant("x64"), platform: constant("linux"), type: constant("Linux"), release: constant(""), version: constant(""),
    machine: constant("x86_64"), hostname: constant("sandbox"), homedir: () => process.env.HOME ?? HOME, tmpdir: () => process.env.TMPDIR ?? "/tmp",
    endianness: constant("LE"), uptime: () => process.uptime(), loadavg: () => [0, 0, 0], totalmem: constant(0), freemem: constant(0),
    availableParallelism: constant(1), cpus: () => [], networkInterfaces: () => ({}),
    userInfo: () => ({ uid: 1000, gid: 1000, username: "user", homedir: HOME, shell: null }),
    constants: { signals: { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGABRT: 6, SIGKILL: 9, SIGTERM: 15 }, errno: { EACCES: 13, EEXIST: 17, EISDIR: 21, ENOENT: 2, ENOSPC: 28, ENOTDIR: 20 }, priority: {} },
  };
}
