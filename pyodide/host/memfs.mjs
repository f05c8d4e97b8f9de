// The file system of the interpreter: Emscripten's MEMFS with a quota and a record of changes.
//
// File contents are in JavaScript buffers, outside of the WebAssembly memory and its limit, so they
// need a separate limit. Changes since the last run are sent to the Go program, which restores them
// in the next process if this one must be killed.

import { kept } from "./scrub.mjs";

const EACCES = 2;
const ENOSPC = 51;
const EPERM = 63;
const ENAMETOOLONG = 37;
const NAME_MAX = 255; // bytes
const PATH_MAX = 4096;

const MOST = 2 ** 63 / 1e6 - 1e6; // ms, in about the year 2262

// nanoseconds returns a time of files, which is in ms, as an integer.
export function nanoseconds(time) {
  const ms = Math.min(Math.max(Number(time), -MOST), MOST) || 0;
  return BigInt(Math.trunc(ms)) * 1_000_000n + BigInt(Math.round((ms % 1) * 1e6));
}

// Disk patches the operations of MEMFS. Nodes have references to the operation tables, so the
// tables are patched in place.
export class Disk {
  #fs;
  #maxBytes;
  #maxNodes;
  #bytes = 0; // an upper bound of what is in use: deleted contents are subtracted only when the quota is reached
  #nodes = 0;
  #changed = false;
  #ticks = 0; // number of changes
  #known = new Map(); // path -> node, as known to the Go program
  #next = 1; // ID of the next node that is sent to the Go program

