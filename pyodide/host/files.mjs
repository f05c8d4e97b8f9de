// The file operations for the Go program, with the permissions of the code. Every function answers
// one call: it gets the request and returns the answer.

import { nanoseconds } from "./memfs.mjs";

const EISDIR = 31;
const EINVAL = 28;
const ENOENT = 44;
const ENOTDIR = 54;
const EEXIST = 20;
const PAGE = 2000; // directory entries in one answer
const MAX_OPEN = 64;
const MAX_READ = 256 << 10;

export function fileCalls(FS, disk) {
  const open = new Map(); // tokens of reads, writes and listings in progress
  let token = 0;

  const fail = (errno) => {
    throw new FS.ErrnoError(errno);
  };
  const hold = (value) => {
    // A Go program that abandons an operation does not close it, so the oldest one is dropped.
    if (open.size >= MAX_OPEN) {
      const [[oldest, v]] = open;
      if (v.staged) disk.unstage(v.staged);
      open.delete(oldest);
    }
    open.set(++token, value);
    return token;
  };
  const held = (t) => open.get(t) ?? fail(ENOENT);
  const info = (name, node) => ({
    name,
    size: FS.isFile(node.mode) ? node.usedBytes : 0,
    mode: node.mode,
    mtime: nanoseconds(node.mtime),
    ...(FS.isLink(node.mode) ? { target: node.link } : {}),
  });
  const mkdirs = (path) => {
    let at = "";
    for (const p of path.split("/").filter(Boolean)) {
      at += `/${p}`;
      const { node } = FS.lookupPath(at, { follow: true, noent_okay: true });
      if (!node) FS.mkdir(at, 0o755);
      else if (!FS.isDir(node.mode)) fail(EEXIST);
    }
  };
  const parent = (path) => path.slice(0, path.lastIndexOf("/"));
  const lookup = (path, follow) => FS.lookupPath(path, { follow }).node;
  const peek = (path) => {
    try {
      return lookup(path, false);
    } catch (e) {
      if (e?.errno !== ENOENT) throw e;
    }
  };
  const remove = (path) => {
    const node = lookup(path, false);
    if (!FS.isDir(node.mode)) return FS.unlink(path);
    for (const name of Object.keys(node.contents)) remove(`${path}/${name}`);
    FS.rmdir(path);
  };

  return {
    sync() {
      return {};
    },

    aliases({ names, to }) {
      disk.aliases(names, to);
      return {};
    },

    stat({ path }) {
      return info(path.slice(path.lastIndexOf("/") + 1), lookup(path, false));
    },

    list({ path }) {
      const node = lookup(path, true);
      const errno = FS.isDir(node.mode) ? FS.nodePermissions(node, "r") : ENOTDIR;
      if (errno) fail(errno);
      const names = FS.readdir(path).filter((n) => n !== "." && n !== "..");
      names.sort(byBytes);
      return page({ node, names, from: 0 });
    },
    next({ token }) {
      const listing = held(token);
      open.delete(token);
      return page(listing);
    },

    mkdir({ path }) {
      if (peek(path)) fail(EEXIST);
      mkdirs(path);
      return {};
    },

    rename({ from, to }) {
      FS.rename(from, to);
      return {};
    },

    remove({ path }) {
      try {
        remove(path);
      } catch (e) {
        if (e?.errno !== ENOENT) throw e;
      }
      return {};
    },

    open({ path }) {
      const node = lookup(path, true);
      if (FS.isDir(node.mode)) fail(EISDIR);
      if (!FS.isFile(node.mode)) fail(EINVAL);
      const errno = FS.nodePermissions(node, "r");
      if (errno) fail(errno);
      return { token: hold({ node }) };
    },
    read({ token, offset, max }) {
      const { node } = held(token);
      return { data: node.contents.subarray(offset, Math.min(offset + Math.min(max, MAX_READ), node.usedBytes)) };
    },

    create({ path, mode }) {
      const node = peek(path);
      if (node && FS.isDir(node.mode)) fail(EISDIR);
      return { token: hold({ staged: disk.stage(), path, mode }) };
    },
    write({ token, data }) {
      disk.append(held(token).staged, data);
      return {};
    },
    commit({ token }) {
      const { staged, path, mode } = held(token);
      mkdirs(parent(path));
      disk.place(staged, path, mode);
      open.delete(token);
      return {};
    },

    close({ token }) {
      const v = open.get(token);
      if (v?.staged) disk.unstage(v.staged);
      open.delete(token);
      return {};
    },
  };

  function page(listing) {
    const entries = [];
    for (; entries.length < PAGE && listing.from < listing.names.length; listing.from++) {
      const name = listing.names[listing.from];
      const node = listing.node.contents?.[name];
      if (node) entries.push(info(name, node.mounted ? node.mounted.root : node)); // unless it is gone
    }
    const more = listing.from < listing.names.length;
    return { entries, token: more ? hold(listing) : 0 };
  }
}

// byBytes compares names by their bytes in UTF-8, which differs from JavaScript's order of UTF-16
// units.
function byBytes(a, b) {
  const n = Math.min(a.length, b.length);
  for (let i = 0; i < n; i++) {
    let x = a.charCodeAt(i);
    let y = b.charCodeAt(i);
    if (x === y) continue;
    // Surrogates represent characters above all others.
    if (x >= 0xd800) x += x < 0xe000 ? 0x2000 : -0x800;
    if (y >= 0xd800) y += y < 0xe000 ? 0x2000 : -0x800;
    return x - y;
  }
  return a.length - b.length;
}
