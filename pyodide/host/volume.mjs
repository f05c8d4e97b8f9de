// The in-memory file system of a session with JavaScript. It has those operations of Emscripten's
// MEMFS that the host uses. So memfs.mjs counts and records its files like those of Python, and
// files.mjs and spool.mjs work with both.
import { kept } from "./scrub.mjs";

export const ERRNO = {
  ACCES: 2, BADF: 8, EXIST: 20, INVAL: 28, ISDIR: 31, LOOP: 32, MFILE: 33, NAMETOOLONG: 37, NOENT: 44, NOSPC: 51, NOTDIR: 54, NOTEMPTY: 55,
  PERM: 63, SPIPE: 70, NOTSUP: 138,
};

const TYPE = 0o170000;
const [DIR, FILE, LINK, DEVICE] = [0o040000, 0o100000, 0o120000, 0o020000];
const MAX_LINKS = 40; // symbolic links in one path
const PATH_MAX = 4096;
const MAX_OPEN = 1024;

class ErrnoError extends Error {
  name = "ErrnoError";
  constructor(errno) {
    super(`errno ${errno}`);
    this.errno = errno;
  }
}

// fail throws the error with a number.
export const fail = (errno) => {
  throw new ErrnoError(errno);
};

// Volume is a tree of nodes. Paths are absolute.
export class Volume {
  ErrnoError = ErrnoError;
  streams = [null, null, null]; // by descriptor; the first three are the standard streams
  #mount = {};
  #inode = 1;
  #ops;

  constructor() {
    this.#ops = this.#operations();
    this.filesystems = { MEMFS: { ops_table: this.#ops } };
    this.root = this.#node(null, "/", DIR | 0o755);
    this.root.parent = this.root;
  }

  #node(parent, name, mode) {
    const now = kept.now();
    const contents = this.isDir(mode) ? { __proto__: null } : this.isFile(mode) ? new Uint8Array() : undefined;
    const node = { __proto__: null, parent, name, mode, mount: this.#mount, ino: this.#inode++, contents, usedBytes: 0, link: undefined };
    node.atime = node.mtime = node.ctime = node.birth = now;
    if (parent) {
      parent.contents[name] = node;
      parent.mtime = parent.ctime = now;
    }
    return node;
  }

  // The operations are in a table, because memfs.mjs wraps them.
  #operations() {
    const gone = (parent, name) => {
      delete parent.contents[name];
      parent.mtime = parent.ctime = kept.now();
    };
    const setattr = (node, { mode, atime, mtime, ctime }) => {
      if (mode !== undefined) node.mode = mode;
      if (atime !== undefined) node.atime = atime;
      if (mtime !== undefined) node.mtime = mtime;
      node.ctime = ctime ?? kept.now();
    };
    return {
      dir: {
        node: {
          setattr,
          mknod: (parent, name, mode) => this.#node(parent, name, mode),
          symlink: (parent, name, target) => Object.assign(this.#node(parent, name, LINK | 0o777), { link: target }),
          rename: (node, to, name) => {
            gone(node.parent, node.name);
            node.parent = to;
            node.name = name;
            to.contents[name] = node;
            to.mtime = to.ctime = kept.now();
          },
          unlink: gone,
          rmdir: gone,
        },
      },
      file: { node: { setattr }, stream: {} },
      link: { node: { setattr } },
    };
  }

  isDir = (mode) => (mode & TYPE) === DIR;
  isFile = (mode) => (mode & TYPE) === FILE;
  isLink = (mode) => (mode & TYPE) === LINK;
  isDevice = (mode) => (mode & TYPE) === DEVICE;

  // find follows a path. If only the last element does not exist and missing is set, the result has
  // no node.
  find(path, { follow = false, missing = false } = {}) {
    if (path.length > PATH_MAX) fail(ERRNO.NAMETOOLONG);
    let node = this.root;
    let todo = path.split("/").reverse();
    let links = 0;
    while (todo.length) {
      const name = todo.pop();
      if (!this.isDir(node.mode)) fail(ERRNO.NOTDIR);
      if (name === "" || name === ".") continue;
      if (name === "..") {
        node = node.parent;
        continue;
      }
      this.#allow(node, "x");
      const last = todo.every((n) => n === "");
      const child = node.contents[name];
      if (!child) {
        if (!last || !missing) fail(ERRNO.NOENT);
        return { parent: node, name, node: undefined };
      }
      if (this.isLink(child.mode) && (follow || !last || todo.length)) {
        if (++links > MAX_LINKS) fail(ERRNO.LOOP);
        if (child.link.startsWith("/")) node = this.root;
        todo.push(...child.link.split("/").reverse());
        if (todo.length > PATH_MAX) fail(ERRNO.NAMETOOLONG);
        continue;
      }
      if (last) {
        if (todo.length && !this.isDir(child.mode)) fail(ERRNO.NOTDIR); // "file/"
        return { parent: node, name, node: child };
      }
      node = child;
    }
    return { parent: node.parent, name: node.name, node };
  }

  // path returns the path of a node.
  path(node) {
    const names = [];
    for (; node !== node.parent; node = node.parent) names.push(node.name);
    return "/" + names.reverse().join("/");
  }

  lookupPath(path, { follow = false, noent_okay = false } = {}) {
    return this.find(path, { follow, missing: noent_okay });
  }

  // nodePermissions returns the number of the error, or 0. There is only one user.
  nodePermissions(node, want) {
    const bits = { r: 0o444, w: 0o222, x: 0o111 };
    for (const c of want) if (!(node.mode & bits[c])) return ERRNO.ACCES;
    return 0;
  }

  #allow(node, want) {
    if (this.nodePermissions(node, want)) fail(ERRNO.ACCES);
  }

  #vacant(path) {
    const { parent, name, node } = this.find(path, { missing: true });
    if (node) fail(ERRNO.EXIST);
    this.#allow(parent, "wx");
    return [parent, name];
  }

