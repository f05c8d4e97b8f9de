// A ring of bytes in shared memory carries frames from the worker to the main thread without a
// message for each. It lets the worker wait, in the middle of a synchronous write, until there is
// room and Go has confirmed what it received.
//
// The main thread trusts nothing in the ring: it masks positions and checks lengths, because the
// worker runs untrusted code.
import { CHANNEL, CHUNK, COST, counted, END, header, HEADER, MAX_PAYLOAD, MORE, parsed, TYPE, WINDOW, WORKER } from "./wire.mjs";

const now = performance.now.bind(performance); // saved, because code may replace it
const { add, compareExchange, load, notify, store, wait } = Atomics; // likewise
const SIZE = 256 << 10; // a power of two
const MASK = SIZE - 1;

// The control words.
const WRITTEN = 0; // bytes ever written, modulo 2^32
const READ = 1; // bytes ever read, modulo 2^32
const CONFIRMED = 2; // counted bytes that Go has ever confirmed, modulo 2^32
const STATE = 3; // of the main thread
const INPUT = 4; // bytes of standard input for the worker; EMPTY, OVER
const BELL = 5; // the worker sleeps on it; it changes at an interrupt
const HEARD = 6; // 1 when the worker's event loop has received the last message about an interrupt
const ANSWERED = 7; // 1 when the worker's event loop has received the last question whether it is free
const WORDS = 8;

// STATE: the main thread needs a kick; has got one; or will look by itself in at most GATHER ms and
// until then needs a kick only for what is not text, and for MUCH text.
const ASLEEP = 0;
const KICKED = 1;
const GATHERING = 2;
export const GATHER = 2;
const MUCH = 64 << 10;

const SHORT = 128; // bytes that are copied faster by a loop than by a call of the engine

const EMPTY = 0;
const OVER = -1;
const INPUT_SIZE = 64 << 10;

