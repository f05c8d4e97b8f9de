// Sends changed files to the Go program after a run, and restores them in a new process.
import { CHUNK, FROM_HOST, number } from "./wire.mjs";

const KIND = { file: 1, dir: 2, link: 3, gone: 4 };
const TYPE = 0o170000;
const TYPES = { 0o100000: KIND.file, 0o040000: KIND.dir, 0o120000: KIND.link };

// sendChanges sends the changes since the last call. It cannot be interrupted: the run is over.
export function sendChanges(sender, disk, id) {
  disk.changes(
    (change) => sender.force(FROM_HOST.FILE, id, entry(change)),
    (file, offset, bytes) => {
      for (let at = 0; at < bytes.length; at += CHUNK) {
        sender.force(FROM_HOST.DATA, id, number.part(file, offset + at, bytes.subarray(at, at + CHUNK)));
      }
    },
  );
}

// entry encodes a change: u8 kind, u8 whole, u32 id, u32 mode, f64 time, f64 size, u16 length,
// path, target.
function entry({ path, gone, node, id, whole }) {
  const encoder = new TextEncoder();
  const name = encoder.encode(path);
  const target = encoder.encode(node?.link ?? "");
  const b = new Uint8Array(28 + name.length + target.length);
  const v = new DataView(b.buffer);
  v.setUint16(26, name.length, true);
  b.set(name, 28);
  b.set(target, 28 + name.length);
  b[0] = gone ? KIND.gone : TYPES[node.mode & TYPE];
  if (gone) return b;
  b[1] = whole ? 1 : 0;
  v.setUint32(2, id, true);
  v.setUint32(6, node.mode & 0o7777, true);
  v.setFloat64(10, Number(node.mtime), true);
  v.setFloat64(18, node.usedBytes ?? 0, true);
  return b;
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
      return [{}];
    },
    fill({ parts }, data) {
      let at = 0;
      for (const { id, offset, bytes } of parts) {
        files.get(id).contents.set(data.subarray(at, at + bytes), offset);
        at += bytes;
      }
      return [{}];
    },
    restored() {
      // Last, because creating entries changes the times of directories, and a mode may forbid
      // later operations.
      for (const [node, mtime, mode] of times) {
        node.mode = (node.mode & TYPE) | (mode & 0o7777);
        node.atime = node.mtime = mtime;
      }
      files.clear();
      times.length = 0;
      disk.settle();
      return [{}];
    },
  };
}
