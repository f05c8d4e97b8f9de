// The frames between the Go program and this process, and between the two threads of this process.
//
//   to us      u32 length, u8 type, u32 id, payload
//   from us    u32 length, nonce, u8 type, u32 id, payload
//   by ring    u32 length, u8 type, u32 id, payload
//
// Numbers are little-endian; length counts the bytes that follow it. The nonce comes with the first
// frame and only the main thread knows it, so that no other writer to standard output can forge a
// frame. The constants are those of frame.go.

export const TO_HOST = { INIT: 1, RUN: 2, STDIN: 3, INTERRUPT: 4, CREDIT: 5, CALL: 6 };

export const FROM_HOST = {
  READY: 1, // JSON: how the interpreter started
  STARTED: 2, // u32 cell
  STDOUT: 3,
  STDERR: 4,
  OUTPUT: 5, // u8 flag, part of a bundle
  WANT: 6, // u32 number of bytes of standard input that can be accepted
  END: 7, // u8 flag, part of JSON: how the code ended
  FILE: 8, // an entry of the file system that has changed
  DATA: 9, // u32 file, f64 offset, contents
  SYNCED: 10, // the run is over
  REPLY: 11, // u32 length, JSON, data: the answer to CALL
  LATE: 12, // the wall time is over, and the code was interrupted
  STUCK: 13, // the code can only be stopped by killing the process
  FATAL: 14, // JSON: the interpreter can no longer be used
  GIVEN: 15, // the code is about to be passed to the worker
};

// WORKER lists the frames that the worker may send, and says which of them count against the bytes
// that Go has not confirmed.
export const WORKER = new Map([
  [FROM_HOST.READY, false],
  [FROM_HOST.STARTED, false],
  [FROM_HOST.STDOUT, true],
  [FROM_HOST.STDERR, true],
  [FROM_HOST.OUTPUT, true],
  [FROM_HOST.WANT, false],
  [FROM_HOST.END, false],
  [FROM_HOST.FILE, true],
  [FROM_HOST.DATA, true],
  [FROM_HOST.SYNCED, false],
  [FROM_HOST.REPLY, false],
  [FROM_HOST.FATAL, false],
]);

export const NONCE = 16;
export const HEAD = 5; // type and id
export const MAX_FRAME = 1 << 20; // bytes after the length, from this process
export const MAX_REQUEST = 65 << 20; // likewise, to this process
export const CHUNK = 32 << 10; // size of pieces of streams
export const WINDOW = 1 << 20; // bytes that may be sent to Go before it confirms them
export const COST = 64; // added to the size of the payload of each frame, so that empty frames cost something

// json encodes a value.
export function json(value) {
  return new TextEncoder().encode(JSON.stringify(value));
}

// number encodes payloads that begin with numbers.
export const number = {
  u32(n) {
    const b = new Uint8Array(4);
    new DataView(b.buffer).setUint32(0, n, true);
    return b;
  },
  flagged(flag, data) {
    const b = new Uint8Array(1 + data.length);
    b[0] = flag;
    b.set(data, 1);
    return b;
  },
  part(file, offset, data) {
    const b = new Uint8Array(12 + data.length);
    const v = new DataView(b.buffer);
    v.setUint32(0, file, true);
    v.setFloat64(4, offset, true);
    b.set(data, 12);
    return b;
  },
};

// envelope encodes JSON that is followed by data; open is its inverse.
export function envelope(value, data = new Uint8Array()) {
  const head = json(value);
  const b = new Uint8Array(4 + head.length + data.length);
  new DataView(b.buffer).setUint32(0, head.length, true);
  b.set(head, 4);
  b.set(data, 4 + head.length);
  return b;
}

export function open(payload) {
  const n = new DataView(payload.buffer, payload.byteOffset).getUint32(0, true);
  return [new TextDecoder().decode(payload.subarray(4, 4 + n)), payload.subarray(4 + n)];
}

// Reader reads frames from a byte stream that this process trusts, because its parent made it.
export class Reader {
  #read;
  #buf = new Uint8Array(64 << 10);
  #from = 0;
  #to = 0;

  constructor(read) {
    this.#read = read;
  }

  // frame returns the next frame, or null at the end of the stream.
  async frame() {
    if (!(await this.#fill(4))) return null;
    const length = new DataView(this.#buf.buffer).getUint32(this.#from, true);
    if (length < HEAD || length > MAX_REQUEST) throw new Error(`frame of ${length} bytes`);
    if (!(await this.#fill(4 + length))) return null;
    const at = this.#from + 4;
    this.#from = at + length;
    return {
      type: this.#buf[at],
      id: new DataView(this.#buf.buffer).getUint32(at + 1, true),
      payload: this.#buf.slice(at + HEAD, at + length),
    };
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

// Writer writes frames to standard output. Frames are collected while a write is in progress.
export class Writer {
  #write;
  #nonce;
  #parts = [];
  #size = 0;
  #busy = null;

  constructor(write, nonce) {
    this.#write = write;
    this.#nonce = nonce;
  }

  send(type, id, payload = new Uint8Array()) {
    const f = new Uint8Array(4 + NONCE + HEAD + payload.length);
    const v = new DataView(f.buffer);
    v.setUint32(0, f.length - 4, true);
    f.set(this.#nonce, 4);
    f[4 + NONCE] = type;
    v.setUint32(5 + NONCE, id, true);
    f.set(payload, 4 + NONCE + HEAD);
    this.#parts.push(f);
    this.#size += f.length;
    this.#busy ??= this.#flush();
  }

  // flushed resolves when all earlier frames have been written.
  flushed() {
    return this.#busy ?? Promise.resolve();
  }

  async #flush() {
    await null; // so that frames of one turn are written together
    while (this.#parts.length) {
      const all = new Uint8Array(this.#size);
      let at = 0;
      for (const p of this.#parts) {
        all.set(p, at);
        at += p.length;
      }
      this.#parts = [];
      this.#size = 0;
      for (at = 0; at < all.length; ) at += await this.#write(all.subarray(at));
    }
    this.#busy = null;
  }
}