  create(path, mode = 0o666) {
    return this.#ops.dir.node.mknod(...this.#vacant(path), FILE | (mode & 0o7777));
  }

  mkdir(path, mode = 0o777) {
    return this.#ops.dir.node.mknod(...this.#vacant(path), DIR | (mode & 0o7777));
  }

  // device creates an entry for a stream of the host.
  device(path, kind) {
    const [parent, name] = this.#vacant(path);
    Object.assign(this.#node(parent, name, DEVICE | 0o666), { kind });
  }

  symlink(target, path) {
    if (!target) fail(ERRNO.NOENT);
    if (target.length > PATH_MAX) fail(ERRNO.NAMETOOLONG);
    return this.#ops.dir.node.symlink(...this.#vacant(path), target);
  }

  unlink(path) {
    const { parent, name, node } = this.find(path);
    if (this.isDir(node.mode)) fail(ERRNO.ISDIR);
    this.#allow(parent, "wx");
    this.#ops.dir.node.unlink(parent, name);
  }

  rmdir(path) {
    const { parent, name, node } = this.find(path);
    if (!this.isDir(node.mode)) fail(ERRNO.NOTDIR);
    if (node === this.root) fail(ERRNO.PERM);
    if (Object.keys(node.contents).length) fail(ERRNO.NOTEMPTY);
    this.#allow(parent, "wx");
    this.#ops.dir.node.rmdir(parent, name);
  }

  rename(from, to) {
    const { parent, name, node } = this.find(from);
    const target = this.find(to, { missing: true });
    if (node === target.node) return;
    for (let dir = target.parent; ; dir = dir.parent) {
      if (dir === node) fail(ERRNO.INVAL); // moving a directory into itself
      if (dir === dir.parent) break;
    }
    if (target.node) {
      if (this.isDir(node.mode) && !this.isDir(target.node.mode)) fail(ERRNO.NOTDIR);
      if (!this.isDir(node.mode) && this.isDir(target.node.mode)) fail(ERRNO.ISDIR);
      if (this.isDir(target.node.mode) && Object.keys(target.node.contents).length) fail(ERRNO.NOTEMPTY);
    }
    this.#allow(parent, "wx");
    this.#allow(target.parent, "wx");
    if (target.node) this.#ops.dir.node.unlink(target.parent, target.name);
    this.#ops.dir.node.rename(node, target.parent, target.name);
    void name;
  }

  readdir(path) {
    const { node } = this.find(path, { follow: true });
    if (!this.isDir(node.mode)) fail(ERRNO.NOTDIR);
    this.#allow(node, "r");
    return Object.keys(node.contents);
  }

  // attr changes attributes of a node: mode, size, atime, mtime.
  attr(node, attr) {
    const table = this.isDir(node.mode) ? this.#ops.dir : this.isLink(node.mode) ? this.#ops.link : this.#ops.file;
    table.node.setattr(node, attr);
  }

  chmod(of, mode) {
    const node = typeof of === "string" ? this.find(of, { follow: true }).node : of;
    this.attr(node, { mode: (mode & 0o7777) | (node.mode & TYPE) });
  }

  truncate(of, size) {
    const node = typeof of === "string" ? this.find(of, { follow: true }).node : of;
    if (this.isDir(node.mode)) fail(ERRNO.ISDIR);
    if (!this.isFile(node.mode) || !(size >= 0)) fail(ERRNO.INVAL);
    this.attr(node, { size });
  }

  // open returns a stream, which has a descriptor. flags has read, write, append, create, exclusive
  // and truncate.
  open(path, flags, mode = 0o666) {
    const fd = this.streams.indexOf(undefined, 3);
    const free = fd < 0 ? this.streams.length : fd;
    if (free >= MAX_OPEN) fail(ERRNO.MFILE);
    let { node, parent, name } = this.find(path, { follow: !flags.exclusive, missing: flags.create });
    if (node && flags.exclusive) fail(ERRNO.EXIST);
    if (!node) {
      if (path.endsWith("/")) fail(ERRNO.ISDIR);
      this.#allow(parent, "wx");
      node = this.#ops.dir.node.mknod(parent, name, FILE | (mode & 0o7777));
    } else {
      if (this.isDir(node.mode) && flags.write) fail(ERRNO.ISDIR);
      this.#allow(node, (flags.read ? "r" : "") + (flags.write ? "w" : ""));
      if (flags.truncate && this.isFile(node.mode)) this.truncate(node, 0);
    }
    const stream = { __proto__: null, fd: free, node, flags, position: 0, path };
    this.streams[free] = stream;
    return stream;
  }

  // stream returns the stream of a descriptor.
  stream(fd) {
    return this.streams[fd] ?? fail(ERRNO.BADF);
  }

  close(fd) {
    this.stream(fd);
    this.streams[fd] = fd < 3 ? null : undefined;
  }

  // read copies into buffer and returns the number of bytes. Without a position it continues at the
  // position of the stream.
  read(stream, buffer, position) {
    const { node } = stream;
    if (!stream.flags.read) fail(ERRNO.BADF);
    if (this.isDir(node.mode)) fail(ERRNO.ISDIR);
    const at = position ?? stream.position;
    const n = Math.max(0, Math.min(buffer.length, node.usedBytes - at));
    buffer.set(node.contents.subarray(at, at + n));
    if (position === undefined) stream.position = at + n;
    return n;
  }

  // write writes the whole buffer.
  write(stream, buffer, position) {
    const { node } = stream;
    if (!stream.flags.write) fail(ERRNO.BADF);
    const at = stream.flags.append ? node.usedBytes : position ?? stream.position;
    const n = this.#ops.file.stream.write(stream, buffer, 0, buffer.length, at);
    if (position === undefined || stream.flags.append) stream.position = at + n;
    return n;
  }
}
