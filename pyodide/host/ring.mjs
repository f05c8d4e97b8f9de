// A ring of bytes in shared memory carries frames from the worker to the main thread without a
// message for each. It lets the worker wait, in the middle of a synchronous write, until there is
// room and Go has confirmed what it received.
//
// The main thread trusts nothing in the ring: it masks positions and checks lengths, because the
// worker runs untrusted code.
import { CHUNK, COST, counted, END, header, HEADER, MAX_PAYLOAD, MORE, parsed, TYPE, WINDOW, WORKER } from "./wire.mjs";

const now = performance.now.bind(performance); // saved, because code may replace it
const SIZE = 256 << 10; // a power of two
const MASK = SIZE - 1;

// The control words.
const WRITTEN = 0; // bytes ever written, modulo 2^32
const READ = 1; // bytes ever read, modulo 2^32
const FLIGHT = 2; // counted bytes that Go has not confirmed
const AWAKE = 3; // 1 while the main thread checks the ring without a kick
const INPUT = 4; // bytes of standard input for the worker; EMPTY, OVER
const BELL = 5; // the worker sleeps on it; it changes at an interrupt
const HEARD = 6; // 1 when the worker's event loop has received the last message about an interrupt
const ANSWERED = 7; // 1 when the worker's event loop has received the last question whether it is free
const WORDS = 8;

const EMPTY = 0;
const OVER = -1;
const INPUT_SIZE = 64 << 10;

// EINTR is thrown from a write, read or sleep that was interrupted.
export const EINTR = Symbol("EINTR");

export function allocate() {
  return {
    words: new SharedArrayBuffer(4 * WORDS),
    ring: new SharedArrayBuffer(SIZE),
    input: new SharedArrayBuffer(INPUT_SIZE),
    interrupt: new SharedArrayBuffer(1),
  };
}

// Sender is the worker's end.
export class Sender {
  #words;
  #ring;
  #input;
  #interrupt;
  #kick;
  #scratch = new Uint8Array(HEADER);
  #view = new DataView(this.#scratch.buffer);
  #wait = Atomics.wait; // saved early, because code may replace it
  #load = Atomics.load;

  // kick makes the main thread check the ring and the control words.
  constructor(shared, kick) {
    this.#words = new Int32Array(shared.words);
    this.#ring = new Uint8Array(shared.ring);
    this.#input = new Uint8Array(shared.input);
    this.#interrupt = new Uint8Array(shared.interrupt);
    this.#kick = kick;
  }

  get interruptBuffer() {
    return this.#interrupt;
  }

  get interrupted() {
    return this.#interrupt[0] === 2;
  }

  clearInterrupt() {
    this.#interrupt[0] = 0;
  }