// isText reports whether a frame is a piece of output.
export const isText = ({ type, channel }) => type === TYPE.DATA && (channel === CHANNEL.STDOUT || channel === CHANNEL.STDERR);

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
  #written = 0; // bytes ever written, modulo 2^32
  #counted = 0; // counted bytes ever sent, modulo 2^32

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
    store(this.#words, HEARD, 1);
  }

  // answer says that the event loop is free.
  answer() {
    store(this.#words, ANSWERED, 1);
    this.#kick();
  }

  // send writes one frame. While a counted frame waits for room, an interrupt ends the wait with
  // EINTR; then nothing has been written.
  send(type, stream, payload, channel = 0, flags = 0) {
    this.#send(type, stream, payload, 0, payload?.length ?? 0, channel, flags, counted(type));
  }

  // force is send for frames that must not be interrupted.
  force(type, stream, payload, channel = 0, flags = 0) {
    this.#send(type, stream, payload, 0, payload?.length ?? 0, channel, flags, false);
  }

  #send(type, stream, data, from, size, channel, flags, interruptible) {
    if (counted(type)) this.#credit(size + COST, interruptible);
    if (interruptible) this.#room(Math.min(HEADER + size, SIZE), true);
    header(this.#view, 0, type, stream, size, channel, flags);
    this.#put(this.#scratch, 0, HEADER);
    this.#put(data, from, size);
    store(this.#words, WRITTEN, this.#written);
    this.#wake(!isText({ type, channel }));
  }

  // text writes size bytes of data to a channel, in one or more frames, and returns how much it
  // wrote. That is less than all only after an interrupt. It makes no object, because it is called
  // for each line that code prints.
  text(channel, stream, data, from, size) {
    for (let done = 0; done < size; ) {
      const part = Math.min(size - done, CHUNK);
      try {
        this.#send(TYPE.DATA, stream, data, from + done, part, channel, 0, true);
      } catch (e) {
        if (e === EINTR && done > 0) return done;
        throw e;
      }
      done += part;
    }
    return size;
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
      const n = load(this.#words, INPUT);
      if (n === OVER) return new Uint8Array();
      if (n > EMPTY) {
        const data = this.#input.slice(0, Math.min(n, max));
        if (data.length < n) this.#input.copyWithin(0, data.length, n);
        store(this.#words, INPUT, n - data.length);
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
      wait(this.#words, BELL, load(this.#words, BELL), Math.min(left, 1000));
    }
  }

  #credit(n, interruptible) {
    for (;;) {
      const confirmed = load(this.#words, CONFIRMED);
      const flight = (this.#counted - confirmed) | 0;
      if (flight <= 0 || flight + n <= WINDOW) break;
      this.#pause(CONFIRMED, confirmed, interruptible);
    }
    this.#counted = (this.#counted + n) | 0;
  }

  #room(n, interruptible) {
    for (;;) {
      const read = load(this.#words, READ);
      if (SIZE - ((this.#written - read) >>> 0) >= n) return;
      this.#pause(READ, read, interruptible);
    }
  }

  // pause waits until a word changes. An interrupt wakes waits on every word. One that comes just
  // before the wait is noticed a little later.
  #pause(word, value, interruptible) {
    if (interruptible && this.interrupted) throw EINTR;
    wait(this.#words, word, value, 20);
  }

  // put writes a part of data, in pieces if necessary. It cannot be interrupted, because half a
  // frame would corrupt all later ones.
  #put(data, from, size) {
    for (const end = from + size; from < end; ) {
      const n = Math.min(end - from, SIZE - ((this.#written - load(this.#words, READ)) >>> 0));
      if (n === 0) {
        store(this.#words, WRITTEN, this.#written);
        this.#wake(true);
        this.#room(1, false);
        continue;
      }
      const at = this.#written & MASK;
      if (n <= SHORT) {
        for (let i = 0; i < n; i++) this.#ring[(at + i) & MASK] = data[from + i];
      } else {
        const first = Math.min(n, SIZE - at);
        this.#ring.set(data.subarray(from, from + first), at);
        this.#ring.set(data.subarray(from + first, from + n), 0);
      }
      this.#written = (this.#written + n) | 0;
      from += n;
    }
  }

  #wake(urgent) {
    const state = load(this.#words, STATE);
    if (state === KICKED) return;
    if (state === GATHERING && !urgent && (this.#written - load(this.#words, READ)) >>> 0 < MUCH) return;
    if (compareExchange(this.#words, STATE, state, KICKED) === state) this.#kick();
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
  #view = new DataView(this.#data.buffer);
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
      store(this.#words, STATE, GATHERING);
      const frames = this.#broken ? [] : this.#frames();
      if (frames.length) return frames;
      if (this.#broken) throw new Error(this.#broken);
      store(this.#words, STATE, ASLEEP);
      if (load(this.#words, WRITTEN) === this.#read) return frames;
    }
  }

  // gathering reports whether the worker has not kicked since the last call of take.
  get gathering() {
    return load(this.#words, STATE) === GATHERING;
  }

  // frames reads the available data. A rest is the beginning of a frame. If there was a frame
  // before it, the rest has just arrived, so no byte is moved twice.
  #frames() {
    const there = (load(this.#words, WRITTEN) - this.#read) >>> 0;
    const n = Math.min(there, SIZE);
    if (n < there) this.#broken = "the ring is broken";
    const data = this.#data;
    const at = this.#read & MASK;
    const first = Math.min(n, SIZE - at);
    data.set(this.#ring.subarray(at, at + first), this.#length);
    data.set(this.#ring.subarray(0, n - first), this.#length + first);
    this.#length += n;
    this.#read = (this.#read + n) | 0;
    store(this.#words, READ, this.#read);
    notify(this.#words, READ);

    // Text that goes on is moved to what comes before it. The difference in their cost is confirmed
    // here, because Go does not know about it.
    const frames = [];
    let f = null;
    let from = 0;
    let spared = 0;
    for (let to; (to = this.#end(from)); from = to) {
      const begin = from + HEADER;
      if (f && this.#goesOn(f, from) && f.to - f.from + to - begin <= CHUNK) {
        data.copyWithin(f.to, begin, to);
        f.to += to - begin;
        spared += COST;
      } else frames.push((f = { ...parsed(this.#view, from), from: begin, to }));
    }
    if (spared) this.confirm(spared);
    for (f of frames) f.payload = data.slice(f.from, f.to);
    data.copyWithin(0, from, this.#length);
    this.#length -= from;
    return frames;
  }

  // end returns the end of the frame at from, or 0 if it is incomplete or cannot be read.
  #end(from) {
    if (this.#length - from < HEADER) return 0;
    const type = this.#view.getUint8(from);
    const length = this.#view.getUint32(from + 8);
    if (!WORKER.has(type) || length > MAX_PAYLOAD) {
      this.#broken = `frame of type ${type} with ${length} bytes`;
      return 0;
    }
    const to = from + HEADER + length;
    return to <= this.#length ? to : 0;
  }

  // goesOn reports whether the frame at from continues the text f: only their lengths differ.
  #goesOn(f, from) {
    const view = this.#view;
    return isText(f) && view.getUint32(from) === view.getUint32(f.from - HEADER) && view.getUint32(from + 4) === f.stream;
  }

  // confirm confirms bytes.
  confirm(n) {
    add(this.#words, CONFIRMED, n);
    notify(this.#words, CONFIRMED);
  }

  // feed gives standard input to the worker, which must have asked for it. null ends the input.
  feed(data) {
    if (data) this.#input.set(data.subarray(0, INPUT_SIZE));
    store(this.#words, INPUT, data ? data.length : OVER);
    notify(this.#words, INPUT);
  }

  // begin resets the input and the interrupt of an earlier run.
  begin(hasInput) {
    store(this.#words, INPUT, hasInput ? EMPTY : OVER);
    store(this.#interrupt, 0, 0);
  }

  // tell is called with each message about an interrupt. heard reports whether it has arrived.
  tell() {
    store(this.#words, HEARD, 0);
  }

  // ask is called with each question whether the event loop is free. answered reports whether it
  // has been answered.
  ask() {
    store(this.#words, ANSWERED, 0);
  }

  get answered() {
    return load(this.#words, ANSWERED) === 1;
  }

  get heard() {
    return load(this.#words, HEARD) === 1;
  }

  interrupt() {
    store(this.#interrupt, 0, 2);
    add(this.#words, BELL, 1);
    for (const w of [BELL, INPUT, CONFIRMED, READ]) notify(this.#words, w);
  }
}
