// Node's module fs over the file system of the session. The synchronous functions are written out.
// Those with callbacks and promises are derived from them.
import { Buffer } from "execbroker:buffer";
import { inspect } from "execbroker:util";
import { kept } from "./scrub.mjs";
import { fail, ERRNO } from "./volume.mjs";

// Node's codes and texts of errors, with their numbers on Linux.
const ERRORS = new Map([
  [ERRNO.ACCES, ["EACCES", "permission denied", 13]], [ERRNO.BADF, ["EBADF", "bad file descriptor", 9]], [ERRNO.EXIST, ["EEXIST", "file already exists", 17]],
  [ERRNO.INVAL, ["EINVAL", "invalid argument", 22]], [ERRNO.ISDIR, ["EISDIR", "illegal operation on a directory", 21]],
  [ERRNO.LOOP, ["ELOOP", "too many symbolic links encountered", 40]], [ERRNO.MFILE, ["EMFILE", "too many open files", 24]],
  [ERRNO.NAMETOOLONG, ["ENAMETOOLONG", "name too long", 36]], [ERRNO.NOENT, ["ENOENT", "no such file or directory", 2]],
  [ERRNO.NOSPC, ["ENOSPC", "no space left on device", 28]], [ERRNO.NOTDIR, ["ENOTDIR", "not a directory", 20]],
  [ERRNO.NOTEMPTY, ["ENOTEMPTY", "directory not empty", 39]], [ERRNO.PERM, ["EPERM", "operation not permitted", 1]],
  [ERRNO.SPIPE, ["ESPIPE", "invalid seek", 29]], [ERRNO.NOTSUP, ["ENOTSUP", "operation not supported on socket", 95]],
]);

const FLAGS = {
  __proto__: null, r: 0, rs: 0, "r+": 2, "rs+": 2, w: 0o1101, wx: 0o1301, "w+": 0o1102, "wx+": 0o1302, a: 0o2101, ax: 0o2301, as: 0o2101,
  "a+": 0o2102, "ax+": 0o2302, "as+": 0o2102,
};

const constants = {
  __proto__: null, F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1, COPYFILE_EXCL: 1, COPYFILE_FICLONE: 2, COPYFILE_FICLONE_FORCE: 4, O_RDONLY: 0, O_WRONLY: 1,
  O_RDWR: 2, O_CREAT: 0o100, O_EXCL: 0o200, O_TRUNC: 0o1000, O_APPEND: 0o2000, S_IFMT: 0o170000, S_IFREG: 0o100000, S_IFDIR: 0o040000,
  S_IFCHR: 0o020000, S_IFLNK: 0o120000, S_IRWXU: 0o700, S_IRUSR: 0o400, S_IWUSR: 0o200, S_IXUSR: 0o100, S_IRWXG: 0o070, S_IRWXO: 0o007,
};

// wrong makes the error for a wrong argument.
export function wrong(name, want, value) {
  let shown = `type ${typeof value} (${inspect(value).slice(0, 28)})`;
  if (value === null || value === undefined) shown = `${value}`;
  else if (typeof value === "function") shown = `function ${value.name}`;
  else if (typeof value === "object") shown = value.constructor?.name ? `an instance of ${value.constructor.name}` : inspect(value, { depth: -1 });
  return Object.assign(new TypeError(`The "${name}" argument must be ${want}. Received ${shown}`), { code: "ERR_INVALID_ARG_TYPE" });
}

// node runs an operation and converts an error of the file system to an error of Node.
function node(syscall, path, dest, f) {
  try {
    return f();
  } catch (e) {
    const [code, text, number] = ERRORS.get(e?.errno) ?? [];
    if (!code || e.name !== "ErrnoError") throw e;
    const at = path === undefined ? "" : dest === undefined ? ` '${path}'` : ` '${path}' -> '${dest}'`;
    const error = new Error(`${code}: ${text}, ${syscall}${at}`);
    Object.assign(error, { errno: -number, code, syscall });
    if (path !== undefined) error.path = path;
    if (dest !== undefined) error.dest = dest;
    throw error;
  }
}

