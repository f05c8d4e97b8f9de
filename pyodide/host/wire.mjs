// The frames of internal/wire between the Go program and this process, and between the two threads
// of this process: twelve bytes of header and a payload.
//
//   to us      frames
//   from us    each frame behind the nonce
//   by ring    frames
//
// The nonce comes with the first frame and only the main thread knows it, so that no other writer
// to standard output can forge a frame. What the frames mean here is in frame.go.

import { values } from "./values.mjs";

export const TYPE = { HELLO: 1, BYE: 4, OPEN: 5, DATA: 6, CREDIT: 7, STOP: 8, STARTED: 9, OUTPUT: 10, DONE: 11, FAIL: 12 };
export const CHANNEL = { CONTENTS: 0, STDOUT: 1, STDERR: 2, ENTRIES: 3 };
export const MORE = 1; // flags
export const END = 2;

// WORKER has the types of frames that the worker may send. The others say what only the main thread
// knows.
export const WORKER = new Set([TYPE.HELLO, TYPE.BYE, TYPE.STARTED, TYPE.DATA, TYPE.CREDIT, TYPE.OUTPUT, TYPE.DONE, TYPE.FAIL]);

// counted reports whether frames of a type count against the bytes that Go has not confirmed.
export const counted = (type) => type === TYPE.DATA || type === TYPE.OUTPUT;

export const NONCE = 16;
export const HEADER = 12;
export const MAX_PAYLOAD = 1 << 20;
export const MAX_REQUEST = 66 << 20; // bytes of a request, in several frames
export const CHUNK = 32 << 10; // size of pieces of streams
export const WINDOW = 1 << 20; // bytes that may be sent to Go before it confirms them
export const COST = 64; // added to the size of the payload of each frame, so that empty frames cost something

const EMPTY = new Uint8Array();

// header writes the header of a frame, and parsed reads it.
export function header(view, at, type, stream, length, channel, flags) {
  view.setUint8(at, type);
  view.setUint8(at + 1, flags);
  view.setUint16(at + 2, channel);
  view.setUint32(at + 4, stream);
  view.setUint32(at + 8, length);
}

export function parsed(view, at) {
  return {
    type: view.getUint8(at),
    flags: view.getUint8(at + 1),
    channel: view.getUint16(at + 2),
    stream: view.getUint32(at + 4),
    length: view.getUint32(at + 8),
    payload: EMPTY,
  };
}

// credit is the payload of a Credit frame.
export function credit(n) {
  const b = new Uint8Array(4);
  new DataView(b.buffer).setUint32(0, n);
  return b;
}

export const { pack, unpack } = values();

// Reader reads frames from a byte stream that this process trusts, because its parent made it. The
// frames of a message come one after the other.
export class Reader {
  #read;
  #buf = new Uint8Array(64 << 10);
  #from = 0;
  #to = 0;

  constructor(read) {
    this.#read = read;
  }

  // frame returns the next message as one frame, or null at the end of the stream.
  async frame() {
    const parts = [];
    for (let size = 0; ; ) {
      if (!(await this.#fill(HEADER))) return null;
      const f = parsed(new DataView(this.#buf.buffer), this.#from);
      if (f.length > MAX_PAYLOAD || (size += f.length) > MAX_REQUEST) throw new Error(`frame of ${f.length} bytes`);
      if (!(await this.#fill(HEADER + f.length))) return null;
      const end = this.#from + HEADER + f.length;
      parts.push(this.#buf.slice(this.#from + HEADER, end));
      this.#from = end;
      if (!(f.flags & MORE)) return { ...f, payload: joined(parts, size) };
    }
  }

  async #fill(n) {
    if (this.#from + n > this.#buf.length) {
      const old = this.#buf.subarray(this.#from, this.#to);
      if (n > this.#buf.length) this.#buf = new Uint8Array(Math.max(n, 2 * this.#buf.length));
      this.#buf.set(old);
      this.#to -= this.#from;
      this.#from = 0;
    }
    while (this.#to - this.#from < n) {
      const got = await this.#read(this.#buf.subarray(this.#to));
      if (!got) return false;
      this.#to += got;
    }
    return true;
  }
}

// joined joins arrays of bytes that have a size together.
export function joined(parts, size) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(size);
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

// Writer writes frames to standard output. Frames are collected while a write is in progress.
export class Writer {
  #write;
  #writeNow;
  #nonce;
  #parts = [];
  #size = 0;
  #busy = null;

  constructor(write, writeNow, nonce) {
    this.#write = write;
    this.#writeNow = writeNow;
    this.#nonce = nonce;
  }

  send(type, stream, payload = EMPTY, channel = 0, flags = 0) {
    const f = this.#frame(type, stream, payload, channel, flags);
    this.#parts.push(f);
    this.#size += f.length;
    this.#busy ??= this.#flush();
  }

  // sent resolves when a frame without a payload has been written. If nothing else is on its way,
  // that is at once: another thread takes longer to do it than it takes. It may block, so it is for
  // an answer to a Go program that reads.
  async sent(type, stream) {
    if (this.#busy) {
      this.send(type, stream);
      return this.flushed();
    }
    const f = this.#frame(type, stream, EMPTY, 0, 0);
    for (let at = 0; at < f.length; ) at += this.#writeNow(f.subarray(at));
  }

  #frame(type, stream, payload, channel, flags) {
    const f = new Uint8Array(NONCE + HEADER + payload.length);
    f.set(this.#nonce);
    header(new DataView(f.buffer), NONCE, type, stream, payload.length, channel, flags);
    f.set(payload, NONCE + HEADER);
    return f;
  }

  // flushed resolves when all earlier frames have been written.
  flushed() {
    return this.#busy ?? Promise.resolve();
  }

  async #flush() {
    await null; // so that frames of one turn are written together
    while (this.#parts.length) {
      const all = joined(this.#parts, this.#size);
      this.#parts = [];
      this.#size = 0;
      for (let at = 0; at < all.length; ) at += await this.#write(all.subarray(at));
    }
    this.#busy = null;
  }
}
