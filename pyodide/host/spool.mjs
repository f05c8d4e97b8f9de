// Sends changed files to the Go program after a run, and restores them in a new process.
import { nanoseconds } from "./memfs.mjs";
import { CHANNEL, CHUNK, END, pack, TYPE } from "./wire.mjs";

const KIND = { file: 1, dir: 2, link: 3, gone: 4 };
const TYPE_BITS = 0o170000;
const TYPES = { 0o100000: KIND.file, 0o040000: KIND.dir, 0o120000: KIND.link };

// sendChanges sends the changes since the last call. It cannot be interrupted: the run is over.
export function sendChanges(sender, disk, id) {
  disk.changes(
    (change) => sender.force(TYPE.DATA, id, pack(entry(change)), CHANNEL.ENTRIES),
    (bytes) => {
      for (let at = 0; at < bytes.length; at += CHUNK) {
        sender.force(TYPE.DATA, id, bytes.subarray(at, at + CHUNK), CHANNEL.CONTENTS);
      }
    },
  );
}

// entry describes a change.
function entry({ path, gone, node, id, whole, from }) {
  if (gone) return { path, kind: KIND.gone };
  return {
    path,
    kind: TYPES[node.mode & TYPE_BITS],
    whole,
    id,
    mode: node.mode & 0o7777,
    mtime: nanoseconds(node.mtime),
    size: node.usedBytes ?? 0,
    target: node.link ?? "",
    from,
  };
}

// sendEnd says that the code has ended, and which files it has changed: name, size and time in ns.
export function sendEnd(sender, id, changes) {
  const all = pack(...changes.map(([name, size, mtime]) => ({ name, size, mtime })));
  for (let at = 0; ; at += CHUNK) {
    const last = at + CHUNK >= all.length;
    sender.force(TYPE.DATA, id, all.subarray(at, at + CHUNK), CHANNEL.ENTRIES, last ? END : 0);
    if (last) return;
  }
}

// restoreCalls restores the files that the Go program has kept. The calls come before the first
// run, parents first.
export function restoreCalls(FS, disk) {
  const times = [];
  const files = new Map();
  return {
    put({ entries }) {
      for (const { path, kind, id, mode, mtime, size, target } of entries) {
        let { node } = FS.lookupPath(path, { noent_okay: true });
        if (kind === KIND.dir) {
          if (!node) FS.mkdir(path);
        } else {
          if (node) FS.unlink(path);
          if (kind === KIND.link) FS.symlink(target, path);
          else FS.create(path);
        }
        node = FS.lookupPath(path, {}).node;
        if (kind === KIND.file) {
          FS.truncate(path, size);
          files.set(id, node);
        }
        times.push([node, mtime, mode]);
        disk.restored(path, node, id);
      }
      return {};
    },
    fill({ parts, data }) {
      let at = 0;
      for (const { id, offset, bytes } of parts) {
        files.get(id).contents.set(data.subarray(at, at + bytes), offset);
        at += bytes;
      }
      return {};
    },
    restored() {
      // Last, because creating entries changes the times of directories, and a mode may forbid
      // later operations.
      for (const [node, mtime, mode] of times) {
        node.mode = (node.mode & TYPE_BITS) | (mode & 0o7777);
        const ns = BigInt(mtime);
        node.atime = node.mtime = Number(ns / 1_000_000n) + Number(ns % 1_000_000n) / 1e6;
      }
      files.clear();
      times.length = 0;
      disk.settle();
      return {};
    },
  };
}