// Kind has the methods that test the kind of a file.
class Kind {
  #mode;
  constructor(mode) {
    this.#mode = mode & constants.S_IFMT;
  }
  isFile() { return this.#mode === constants.S_IFREG; }
  isDirectory() { return this.#mode === constants.S_IFDIR; }
  isSymbolicLink() { return this.#mode === constants.S_IFLNK; }
  isCharacterDevice() { return this.#mode === constants.S_IFCHR; }
  isBlockDevice() { return false; }
  isFIFO() { return false; }
  isSocket() { return false; }
}

class Stats extends Kind {
  constructor(n, big) {
    super(n.mode);
    const size = n.link?.length ?? n.usedBytes ?? 0;
    const all = { dev: 1, mode: n.mode, nlink: 1, uid: 1000, gid: 1000, rdev: 0, blksize: 4096, ino: n.ino, size, blocks: Math.ceil(size / 512) };
    for (const name of Object.keys(all)) this[name] = big ? BigInt(all[name]) : all[name];
    for (const [name, ms] of [["atime", n.atime], ["mtime", n.mtime], ["ctime", n.ctime], ["birthtime", n.birth ?? n.ctime]]) {
      this[name + "Ms"] = big ? BigInt(Math.trunc(ms)) : ms;
      if (big) this[name + "Ns"] = BigInt(Math.trunc(ms)) * 1000000n;
      this[name] = new kept.Date(ms);
    }
  }
}

class Dirent extends Kind {
  constructor(name, parent, mode) {
    super(mode);
    this.name = name;
    this.parentPath = this.path = parent;
  }
}

// fileSystem makes the module. host has cwd(), input(most) for standard input, output(fd, bytes),
// and later(f), which calls f in a separate turn of the event loop. stream() returns the module
// stream.
export function fileSystem(volume, host) {
  const text = (value, name = "path") => {
    if (value instanceof Uint8Array) value = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString();
    else if (typeof value === "object" && value !== null && typeof value.href === "string") {
      if (!value.href.startsWith("file:")) throw Object.assign(new TypeError("The URL must be of scheme file"), { code: "ERR_INVALID_URL_SCHEME" });
      value = kept.decode(value.pathname);
    }
    if (typeof value !== "string") throw wrong(name, "of type string or an instance of Buffer or URL", value);
    if (value.includes("\0")) {
      const want = "must be a string, Uint8Array, or URL without null bytes";
      throw Object.assign(new TypeError(`The argument '${name}' ${want}. Received ${inspect(value)}`), { code: "ERR_INVALID_ARG_VALUE" });
    }
    return value;
  };
  const full = (path) => (path === "" ? fail(ERRNO.NOENT) : path.startsWith("/") ? path : `${host.cwd()}/${path}`);
  const descriptor = (fd) => {
    if (typeof fd !== "number") throw wrong("fd", "of type number", fd);
    return fd;
  };
  const bytes = (data, encoding) => {
    if (typeof data === "string") return Buffer.from(data, encoding ?? "utf8");
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw wrong("data", "of type string or an instance of Buffer, TypedArray, or DataView", data);
  };
  const options = (o, base = {}) => {
    if (o === undefined || o === null || typeof o === "function") return base;
    if (typeof o === "string") o = { encoding: o };
    if (typeof o !== "object") throw wrong("options", "of type string or an instance of Object", o);
    if (o.encoding && o.encoding !== "buffer" && !Buffer.isEncoding(o.encoding)) {
      throw Object.assign(new TypeError(`The argument 'encoding' is invalid encoding. Received '${o.encoding}'`), { code: "ERR_INVALID_ARG_VALUE" });
    }
    return { ...base, ...o };
  };
  const flagsOf = (flag = "r") => {
    const n = typeof flag === "number" ? flag : FLAGS[flag];
    if (n === undefined) throw Object.assign(new TypeError(`The argument 'flags' is invalid. Received '${flag}'`), { code: "ERR_INVALID_ARG_VALUE" });
    const way = n & 3;
    return { read: way !== 1, write: way !== 0, append: !!(n & 0o2000), create: !!(n & 0o100), exclusive: !!(n & 0o200), truncate: !!(n & 0o1000) };
  };
  const modeOf = (mode, base) => (mode === undefined || mode === null ? base : typeof mode === "string" ? parseInt(mode, 8) : mode) & 0o7777;
  const masked = (mode, base) => modeOf(mode, base) & ~0o022;
  const time = (t) => {
    const ms = typeof t === "object" && t !== null ? Number(t) : Number(t) * 1000;
    if (!(Math.abs(ms) <= 8.64e15)) throw wrong("time", "a time", t);
    return ms;
  };
  const encoded = (data, o) => (o.encoding && o.encoding !== "buffer" ? data.toString(o.encoding) : data);
  const named = (path, syscall, f, dest) => node(syscall, path, dest, f);
  const lookup = (path, follow) => volume.find(full(path), { follow }).node;

  // Streams of the host have a kind: stdin, stdout, stderr, null.
  const STANDARD = ["stdin", "stdout", "stderr"];
  const kindOf = (fd) => (volume.streams[fd] === null && fd < 3 ? STANDARD[fd] : volume.stream(fd).node.kind);
  const readAt = (fd, buffer, position) => {
    const kind = kindOf(fd);
    if (kind === "null") return 0;
    if (kind === "stdin") {
      const data = host.input(buffer.length);
      buffer.set(data);
      return data.length;
    }
    if (kind) fail(ERRNO.BADF);
    return volume.read(volume.stream(fd), buffer, position);
  };
  const writeAt = (fd, data, position) => {
    const kind = kindOf(fd);
    if (kind === "null") return data.length;
    if (kind === "stdin") fail(ERRNO.BADF);
    if (kind) {
      host.output(kind === "stderr" ? 2 : 1, data);
      return data.length;
    }
    return volume.write(volume.stream(fd), data, position);
  };
  const whole = (fd) => {
    const stream = kindOf(fd) ? null : volume.stream(fd);
    if (stream && volume.isDir(stream.node.mode)) fail(ERRNO.ISDIR);
    if (stream) {
      const data = Buffer.alloc(Math.max(0, stream.node.usedBytes - stream.position));
      volume.read(stream, data);
      return data;
    }
    const parts = [];
    for (;;) {
      const part = Buffer.alloc(65536);
      const n = readAt(fd, part);
      if (!n) return Buffer.concat(parts);
      parts.push(part.subarray(0, n));
    }
  };
  // within opens a file for f, unless it is already open.
  const within = (path, syscall, flag, mode, f) => {
    if (typeof path === "number") return node(syscall, undefined, undefined, () => f(path));
    path = text(path);
    const stream = named(path, "open", () => volume.open(full(path), flagsOf(flag), masked(mode, 0o666)));
    try {
      return node(syscall, undefined, undefined, () => f(stream.fd));
    } finally {
      volume.close(stream.fd);
    }
  };
  const entries = (path, shown, recursive, f) => {
    for (const name of volume.readdir(path).sort()) {
      const child = volume.find(`${path}/${name}`).node;
      f(name, shown, child);
      if (recursive && volume.isDir(child.mode)) entries(`${path}/${name}`, `${shown}/${name}`, true, f);
    }
  };
  const remove = (path) => {
    if (!volume.isDir(volume.find(path).node.mode)) return volume.unlink(path);
    for (const name of volume.readdir(path)) remove(`${path}/${name}`);
    volume.rmdir(path);
  };
  const copy = (from, to, o) => {
    const { node: source } = volume.find(from, { follow: o.dereference });
    if (o.filter && !o.filter(from, to)) return;
    const there = volume.find(to, { missing: true }).node;
    if (volume.isDir(source.mode)) {
      if (!o.recursive) fail(ERRNO.ISDIR);
      if (`${to}/`.startsWith(`${from}/`)) fail(ERRNO.INVAL);
      if (!there) volume.mkdir(to, source.mode & 0o777);
      for (const name of volume.readdir(from)) copy(`${from}/${name}`, `${to}/${name}`, o);
      return;
    }
    if (there && (o.errorOnExist || o.force === false)) return o.errorOnExist ? fail(ERRNO.EXIST) : undefined;
    if (volume.isLink(source.mode)) {
      if (there) volume.unlink(to);
      volume.symlink(source.link, to);
      return;
    }
    content(source, to);
  };
  // content copies the contents of a file.
  const content = (source, to) => {
    if (!volume.isFile(source.mode)) fail(volume.isDir(source.mode) ? ERRNO.ISDIR : ERRNO.INVAL);
    if (volume.find(to, { follow: true, missing: true }).node === source) return; // opening the target would truncate the source
    const stream = volume.open(to, flagsOf("w"), source.mode & 0o777);
    try {
      volume.write(stream, source.contents.slice(0, source.usedBytes));
    } finally {
      volume.close(stream.fd);
    }
  };
  const clean = (path) => volume.path(volume.find(path, { follow: true }).node);
  const part = (buffer, offset, length, position) => {
    if (!ArrayBuffer.isView(buffer)) throw wrong("buffer", "an instance of Buffer, TypedArray, or DataView", buffer);
    if (typeof offset === "object" && offset !== null) ({ offset, length, position } = offset);
    offset ??= 0;
    length ??= buffer.byteLength - offset;
    if (!(offset >= 0 && length >= 0 && offset + length <= buffer.byteLength)) {
      throw Object.assign(new RangeError('The value of "length" is out of range.'), { code: "ERR_OUT_OF_RANGE" });
    }
    return [new Uint8Array(buffer.buffer, buffer.byteOffset + offset, length), place(position)];
  };
  const place = (position) => {
    if (position === undefined || position === null || position === -1) return undefined;
    const at = Number(position);
    return Number.isSafeInteger(at) && at >= 0 ? at : fail(ERRNO.INVAL);
  };

  const sync = {
    access(path, mode = 0) {
      path = text(path);
      named(path, "access", () => {
        const found = lookup(path, true);
        const want = (mode & 4 ? "r" : "") + (mode & 2 ? "w" : "") + (mode & 1 ? "x" : "");
        const errno = volume.nodePermissions(found, want);
        if (errno) fail(errno);
      });
    },
    appendFile(path, data, o) {
      sync.writeFile(path, data, { flag: "a", ...options(o) });
    },
    chmod(path, mode) {
      path = text(path);
      named(path, "chmod", () => volume.chmod(lookup(path, true), modeOf(mode, 0)));
    },
    chown(path) {
      path = text(path);
      named(path, "chown", () => void lookup(path, true));
    },
    close(fd) {
      descriptor(fd);
      node("close", undefined, undefined, () => (fd < 3 ? undefined : volume.close(fd)));
    },
    copyFile(from, to, mode = 0) {
      [from, to] = [text(from, "src"), text(to, "dest")];
      named(from, "copyfile", () => {
        const source = lookup(from, true);
        if (mode & 1 && volume.find(full(to), { missing: true }).node) fail(ERRNO.EXIST);
        content(source, full(to));
      }, to);
    },
    cp(from, to, o) {
      [from, to] = [text(from, "src"), text(to, "dest")];
      named(from, "cp", () => copy(full(from).replace(/\/+$/, ""), full(to).replace(/\/+$/, ""), { force: true, ...o }), to);
    },
    exists(path) {
      try {
        return !!lookup(text(path), true);
      } catch {
        return false;
      }
    },
    fchmod(fd, mode) {
      descriptor(fd);
      node("fchmod", undefined, undefined, () => volume.chmod(volume.stream(fd).node, modeOf(mode, 0)));
    },
    fstat(fd, o) {
      descriptor(fd);
      const found = node("fstat", undefined, undefined, () => (kindOf(fd) ? { mode: constants.S_IFCHR | 0o666, atime: 0, mtime: 0, ctime: 0, ino: fd + 1 } : volume.stream(fd).node));
      return new Stats(found, o?.bigint);
    },
    fsync(fd) {
      descriptor(fd);
      node("fsync", undefined, undefined, () => void kindOf(fd));
    },
    ftruncate(fd, size = 0) {
      descriptor(fd);
      node("ftruncate", undefined, undefined, () => volume.truncate(volume.stream(fd).node, size));
    },
    futimes(fd, atime, mtime) {
      node("futime", undefined, undefined, () => volume.attr(volume.stream(fd).node, { atime: time(atime), mtime: time(mtime) }));
    },
    link(from, to) {
      named(text(from), "link", () => fail(ERRNO.PERM), text(to)); // hard links are not supported
    },
    lstat(path, o) {
      path = text(path);
      return stat("lstat", path, o, false);
    },
    mkdir(path, o) {
      path = text(path);
      const { recursive, mode } = typeof o === "object" && o !== null ? o : { mode: o };
      return named(path, "mkdir", () => {
        if (!recursive) return void volume.mkdir(full(path).replace(/\/+$/, "") || "/", masked(mode, 0o777));
        let at = "";
        let first;
        for (const name of full(path).split("/").filter(Boolean)) {
          at += `/${name}`;
          const { node: there } = volume.find(at, { follow: true, missing: true });
          if (there && !volume.isDir(there.mode)) fail(volume.find(full(path), { follow: true, missing: true }).node === there ? ERRNO.EXIST : ERRNO.NOTDIR);
          if (!there) {
            volume.mkdir(at, masked(mode, 0o777));
            first ??= at;
          }
        }
        return first && volume.path(volume.find(first).node);
      });
    },
    mkdtemp(prefix, o) {
      prefix = text(prefix, "prefix");
      const path = prefix + host.unique();
      named(`${prefix}XXXXXX`, "mkdtemp", () => volume.mkdir(full(path), 0o700));
      return encoded(Buffer.from(path), options(o, { encoding: "utf8" }));
    },
    open(path, flag = "r", mode) {
      path = text(path);
      return named(path, "open", () => volume.open(full(path), flagsOf(flag ?? "r"), masked(mode, 0o666))).fd;
    },
    opendir(path) {
      path = text(path);
      return new Dir(path, sync.readdir(path, { withFileTypes: true }));
    },
    read(fd, buffer, offset, length, position) {
      descriptor(fd);
      return node("read", undefined, undefined, () => readAt(fd, ...part(buffer, offset, length, position)));
    },
    readdir(path, o) {
      path = text(path);
      o = options(o);
      const found = [];
      named(path, "scandir", () => entries(full(path), path, !!o.recursive, (name, parent, child) => {
        if (o.withFileTypes) found.push(new Dirent(name, parent, child.mode));
        else found.push(encoded(Buffer.from((parent + "/" + name).slice(path.length + 1)), { encoding: "utf8", ...o }));
      }));
      return found;
    },
    readFile(path, o) {
      o = options(o);
      return encoded(within(path, "read", o.flag ?? "r", undefined, whole), o);
    },
    readlink(path, o) {
      path = text(path);
      const found = named(path, "readlink", () => lookup(path, false).link ?? fail(ERRNO.INVAL));
      return encoded(Buffer.from(found), options(o, { encoding: "utf8" }));
    },
    readv(fd, buffers, position) {
      let n = 0;
      for (const b of buffers) n += sync.read(fd, b, 0, b.byteLength, position === undefined || position === null ? null : position + n);
      return n;
    },
    realpath(path, o) {
      path = text(path);
      return encoded(Buffer.from(named(path, "lstat", () => clean(full(path)))), options(o, { encoding: "utf8" }));
    },
    rename(from, to) {
      [from, to] = [text(from, "oldPath"), text(to, "newPath")];
      named(from, "rename", () => volume.rename(full(from), full(to)), to);
    },
    rm(path, o = {}) {
      path = text(path);
      if (o?.force && !sync.exists(path)) {
        try {
          lookup(path, false);
        } catch {
          return;
        }
      }
      const found = named(path, "lstat", () => lookup(path, false));
      if (volume.isDir(found.mode) && !o?.recursive) {
        throw Object.assign(new Error(`Path is a directory: rm returned EISDIR (is a directory) ${path}`), { name: "SystemError", code: "ERR_FS_EISDIR", errno: 21, syscall: "rm", path });
      }
      named(path, "rm", () => remove(volume.path(found)));
    },
    rmdir(path, o) {
      path = text(path);
      named(path, "rmdir", () => (o?.recursive ? remove(full(path)) : volume.rmdir(full(path))));
    },
    stat(path, o) {
      path = text(path);
      return stat("stat", path, o, true);
    },
    statfs() {
      return { type: 0x01021994, ...volume.filesystems.MEMFS.ops_table.dir.node.statfs() };
    },
    symlink(target, path) {
      [target, path] = [text(target, "target"), text(path)];
      named(target, "symlink", () => void volume.symlink(target, full(path)), path);
    },
    truncate(path, size = 0) {
      if (typeof path === "number") return sync.ftruncate(path, size);
      path = text(path);
      named(path, "open", () => volume.truncate(full(path), size));
    },
    unlink(path) {
      path = text(path);
      named(path, "unlink", () => volume.unlink(full(path)));
    },
    utimes(path, atime, mtime) {
      path = text(path);
      named(path, "utime", () => volume.attr(lookup(path, true), { atime: time(atime), mtime: time(mtime) }));
    },
    write(fd, data, offset, length, position) {
      descriptor(fd);
      if (typeof data === "string") return node("write", undefined, undefined, () => writeAt(fd, bytes(data, length), place(offset)));
      return node("write", undefined, undefined, () => writeAt(fd, ...part(data, offset, length, position)));
    },
    writeFile(path, data, o) {
      o = options(o);
      const b = bytes(data, o.encoding);
      within(path, "write", o.flag ?? "w", o.mode, (fd) => void writeAt(fd, b));
    },
    writev(fd, buffers, position) {
      let n = 0;
      for (const b of buffers) n += sync.write(fd, b, 0, b.byteLength, position === undefined || position === null ? null : position + n);
      return n;
    },
  };
  sync.lchown = sync.chown;
  sync.fchown = sync.fdatasync = sync.fsync;

  function stat(syscall, path, o, follow) {
    try {
      return new Stats(named(path, syscall, () => lookup(path, follow)), o?.bigint);
    } catch (e) {
      if (o?.throwIfNoEntry === false && e.code === "ENOENT") return undefined;
      throw e;
    }
  }

  class Dir {
    #entries;
    constructor(path, found) {
      this.path = path;
      this.#entries = found;
    }
    readSync() { return this.#entries.shift() ?? null; }
    async read() { return this.readSync(); }
    closeSync() {}
    async close() {}
    async *[Symbol.asyncIterator]() {
      for (let e; (e = this.readSync()); ) yield e;
    }
  }

  class FileHandle {
    #fd;
    constructor(fd) {
      this.#fd = fd;
    }
    get fd() { return this.#fd; }
    async appendFile(data, o) { return sync.appendFile(this.#fd, data, o); }
    async chmod(mode) { return sync.fchmod(this.#fd, mode); }
    async close() {
      const fd = this.#fd;
      this.#fd = -1;
      if (fd >= 0) sync.close(fd);
    }
    async datasync() {}
    async read(buffer, ...args) {
      if (!ArrayBuffer.isView(buffer)) {
        const o = buffer ?? {};
        buffer = o.buffer ?? Buffer.alloc(16384);
        args = [o];
      }
      return { bytesRead: sync.read(this.#fd, buffer, ...args), buffer };
    }
    async readFile(o) { return sync.readFile(this.#fd, o); }
    async *readLines(o) {
      const lines = (await this.readFile({ encoding: "utf8", ...o })).split(/\r\n|\n|\r/);
      if (lines.at(-1) === "") lines.pop();
      yield* lines;
    }
    async stat(o) { return sync.fstat(this.#fd, o); }
    async sync() {}
    async truncate(size) { return sync.ftruncate(this.#fd, size); }
    async utimes(a, m) { return sync.futimes(this.#fd, a, m); }
    async write(data, ...args) { return { bytesWritten: sync.write(this.#fd, data, ...args), buffer: data }; }
    async writeFile(data, o) { return sync.writeFile(this.#fd, data, o); }
    async [Symbol.asyncDispose]() { return this.close(); }
    createReadStream(o) { return fs.createReadStream(null, { ...options(o), fd: this.#fd }); }
    createWriteStream(o) { return fs.createWriteStream(null, { ...options(o), fd: this.#fd }); }
  }

  const fs = { constants, Stats, Dirent, Dir };
  const promises = { constants };
  for (const name of Object.keys(sync)) {
    const f = sync[name];
    fs[name + "Sync"] = { [name + "Sync"]: (...args) => f(...args) }[name + "Sync"];
    fs[name] = {
      [name](...args) {
        const done = args.pop();
        if (typeof done !== "function") throw wrong("cb", "of type function", undefined);
        host.later(() => {
          let result;
          try {
            result = f(...args);
          } catch (e) {
            return name === "exists" ? done(false) : done(e);
          }
          if (name === "exists") return done(result);
          // Functions with a buffer also return the buffer.
          return ["read", "readv", "write", "writev"].includes(name) ? done(null, result, args[1]) : result === undefined ? done(null) : done(null, result);
        });
      },
    }[name];
    if (!/^f(chmod|chown|stat|sync|datasync|truncate|utimes)$|^(close|read|readv|write|writev|exists)$/.test(name)) {
      promises[name] = { [name]: async (...args) => f(...args.map((a) => (a instanceof FileHandle ? a.fd : a))) }[name];
    }
  }
  promises.open = async (...args) => new FileHandle(sync.open(...args));
  for (const name of ["writeFile", "appendFile"]) {
    const plain = promises[name];
    promises[name] = async (path, data, o) => {
      if (data === null || typeof data !== "object" || ArrayBuffer.isView(data) || !(data[Symbol.asyncIterator] ?? data[Symbol.iterator])) return plain(path, data, o);
      const parts = [];
      for await (const part of data) parts.push(bytes(part, options(o).encoding));
      return plain(path, Buffer.concat(parts), o);
    };
  }
  fs.realpath.native = fs.realpath;
  fs.realpathSync.native = fs.realpathSync;
  for (const name of ["watch", "watchFile", "unwatchFile", "openAsBlob", "lutimes", "lutimesSync", "glob", "globSync"]) {
    fs[name] = () => {
      throw Object.assign(new Error(`fs.${name} is not supported in this sandbox`), { code: "ERR_METHOD_NOT_IMPLEMENTED" });
    };
  }
  fs.createReadStream = (path, o) => {
    o = options(o, { highWaterMark: 65536 });
    let fd = typeof o.fd === "object" ? o.fd?.fd : o.fd;
    let at = o.start;
    const end = o.end ?? Infinity;
    const open = () => (fd ??= sync.open(path, o.flags ?? "r", o.mode));
    const stream = new (host.stream().Readable)({
      highWaterMark: o.highWaterMark, encoding: o.encoding, signal: o.signal, emitClose: o.emitClose,
      construct(done) {
        host.later(() => {
          try {
            open();
          } catch (e) {
            return done(e);
          }
          done();
          stream.emit("open", fd);
          stream.emit("ready");
        });
      },
      read(n) {
        host.later(() => {
          const size = Math.min(n, end - (at ?? stream.bytesRead) + 1);
          const buffer = Buffer.alloc(Math.max(0, size));
          let got;
          try {
            got = size > 0 ? sync.read(fd, buffer, 0, buffer.length, at) : 0;
          } catch (e) {
            return stream.destroy(e);
          }
          stream.bytesRead += got;
          if (at !== undefined) at += got;
          stream.push(got ? buffer.subarray(0, got) : null);
        });
      },
      destroy(e, done) {
        if (fd > 2 && o.autoClose !== false) try { sync.close(fd); } catch {}
        done(e);
      },
    });
    return Object.assign(stream, { path, bytesRead: 0 });
  };
  fs.createWriteStream = (path, o) => {
    o = options(o);
    let fd = typeof o.fd === "object" ? o.fd?.fd : o.fd;
    let at = o.start;
    const stream = new (host.stream().Writable)({
      highWaterMark: o.highWaterMark, defaultEncoding: o.encoding, signal: o.signal, emitClose: o.emitClose, decodeStrings: true,
      construct(done) {
        host.later(() => {
          try {
            fd ??= sync.open(path, o.flags ?? "w", o.mode);
          } catch (e) {
            return done(e);
          }
          done();
          stream.emit("open", fd);
          stream.emit("ready");
        });
      },
      write(data, encoding, done) {
        host.later(() => {
          try {
            const n = sync.write(fd, data, 0, data.length, at);
            if (at !== undefined) at += n;
            stream.bytesWritten += n;
          } catch (e) {
            return done(e);
          }
          done();
        });
      },
      destroy(e, done) {
        if (fd > 2 && o.autoClose !== false) try { sync.close(fd); } catch {}
        done(e);
      },
    });
    return Object.assign(stream, { path, bytesWritten: 0 });
  };
  fs.promises = promises;
  return fs;
}