  constructor(FS, maxBytes, maxNodes) {
    this.#fs = FS;
    // Existing files belong to the system. The Go program is told about one only if it changes.
    this.#walk((_, node) => {
      node.xSystem = true;
      node.xBase = node.usedBytes ?? 0;
      if (FS.isDir(node.mode)) node.contents = names(node.contents);
    });
    this.#maxBytes = maxBytes;
    this.#maxNodes = maxNodes;
    this.#patch(FS, FS.filesystems.MEMFS);
  }

  #patch(FS, MEMFS) {
    const { dir, file, link } = MEMFS.ops_table;
    const disk = this;
    const fail = (errno) => {
      throw new FS.ErrnoError(errno);
    };
    const touch = (node) => {
      node.xDirty = true;
      node.xTick = ++disk.#ticks;
      disk.#changed = true;
    };
    // Every call of Emscripten walks the whole path from the root, so a path that is too long is
    // useless and slow.
    const check = (parent, name) => {
      if (name.length > NAME_MAX / 3 && new TextEncoder().encode(name).length > NAME_MAX) fail(ENAMETOOLONG);
      let length = name.length;
      for (let dir = parent; dir !== dir.parent; dir = dir.parent) {
        if ((length += dir.name.length + 1) > PATH_MAX) fail(ENAMETOOLONG);
      }
    };
    const created = (parent, node) => {
      if (FS.isDir(node.mode)) node.contents = names(node.contents);
      touch(parent);
      touch(node);
      return node;
    };

    // The directories of aliases cannot be changed.
    const loose = (...nodes) => nodes.some((n) => n?.xFixed) && fail(EACCES);

    const { mknod, symlink, rename, unlink, rmdir, setattr } = dir.node;
    dir.node.mknod = (parent, name, mode, dev) => {
      loose(parent);
      check(parent, name);
      disk.#chargeNode();
      return created(parent, mknod(parent, name, mode, dev));
    };
    dir.node.symlink = (parent, name, target) => {
      loose(parent);
      check(parent, name);
      disk.#chargeNode();
      disk.#charge(target.length);
      return created(parent, symlink(parent, name, target));
    };
    dir.node.rename = (node, to, name) => {
      loose(node, node.parent, to);
      check(to, name);
      const from = node.parent;
      rename(node, to, name);
      touch(from);
      touch(to);
      touch(node);
    };
    dir.node.unlink = (parent, name) => {
      loose(parent);
      unlink(parent, name);
      touch(parent);
    };
    dir.node.rmdir = (parent, name) => {
      loose(parent, parent.contents[name]);
      rmdir(parent, name);
      touch(parent);
    };
    dir.node.setattr = link.node.setattr = (node, attr) => {
      if (node.xFixed) fail(EPERM);
      setattr(node, attr);
      touch(node);
    };
    dir.node.statfs = () => disk.#statfs();

    file.node.setattr = (node, attr) => {
      const { size, ...rest } = attr;
      if (size !== undefined) {
        disk.#resize(node, size);
        touch(node);
      }
      setattr(node, rest);
      touch(node);
    };
    file.stream.write = (stream, buffer, offset, length, position) => {
      if (!length) return 0;
      const node = stream.node;
      disk.#grow(node, position + length);
      node.contents.set(buffer.subarray(offset, offset + length), position);
      span(node, position, position + length);
      node.mtime = node.ctime = kept.now();
      touch(node);
      return length;
    };
    file.stream.msync = (stream, buffer, offset, length) => {
      file.stream.write(stream, buffer, 0, Math.min(length, Math.max(0, stream.node.usedBytes - offset)), offset);
      return 0;
    };
  }

  // grow makes room for a file of at least size bytes.
  #grow(node, size) {
    const used = node.usedBytes;
    if (size <= used) return;
    this.#charge(size - used);
    const have = node.contents.length;
    if (size > have) {
      const spare = Math.max(0, this.#maxBytes - this.#bytes);
      this.#store(node, Math.max(size, Math.min(have + Math.max(256, have >> 1), size + spare)));
    } else if (used < size) {
      node.contents.fill(0, used, size); // clear the rest of a truncation
    }
    span(node, used, size);
    node.usedBytes = size;
  }

  #resize(node, size) {
    if (size > node.usedBytes) return this.#grow(node, size);
    node.usedBytes = size;
    if (size < node.contents.length / 2) this.#store(node, size);
    if (node.xTo > size) node.xTo = size;
  }

  #store(node, capacity) {
    let contents;
    try {
      contents = new Uint8Array(capacity);
    } catch {
      throw new this.#fs.ErrnoError(ENOSPC); // the engine is out of memory
    }
    contents.set(node.contents.subarray(0, Math.min(node.usedBytes, capacity)));
    node.contents = contents;
  }

  // charge counts n more bytes. The sum still contains bytes of deleted files; when it reaches the
  // quota, it is computed again.
  #charge(n) {
    if (this.#bytes + n > this.#maxBytes) this.#recount();
    if (this.#bytes + n > this.#maxBytes) throw new this.#fs.ErrnoError(ENOSPC);
    this.#bytes += n;
  }

  #chargeNode() {
    if (this.#nodes + 1 > this.#maxNodes) this.#recount();
    if (this.#nodes + 1 > this.#maxNodes) throw new this.#fs.ErrnoError(ENOSPC);
    this.#nodes++;
  }

  #recount() {
    const seen = new Set();
    let bytes = 0;
    let nodes = 0;
    const count = (node) => {
      if (seen.has(node)) return;
      seen.add(node);
      if (!node.xSystem) nodes++;
      if (this.#fs.isFile(node.mode)) bytes += Math.max(0, node.usedBytes - (node.xBase ?? 0));
      else if (this.#fs.isLink(node.mode)) bytes += node.link.length;
    };
    this.#walk((_, node) => count(node));
    // A deleted file lives on while it is open.
    for (const stream of this.#fs.streams) if (stream?.node && this.#fs.isFile(stream.node.mode)) count(stream.node);
    for (const staged of this.#staged) bytes += staged.size;
    this.#bytes = bytes;
    this.#nodes = nodes;
  }

  #statfs() {
    this.#recount();
    const block = 4096;
    const blocks = Math.ceil(this.#maxBytes / block);
    const free = Math.max(0, Math.floor((this.#maxBytes - this.#bytes) / block));
    const ffree = Math.max(0, this.#maxNodes - this.#nodes);
    return { bsize: block, frsize: block, blocks, bfree: free, bavail: free, files: this.#maxNodes, ffree };
  }

  // walk calls visit for every entry of the root file system, parents first. Mounted file systems
  // (/dev, /proc) and devices are left out.
  #walk(visit) {
    const fs = this.#fs;
    const todo = [["", fs.root]];
    while (todo.length) {
      const [path, dir] = todo.pop();
      for (const name of Object.keys(dir.contents)) {
        const node = dir.contents[name];
        const at = `${path}/${name}`;
        if (node.mounted || node.mount !== fs.root.mount || at === "/dev" || at === "/proc") continue;
        if (fs.isDir(node.mode)) todo.push([at, node]);
        else if (!fs.isFile(node.mode) && !fs.isLink(node.mode)) continue;
        visit(at, node);
      }
    }
  }

  // files returns the regular files below a directory, each with data that shows whether it has
  // changed.
  files(below) {
    const found = new Map();
    this.#walk((path, node) => {
      if (this.#fs.isFile(node.mode) && path.startsWith(below)) found.set(path.slice(below.length), { __proto__: null, node, tick: node.xTick ?? 0 });
    });
    return found;
  }

  // aliases makes each name a link to a directory. From then on the links and the directories that
  // contain them cannot be changed. Existing files stay, and the Go program creates the aliases
  // again in the next process.
  aliases(all, to) {
    const fs = this.#fs;
    const fixed = new Set();
    for (const name of all) {
      let [at, dir] = ["", fs.root];
      for (const element of name.split("/").slice(1)) {
        at += `/${element}`;
        if (!fs.isDir(dir.mode) || dir.mounted) throw new Error(`alias ${name}: something else than a directory is above it`);
        const there = dir.contents[element];
        if (at === name) {
          if (there) throw new Error(`alias ${name}: the sandbox has something of that name`);
          fs.symlink(to, at);
        } else if (!there) {
          fs.mkdir(at, 0o755);
        }
        dir = dir.contents[element];
        fixed.add(dir);
      }
    }
    for (const node of fixed) {
      node.xFixed = node.xSystem = true;
      node.xDirty = false;
    }
    fs.root.xDirty = false;
    this.#recount();
  }

  // Files that are being written from outside. They count, but have no name yet.
  #staged = new Set();

  stage() {
    const staged = { parts: [], size: 0 };
    this.#staged.add(staged);
    return staged;
  }

  append(staged, data) {
    this.#charge(data.length);
    staged.parts.push(data);
    staged.size += data.length;
  }

  // unstage subtracts the bytes of a staged file. They are charged again when the file gets a name.
  unstage(staged) {
    if (this.#staged.delete(staged)) this.#bytes -= staged.size;
  }

  // place gives a staged file its name, and replaces what has the name now.
  place(staged, path, mode) {
    const fs = this.#fs;
    let contents = staged.parts[0] ?? new Uint8Array();
    if (staged.parts.length > 1) {
      try {
        contents = new Uint8Array(staged.size);
      } catch {
        throw new fs.ErrnoError(ENOSPC);
      }
      let at = 0;
      for (const p of staged.parts) {
        contents.set(p, at);
        at += p.length;
      }
    }
    this.unstage(staged);
    const { node: old } = fs.lookupPath(path, { noent_okay: true });
    if (old) fs.unlink(path);
    const node = fs.create(path, mode);
    fs.chmod(node, mode);
    this.#charge(contents.length);
    node.contents = contents;
    node.usedBytes = contents.length;
    return node;
  }

  // changes calls send for everything that has changed since the last call of changes:
  // {path, gone: true}
  // {path, node, id, whole, from}, followed by data(bytes) for the changed part, which begins at
  // from, or for all if whole
  changes(send, data) {
    if (!this.#changed) return;
    const seen = new Set();
    const dirty = [];
    this.#walk((path, node) => {
      if (path.length > PATH_MAX) return; // no name can reach it
      if (node.xSystem && !node.xDirty && !this.#known.has(path)) return;
      seen.add(path);
      if (this.#known.get(path) === node && !node.xDirty) return;
      dirty.push([path, node]);
    });
    for (const path of this.#known.keys()) {
      if (seen.has(path)) continue;
      send({ path, gone: true });
      this.#known.delete(path);
    }
    for (const [path, node] of dirty) {
      const whole = node.xId === undefined;
      if (whole) node.xId = this.#next++;
      const file = this.#fs.isFile(node.mode);
      const to = !file ? 0 : whole ? node.usedBytes : Math.min(node.xTo ?? 0, node.usedBytes);
      const from = whole ? 0 : Math.min(node.xFrom ?? 0, to);
      send({ path, node, id: node.xId, whole, from });
      if (from < to) data(node.contents.subarray(from, to));
      node.xDirty = false;
      node.xFrom = node.xTo = undefined;
      this.#known.set(path, node);
    }
    this.#changed = false;
  }

  // changed lists the regular files below dir that the next call of changes will send: names
  // relative to dir, sizes, times in ns.
  changed(dir) {
    const found = [];
    this.#walk((path, node) => {
      if (path.startsWith(dir + "/") && this.#fs.isFile(node.mode) && (this.#known.get(path) !== node || node.xDirty)) {
        found.push([path.slice(dir.length + 1), node.usedBytes, nanoseconds(node.mtime)]);
      }
    });
    return found;
  }

  // restored records that path, which was just created, is the entry id of the Go program.
  restored(path, node, id) {
    node.xId = id;
    this.#next = Math.max(this.#next, id + 1);
    this.#known.set(path, node);
  }

  // system runs make, which creates system files below a directory. They are not counted, and
  // another process gets them in another way. Meanwhile room more bytes are allowed.
  async system(below, room, make) {
    const before = new Set();
    this.#walk((_, node) => before.add(node));
    this.#maxBytes += room;
    const nodes = this.#maxNodes;
    this.#maxNodes = Infinity;
    try {
      return await make();
    } finally {
      this.#maxBytes -= room;
      this.#maxNodes = nodes;
      this.#walk((path, node) => {
        if (!path.startsWith(below)) return;
        if (!before.has(node)) {
          node.xSystem = true;
          node.xBase = node.usedBytes ?? 0;
        }
        if (node.xSystem) {
          node.xDirty = false;
          node.xFrom = node.xTo = undefined;
        }
      });
      this.#recount();
    }
  }

  // settle ends a restoration: there are no changes yet.
  settle() {
    this.#walk((_, node) => {
      node.xDirty = false;
      node.xFrom = node.xTo = undefined;
    });
    this.#changed = false;
  }
}

// names returns the entries of a directory as an object in which "__proto__" is an ordinary name.
function names(contents) {
  return Object.assign(Object.create(null), contents);
}

// span extends the changed part of a file.
function span(node, from, to) {
  node.xFrom = Math.min(node.xFrom ?? from, from);
  node.xTo = Math.max(node.xTo ?? to, to);
}