  // acknowledge says that the event loop has received the message about an interrupt.
  acknowledge() {
    Atomics.store(this.#words, HEARD, 1);
  }

  // answer says that the event loop is free.
  answer() {
    Atomics.store(this.#words, ANSWERED, 1);
    this.#kick();
  }

  // send writes one frame. While a counted frame waits for room, an interrupt ends the wait with
  // EINTR; then nothing has been written.
  send(type, stream, payload, channel = 0, flags = 0) {
    this.#send(type, stream, payload, channel, flags, counted(type));
  }

  // force is send for frames that must not be interrupted.
  force(type, stream, payload, channel = 0, flags = 0) {
    this.#send(type, stream, payload, channel, flags, false);
  }

  #send(type, stream, payload, channel, flags, interruptible) {
    const size = payload ? payload.length : 0;
    if (counted(type)) this.#credit(size + COST, interruptible);
    if (interruptible) this.#room(Math.min(HEADER + size, SIZE), true);
    header(this.#view, 0, type, stream, size, channel, flags);
    this.#put(this.#scratch);
    if (size) this.#put(payload);
    this.#wake();
  }

  // stream writes data to a channel, in one or more frames, and returns how much it wrote. That is
  // less than all only after an interrupt.
  stream(channel, stream, data) {
    for (let at = 0; at < data.length; ) {
      const part = data.subarray(at, at + CHUNK);
      try {
        this.#send(TYPE.DATA, stream, part, channel, 0, true);
      } catch (e) {
        if (e === EINTR && at > 0) return at;
        throw e;
      }
      at += part.length;
    }
    return data.length;
  }

  // long sends a message in parts. If it is interrupted, it sends a frame that discards the message
  // before it passes the interrupt on.
  long(type, stream, data) {
    let at = 0;
    try {
      do {
        const part = data.subarray(at, at + CHUNK);
        at += part.length;
        this.send(type, stream, part, 0, at < data.length ? MORE : 0);
      } while (at < data.length);
    } catch (e) {
      if (e === EINTR) this.force(type, stream, undefined, 0, END);
      throw e;
    }
  }

  // input returns bytes of standard input, or none at its end. want requests more.
  input(max, want) {
    for (let asked = false; ; ) {
      const n = this.#load(this.#words, INPUT);
      if (n === OVER) return new Uint8Array();
      if (n > EMPTY) {
        const data = this.#input.slice(0, Math.min(n, max));
        if (data.length < n) this.#input.copyWithin(0, data.length, n);
        Atomics.store(this.#words, INPUT, n - data.length);
        return data;
      }
      if (!asked) want(INPUT_SIZE);
      asked = true;
      this.#pause(INPUT, EMPTY, true);
    }
  }

  // sleep waits for a number of milliseconds.
  sleep(ms) {
    for (const end = now() + ms; ; ) {
      const left = end - now();
      if (this.interrupted) throw EINTR;
      if (!(left > 0)) return;
      this.#wait(this.#words, BELL, this.#load(this.#words, BELL), Math.min(left, 1000));
    }
  }

  #credit(n, interruptible) {
    for (;;) {
      const flight = this.#load(this.#words, FLIGHT);
      if (flight <= 0 || flight + n <= WINDOW) break;
      this.#pause(FLIGHT, flight, interruptible);
    }
    Atomics.add(this.#words, FLIGHT, n);
  }

  #room(n, interruptible) {
    for (;;) {
      const read = this.#load(this.#words, READ);
      if (SIZE - ((this.#words[WRITTEN] - read) >>> 0) >= n) return;
      this.#pause(READ, read, interruptible);
    }
  }

  // pause waits until a word changes. An interrupt wakes waits on every word. One that comes just
  // before the wait is noticed a little later.
  #pause(word, value, interruptible) {
    if (interruptible && this.interrupted) throw EINTR;
    this.#wait(this.#words, word, value, 20);
  }

  // put writes data, in pieces if necessary. It cannot be interrupted, because half a frame would
  // corrupt all later ones.
  #put(data) {
    for (let done = 0; done < data.length; ) {
      const written = this.#words[WRITTEN];
      const free = SIZE - ((written - this.#load(this.#words, READ)) >>> 0);
      if (free === 0) {
        this.#wake();
        this.#room(1, false);
        continue;
      }
      const part = data.subarray(done, done + free);
      const at = written & MASK;
      const first = Math.min(part.length, SIZE - at);
      this.#ring.set(part.subarray(0, first), at);
      this.#ring.set(part.subarray(first), 0);
      Atomics.store(this.#words, WRITTEN, (written + part.length) | 0);
      done += part.length;
    }
  }

  #wake() {
    if (Atomics.compareExchange(this.#words, AWAKE, 0, 1) === 0) this.#kick();
  }
}

// Receiver is the main thread's end.
export class Receiver {
  #words;
  #ring;
  #input;
  #interrupt;
  #read = 0; // bytes ever read, modulo 2^32. The worker gets this value, but its copy is not trusted
  #data = new Uint8Array(HEADER + MAX_PAYLOAD + SIZE);
  #length = 0; // bytes of the incomplete frame that was read so far
  #broken = null; // the error of data that cannot be read

  constructor(shared) {
    this.#words = new Int32Array(shared.words);
    this.#ring = new Uint8Array(shared.ring);
    this.#input = new Uint8Array(shared.input);
    this.#interrupt = new Uint8Array(shared.interrupt);
  }

  // take returns the complete frames. None means that the worker will kick. An error in the data is
  // thrown only after all frames before it have been taken, because they say how far the code has
  // got.
  take() {
    for (;;) {
      const frames = this.#broken ? [] : this.#frames();
      if (frames.length) return frames;
      if (this.#broken) throw new Error(this.#broken);
      Atomics.store(this.#words, AWAKE, 0);
      if (Atomics.load(this.#words, WRITTEN) === this.#read) return frames;
      Atomics.store(this.#words, AWAKE, 1);
    }
  }

  // frames reads the available data. A rest is the beginning of a frame. If there was a frame
  // before it, the rest has just arrived, so no byte is moved twice.
  #frames() {
    const there = (Atomics.load(this.#words, WRITTEN) - this.#read) >>> 0;
    const n = Math.min(there, SIZE);
    if (n < there) this.#broken = "the ring is broken";
    const data = this.#data;
    const at = this.#read & MASK;
    const first = Math.min(n, SIZE - at);
    data.set(this.#ring.subarray(at, at + first), this.#length);
    data.set(this.#ring.subarray(0, n - first), this.#length + first);
    this.#length += n;
    this.#read = (this.#read + n) | 0;
    Atomics.store(this.#words, READ, this.#read);
    Atomics.notify(this.#words, READ);

    const frames = [];
    const view = new DataView(data.buffer);
    let from = 0;
    while (this.#length - from >= HEADER) {
      const f = parsed(view, from);
      if (!WORKER.has(f.type) || f.length > MAX_PAYLOAD) {
        this.#broken = `frame of type ${f.type} with ${f.length} bytes`;
        break;
      }
      const end = from + HEADER + f.length;
      if (end > this.#length) break;
      f.payload = data.slice(from + HEADER, end);
      frames.push(f);
      from = end;
    }
    data.copyWithin(0, from, this.#length);
    this.#length -= from;
    return frames;
  }

  // confirm confirms bytes.
  confirm(n) {
    Atomics.sub(this.#words, FLIGHT, n);
    Atomics.notify(this.#words, FLIGHT);
  }

  // feed gives standard input to the worker, which must have asked for it. null ends the input.
  feed(data) {
    if (data) this.#input.set(data.subarray(0, INPUT_SIZE));
    Atomics.store(this.#words, INPUT, data ? data.length : OVER);
    Atomics.notify(this.#words, INPUT);
  }

  // begin resets the input and the interrupt of an earlier run.
  begin(hasInput) {
    Atomics.store(this.#words, INPUT, hasInput ? EMPTY : OVER);
    Atomics.store(this.#interrupt, 0, 0);
  }

  // tell is called with each message about an interrupt. heard reports whether it has arrived.
  tell() {
    Atomics.store(this.#words, HEARD, 0);
  }

  // ask is called with each question whether the event loop is free. answered reports whether it
  // has been answered.
  ask() {
    Atomics.store(this.#words, ANSWERED, 0);
  }

  get answered() {
    return Atomics.load(this.#words, ANSWERED) === 1;
  }

  get heard() {
    return Atomics.load(this.#words, HEARD) === 1;
  }

  interrupt() {
    Atomics.store(this.#interrupt, 0, 2);
    Atomics.add(this.#words, BELL, 1);
    for (const w of [BELL, INPUT, FLIGHT, READ]) Atomics.notify(this.#words, w);
  }
}
